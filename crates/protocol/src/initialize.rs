//! The handshake and the lifetime of a session: `initialize`, `session/keep` and `session/takenOver`. A session
//! can outlive its connection, and at most one connection is *attached* to it: that connection receives the events of
//! the session. The rules for resuming a session are in the server and in the crate `session`.

use serde::{Deserialize, Serialize};

use crate::SessionId;

/// Params of `initialize`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InitializeParams {
    /// Name of the client, used in the server's log only.
    pub client_name: String,
    /// The session to resume. Absent or null: the server opens a new one.
    #[serde(default)]
    pub resume_session_id: Option<SessionId>,
    /// Extension `sessionKeep`: milliseconds for which the server keeps the session after its connection is lost. 0: the session ends with
    /// the connection. A value above `--max-session-ttl` counts as that limit. Absent: a new session is kept for `--session-ttl`, and a
    /// resumed session keeps its earlier value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_for_ms: Option<u64>,
    /// Extension `sessionKeep`: true takes the session at once, even from an attached connection that is alive.
    /// False, or absent: an attached connection that is alive keeps the session, and this `initialize` fails.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub takeover: bool,
    /// Extension `sessionObserve`: true joins the session without being attached to it. Events still go only to the
    /// attached connection, and this connection may call only some methods. Needs `resumeSessionId`, and cannot be
    /// combined with `takeover`. Absent: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub observe: bool,
}

/// Params of `session/keep`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionKeepParams {
    /// Milliseconds for which the server keeps the session after its connection is lost. 0: the session ends with the
    /// connection. A value above `--max-session-ttl` counts as that limit.
    pub keep_for_ms: u64,
}

/// Result of `initialize`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InitializeResult {
    /// The id that the client sends as `resumeSessionId` after a lost connection. Absent if an older server answers: its
    /// sessions cannot be resumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
}

/// Params of `session/takenOver`. The server sends this notification to the connection that loses its session to
/// another connection, if the losing connection has one JSON message a line, as a Unix socket can. A WebSocket that
/// loses its session is closed with code 4010 instead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenOverNotification {
    /// Text for people: the same reason with which a WebSocket would be closed.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_session_id_of_a_result_may_be_absent_as_from_an_old_server() {
        let old: InitializeResult = serde_json::from_str("{}").unwrap();
        assert_eq!(old.session_id, None);
    }

    #[test]
    fn a_result_with_a_session_id_is_encoded_in_camel_case() {
        let named = InitializeResult { session_id: Some("s".into()) };
        assert_eq!(serde_json::to_string(&named).unwrap(), r#"{"sessionId":"s"}"#);
    }

    #[test]
    fn members_of_extensions_may_be_absent_and_are_not_encoded_if_they_have_their_defaults() {
        let params: InitializeParams = serde_json::from_str(r#"{"clientName":"c"}"#).unwrap();
        assert_eq!((params.keep_for_ms, params.takeover, params.observe), (None, false, false));
        assert_eq!(serde_json::to_string(&params).unwrap(), r#"{"clientName":"c","resumeSessionId":null}"#);
    }
}
