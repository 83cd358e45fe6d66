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
    /// `url` begins with `ws://`, `wss://` or `unix://`. The URL is not checked here: if it is wrong,
    /// [`ServerConnector::connect`] fails.
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
        without_secrets(&self.url)
    }
}

/// The URL without its user, password, query and fragment, each of which may hold a secret. A `unix://` URL has none
/// of these parts and stays as it is. Of a text without `://`, nothing is left.
fn without_secrets(url: &str) -> String {
    if url.starts_with("unix://") {
        return url.to_owned();
    }
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    // A password that is not percent-encoded may contain `/`, `?`, `#` and `@`, so the host begins after the last `@`.
    let after_password = rest.rsplit_once('@').map_or(rest, |(_, after)| after);
    let end = after_password.find(['?', '#']).unwrap_or(after_password.len());
    format!("{scheme}://{}", &after_password[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_no_secrets() {
        for (url, address) in [
            ("ws://h:1/p", "ws://h:1/p"),
            ("wss://me:secret@h:1/p?token=secret#secret", "wss://h:1/p"),
            ("ws://me@secr/et@h", "ws://h"),
            ("unix:///run/a?b@c", "unix:///run/a?b@c"),
            ("secret", "://"),
            ("ws://me:a?b#c@h/p?token=x", "ws://h/p"),
        ] {
            assert_eq!(UrlConnector::new(url, ConnectOptions::default()).address(), address);
        }
    }
}
