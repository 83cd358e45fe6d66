//! The ways to reach a server. A connector makes connections. It does not decide when to reconnect, and opens no
//! session (the server's state of one client, which outlives a lost connection).

mod child;
mod relay;
mod ssh;
mod url;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use ::remote::ConnectionPath;
use tokio::sync::watch;
use transport::MessageStream;

use crate::error::ExecServerError;
use crate::path_map::PathMap;

pub use child::ChildConnector;
pub use relay::{RelayConnector, RelayConnectorError};
pub use ssh::SshConnector;
pub use url::UrlConnector;

/// Something that must live as long as a connection, for example the child process that serves the connection.
/// Dropping this value ends the companion; a child process, for example, is terminated.
pub trait Companion: Send + Sync {
    /// Waits until the companion ends by itself, and returns a text that says how it ended.
    fn exit_report(&mut self) -> Pin<Box<dyn Future<Output = String> + Send + '_>>;
}

/// A new connection to a server, before the handshake.
pub struct ServerConnection {
    /// Carries the messages in both directions.
    pub stream: MessageStream,
    /// Dropped when the connection ends. `None` if the connection needs no companion.
    pub companion: Option<Box<dyn Companion>>,
}

impl From<MessageStream> for ServerConnection {
    fn from(stream: MessageStream) -> Self {
        Self { stream, companion: None }
    }
}

/// The future that [`ServerConnector::connect`] returns.
pub type Connecting<'a> = Pin<Box<dyn Future<Output = Result<ServerConnection, ExecServerError>> + Send + 'a>>;

/// Makes connections to one server.
pub trait ServerConnector: Send + Sync + 'static {
    /// Makes a connection. The caller has a timeout, after which it drops the future.
    fn connect(&self) -> Connecting<'_>;

    /// Whether a later connection reaches the same server, so that a session can be resumed.
    fn can_reconnect(&self) -> bool;

    /// The server's address as messages for people show it, without secrets.
    fn address(&self) -> String;

    /// The path of the newest connection, if the server is reached through a relay. The value in the receiver is `None`
    /// while the first search for a direct path lasts.
    fn connection_path(&self) -> Option<watch::Receiver<Option<ConnectionPath>>> {
        None
    }

    /// Maps paths of this machine to paths of the server's machine, and back. `None` if paths are sent unchanged.
    fn paths(&self) -> Option<&PathMap> {
        None
    }
}

/// Lets several clients use the same connector.
impl ServerConnector for Arc<dyn ServerConnector> {
    fn connect(&self) -> Connecting<'_> {
        (**self).connect()
    }

    fn can_reconnect(&self) -> bool {
        (**self).can_reconnect()
    }

    fn address(&self) -> String {
        (**self).address()
    }

    fn connection_path(&self) -> Option<watch::Receiver<Option<ConnectionPath>>> {
        (**self).connection_path()
    }

    fn paths(&self) -> Option<&PathMap> {
        (**self).paths()
    }
}
