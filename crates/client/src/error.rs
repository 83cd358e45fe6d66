//! The error of connecting to a server and of calls to it. Operations on files have an error of their own in `files`.

use std::sync::Arc;
use std::time::Duration;

use protocol::{ErrorCode, ErrorData, WireError};
use remote::HarnessError;
use transport::ConnectError;

/// The reason why a call failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecServerError {
    /// The connector could not start its server program.
    #[error("failed to start the exec-server process: {0}")]
    Spawn(String),
    /// No connection, of whatever kind, could be made within `connect_timeout`.
    #[error("timed out connecting to exec-server at {url} after {timeout:?}")]
    WebSocketConnectTimeout {
        /// The address of the server, without secrets.
        url: String,
        /// The value of the option `connect_timeout`.
        timeout: Duration,
    },
    /// The connection to the URL could not be made, whether over a WebSocket or a Unix socket.
    #[error("failed to connect to exec-server: {0}")]
    WebSocketConnect(Arc<ConnectError>),
    /// The connection through a service and its relay could not be made.
    #[error("failed to connect to exec-server: {0}")]
    RemoteConnect(Arc<HarnessError>),
    /// The server did not answer `initialize` within `initialize_timeout`.
    #[error("timed out waiting for the exec-server handshake after {timeout:?}")]
    InitializeTimedOut {
        /// The value of the option `initialize_timeout`.
        timeout: Duration,
    },
    /// The user has closed the client.
    #[error("exec-server client is closed")]
    Closed,
    /// The connection was lost before the answer came, or the client has given up reconnecting. The server may have
    /// handled the request.
    #[error("{0}")]
    Disconnected(String),
    /// The client is reconnecting, and its options say that calls fail meanwhile instead of waiting.
    #[error("exec-server environment is recovering")]
    Recovering,
    /// A report says that the environment can never be used. Holds the reason.
    #[error("exec-server environment cannot be used: {0}")]
    ProvisioningFailed(String),
    /// The id belongs to an environment of the other kind: of the existing and the new environment, one is deferred and
    /// one is ordinary.
    #[error("exec-server environment `{id}` exists and is provisioned in another way")]
    ProvisioningModeConflict {
        /// The id of both environments.
        id: String,
    },
    /// An answer cannot be decoded as the result of its request.
    #[error("failed to decode an answer of exec-server: {0}")]
    Json(Arc<serde_json::Error>),
    /// The server broke the protocol, or the caller asked for something that this server or this client cannot do.
    #[error("exec-server protocol error: {0}")]
    Protocol(String),
    /// The server refused the request.
    #[error("{message}")]
    Server {
        /// The JSON-RPC error code.
        code: i64,
        /// The error text of the server.
        message: String,
        /// The cause, for example an error number of the operating system. `None` if the server does not say.
        data: Option<Box<ErrorData>>,
    },
    /// The body of an HTTP answer broke off before its end.
    #[error("HTTP response body failed: {0}")]
    HttpRequest(String),
    /// A stream to a TCP port has ended early, because the connection to the port or to the server has failed. Holds
    /// the reason.
    #[error("{0}")]
    PortStreamFailed(String),
    /// The client has too many unanswered calls, or too many unfinished clean-ups after dropped handles, for example
    /// of processes. Holds the limit.
    #[error("exec-server has reached its limit of {0} pending requests")]
    TooManyRequests(usize),
    /// The client can no longer receive the events of the process. The process itself may still run. Holds the reason.
    #[error("{0}")]
    ProcessFailed(String),
}

impl ExecServerError {
    /// Whether another attempt to connect may succeed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::WebSocketConnectTimeout { .. } | Self::InitializeTimedOut { .. } | Self::Disconnected(_) => true,
            Self::WebSocketConnect(error) => error.is_retryable(),
            Self::RemoteConnect(error) => error.is_retryable(),
            Self::Server { .. } => self.is_still_attached(),
            _ => false,
        }
    }

    /// Whether the server does not know the method.
    pub fn is_unknown_method(&self) -> bool {
        matches!(self, Self::Server { code, .. } if *code == ErrorCode::MethodNotFound.number())
    }

    /// Whether the server refused the request with this value of `data.kind`.
    pub fn is_of_kind(&self, kind: &str) -> bool {
        matches!(self, Self::Server { data: Some(data), .. } if data.kind == kind)
    }

    /// Whether the server does not know the process, file, watch or session that the request names.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Server { code, .. } if *code == ErrorCode::NotFound.number())
    }

    /// Whether the server refused to resume the session because another connection is attached to it and alive.
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
