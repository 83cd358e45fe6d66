//! Connects to the WebSocket of a relay. The URL comes from the registry. Whoever has the URL may connect, so an error
//! shows only its host.

use std::time::Duration;

use relay::MAX_FRAME_BYTES;
use transport::{ConnectError, ConnectOptions, MessageLimits, MessageStream, TlsRoots};

use crate::asked_wait::asked_wait;

/// Longest time for name look-up, TCP, TLS and the upgrade together.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Why there is no socket to a relay.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The registry gave a URL that is not the URL of a WebSocket.
    #[error("the service gave an address of its relay that begins neither with wss:// nor with ws://")]
    Url,
    /// The connection could not be made.
    #[error("cannot connect to the relay: {0}")]
    Connect(ConnectError),
    /// The relay has answered the upgrade with an HTTP error.
    #[error("the relay refused the connection with HTTP status {status}")]
    Refused {
        /// The HTTP status of the answer.
        status: u16,
        /// How long to wait before the next attempt, if the relay has asked for a wait.
        wait: Option<Duration>,
    },
    /// The relay did not answer in time.
    #[error("the relay did not answer within {} s", DIAL_TIMEOUT.as_secs())]
    TimedOut,
}

/// What an end does after it could not connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DialRemedy {
    /// Connect to the same URL again.
    SameUrl,
    /// Connect to the same URL again, but not before this time is over, because the relay has asked for a wait.
    Later(Duration),
    /// Ask the registry for another URL.
    NewUrl,
}

impl DialError {
    /// Whether another attempt may succeed.
    pub fn is_retryable(&self) -> bool {
        self.remedy() != DialRemedy::NewUrl
    }

    /// What to do after this error.
    pub(crate) fn remedy(&self) -> DialRemedy {
        match self {
            Self::Refused { wait: Some(wait), .. } => DialRemedy::Later(*wait),
            Self::Refused { status: 408 | 500..=599, .. } | Self::TimedOut => DialRemedy::SameUrl,
            Self::Connect(error) if error.is_retryable() => DialRemedy::SameUrl,
            Self::Refused { .. } | Self::Connect(_) | Self::Url => DialRemedy::NewUrl,
        }
    }
}

/// Connects to `url`.
pub(crate) async fn dial(url: &str, tls_roots: &TlsRoots) -> Result<MessageStream, DialError> {
    let is_websocket = ["wss://", "ws://"]
        .iter()
        .any(|scheme| url.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)));
    if !is_websocket {
        return Err(DialError::Url);
    }
    let options = ConnectOptions {
        limits: MessageLimits { message_bytes: MAX_FRAME_BYTES },
        tls_roots: tls_roots.clone(),
        is_binary: true,
        ..ConnectOptions::default()
    };
    let connecting = tokio::time::timeout(DIAL_TIMEOUT, transport::connect(url, options));
    match connecting.await {
        Err(_) => Err(DialError::TimedOut),
        Ok(Ok(socket)) => Ok(socket),
        Ok(Err(ConnectError::Refused { status, retry_after })) => {
            Err(DialError::Refused { status, wait: asked_wait(status, retry_after) })
        }
        Ok(Err(error)) => Err(DialError::Connect(with_host_only(error))),
    }
}

/// Removes the path and the query of the URL from the error, because both may be secret.
fn with_host_only(error: ConnectError) -> ConnectError {
    match error {
        ConnectError::UnsupportedUrl(url) => ConnectError::UnsupportedUrl(host_only(&url)),
        ConnectError::InvalidUrl { url, reason } => ConnectError::InvalidUrl { url: host_only(&url), reason },
        ConnectError::Io { url, source } => ConnectError::Io { url: host_only(&url), source },
        ConnectError::Certificate { url, fault } => ConnectError::Certificate { url: host_only(&url), fault },
        ConnectError::Tls { url, source } => ConnectError::Tls { url: host_only(&url), source },
        other => other,
    }
}

fn host_only(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}")
}
