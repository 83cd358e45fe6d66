//! Errors on the wire: the one table of codes, the machine-readable `data`, and the shape of an error object. The
//! texts of the messages are not in this file: each place that reports an error writes its own. Start
//! with [`WireError`].

use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::PathUri;
use crate::shortened::without_middle;

/// Longest message of an error that this implementation sends, and longest path in its `data`, in bytes before they are encoded as JSON. The
/// middle of a longer text is replaced by `…`. So a request with a huge text does not get a huge error. A `file:` URI of the longest path
/// that the kernel opens, with every byte percent-encoded, is shorter.
pub const MAX_ERROR_TEXT_BYTES: usize = 16 << 10;

/// The codes that this implementation sends in the member `code` of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i64)]
pub enum ErrorCode {
    /// The message is malformed, or the server refuses the request, for example because of the current state or
    /// because permission is denied.
    InvalidRequest = -32600,
    /// The server does not know the method.
    MethodNotFound = -32601,
    /// The params do not fit the method, or the server cannot do what they ask for.
    InvalidParams = -32602,
    /// The operating system or the server itself has failed.
    Internal = -32603,
    /// A path does not exist, or the server does not know the file handle or the watch.
    NotFound = -32004,
    /// The session is attached to another connection that is alive. The client can try again later.
    SessionAttached = -32010,
}

impl ErrorCode {
    /// The value of the member `code`.
    pub const fn number(self) -> i64 {
        self as i64
    }
}

/// Values of [`ErrorData::kind`] that do not stand for an error of a system call alone. Many errors share one code, so a client
/// distinguishes these errors by their kind.
pub mod error_kind {
    /// With -32600: the session has no process of this id.
    pub const UNKNOWN_PROCESS: &str = "unknownProcess";
    /// With -32600: another connection has resumed the session. Every later request of this connection gets the same error.
    pub const SESSION_RESUMED_ELSEWHERE: &str = "sessionResumedElsewhere";
    /// With -32600: too much stdin is queued. The server took nothing of the write; the client can send the same write again
    /// later.
    pub const INPUT_CROWDED: &str = "inputCrowded";
    /// With -32600: the message is larger than `--max-message-bytes`. The server has handled no part of it; the client can send smaller
    /// messages.
    pub const MESSAGE_TOO_LARGE: &str = "messageTooLarge";
    /// With -32600 or -32603: the sandbox of the request does not allow the operation on files. `errno` has the error of the
    /// system call. Without the sandbox, the operation would not have failed in this way.
    pub const SANDBOX_DENIED: &str = "sandboxDenied";
    /// With -32603: the start of a process hung until the time `timeoutMs` was over, so the program was not executed.
    pub const START_TIMED_OUT: &str = "startTimedOut";
    /// With -32600: port forwarding is off in this server (`--no-port-forward`).
    pub const PORT_FORWARD_OFF: &str = "portForwardOff";
    /// With -32600: the connection or the server has reached its limit of TCP streams.
    pub const TOO_MANY_STREAMS: &str = "tooManyStreams";
    /// With -32603: the host name of a TCP stream cannot be resolved.
    pub const UNKNOWN_HOST: &str = "unknownHost";
    /// With -32603: no program listens on the port.
    pub const CONNECTION_REFUSED: &str = "connectionRefused";
    /// With -32603: there is no route to the host.
    pub const HOST_UNREACHABLE: &str = "hostUnreachable";
    /// With -32603: the port has not answered within `--port-connect-timeout`.
    pub const TIMED_OUT: &str = "timedOut";
    /// In `tcp/close`: the TCP connection to the port has failed, for example with a reset.
    pub const CONNECTION_RESET: &str = "connectionReset";
    /// In `tcp/close`: the client has sent bytes without credit, or after the end of its direction.
    pub const STREAM_VIOLATION: &str = "streamViolation";
}

/// The machine-readable cause of an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorData {
    /// Error number of the operating system. Absent if no system call failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<i32>,
    /// A stable word for the cause: a kind of operating system error such as `notFound` or `permissionDenied`, or one of
    /// [`error_kind`].
    pub kind: String,
    /// The path that the error is about, as a `file:` URI, or as a bare name if there is no absolute path, such as a program
    /// that was searched on `PATH`. Absent if the error is about no path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

impl ErrorData {
    /// A cause without an error number and without a path.
    pub fn of_kind(kind: &str) -> Self {
        Self { errno: None, kind: kind.to_owned(), path: None }
    }

    /// Describes an operating system error, and the path that it is about if there is one. A relative path stays a bare name.
    pub fn from_io(error: &std::io::Error, path: Option<&Path>) -> Self {
        Self {
            errno: error.raw_os_error(),
            kind: kind_word(error.kind()).to_owned(),
            path: path.map(|path| match PathUri::from_native(path) {
                Some(uri) => uri.as_str().to_owned(),
                None => path.to_string_lossy().into_owned(),
            }),
        }
    }
}

