//! The errors of connecting. Many messages also say what the user can do. [`ConnectError::is_retryable`] says
//! whether a retry can help. No message contains the user or the query of a URL, because these parts may be secret.

use std::fmt;
use std::io;
use std::time::Duration;

use rustls::CertificateError;

/// Why a client could not connect.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The scheme is not `ws`, `wss` or `unix`. Holds the URL, without user and query.
    #[error("cannot connect to `{0}`; expected `ws://HOST:PORT`, `wss://HOST:PORT` or `unix:///PATH`")]
    UnsupportedUrl(String),
    /// The scheme is known, but the rest of the URL cannot be used.
    #[error("cannot connect to `{url}`: {reason}")]
    InvalidUrl {
        /// The URL, without user and query.
        url: String,
        /// The problem with the URL, as a text that can follow a colon.
        reason: &'static str,
    },
    /// A header of the upgrade request contains characters that HTTP forbids. Holds the name of the header.
    #[error("the header `{0}` has characters that no header may have")]
    InvalidHeader(String),
    /// The name of the host could not be resolved.
    #[error("cannot find the address of `{host}`: {source}")]
    Unresolved {
        /// The host name in the URL.
        host: String,
        /// The error of the resolver.
        source: io::Error,
    },
    /// The connection could not be made, or it broke before the upgrade was done.
    #[error("cannot connect to {url}: {source}")]
    Io {
        /// The URL, without user and query.
        url: String,
        /// The cause: a failed system call, a host without an address, or a connection that the server closed.
        source: io::Error,
    },
    /// The certificate of the server is not accepted.
    #[error("the certificate of {url} {fault}")]
    Certificate {
        /// The URL, without user and query.
        url: String,
        /// The problem with the certificate.
        fault: CertificateFault,
    },
    /// The TLS handshake failed for another reason than the certificate.
    #[error("cannot speak TLS with {url}: {}", tls_message(.source))]
    Tls {
        /// The URL, without user and query.
        url: String,
        /// The error of the TLS library.
        source: rustls::Error,
    },
    /// The system has no root certificates that can be used. Holds the error of the loader, or an empty string.
    #[error("this system has no root certificates{}; install the package `ca-certificates` or name a file with --ca-file", in_parentheses(.0))]
    NoSystemRoots(String),
    /// The server answered the upgrade request with an HTTP status other than 101.
    #[error("the server refused the connection with HTTP status {status}{}", next_step(*.status))]
    Refused {
        /// The HTTP status of the answer.
        status: u16,
        /// The header `Retry-After`, if it is a number of seconds.
        retry_after: Option<Duration>,
    },
    /// The answer is not that of a WebSocket server. Holds the reason, as a sentence about the answer.
    #[error("the server's answer is not a WebSocket upgrade: {0}")]
    BadResponse(&'static str),
}

/// Why a certificate is not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CertificateFault {
    /// No chain of certificates leads from it to a trusted root.
    Untrusted,
    /// It is not valid for the host in the URL.
    WrongName,
    /// Its validity has ended.
    Expired,
    /// Its validity has not begun.
    NotYetValid,
    /// It is the certificate of an authority, which a server must not use as its own.
    IsAuthority,
    /// It was issued by a certificate that is not the one of an authority.
    IssuerIsNoAuthority,
    /// Its key usage does not include servers.
    NotForServers,
    /// Its authority has revoked it.
    Revoked,
    /// It cannot be parsed.
    Unreadable,
    /// Its version, its signature algorithm or a critical extension is not supported.
    Unsupported,
    /// Another reason, as the message of the TLS library.
    Other(String),
}

impl ConnectError {
    /// Whether the same attempt can succeed later. True for failures of the network and of the server, false for errors that a person
    /// has to correct, such as a wrong URL.
    pub fn is_retryable(&self) -> bool {
        match self {
            // A machine that wakes up has no name resolution for a while, and the error is the same as for an unknown name.
            Self::Unresolved { .. } => true,
            Self::Io { source, .. } => !is_permanent(source.kind()),
            Self::Refused { status, .. } => matches!(status, 408 | 429 | 500..=599),
            Self::UnsupportedUrl(_)
            | Self::InvalidUrl { .. }
            | Self::InvalidHeader(_)
            | Self::Certificate { .. }
            | Self::Tls { .. }
            | Self::NoSystemRoots(_)
            | Self::BadResponse(_) => false,
        }
    }
}

