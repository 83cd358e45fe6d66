//! Why a call to a registry failed, and whether it can be tried again.

use std::time::Duration;

use credentials::CredentialError;
use fetch::{FailureKind, FetchError};
use serde::Deserialize;

use crate::asked_wait::asked_wait;

/// Longest text of a service that is repeated, in characters.
const MAX_MESSAGE_CHARS: usize = 4096;

/// The code of a registry that knows the environment and has no executor for it now.
const ENVIRONMENT_OFFLINE: &str = "environment_offline";

/// In place of the text of a redirect, which is usually empty or a page for browsers. A redirect is not followed,
/// because the credential is for this service only.
const REDIRECT: &str =
    "redirects are not followed; give the URL to which the service redirects as the URL of the service";

/// Why a call to a registry failed. No text contains a URL, a header or the body of a successful answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RegistryError {
    /// There is no credential for the service, or it cannot be used there.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// The request could not be sent, or its answer did not arrive completely.
    #[error("cannot reach the service: {0}")]
    Transport(#[from] FetchError),
    /// The service took too long.
    #[error("the service did not answer `{operation}` in time")]
    TimedOut {
        /// The last part of the URL's path, for example `register`.
        operation: &'static str,
    },
    /// The service refused the credential.
    #[error(
        "the service refused the credential (HTTP {status}): {message}; `exec-server whoami` says which one is used"
    )]
    Authentication {
        /// 401 or 403.
        status: u16,
        /// The text of the service, or a substitute.
        message: String,
    },
    /// The environment has no connected executor.
    #[error("the environment is offline: {message}")]
    Offline {
        /// The text of the service, or a substitute.
        message: String,
    },
    /// The service refused the request for another reason.
    #[error("the service answered `{operation}` with HTTP {status}{}: {message}{}", in_parentheses(.code.as_ref()), when(*.wait))]
    Refused {
        /// The last part of the URL's path, for example `register`.
        operation: &'static str,
        /// The HTTP status.
        status: u16,
        /// The code in the answer, if there is one.
        code: Option<String>,
        /// The text of the service, or a substitute.
        message: String,
        /// The wait that the service has asked for, at most 300 s.
        wait: Option<Duration>,
    },
    /// The answer is not the JSON that the call has.
    #[error("the answer of the service to `{operation}` cannot be read; is the URL that of an exec-server service?")]
    Malformed {
        /// The last part of the URL's path, for example `register`.
        operation: &'static str,
    },
    /// The answer lacks a text.
    #[error("the answer of the service has a blank `{member}`")]
    Blank {
        /// The member of the answer.
        member: &'static str,
    },
    /// The answer is about another environment than the request.
    #[error("the service answered for another environment")]
    OtherEnvironment,
    /// The service wants a handshake that this program does not know.
    #[error("the service wants another security profile than noise_hybrid_ik_v1")]
    OtherProfile,
}

fn when(wait: Option<Duration>) -> String {
    wait.map(|wait| format!("; try again in {} s", wait.as_secs())).unwrap_or_default()
}

fn in_parentheses(code: Option<&String>) -> String {
    code.map(|code| format!(" ({code})")).unwrap_or_default()
}

/// The body of an error.
#[derive(Default, Deserialize)]
struct ErrorBody {
    #[serde(default)]
    error: ErrorMembers,
}

#[derive(Default, Deserialize)]
struct ErrorMembers {
    code: Option<String>,
    message: Option<String>,
}

impl RegistryError {
    /// The error of an answer whose status is no success.
    pub(super) fn from_answer(
        operation: &'static str,
        status: u16,
        retry_after: Option<Duration>,
        body: &[u8],
    ) -> Self {
        let members = serde_json::from_slice(body).unwrap_or_else(|_| ErrorBody::default()).error;
        let message = match status {
            301 | 302 | 303 | 307 | 308 => REDIRECT.to_owned(),
            _ => shown(&members.message.unwrap_or_else(|| String::from_utf8_lossy(body).into_owned())),
        };
        match (status, members.code.filter(|code| !code.is_empty()).as_deref().map(shown)) {
            (401 | 403, _) => Self::Authentication { status, message },
            (409, Some(code)) if code == ENVIRONMENT_OFFLINE => Self::Offline { message },
            (_, code) => Self::Refused { operation, status, code, message, wait: asked_wait(status, retry_after) },
        }
    }

    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Credential(error) => error.is_retryable(),
            Self::Transport(FetchError::Invalid(_)) => false,
            Self::Transport(FetchError::Failed { kind, .. }) => {
                !matches!(kind, FailureKind::Tls | FailureKind::BodyTooLarge)
            }
            Self::TimedOut { .. } | Self::Offline { .. } => true,
            Self::Refused { status, .. } => matches!(status, 408 | 429 | 500..=599),
            Self::Authentication { .. }
            | Self::Malformed { .. }
            | Self::Blank { .. }
            | Self::OtherEnvironment
            | Self::OtherProfile => false,
        }
    }

    /// The wait that the service has asked for.
    pub(crate) fn wait(&self) -> Option<Duration> {
        match self {
            Self::Refused { wait, .. } => *wait,
            _ => None,
        }
    }
}

/// A text of the service as one line without characters on which a terminal acts, so that it is safe to show and to log.
fn shown(text: &str) -> String {
    let words = text.split(|letter: char| letter.is_whitespace() || letter.is_control() || turns_direction(letter));
    let mut line = String::new();
    for word in words.filter(|word| !word.is_empty()) {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    match line.char_indices().nth(MAX_MESSAGE_CHARS) {
        _ if line.is_empty() => "the answer has no text".to_owned(),
        Some((end, _)) => line[..end].to_owned(),
        None => line,
    }
}

/// Whether a character changes the direction of the text around it. Such a character can make one name look like
/// another.
fn turns_direction(letter: char) -> bool {
    matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
