//! A server that listens on a URL.

use transport::ConnectOptions;

use super::{Connecting, ServerConnector};

/// Connects to a server by its URL.
#[derive(Clone, Debug)]
pub struct UrlConnector {
    url: String,
    options: ConnectOptions,
}

impl UrlConnector {
    /// `url` begins with `ws://`, `wss://` or `unix://`. A wrong URL is an error of [`ServerConnector::connect`].
    pub fn new(url: impl Into<String>, options: ConnectOptions) -> Self {
        Self { url: url.into(), options }
    }
}

impl ServerConnector for UrlConnector {
    fn connect(&self) -> Connecting<'_> {
        Box::pin(async { Ok(transport::connect(&self.url, self.options.clone()).await?.into()) })
    }

    fn can_reconnect(&self) -> bool {
        true
    }

    fn address(&self) -> String {
        // The query of a URL may hold a secret.
        self.url.split(['?', '#']).next().unwrap_or_default().to_owned()
    }
}
