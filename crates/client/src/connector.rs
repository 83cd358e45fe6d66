//! The ways to reach a server.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;

use transport::{ConnectOptions, MessageStream};

use crate::error::ExecServerError;

/// What must live as long as a connection; dropping it ends what it stands for.
pub type Companion = Box<dyn Any + Send + Sync>;

/// A connection that was just made.
pub struct Connection {
    /// Messages both ways.
    pub stream: MessageStream,
    /// For instance the child that serves it.
    pub companion: Option<Companion>,
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
}

/// Reaches a server by its URL.
#[derive(Clone, Debug)]
pub struct UrlConnector {
    url: String,
    options: ConnectOptions,
}

impl UrlConnector {
    /// `ws://`, `wss://` or `unix://`.
    pub fn new(url: impl Into<String>, options: ConnectOptions) -> Self {
        Self { url: url.into(), options }
    }
}

impl Connector for UrlConnector {
    fn connect(&self) -> Connecting<'_> {
        Box::pin(async { Ok(transport::connect(&self.url, self.options.clone()).await?.into()) })
    }

    fn can_reconnect(&self) -> bool {
        true
    }

    fn place(&self) -> String {
        // A query may hold a secret.
        self.url.split(['?', '#']).next().unwrap_or_default().to_owned()
    }
}
