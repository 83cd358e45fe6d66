//! Params, results and notifications of `tcp/*`: byte streams to TCP ports that the server can reach. This file has the
//! types of the messages. `tcp/data.rs` has faster code for the messages with bytes, and `tcp/credit.rs` counts how
//! many bytes a side may send.

mod credit;
mod data;

use serde::{Deserialize, Serialize};

pub use credit::{ReceivedBytes, SendCredit, StreamViolation};
pub use data::{PushedTcpData, StreamIdJson, TcpData, recognise_tcp_data};

use crate::SandboxContext;

/// The most bytes that one `tcp/data` may carry, before base64. A longer chunk is handled like bytes without credit.
pub const MAX_TCP_CHUNK_BYTES: usize = 1 << 20;

/// The credit in bytes that the server gets if `tcp/connect` names none. `tcp/flow` gives it more.
const DEFAULT_CREDIT: u64 = 256 << 10;

/// Params of `tcp/connect`, which servers with the capability `portForward` know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TcpConnectParams {
    /// Chosen by the client, unique among the streams of the connection.
    pub stream_id: String,
    /// Host name or IP address. The machine of the server resolves the name.
    pub host: String,
    /// TCP port, at least 1.
    pub port: u16,
    /// How many bytes the server may send before `tcp/flow` allows more. Absent: 256 KiB.
    #[serde(default = "default_credit")]
    pub credit: u64,
    /// The sandbox on whose behalf the stream is opened. If it does not allow the network, the request is refused.
    /// Absent or null: no sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxContext>,
}

/// Result of `tcp/connect`: the stream is connected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TcpConnectResult {
    /// How many bytes the client may send before `tcp/flow` allows more.
    pub credit: u64,
}

/// Params of the notification `tcp/flow`: the side that sends it has consumed bytes, so the other side may send more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TcpFlowNotification {
    /// The stream. One that has ended is no error.
    pub stream_id: String,
    /// How many bytes the other side may send in addition.
    pub credit: u64,
}

/// Params of the notification `tcp/close`: the stream ends in both directions at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TcpCloseNotification {
    /// The stream. One that has ended is no error.
    pub stream_id: String,
    /// A stable word for the cause, as in the `data` of errors. Absent if the side that sends this message no longer
    /// needs the stream, or answers a `tcp/close`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The cause, for people. Absent if there is no `kind`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

fn default_credit() -> u64 {
    DEFAULT_CREDIT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connect_without_credit_and_sandbox_decodes() {
        let params: TcpConnectParams =
            serde_json::from_str(r#"{"streamId":"t","host":"localhost","port":80}"#).unwrap();
        assert_eq!((params.credit, params.sandbox), (DEFAULT_CREDIT, None));
    }

    #[test]
    fn a_plain_close_has_only_its_stream() {
        let close = TcpCloseNotification { stream_id: "t".to_owned(), kind: None, message: None };
        assert_eq!(serde_json::to_string(&close).unwrap(), r#"{"streamId":"t"}"#);
    }
}
