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
    /// How much is known about the peer before it sends a request.
    pub(crate) trust: Trust,
    /// Start of the timeout for the first request.
    pub(crate) accepted_at: Instant,
}

/// The byte stream of an accepted connection. The TLS handshake has not been made: it waits for the peer, and the accept loop must not
/// wait.
pub(crate) enum SocketStream {
    Tcp(TcpStream),
    Tls(TcpStream, TlsAcceptor),
    /// A Unix socket and the uid of its peer.
    Unix(UnixStream, u32),
}

impl Socket {
    /// A socket over TCP, with or without TLS, whose peer has the address `from`.
    pub(crate) fn tcp(stream: SocketStream, from: SocketAddr, trust: Trust) -> Self {
        Self { stream, peer: PeerLabel::new(from), address: Some(from.ip()), trust, accepted_at: Instant::now() }
    }

    /// A Unix socket whose peer has the uid `uid`.
    pub(crate) fn unix(stream: UnixStream, uid: u32) -> Self {
        let trust = Trust::VerifiedUser(uid);
        let stream = SocketStream::Unix(stream, uid);
        Self { stream, peer: PeerLabel::new("unix"), address: None, trust, accepted_at: Instant::now() }
    }
}

impl std::fmt::Debug for SocketStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Tcp(_) => "Tcp",
            Self::Tls(..) => "Tls",
            Self::Unix(..) => "Unix",
        })
    }
}
