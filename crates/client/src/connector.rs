//! The ways to reach a server. A connector makes connections; it knows nothing of sessions, and does not decide when to reconnect.

mod child;
mod ssh;
mod url;

use std::future::Future;
use std::pin::Pin;

use transport::MessageStream;

use crate::error::ExecServerError;
use crate::path_map::PathMap;

pub use child::ChildConnector;
pub use ssh::SshConnector;
pub use url::UrlConnector;

/// Something that must live as long as a connection, for example the child process that serves the connection. Dropping the companion ends
/// it.
pub trait Companion: Send + Sync {
    /// Waits for the end of the companion and returns a text that says how it ended.
    fn exit_report(&mut self) -> Pin<Box<dyn Future<Output = String> + Send + '_>>;
}

/// A new connection to a server, before the handshake.
pub struct ServerConnection {
    /// Carries the messages in both directions.
    pub stream: MessageStream,
    /// Dropped when the connection ends. `None` if nothing belongs to the connection.
    pub companion: Option<Box<dyn Companion>>,
}

impl From<MessageStream> for ServerConnection {
    fn from(stream: MessageStream) -> Self {
        Self { stream, companion: None }
    }
}

/// A future that a [`ServerConnector`] returns.
pub type Connecting<'a> = Pin<Box<dyn Future<Output = Result<ServerConnection, ExecServerError>> + Send + 'a>>;

/// Makes connections to one server.
pub trait ServerConnector: Send + Sync + 'static {
    /// Makes a connection. The caller has a timeout, after which it drops the future.
    fn connect(&self) -> Connecting<'_>;

    /// Whether a later connection reaches the same server, so that a session can be resumed.
    fn can_reconnect(&self) -> bool;

    /// The server's address as messages for people show it, without secrets.
    fn address(&self) -> String;

    /// Maps paths of this machine to paths of the server's machine. `None` if they are the same.
    fn paths(&self) -> Option<&PathMap> {
        None
    }
}
