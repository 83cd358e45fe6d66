//! An accepted connection from which nothing has been read. [`crate::accept_messages`] makes a message stream of it.

use tokio::net::{TcpStream, UnixStream};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use crate::http::Trust;
use crate::peer::PeerLabel;

/// An accepted connection, before the TLS handshake and HTTP.
#[derive(Debug)]
pub struct Socket {
    pub(crate) stream: SocketStream,
    /// The peer that connected, for logs and errors.
    pub peer: PeerLabel,
    pub(crate) trust: Trust,
    /// Start of the timeout for the first request.
    pub(crate) accepted_at: Instant,
}

/// The byte stream of an accepted connection. The TLS handshake has not been made: it waits for the peer, and the accept loop must not
/// wait.
pub(crate) enum SocketStream {
    Tcp(TcpStream),
    Tls(TcpStream, TlsAcceptor),
    Unix(UnixStream),
}

impl Socket {
    pub(crate) fn new(stream: SocketStream, peer: PeerLabel, trust: Trust) -> Self {
        Self { stream, peer, trust, accepted_at: Instant::now() }
    }
}

impl std::fmt::Debug for SocketStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Tcp(_) => "Tcp",
            Self::Tls(..) => "Tls",
            Self::Unix(_) => "Unix",
        })
    }
}
