//! The ways to reach a server.

mod accepted;
mod child;
mod ssh;
mod url;

use std::future::Future;
use std::pin::Pin;

use transport::MessageStream;

use crate::error::ExecServerError;
use crate::path_map::PathMap;

pub use accepted::{AcceptedSockets, accepted};
pub use child::ChildConnector;
pub use ssh::SshConnector;
pub use url::UrlConnector;

/// What must live as long as a connection; dropping it ends what it stands for.
pub trait Companion: Send + Sync {
    /// Waits for its end and says how that came about.
    fn last_words(&mut self) -> Pin<Box<dyn Future<Output = String> + Send + '_>>;
}

/// A connection that was just made.
pub struct Connection {
    /// Messages both ways.
    pub stream: MessageStream,
    /// For instance the child that serves it.
    pub companion: Option<Box<dyn Companion>>,
}

impl From<MessageStream> for Connection {
    fn from(stream: MessageStream) -> Self {
        Self { stream, companion: None }
    }
}

/// A future that a [`Connector`] returns.
pub type Connecting<'a> = Pin<Box<dyn Future<Output = Result<Connection, ExecServerError>> + Send + 'a>>;

/// Makes connections to one server.
pub trait Connector: Send + Sync + 'static {
    /// Makes a connection. The caller sets the deadline.
    fn connect(&self) -> Connecting<'_>;

    /// Whether a second connection reaches the same server, and with it the session.
    fn can_reconnect(&self) -> bool;

    /// Where it leads, for people. It holds no secret.
    fn place(&self) -> String;

    /// How paths here are paths there, if they differ.
    fn paths(&self) -> Option<&PathMap> {
        None
    }
}
