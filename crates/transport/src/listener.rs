//! Listening sockets, TCP and Unix. `accept` outlives every trouble that passes, so that its owner needs no rules for it.

mod unix;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rustix::io::Errno;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::http::Trust;
use crate::listen_url::ListenUrl;
use crate::peer::PeerLabel;
use crate::socket::{Socket, Wire};
use unix::UnixSocketFile;

/// Long enough not to burn a processor while the machine is out of descriptors, short enough to go unnoticed after.
const PAUSE_AFTER_FAILED_ACCEPT: Duration = Duration::from_millis(50);

/// A bound socket that accepts connections.
#[derive(Debug)]
pub struct Listener {
    door: Door,
    url: ListenUrl,
}

enum Door {
    Tcp(TcpListener),
    Tls(TcpListener, TlsAcceptor),
    Unix(UnixSocketFile),
}

/// Why nothing can be listened on.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The system refused.
    #[error("cannot listen on {url}: {source}")]
    Refused {
        /// Where.
        url: ListenUrl,
        /// What the system said.
        source: io::Error,
    },
    /// Stdio is one connection, not a place that accepts them.
    #[error("stdio has no listener; serve its one connection directly")]
    Stdio,
    /// `wss://` without a certificate.
    #[error("cannot listen on {0}: wss:// needs a certificate and a key")]
    MissingCertificate(ListenUrl),
    /// A certificate that would not be used, which would leave its owner believing in encryption.
    #[error("cannot listen on {0}: only wss:// takes a certificate")]
    UnusedCertificate(ListenUrl),
    /// Another server is listening there.
    #[error("cannot listen on unix://{}: another server is listening there; stop it or choose another path", .0.display())]
    UnixInUse(PathBuf),
    /// The file that keeps other servers away cannot be made or locked.
    #[error("cannot listen on unix://{}: cannot lock {}: {source}", socket.display(), lock.display())]
    Lock {
        /// Where the socket would be.
        socket: PathBuf,
        /// The file beside it.
        lock: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Something that is not ours to remove.
    #[error("cannot listen on unix://{}: the path exists and is not a socket; remove it or choose another path", .0.display())]
    NotASocket(PathBuf),
}

/// Why a connection was not accepted. The listener goes on.
#[derive(Debug, thiserror::Error)]
pub enum AcceptWarning {
    /// The machine is short of something, most likely of descriptors. The listener tries again after a pause.
    #[error("cannot accept a connection, trying again: {0}")]
    OutOfResources(io::Error),
    /// The peer of a Unix socket was turned away.
    #[error(transparent)]
    OtherUser(OtherUser),
}

/// A peer of a Unix socket that is neither the user of the server nor root.
#[derive(Debug, thiserror::Error)]
#[error("turned away a connection from another user{}", .uid.map(|uid| format!(" (uid {uid})")).unwrap_or_default())]
pub struct OtherUser {
    /// None if the kernel did not say who it is.
    pub uid: Option<u32>,
}

impl Listener {
    /// Binds and listens. Must be called inside a tokio runtime.
    pub async fn bind(url: &ListenUrl, tls: Option<TlsAcceptor>) -> Result<Self, BindError> {
        let refused = |source| BindError::Refused { url: url.clone(), source };
        match (url, tls) {
            (ListenUrl::Stdio, _) => Err(BindError::Stdio),
            (ListenUrl::SecureWebSocket(_), None) => Err(BindError::MissingCertificate(url.clone())),
            (ListenUrl::WebSocket(_) | ListenUrl::Unix(_), Some(_)) => Err(BindError::UnusedCertificate(url.clone())),
            (ListenUrl::WebSocket(address), None) => {
                let listener = TcpListener::bind(address).await.map_err(refused)?;
                let url = ListenUrl::WebSocket(listener.local_addr().map_err(refused)?);
                Ok(Self { door: Door::Tcp(listener), url })
            }
            (ListenUrl::SecureWebSocket(address), Some(tls)) => {
                let listener = TcpListener::bind(address).await.map_err(refused)?;
                let url = ListenUrl::SecureWebSocket(listener.local_addr().map_err(refused)?);
                Ok(Self { door: Door::Tls(listener, tls), url })
            }
            (ListenUrl::Unix(path), None) => {
                let file = UnixSocketFile::bind(path).await?;
                Ok(Self { door: Door::Unix(file), url: url.clone() })
            }
        }
    }

    /// Where clients can connect: the URL with the port the kernel picked.
    pub fn url(&self) -> String {
        self.url.to_string()
    }

    /// Waits for the next connection. Cancel safe. Fails only if the listener itself is broken: shortage of descriptors or
    /// memory is waited out. `note` is told of what went wrong meanwhile, which can be many times a second.
    pub async fn accept(&self, note: impl Fn(AcceptWarning)) -> io::Result<Socket> {
        loop {
            match self.try_accept().await {
                Ok(Ok(Some(socket))) => return Ok(socket),
                Ok(Ok(None)) => {}
                Ok(Err(other_user)) => note(AcceptWarning::OtherUser(other_user)),
                Err(error) if is_broken(&error) => return Err(error),
                Err(error) => {
                    note(AcceptWarning::OutOfResources(error));
                    tokio::time::sleep(PAUSE_AFTER_FAILED_ACCEPT).await;
                }
            }
        }
    }

    /// One connection, `None` if it is gone already, or who was turned away.
    async fn try_accept(&self) -> io::Result<Result<Option<Socket>, OtherUser>> {
        let (wire, peer) = match &self.door {
            Door::Tcp(listener) => {
                let Some((stream, peer)) = accept_tcp(listener).await? else { return Ok(Ok(None)) };
                (Wire::Tcp(stream), peer)
            }
            Door::Tls(listener, tls) => {
                let Some((stream, peer)) = accept_tcp(listener).await? else { return Ok(Ok(None)) };
                (Wire::Tls(stream, tls.clone()), peer)
            }
            Door::Unix(file) => match file.accept().await? {
                Ok(stream) => (Wire::Unix(stream), PeerLabel::Unix),
                Err(other_user) => return Ok(Err(other_user)),
            },
        };
        Ok(Ok(Some(Socket::new(wire, peer, self.trust()))))
    }

    fn trust(&self) -> Trust {
        match self.door {
            Door::Unix(_) => Trust::Vouched,
            Door::Tcp(_) | Door::Tls(..) if self.url.is_local() => Trust::OnLoopback,
            Door::Tcp(_) | Door::Tls(..) => Trust::Unknown,
        }
    }
}

async fn accept_tcp(listener: &TcpListener) -> io::Result<Option<(TcpStream, PeerLabel)>> {
    let (stream, peer) = listener.accept().await?;
    // It fails only on a connection that is gone, which is no reason to slow down the next one.
    Ok(stream.set_nodelay(true).is_ok().then_some((stream, PeerLabel::Tcp(peer))))
}

/// Errors that would come again for ever. All others are about one connection or about a shortage.
fn is_broken(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::BADF | Errno::INVAL | Errno::NOTSOCK | Errno::OPNOTSUPP))
}

impl std::fmt::Debug for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Tcp(_) => "Tcp",
            Self::Tls(..) => "Tls",
            Self::Unix(_) => "Unix",
        })
    }
}
