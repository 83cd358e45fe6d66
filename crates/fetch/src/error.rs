//! The errors of requests. No text of an error contains the path or query of a URL, the value of a header, or text
//! that a server has sent over HTTP, because these may be secret, and errors are shown and logged.

use std::error::Error;
use std::io;

use crate::http1::{MAX_HEAD_BYTES, MAX_HEADERS};

/// Why a request was not sent, or got no response, or only a part of one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// The request itself is wrong; nothing was sent.
    #[error("{0}")]
    Invalid(String),
    /// The request is valid, but it could not be sent, or its response could not be received completely. Also: the
    /// file with root certificates that an environment variable names cannot be used.
    #[error("{message}")]
    Failed {
        /// The cause, in a form that programs can compare.
        kind: FailureKind,
        /// The cause as a sentence that names hosts, but no secrets.
        message: String,
    },
}

/// The cause of a failure, in a form that programs can compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureKind {
    /// The name of a host could not be resolved.
    Dns,
    /// A connection could not be opened, or was lost.
    Connect,
    /// The certificate of the server or proxy is not trusted, the TLS handshake failed, or there are no root
    /// certificates.
    Tls,
    /// The timeout of the request has expired.
    Timeout,
    /// There were too many redirects, or a redirect cannot be followed.
    Redirect,
    /// The body is larger than the caller allows.
    BodyTooLarge,
    /// The response is not valid HTTP, not complete, or its headers are over a limit.
    Protocol,
    /// A cause that is none of the others, for example a proxy that cannot be used.
    Other,
}

impl FailureKind {
    /// The name that clients of the exec-server get, in camelCase.
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

/// A failure whose text does not say yet whether the request or the body of its response failed.
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

    pub(crate) fn incomplete() -> Self {
        Self::new(FailureKind::Protocol, "the connection was closed before the answer was complete")
    }

    pub(crate) fn too_many_headers() -> Self {
        let text = format!(
            "the headers of the answer are over the bound of {MAX_HEAD_BYTES} bytes or {MAX_HEADERS} headers"
        );
        Self::new(FailureKind::Protocol, text)
    }

    pub(crate) fn into_request_error(self) -> FetchError {
        FetchError::Failed { kind: self.kind, message: format!("http/request failed: {}", self.text) }
    }

    pub(crate) fn into_body_error(self) -> FetchError {
        let message = format!("failed to read http/request response body: {}", self.text);
        FetchError::Failed { kind: self.kind, message }
    }

    /// Classifies an I/O error of a connection that was open.
    fn from_io(error: &io::Error) -> Self {
        match (error.get_ref(), error.kind()) {
            (Some(inner), _) if inner.is::<rustls::Error>() => Self::new(FailureKind::Tls, inner.to_string()),
            // The connection ended in the middle of a response. hyper reports this as `UnexpectedEof` and h2 as
            // `BrokenPipe`.
            (_, io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe) => Self::incomplete(),
            // hyper uses these kinds for invalid chunks of a body. `MeteredStream` uses `InvalidData` for too many
            // bytes that belong to no response, and `HeadBoundedStream` for too many before a response.
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
            return Self::too_many_headers();
        }
        if error.is_incomplete_message() {
            return Self::incomplete();
        }
        if error.is_timeout() {
            return Self::new(FailureKind::Connect, "the connection was lost: the server does not answer pings");
        }
        if let Some(cause) = http2_error(&error) {
            return Self::from(cause);
        }
        if let Some(cause) = error.source().and_then(|source| source.downcast_ref::<io::Error>()) {
            return Self::from_io(cause);
        }
        let kind = if error.is_parse() { FailureKind::Protocol } else { FailureKind::Other };
        Self::new(kind, error.to_string())
    }
}

impl From<&h2::Error> for RequestFailure {
    fn from(error: &h2::Error) -> Self {
        if let Some(error) = error.get_io() {
            return Self::from_io(error);
        }
        // The text of the error itself is not used, because it can contain text from the server.
        let reason = error.reason().unwrap_or(h2::Reason::INTERNAL_ERROR);
        let text = match reason {
            _ if error.is_remote() => format!("the server ended the HTTP/2 stream: {reason}"),
            // h2 reports invalid answers and too large headers with the same reason.
            h2::Reason::PROTOCOL_ERROR => {
                format!("the answer is not valid HTTP/2, or its headers are over the bound of {MAX_HEAD_BYTES} bytes")
            }
            _ => format!("the answer is not valid HTTP/2: {reason}"),
        };
        Self::new(FailureKind::Protocol, text)
    }
}

/// The error of h2 inside an error of hyper. `None` if h2 did not cause the error.
pub(crate) fn http2_error(error: &hyper::Error) -> Option<&h2::Error> {
    error.source().and_then(|source| source.downcast_ref())
}
