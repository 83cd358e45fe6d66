//! The URLs that `--listen` accepts. Host names are refused on purpose, because a name can resolve to more interfaces than the user had
//! in mind. Binding is in [`crate::Listener`].

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// Default of `--listen`: reachable from this machine only, on a free port that the kernel picks, so that two servers never want the same
/// port.
pub const DEFAULT_LISTEN_URL: &str = "ws://127.0.0.1:0";

/// A parsed `--listen` URL: where the server accepts connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenUrl {
    /// `ws://IP:PORT`: WebSocket over TCP. Port 0 means that the kernel picks a free port.
    WebSocket(SocketAddr),
    /// `wss://IP:PORT`: WebSocket over TLS. Port 0 means that the kernel picks a free port.
    SecureWebSocket(SocketAddr),
    /// `unix:///PATH`: a Unix socket at this absolute path.
    Unix(PathBuf),
    /// `stdio` or `stdio://`: the single connection over stdin and stdout.
    Stdio,
}

/// Why a `--listen` URL is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListenUrlError {
    /// The scheme is not supported. Holds the URL.
    #[error("unsupported --listen URL `{0}`; expected `ws://IP:PORT`, `wss://IP:PORT`, `unix:///PATH` or `stdio`")]
    UnsupportedListenUrl(String),
    /// `ws://` is not followed by an IP address and a port. Holds the URL.
    #[error("invalid websocket --listen URL `{0}`; expected `ws://IP:PORT`")]
    InvalidWebSocketListenUrl(String),
    /// `wss://` is not followed by an IP address and a port. Holds the URL.
    #[error("invalid websocket --listen URL `{0}`; expected `wss://IP:PORT`")]
    InvalidSecureWebSocket(String),
    /// `unix://` is not followed by an absolute path, or the path ends with `/`. Holds the URL.
    #[error("invalid unix --listen URL `{0}`; expected `unix:///PATH`")]
    InvalidUnix(String),
}

impl ListenUrl {
    /// Whether the address can be reached from this machine only.
    pub fn is_local(&self) -> bool {
        match self {
            Self::WebSocket(address) | Self::SecureWebSocket(address) => address.ip().to_canonical().is_loopback(),
            Self::Unix(_) | Self::Stdio => true,
        }
    }
}

impl FromStr for ListenUrl {
    type Err = ListenUrlError;

    fn from_str(url: &str) -> Result<Self, ListenUrlError> {
        if matches!(url, "stdio" | "stdio://") {
            return Ok(Self::Stdio);
        }
        if let Some(address) = url.strip_prefix("ws://") {
            return address
                .parse()
                .map(Self::WebSocket)
                .map_err(|_| ListenUrlError::InvalidWebSocketListenUrl(url.into()));
        }
        if let Some(address) = url.strip_prefix("wss://") {
            return address
                .parse()
                .map(Self::SecureWebSocket)
                .map_err(|_| ListenUrlError::InvalidSecureWebSocket(url.into()));
        }
        if let Some(path) = url.strip_prefix("unix://") {
            let names_a_file = path.starts_with('/') && !path.ends_with('/');
            return if names_a_file {
                Ok(Self::Unix(path.into()))
            } else {
                Err(ListenUrlError::InvalidUnix(url.into()))
            };
        }
        Err(ListenUrlError::UnsupportedListenUrl(url.into()))
    }
}

impl fmt::Display for ListenUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WebSocket(address) => write!(f, "ws://{address}"),
            Self::SecureWebSocket(address) => write!(f, "wss://{address}"),
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Stdio => f.write_str("stdio"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> ListenUrl {
        url.parse().unwrap()
    }

    fn refusal(url: &str) -> String {
        url.parse::<ListenUrl>().unwrap_err().to_string()
    }

    #[test]
    fn every_form_is_parsed_and_displayed() {
        assert_eq!(parsed(DEFAULT_LISTEN_URL), ListenUrl::WebSocket("127.0.0.1:0".parse().unwrap()));
        assert_eq!(parsed("ws://[::1]:0"), ListenUrl::WebSocket("[::1]:0".parse().unwrap()));
        assert_eq!(parsed("wss://0.0.0.0:443"), ListenUrl::SecureWebSocket("0.0.0.0:443".parse().unwrap()));
        assert_eq!(parsed("unix:///run/exec.sock"), ListenUrl::Unix("/run/exec.sock".into()));
        assert_eq!((parsed("stdio"), parsed("stdio://")), (ListenUrl::Stdio, ListenUrl::Stdio));
        for url in ["ws://127.0.0.1:80", "ws://[::1]:0", "wss://10.0.0.1:443", "unix:///run/exec.sock", "stdio"] {
            assert_eq!(parsed(url).to_string(), url);
        }
    }

    #[test]
    fn each_refusal_names_the_url_and_the_expected_form() {
        assert_eq!(
            refusal("ws://localhost:1234"),
            "invalid websocket --listen URL `ws://localhost:1234`; expected `ws://IP:PORT`"
        );
        assert_eq!(
            refusal("ws://127.0.0.1"),
            "invalid websocket --listen URL `ws://127.0.0.1`; expected `ws://IP:PORT`"
        );
        assert_eq!(
            refusal("wss://localhost:1"),
            "invalid websocket --listen URL `wss://localhost:1`; expected `wss://IP:PORT`"
        );
        assert_eq!(
            refusal("http://127.0.0.1:1"),
            "unsupported --listen URL `http://127.0.0.1:1`; expected `ws://IP:PORT`, `wss://IP:PORT`, `unix:///PATH` or `stdio`"
        );
        assert_eq!(refusal("unix://run/x"), "invalid unix --listen URL `unix://run/x`; expected `unix:///PATH`");
        assert_eq!(refusal("unix:///"), "invalid unix --listen URL `unix:///`; expected `unix:///PATH`");
    }

    #[test]
    fn only_loopback_unix_and_stdio_are_local() {
        for url in ["ws://127.0.0.1:0", "ws://[::1]:0", "ws://[::ffff:127.0.0.1]:0", "unix:///x", "stdio"] {
            assert!(parsed(url).is_local(), "{url}");
        }
        for url in ["ws://0.0.0.0:0", "wss://10.0.0.1:443", "ws://[::]:0"] {
            assert!(!parsed(url).is_local(), "{url}");
        }
    }
}
