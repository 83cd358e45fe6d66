//! Listening sockets: TCP, TLS and Unix. [`Listener::accept`] tries again after temporary errors, so it returns only
//! errors after which the listener can never accept again. The TLS handshake and HTTP come later, in
//! [`crate::accept_messages`]. `unix` has the rules for the file of a Unix socket.

mod unix;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use rustix::io::Errno;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::http::Trust;
use crate::listen_url::ListenUrl;
use crate::socket::{Socket, SocketStream};
use unix::UnixSocketFile;

pub use unix::BACKLOG;

/// Pause after a failed attempt to accept. Long enough to use little CPU time while no descriptor is free, and short
/// enough that a client hardly notices it when one becomes free.
const PAUSE_AFTER_FAILED_ACCEPT: Duration = Duration::from_millis(50);

/// A bound socket that accepts connections.
#[derive(Debug)]
pub struct Listener {
    socket: BoundSocket,
    url: ListenUrl,
}

enum BoundSocket {
    Tcp(TcpListener),
    Tls(TcpListener, TlsAcceptor),
    Unix(UnixSocketFile),
}

/// Why a listener could not be bound.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The operating system refused to bind or listen.
    #[error("cannot listen on {url}: {source}")]
    Refused {
        /// The URL to listen on.
        url: ListenUrl,
        /// The error of the system call.
        source: io::Error,
    },
    /// Stdio is a single connection and cannot accept others. Use [`crate::stdio`] for it.
    #[error("stdio has no listener; serve its one connection directly")]
    Stdio,
    /// `wss://` was given without a certificate.
    #[error("cannot listen on {0}: wss:// needs a certificate and a key")]
    MissingCertificate(ListenUrl),
    /// A certificate was given for an address without TLS. It is refused because the user may believe that the connection is encrypted.
    #[error("cannot listen on {0}: only wss:// takes a certificate")]
    UnusedCertificate(ListenUrl),
    /// Another server listens on this Unix socket, or holds the lock for it and does not release it in time.
    #[error("cannot listen on unix://{}: another server is listening there; stop it or choose another path", .0.display())]
    UnixInUse(PathBuf),
    /// The lock file beside a Unix socket cannot be created or locked.
    #[error("cannot listen on unix://{}: cannot lock {}: {source}", socket.display(), lock.display())]
    Lock {
        /// Path of the socket.
        socket: PathBuf,
        /// Path of the lock file: that of the socket with `.lock` appended.
        lock: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// A file that is not a socket exists at the path of the Unix socket. It is not removed.
    #[error("cannot listen on unix://{}: the path exists and is not a socket; remove it or choose another path", .0.display())]
    NotASocket(PathBuf),
}

/// Why a connection was not accepted, while the listener keeps listening.
#[derive(Debug, thiserror::Error)]
pub enum AcceptWarning {
    /// Accepting failed, most likely because file descriptors or memory ran out. The listener tries again after 50 ms.
    #[error("cannot accept a connection, trying again: {0}")]
    OutOfResources(io::Error),
    /// The peer of a Unix socket was refused because of its user.
    #[error(transparent)]
    OtherUser(OtherUser),
}

/// A peer of a Unix socket that was refused: its user is neither the user of the server nor root, or is not known.
#[derive(Debug, thiserror::Error)]
#[error("refused a connection from another user{}", .uid.map(|uid| format!(" (uid {uid})")).unwrap_or_default())]
pub struct OtherUser {
    /// User id of the peer; `None` if the kernel did not report it.
    pub uid: Option<u32>,
}

