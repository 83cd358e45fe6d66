//! What can go wrong between a program and its environment.

use std::sync::Arc;
use std::time::Duration;

use protocol::{ErrorCode, ErrorData, WireError};
use transport::ConnectError;

/// Why a call failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecServerError {
    /// The program that is to serve us could not be started.
    #[error("failed to start the exec-server process: {0}")]
    Spawn(String),
    /// Nobody answered in time.
    #[error("timed out connecting to exec-server at {url} after {timeout:?}")]
    WebSocketConnectTimeout {
        /// Where to.
        url: String,
        /// How long was waited.
        timeout: Duration,
    },
    /// There is no connection to be had.
    #[error("failed to connect to exec-server: {0}")]
    WebSocketConnect(Arc<ConnectError>),
    /// The handshake took too long.
    #[error("timed out waiting for the exec-server handshake after {timeout:?}")]
    InitializeTimedOut {
        /// How long was waited.
        timeout: Duration,
    },
    /// The client was closed by its user.
    #[error("exec-server client is closed")]
    Closed,
    /// The connection is gone, and with it the answer. Whether the server did what was asked is not known.
    #[error("{0}")]
    Disconnected(String),
    /// The connection is being made again, and the call did not want to wait.
    #[error("exec-server environment is recovering")]
    Recovering,
    /// An answer that is not what the protocol says.
    #[error("failed to decode an answer of exec-server: {0}")]
    Json(Arc<serde_json::Error>),
    /// One side broke the protocol.
    #[error("exec-server protocol error: {0}")]
    Protocol(String),
    /// The server refused.
    #[error("{message}")]
    Server {
        /// The JSON-RPC code.
        code: i64,
        /// The server's words.
        message: String,
        /// What the operating system said, if it was that.
        data: Option<Box<ErrorData>>,
    },
    /// The body of an HTTP answer ended before its end.
    #[error("HTTP response body failed: {0}")]
    HttpRequest(String),
    /// Too many calls at once.
    #[error("exec-server has reached its limit of {0} pending requests")]
    TooManyRequests(usize),
    /// The process can no longer be followed.
    #[error("{0}")]
    ProcessFailed(String),
}

impl ExecServerError {
    /// Whether another attempt to connect may do better.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::WebSocketConnectTimeout { .. } | Self::InitializeTimedOut { .. } | Self::Disconnected(_) => true,
            Self::WebSocketConnect(error) => error.is_retryable(),
            Self::Server { .. } => self.is_still_attached(),
            _ => false,
        }
    }

    /// Whether the server does not know the method.
    pub fn is_unknown_method(&self) -> bool {
        matches!(self, Self::Server { code, .. } if *code == ErrorCode::MethodNotFound.number())
    }

    /// Whether the server refused and gave this kind of cause.
    pub fn is_of_kind(&self, kind: &str) -> bool {
        matches!(self, Self::Server { data: Some(data), .. } if data.kind == kind)
    }

    /// Whether the server does not know the thing that the request names.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Server { code, .. } if *code == ErrorCode::NotFound.number())
    }

    /// Whether another connection is attached to the session and alive.
    pub fn is_still_attached(&self) -> bool {
        matches!(self, Self::Server { code, .. } if *code == ErrorCode::SessionAttached.number())
    }
}

impl From<WireError> for ExecServerError {
    fn from(error: WireError) -> Self {
        Self::Server { code: error.code, message: error.message, data: error.data }
    }
}

impl From<serde_json::Error> for ExecServerError {
    fn from(error: serde_json::Error) -> Self {
        Self::Json(Arc::new(error))
    }
}

impl From<ConnectError> for ExecServerError {
    fn from(error: ConnectError) -> Self {
        Self::WebSocketConnect(Arc::new(error))
    }
}
