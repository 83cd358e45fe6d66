//! Why a request was not made or not answered. No text holds the path or query of a URL, the value of a header or bytes of a
//! body: errors are shown and logged where those must not be.

use std::error::Error;
use std::io;

/// Why a request was not made or not answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// The request itself is wrong; nothing was sent.
    #[error("{0}")]
    Invalid(String),
    /// It was sent, or tried, and failed.
    #[error("{message}")]
    Failed {
        /// For programs.
        kind: FailureKind,
        /// For people.
        message: String,
    },
}

/// What went wrong, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureKind {
    /// A host has no address, or nobody can be asked for it.
    Dns,
    /// No connection, or it was lost.
    Connect,
    /// No trust in the other end, or no common language with it.
    Tls,
    /// The time given is over.
    Timeout,
    /// Too many redirects, or one that cannot be followed.
    Redirect,
    /// The body is larger than allowed.
    BodyTooLarge,
    /// What came is not HTTP, not complete, or over our bounds.
    Protocol,
    /// Something rarer.
    Other,
}

impl FailureKind {
    /// Its name in camelCase.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Dns => "dns",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Timeout => "timeout",
            Self::Redirect => "redirect",
            Self::BodyTooLarge => "bodyTooLarge",
            Self::Protocol => "protocol",
            Self::Other => "other",
        }
    }
}

/// A failure before it is known what it spoils: the answer or its body.
pub(crate) struct RequestFailure {
    pub(crate) kind: FailureKind,
    pub(crate) text: String,
}

impl RequestFailure {
    pub(crate) fn new(kind: FailureKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    pub(crate) fn timeout() -> Self {
        Self::new(FailureKind::Timeout, "the time given for the request is over")
    }

    pub(crate) fn of_request(self) -> FetchError {
        FetchError::Failed { kind: self.kind, message: format!("http/request failed: {}", self.text) }
    }

    pub(crate) fn of_body(self) -> FetchError {
        let message = format!("failed to read http/request response body: {}", self.text);
        FetchError::Failed { kind: self.kind, message }
    }

    /// Of a connection that existed.
    fn from_io(error: &io::Error) -> Self {
        match (error.get_ref(), error.kind()) {
            (Some(inner), _) if inner.is::<rustls::Error>() => Self::new(FailureKind::Tls, inner.to_string()),
            // The decoder of chunks reports this way what it cannot read, and a connection that ends in the middle.
            (_, io::ErrorKind::UnexpectedEof) => {
                Self::new(FailureKind::Protocol, "the connection was closed before the answer was complete")
            }
            (_, io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData) => {
                Self::new(FailureKind::Protocol, format!("the answer is not valid HTTP: {error}"))
            }
            _ => Self::new(FailureKind::Connect, format!("the connection was lost: {error}")),
        }
    }
}

impl From<hyper::Error> for RequestFailure {
    fn from(error: hyper::Error) -> Self {
        if error.is_parse_too_large() {
            let text = format!(
                "the headers of the answer are over the bound of {} bytes or {} headers",
                crate::http1::MAX_HEAD_BYTES,
                crate::http1::MAX_HEADERS
            );
            return Self::new(FailureKind::Protocol, text);
        }
        if error.is_incomplete_message() {
            return Self::new(FailureKind::Protocol, "the connection was closed before the answer was complete");
        }
        if let Some(cause) = error.source().and_then(|source| source.downcast_ref::<io::Error>()) {
            return Self::from_io(cause);
        }
        let kind = if error.is_parse() { FailureKind::Protocol } else { FailureKind::Other };
        Self::new(kind, error.to_string())
    }
}
