//! A principal is the client behind an accepted connection, as far as its identity is known. The server decides what
//! a principal may do.

use std::fmt;
use std::sync::Arc;

/// The client behind a connection. Connections with equal principals have the same rights, because the server cannot
/// tell whether the same client has made them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Principal {
    /// Anybody who can reach the address, because the listener asks for no token.
    Anybody,
    /// The user with this uid. The kernel reports it for the peer of a Unix socket. On stdio it is the user that the server runs as, because
    /// the program that has started the server acts with the rights of that user.
    User(u32),
    /// The holder of the token with this name.
    Token(Arc<str>),
    /// The harness behind a relay whose key has this fingerprint. The handshake has proven that the harness has the key.
    Harness(Arc<str>),
}

/// `anybody`, `uid:1000`, `token:ci` or `harness:SHA256:…`, for logs.
impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anybody => f.write_str("anybody"),
            Self::User(uid) => write!(f, "uid:{uid}"),
            Self::Token(name) => write!(f, "token:{name}"),
            Self::Harness(fingerprint) => write!(f, "harness:{fingerprint}"),
        }
    }
}
