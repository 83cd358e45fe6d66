//! Connects to the WebSocket of a relay.

use std::time::Duration;

use relay::MAX_FRAME_BYTES;
use transport::{ConnectError, ConnectOptions, MessageLimits, MessageStream, TlsRoots};

/// Longest time for name look-up, TCP, TLS and the upgrade together.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Why there is no socket to a relay.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The connection could not be made.
    #[error("cannot connect to the relay: {0}")]
    Connect(#[from] ConnectError),
    /// The relay did not answer in time.
    #[error("the relay did not answer within {} s", DIAL_TIMEOUT.as_secs())]
    TimedOut,
}

impl DialError {
    /// Whether another attempt may succeed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Connect(error) => error.is_retryable(),
            Self::TimedOut => true,
        }
    }

    /// The status with which the relay has refused the upgrade.
    pub(crate) fn refused_with(&self) -> Option<u16> {
        match self {
            Self::Connect(ConnectError::Refused { status }) => Some(*status),
            Self::Connect(_) | Self::TimedOut => None,
        }
    }
}

/// Connects to `url`, which authorizes by itself.
pub(crate) async fn dial(url: &str, tls_roots: &TlsRoots) -> Result<MessageStream, DialError> {
    let options = ConnectOptions {
        limits: MessageLimits { message_bytes: MAX_FRAME_BYTES },
        tls_roots: tls_roots.clone(),
        is_binary: true,
        ..ConnectOptions::default()
    };
    let connecting = transport::connect(url, options);
    Ok(tokio::time::timeout(DIAL_TIMEOUT, connecting).await.map_err(|_| DialError::TimedOut)??)
}
