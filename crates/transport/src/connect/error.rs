//! Why there is no connection, said so that the reader knows what to do, and whether trying again could help. No message
//! holds the query of a URL: it may be a secret.

use std::fmt;
use std::io;

use rustls::CertificateError;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// None of the schemes we know.
    #[error("cannot connect to `{0}`; expected `ws://HOST:PORT`, `wss://HOST:PORT` or `unix:///PATH`")]
    UnsupportedUrl(String),
    /// A scheme we know with something behind it that cannot be used.
    #[error("cannot connect to `{url}`: {reason}")]
    InvalidUrl {
        /// The URL, without what may be secret in it.
        url: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A header that cannot be sent as given.
    #[error("the header `{0}` has characters that no header may have")]
    InvalidHeader(String),
    /// The host has no address, or nobody can be asked for it.
    #[error("cannot find the address of `{host}`: {source}")]
    Unresolved {
        /// The host.
        host: String,
        /// What the resolver said.
        source: io::Error,
    },
    /// The connection failed.
    #[error("cannot connect to {url}: {source}")]
    Io {
        /// Where to.
        url: String,
        /// What the system said.
        source: io::Error,
    },
    /// The server showed a certificate that we do not accept.
    #[error("the certificate of {url} {fault}")]
    Certificate {
        /// Where to.
        url: String,
        /// What is wrong with it.
        fault: CertificateFault,
    },
    /// The TLS handshake failed for another reason than the certificate.
    #[error("cannot speak TLS with {url}: {}", tls_words(.source))]
    Tls {
        /// Where to.
        url: String,
        /// What the TLS library said.
        source: rustls::Error,
    },
    /// This machine trusts nobody.
    #[error("this system has no root certificates{}; install the package `ca-certificates` or name a file with --ca-file", because(.0))]
    NoSystemRoots(String),
    /// The server answered, but not with an upgrade.
    #[error("the server refused the connection with HTTP status {status}{}", hint(*.status))]
    Refused {
        /// The HTTP status.
        status: u16,
    },
    /// What answered is not a WebSocket server.
    #[error("the server's answer is not a WebSocket upgrade: {0}")]
    BadResponse(&'static str),
}

/// Why a certificate is not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CertificateFault {
    /// No chain from it to a trusted root.
    Untrusted,
    /// It is for other hosts than the one in the URL.
    WrongName,
    /// Its time is over.
    Expired,
    /// Its time has not come.
    NotYetValid,
    /// It is the certificate of an authority, and a server may not show that one itself.
    IsAuthority,
    /// It was issued by a certificate that may issue none.
    IssuerIsNoAuthority,
    /// It may be used, but not by a server.
    NotForServers,
    /// Its authority has taken it back.
    Revoked,
    /// It is none, or is damaged.
    Unreadable,
    /// It is signed in a way, or has a property, that this program does not know.
    Unsupported,
    /// Something rarer, in the words of the TLS library.
    Other(String),
}

impl ConnectError {
    /// Whether the same attempt may succeed later without anybody changing it. It is about networks and servers that come
    /// back; what a person must correct is not.
    pub fn is_retryable(&self) -> bool {
        match self {
            // A machine that wakes up has no resolver for a while, and resolvers do not say this reliably.
            Self::Unresolved { .. } => true,
            Self::Io { source, .. } => !is_lasting(source.kind()),
            Self::Refused { status } => matches!(status, 408 | 429 | 500..=599),
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

/// Failures that are about what was asked for. A missing file is none: a server that starts makes its socket.
fn is_lasting(kind: io::ErrorKind) -> bool {
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

/// Sorts what a failed TLS handshake left: the network's fault, the certificate's, or that of what answered.
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
            // A bad signature is what is left of a root that only has the name of the trusted one.
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
                "is not trusted; name the file with the certificate of its authority, or with itself, with --ca-file"
            }
            Self::WrongName => "is for another host; connect with a name that it has, or give the server another one",
            Self::Expired => "has expired; renew it, and look whether the clock of this machine is right",
            Self::NotYetValid => "is not valid yet; look whether the clock of this machine is right",
            Self::IsAuthority => {
                "is that of a certificate authority, which no server may show; give the server one that the authority has issued, or a self-signed one with `basicConstraints=CA:FALSE`"
            }
            Self::IssuerIsNoAuthority => {
                "was issued by a certificate that may not issue any; issue it with one that has `basicConstraints=CA:TRUE`"
            }
            Self::NotForServers => "is not for servers; give the server one with `extendedKeyUsage=serverAuth`",
            Self::Revoked => "was revoked by its authority; give the server another one",
            Self::Unreadable => "cannot be read; give the server another one",
            Self::Unsupported => {
                "is signed in a way, or has a property, that is not supported; give the server one of version 3 that is signed with SHA-256 or better"
            }
            Self::Other(words) => return write!(f, "is not accepted: {words}"),
        })
    }
}

fn tls_words(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidMessage(_) => {
            "what it answers is not TLS; a server without TLS is reached with ws://".to_owned()
        }
        rustls::Error::PeerIncompatible(_) => {
            "it has no version of TLS or no cipher that this program has; it needs TLS 1.2 or 1.3".to_owned()
        }
        // The names of alerts are those of the standard, by which one can look for them.
        rustls::Error::AlertReceived(alert) => format!("it refused the handshake with the alert {alert:?}"),
        other => other.to_string(),
    }
}

fn because(words: &str) -> String {
    if words.is_empty() { String::new() } else { format!(" ({words})") }
}

fn hint(status: u16) -> &'static str {
    match status {
        300..=399 => "; it names another address, and redirects are not followed: connect to that one",
        401 | 403 => "; check the token",
        404 => "; check the path of the URL",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_retried_and_what_a_person_must_correct_is_not() {
        let io = |kind: io::ErrorKind| ConnectError::Io { url: "ws://x".into(), source: kind.into() };
        let refused = |status| ConnectError::Refused { status };
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
