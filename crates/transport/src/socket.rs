//! An accepted connection from which nothing has been read. [`crate::accept_messages`] makes a message stream of it.

use std::net::{IpAddr, SocketAddr};

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
    /// The address of a TCP peer; `None` on a Unix socket.
    pub address: Option<IpAddr>,
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
    /// A socket whose peer has the address `from`, if it has one.
    pub(crate) fn new(stream: SocketStream, from: Option<SocketAddr>, trust: Trust) -> Self {
        let peer = from.map_or_else(|| PeerLabel::new("unix"), PeerLabel::new);
        Self { stream, peer, address: from.map(|from| from.ip()), trust, accepted_at: Instant::now() }
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
