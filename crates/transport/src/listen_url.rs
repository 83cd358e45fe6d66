//! Where to listen, as written after `--listen`. Host names are refused on purpose: what they resolve to could be more than
//! the one interface the user had in mind.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// Loopback only, on a port the kernel picks, so that two servers never collide.
pub const DEFAULT_LISTEN_URL: &str = "ws://127.0.0.1:0";

/// A place to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenUrl {
    /// `ws://IP:PORT`
    WebSocket(SocketAddr),
    /// `wss://IP:PORT`
    SecureWebSocket(SocketAddr),
    /// `unix:///PATH`
    Unix(PathBuf),
    /// `stdio` or `stdio://`
    Stdio,
}

/// Why a `--listen` URL is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListenUrlError {
    /// None of our schemes.
    #[error("unsupported --listen URL `{0}`; expected `ws://IP:PORT`, `wss://IP:PORT`, `unix:///PATH` or `stdio`")]
    UnsupportedListenUrl(String),
    /// `ws://` without a plain IP address and port.
    #[error("invalid websocket --listen URL `{0}`; expected `ws://IP:PORT`")]
    InvalidWebSocketListenUrl(String),
    /// `wss://` without a plain IP address and port.
    #[error("invalid websocket --listen URL `{0}`; expected `wss://IP:PORT`")]
    InvalidSecureWebSocket(String),
    /// `unix://` without an absolute path.
    #[error("invalid unix --listen URL `{0}`; expected `unix:///PATH`")]
    InvalidUnix(String),
}

impl ListenUrl {
    /// Whether only this machine can reach it.
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
    fn every_form_is_read_and_shown() {
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
    fn refusals_have_the_texts_of_the_contract() {
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
