//! Errors as they stand on the wire: one table of codes, and the shape of an error object.

use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::PathUri;

/// What kind of failure an error reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i64)]
pub enum ErrorCode {
    /// The request is malformed or not possible in this state.
    InvalidRequest = -32600,
    /// No such method.
    MethodNotFound = -32601,
    /// The params do not fit the method.
    InvalidParams = -32602,
    /// The operating system or the server itself failed.
    Internal = -32603,
    /// A path does not exist.
    NotFound = -32004,
    /// The session is attached to a connection that is alive; try again later.
    SessionAttached = -32010,
}

impl ErrorCode {
    /// The number on the wire.
    pub const fn number(self) -> i64 {
        self as i64
    }
}

/// Kinds of [`ErrorData`] that are not about a system call. One code stands for many refusals, so clients tell these apart by kind.
pub mod error_kind {
    /// -32600: the session has no process of this id.
    pub const UNKNOWN_PROCESS: &str = "unknownProcess";
    /// -32600: the session belongs to another connection now; this one can do nothing more.
    pub const SESSION_RESUMED_ELSEWHERE: &str = "sessionResumedElsewhere";
    /// -32600: too much input waits for its processes. Nothing of the write was taken; the client can send the same write again later.
    pub const INPUT_CROWDED: &str = "inputCrowded";
    /// -32600: the message is larger than the server takes, and nothing of it was done. The client can send less at once.
    pub const MESSAGE_TOO_LARGE: &str = "messageTooLarge";
    /// -32603: the time of a process was over before its program could be executed.
    pub const START_TIMED_OUT: &str = "startTimedOut";
}

/// The machine-readable cause of an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorData {
    /// The number the operating system gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<i32>,
    /// A stable word for it, such as `notFound`, `permissionDenied` or one of [`error_kind`].
    pub kind: String,
    /// What it was about: a `file:` URI, or the bare name where there is no absolute path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

impl ErrorData {
    /// A cause that is no system call and about no path.
    pub fn of_kind(kind: &str) -> Self {
        Self { errno: None, kind: kind.to_owned(), path: None }
    }

    /// Describes an operating system error about `path`.
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
    /// See [`ErrorCode`]; other numbers can come from other implementations.
    pub code: i64,
    /// Present for failures of system calls and for the kinds of [`error_kind`]. Other implementations may put anything there, which is read as nothing.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "known_data")]
    pub data: Option<Box<ErrorData>>,
    /// One sentence that says what was tried, why it failed and what to do.
    pub message: String,
}

impl WireError {
    /// An error without `data`.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code: code.number(), data: None, message: message.into() }
    }

    /// The request cannot be done in this state.
    pub fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidRequest, message)
    }

    /// The params are wrong.
    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidParams, message)
    }

    /// The server or its operating system failed.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Internal, message)
    }

    /// The same error with its cause attached.
    #[must_use]
    pub fn with_data(mut self, data: ErrorData) -> Self {
        self.data = Some(Box::new(data));
        self
    }

    /// Whether the peer gave this kind of cause.
    pub fn is_of_kind(&self, kind: &str) -> bool {
        self.data.as_ref().is_some_and(|data| data.kind == kind)
    }
}

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
    fn data_of_our_own_shape_survives() {
        let data = ErrorData { errno: Some(2), kind: "notFound".into(), path: None };
        let error = WireError::internal("it failed").with_data(data);
        let json = serde_json::to_string(&error).unwrap();
        assert_eq!(json, r#"{"code":-32603,"data":{"errno":2,"kind":"notFound"},"message":"it failed"}"#);
        assert_eq!(serde_json::from_str::<WireError>(&json).unwrap(), error);
    }
}
