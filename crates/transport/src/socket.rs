//! A connection as it comes out of the listener, before anything was read from it.

use tokio::net::{TcpStream, UnixStream};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use crate::http::Trust;
use crate::peer::PeerLabel;

/// An accepted connection.
#[derive(Debug)]
pub struct Socket {
    pub(crate) wire: Wire,
    /// Who connected.
    pub peer: PeerLabel,
    pub(crate) trust: Trust,
    /// From here the time until the first request is counted.
    pub(crate) accepted_at: Instant,
}

/// What the bytes travel on. The TLS handshake is still to be made: it waits for the peer, which the accept loop must not.
pub(crate) enum Wire {
    Tcp(TcpStream),
    Tls(TcpStream, TlsAcceptor),
    Unix(UnixStream),
}

impl Socket {
    pub(crate) fn new(wire: Wire, peer: PeerLabel, trust: Trust) -> Self {
        Self { wire, peer, trust, accepted_at: Instant::now() }
    }
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Tcp(_) => "Tcp",
            Self::Tls(..) => "Tls",
            Self::Unix(_) => "Unix",
        })
    }
}