/// The value of the header `Retry-After` in seconds. None for a date, because the clocks of both machines may differ.
pub fn retry_after(value: &str) -> Option<Duration> {
    let digits = value.trim();
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    // A number that is too large for the type is as long a wait as any.
    is_number.then(|| Duration::from_secs(digits.parse().unwrap_or(u64::MAX)))
}

/// Whether a retry ends with the same error. A missing file is not permanent: it may be the socket of a server that is still starting.
fn is_permanent(kind: io::ErrorKind) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        kind,
        Kind::PermissionDenied
            | Kind::InvalidInput
            | Kind::InvalidData
            | Kind::InvalidFilename
            | Kind::NotADirectory
            | Kind::Unsupported
    )
}

/// Classifies the error of a TLS handshake: a failure of the network, of the certificate or of the TLS protocol.
pub(super) fn handshake_failure(url: &str, error: io::Error) -> ConnectError {
    let url = url.to_owned();
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        None => ConnectError::Io { url, source: error },
        Some(rustls::Error::InvalidCertificate(reason)) => ConnectError::Certificate { url, fault: reason.into() },
        Some(other) => ConnectError::Tls { url, source: other.clone() },
    }
}

impl From<&CertificateError> for CertificateFault {
    fn from(error: &CertificateError) -> Self {
        match error {
            // A bad signature means that the issuer has the name of a trusted root, but another key.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => Self::Untrusted,
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => Self::WrongName,
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => Self::Expired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => Self::NotYetValid,
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => Self::NotForServers,
            CertificateError::Revoked => Self::Revoked,
            CertificateError::BadEncoding => Self::Unreadable,
            CertificateError::UnhandledCriticalExtension
            | CertificateError::UnsupportedSignatureAlgorithmContext { .. }
            | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => Self::Unsupported,
            CertificateError::Other(other) => match other.0.downcast_ref() {
                Some(webpki::Error::CaUsedAsEndEntity) => Self::IsAuthority,
                Some(webpki::Error::EndEntityUsedAsCa) => Self::IssuerIsNoAuthority,
                Some(webpki::Error::UnsupportedCertVersion | webpki::Error::UnsupportedCriticalExtension) => {
                    Self::Unsupported
                }
                _ => Self::Other(error.to_string()),
            },
            other => Self::Other(other.to_string()),
        }
    }
}

impl fmt::Display for CertificateFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Untrusted => {
                "is not trusted; if you trust it, give a file with the certificate of its authority, or with the certificate itself, with --ca-file"
            }
            Self::WrongName => "is for another host; connect with a host name that is in the certificate, or give the server a certificate for this host",
            Self::Expired => "has expired; renew it, or correct the clock of this machine if it is wrong",
            Self::NotYetValid => "is not valid yet; check the clock of this machine",
            Self::IsAuthority => {
                "is that of a certificate authority, which a server must not use as its own; give the server one that the authority has issued, or a self-signed one with `basicConstraints=CA:FALSE`"
            }
            Self::IssuerIsNoAuthority => {
                "was issued by a certificate that is not an authority; issue it with one that has `basicConstraints=CA:TRUE`"
            }
            Self::NotForServers => "is not for servers; give the server one with `extendedKeyUsage=serverAuth`",
            Self::Revoked => "was revoked by its authority; give the server another one",
            Self::Unreadable => "cannot be read; give the server another one",
            Self::Unsupported => {
                "has a version, a signature or an extension that is not supported; give the server one of version 3 that is signed with SHA-256 or better"
            }
            Self::Other(message) => return write!(f, "is not accepted: {message}"),
        })
    }
}

