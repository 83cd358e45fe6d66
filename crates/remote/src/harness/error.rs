//! Why a harness has no connection to its executor.

use std::time::Duration;

use relay::HandshakeFailure;

use crate::dial::{DialError, DialRemedy};
use crate::registry::RegistryError;

/// Why a harness has no connection to its executor.
#[derive(Debug, thiserror::Error)]
pub enum HarnessError {
    /// The registry gave no way to the executor.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// There is no socket to the relay.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// The executor has another key than the one that the configuration pins.
    #[error(
        "the key of environment `{environment}` has changed: the configuration pins {pinned}, and the service names {found}; \
         if the executor was set up again, check the new fingerprint there and write it into environments.toml, otherwise \
         somebody may be pretending to be this environment"
    )]
    KeyChanged {
        /// The id of the environment.
        environment: String,
        /// The fingerprint in the configuration.
        pinned: String,
        /// The fingerprint of the key that the registry names.
        found: String,
    },
    /// The executor does not have the key that the registry names, or a relay has altered the handshake.
    #[error("the handshake with the executor failed: {0}")]
    Handshake(#[from] HandshakeFailure),
    /// The executor or the relay has ended the stream before it began. The executor may not know the harness.
    #[error("the executor or the relay refused the encrypted stream")]
    Reset,
    /// The socket ended in the middle of the handshake.
    #[error("the connection to the relay was lost during the handshake")]
    SocketLost,
    /// The executor did not answer.
    #[error("the executor did not answer the handshake within {} s", super::handshake::TIMEOUT.as_secs())]
    TimedOut,
}

impl HarnessError {
    /// Whether another attempt may succeed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Registry(error) => error.is_retryable(),
            Self::Dial(error) => error.is_retryable(),
            Self::KeyChanged { .. } | Self::Handshake(_) => false,
            Self::Reset | Self::SocketLost | Self::TimedOut => true,
        }
    }

    /// The wait that the service or the relay has asked for.
    pub(super) fn wait(&self) -> Option<Duration> {
        match self {
            Self::Registry(error) => error.wait(),
            Self::Dial(error) => match error.remedy() {
                DialRemedy::Later(wait) => Some(wait),
                DialRemedy::SameUrl | DialRemedy::NewUrl => None,
            },
            _ => None,
        }
    }

    /// Whether a handshake was broken off, so that a new one may succeed at once.
    pub(super) fn ended_the_handshake(&self) -> bool {
        matches!(self, Self::Reset | Self::SocketLost)
    }
}