/// The value of [`ErrorData::kind`] for an error of the operating system.
fn kind_word(kind: std::io::ErrorKind) -> &'static str {
    use std::io::ErrorKind as K;
    match kind {
        K::NotFound => "notFound",
        K::PermissionDenied => "permissionDenied",
        K::AlreadyExists => "alreadyExists",
        K::NotADirectory => "notADirectory",
        K::IsADirectory => "isADirectory",
        K::ReadOnlyFilesystem => "readOnlyFilesystem",
        K::StorageFull => "storageFull",
        K::ArgumentListTooLong => "argumentListTooLong",
        K::ExecutableFileBusy => "executableFileBusy",
        K::InvalidInput => "invalidInput",
        K::OutOfMemory => "outOfMemory",
        K::TimedOut => "timedOut",
        K::WouldBlock => "resourceTemporarilyUnavailable",
        _ => "other",
    }
}

/// The `error` member of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireError {
    /// A number of [`ErrorCode`]. Other implementations may send other numbers.
    pub code: i64,
    /// The machine-readable cause, if a system call failed or a client must distinguish this refusal from others. Absent otherwise. Values
    /// of another shape, which other implementations may send, are read as absent.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "known_data")]
    pub data: Option<Box<ErrorData>>,
    /// A sentence for people. Programs decide by `code` and `data`.
    pub message: String,
}

impl WireError {
    /// An error with this code and without `data`. A message of more than [`MAX_ERROR_TEXT_BYTES`] is shortened.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code: code.number(), data: None, message: without_middle(message.into(), MAX_ERROR_TEXT_BYTES) }
    }

    /// An error with the code [`ErrorCode::InvalidRequest`].
    pub fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidRequest, message)
    }

    /// An error with the code [`ErrorCode::InvalidParams`].
    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidParams, message)
    }

    /// An error with the code [`ErrorCode::Internal`].
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Internal, message)
    }

    /// The same error with `data`. A path of more than [`MAX_ERROR_TEXT_BYTES`] is shortened.
    #[must_use]
    pub fn with_data(mut self, mut data: ErrorData) -> Self {
        data.path = data.path.map(|path| without_middle(path, MAX_ERROR_TEXT_BYTES));
        self.data = Some(Box::new(data));
        self
    }

    /// Whether the error has `data` of this kind.
    pub fn is_of_kind(&self, kind: &str) -> bool {
        self.data.as_ref().is_some_and(|data| data.kind == kind)
    }
}

/// Decodes the member `data`. None if it does not have the shape of [`ErrorData`].
fn known_data<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<ErrorData>>, D::Error> {
    let raw = Box::<RawValue>::deserialize(deserializer)?;
    Ok(serde_json::from_str(raw.get()).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_of_a_foreign_shape_does_not_hide_the_error() {
        for data in ["null", "7", "1e400", r#""why""#, "[1]", "{}", r#"{"kind":7}"#, r#"{"reason":{"errno":2}}"#] {
            let json = format!(r#"{{"code":-32603,"data":{data},"message":"it failed"}}"#);
            let error: WireError = serde_json::from_str(&json).unwrap();
            assert_eq!(error, WireError::internal("it failed"), "{data}");
        }
    }

    #[test]
    fn a_huge_message_and_a_huge_path_are_shortened_and_ordinary_ones_are_not() {
        let error_about = |text: &str| {
            let data = ErrorData { errno: None, kind: "other".into(), path: Some(text.into()) };
            WireError::internal(format!("cannot open {text}: too long")).with_data(data)
        };
        let huge = error_about(&"x".repeat(1 << 20));
        assert!(huge.message.starts_with("cannot open xxx") && huge.message.ends_with("xxx: too long"));
        assert_eq!(huge.message.len(), MAX_ERROR_TEXT_BYTES);
        assert_eq!(huge.data.unwrap().path.unwrap().len(), MAX_ERROR_TEXT_BYTES);
        let longest_path = "%2F".repeat(4096);
        let ordinary = error_about(&longest_path);
        assert_eq!(ordinary.message, format!("cannot open {longest_path}: too long"));
        assert_eq!(ordinary.data.unwrap().path, Some(longest_path));
    }

    #[test]
    fn data_of_our_own_shape_survives() {
        let data = ErrorData { errno: Some(2), kind: "notFound".into(), path: None };
        let error = WireError::internal("it failed").with_data(data);
        let json = serde_json::to_string(&error).unwrap();
        assert_eq!(json, r#"{"code":-32603,"data":{"errno":2,"kind":"notFound"},"message":"it failed"}"#);
        assert_eq!(serde_json::from_str::<WireError>(&json).unwrap(), error);
    }
}