fn tls_message(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidMessage(_) => {
            "its answer is not TLS; a server without TLS is reached with ws://".to_owned()
        }
        rustls::Error::PeerIncompatible(_) => {
            "it supports no TLS version or no cipher that this program supports; the server needs TLS 1.2 or 1.3"
                .to_owned()
        }
        // The Debug form of an alert is its name in the TLS standard, which a user can search for.
        rustls::Error::AlertReceived(alert) => format!("it refused the handshake with the alert {alert:?}"),
        other => other.to_string(),
    }
}

fn in_parentheses(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(" ({text})") }
}

fn next_step(status: u16) -> &'static str {
    match status {
        300..=399 => "; it redirects to another address, and redirects are not followed: connect to that address",
        401 | 403 => "; check the token",
        404 => "; check the path of the URL",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn the_message_about_a_refused_certificate_fits_the_cause() {
        let library = |error: webpki::Error| CertificateError::Other(rustls::OtherError(Arc::new(error)));
        for (cause, fault, words) in [
            (library(webpki::Error::CaUsedAsEndEntity), CertificateFault::IsAuthority, "`basicConstraints=CA:FALSE`"),
            (
                library(webpki::Error::EndEntityUsedAsCa),
                CertificateFault::IssuerIsNoAuthority,
                "issue it with one that has `basicConstraints=CA:TRUE`",
            ),
            (library(webpki::Error::UnsupportedCertVersion), CertificateFault::Unsupported, "one of version 3"),
            (CertificateError::UnhandledCriticalExtension, CertificateFault::Unsupported, "is not supported"),
            (CertificateError::InvalidPurpose, CertificateFault::NotForServers, "`extendedKeyUsage=serverAuth`"),
            (CertificateError::Revoked, CertificateFault::Revoked, "was revoked by its authority"),
            (CertificateError::BadEncoding, CertificateFault::Unreadable, "cannot be read"),
        ] {
            let actual = CertificateFault::from(&cause);
            assert_eq!(actual, fault);
            assert!(actual.to_string().contains(words), "{actual}");
        }
    }

    #[test]
    fn a_failed_handshake_has_a_readable_message() {
        let refused = rustls::Error::AlertReceived(rustls::AlertDescription::HandshakeFailure);
        assert_eq!(tls_message(&refused), "it refused the handshake with the alert HandshakeFailure");
        let other_version = rustls::Error::PeerIncompatible(rustls::PeerIncompatible::ServerDoesNotSupportTls12Or13);
        assert!(tls_message(&other_version).ends_with("the server needs TLS 1.2 or 1.3"));
    }

    #[test]
    fn a_wait_that_a_server_asks_for_is_a_number_of_seconds() {
        assert_eq!(retry_after(" 120 "), Some(Duration::from_secs(120)));
        for other in ["", "-1", "1.5", "Fri, 31 Dec 1999 23:59:59 GMT"] {
            assert_eq!(retry_after(other), None, "{other}");
        }
        assert_eq!(retry_after("99999999999999999999999"), Some(Duration::from_secs(u64::MAX)));
    }

    #[test]
    fn only_failures_of_network_and_server_are_retryable() {
        let io = |kind: io::ErrorKind| ConnectError::Io { url: "ws://x".into(), source: kind.into() };
        let refused = |status| ConnectError::Refused { status, retry_after: None };
        let certificate = ConnectError::Certificate { url: "wss://x".into(), fault: CertificateFault::Untrusted };
        for error in [
            io(io::ErrorKind::ConnectionRefused),
            io(io::ErrorKind::TimedOut),
            io(io::ErrorKind::ConnectionReset),
            io(io::ErrorKind::UnexpectedEof),
            io(io::ErrorKind::NotFound),
            refused(408),
            refused(429),
            refused(500),
            refused(503),
        ] {
            assert!(error.is_retryable(), "{error}");
        }
        for error in [
            ConnectError::UnsupportedUrl("x".into()),
            ConnectError::InvalidHeader("x".into()),
            io(io::ErrorKind::PermissionDenied),
            certificate,
            refused(301),
            refused(401),
            refused(403),
            refused(404),
            ConnectError::BadResponse("x"),
        ] {
            assert!(!error.is_retryable(), "{error}");
        }
    }
}