impl Listener {
    /// Binds the address and listens on it. `wss://` needs `tls`, and the other schemes must not have it.
    pub async fn bind(url: &ListenUrl, tls: Option<TlsAcceptor>) -> Result<Self, BindError> {
        let refused = |source| BindError::Refused { url: url.clone(), source };
        match (url, tls) {
            (ListenUrl::Stdio, _) => Err(BindError::Stdio),
            (ListenUrl::SecureWebSocket(_), None) => Err(BindError::MissingCertificate(url.clone())),
            (ListenUrl::WebSocket(_) | ListenUrl::Unix(_), Some(_)) => Err(BindError::UnusedCertificate(url.clone())),
            (ListenUrl::WebSocket(address), None) => {
                let listener = TcpListener::bind(address).await.map_err(refused)?;
                let url = ListenUrl::WebSocket(listener.local_addr().map_err(refused)?);
                Ok(Self { socket: BoundSocket::Tcp(listener), url })
            }
            (ListenUrl::SecureWebSocket(address), Some(tls)) => {
                let listener = TcpListener::bind(address).await.map_err(refused)?;
                let url = ListenUrl::SecureWebSocket(listener.local_addr().map_err(refused)?);
                Ok(Self { socket: BoundSocket::Tls(listener, tls), url })
            }
            (ListenUrl::Unix(path), None) => {
                let file = UnixSocketFile::bind(path).await?;
                Ok(Self { socket: BoundSocket::Unix(file), url: url.clone() })
            }
        }
    }

    /// The URL that the listener is bound to. If the port to listen on was 0, the URL has the port that the kernel
    /// picked.
    pub fn url(&self) -> String {
        self.url.to_string()
    }

    /// Waits for the next connection. Cancel safe. Fails only if the listener can never accept again; after other
    /// errors, such as a lack of descriptors, it tries again. `warn` is called after each such error and for each
    /// refused peer, possibly many times a second. It is not called for a peer that has left already.
    pub async fn accept(&self, warn: impl Fn(AcceptWarning)) -> io::Result<Socket> {
        loop {
            match self.try_accept().await {
                Ok(Ok(Some(socket))) => return Ok(socket),
                Ok(Ok(None)) => {}
                Ok(Err(other_user)) => warn(AcceptWarning::OtherUser(other_user)),
                Err(error) if is_permanent(&error) => return Err(error),
                Err(error) => {
                    warn(AcceptWarning::OutOfResources(error));
                    tokio::time::sleep(PAUSE_AFTER_FAILED_ACCEPT).await;
                }
            }
        }
    }

    /// Accepts one connection. Returns `None` if the peer has left already, and [`OtherUser`] for a Unix peer that is not allowed to
    /// connect.
    async fn try_accept(&self) -> io::Result<Result<Option<Socket>, OtherUser>> {
        let (stream, from) = match &self.socket {
            BoundSocket::Tcp(listener) => {
                let Some((stream, from)) = accept_tcp(listener).await? else { return Ok(Ok(None)) };
                (SocketStream::Tcp(stream), from)
            }
            BoundSocket::Tls(listener, tls) => {
                let Some((stream, from)) = accept_tcp(listener).await? else { return Ok(Ok(None)) };
                (SocketStream::Tls(stream, tls.clone()), from)
            }
            BoundSocket::Unix(file) => match file.accept().await? {
                Ok((stream, uid)) => return Ok(Ok(Some(Socket::unix(stream, uid)))),
                Err(other_user) => return Ok(Err(other_user)),
            },
        };
        let trust = if self.url.is_local() { Trust::Loopback } else { Trust::Network };
        Ok(Ok(Some(Socket::tcp(stream, from, trust))))
    }
}

async fn accept_tcp(listener: &TcpListener) -> io::Result<Option<(TcpStream, SocketAddr)>> {
    let (stream, from) = listener.accept().await?;
    // This fails only if the peer has left. It must not cause the pause after a failed accept.
    Ok(stream.set_nodelay(true).is_ok().then_some((stream, from)))
}

/// Whether the listening socket can never accept again. All other errors are about one connection or a lack of resources.
fn is_permanent(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::BADF | Errno::INVAL | Errno::NOTSOCK | Errno::OPNOTSUPP))
}

impl std::fmt::Debug for BoundSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Tcp(_) => "Tcp",
            Self::Tls(..) => "Tls",
            Self::Unix(_) => "Unix",
        })
    }
}
