//! Turns an accepted socket into a message stream: a WebSocket after an HTTP upgrade, over TCP, TLS or a Unix socket,
//! or one message per line over a Unix socket. Start reading at [`accept_messages`].

use std::io;
use std::sync::Arc;

use rustix::net::RecvFlags;
use tokio::io::{AsyncRead, AsyncWrite, Interest};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, timeout_at};

use crate::framing::Framing;
use crate::http::{self, HttpError, HttpSurface, REQUEST_TIMEOUT, Trust, Upgraded, UpgradedBy};
use crate::message::MessageLimits;
use crate::peer::PeerLabel;
use crate::principal::Principal;
use crate::socket::{Socket, SocketStream};
use crate::stream::{MessageStream, lines};

/// Why an accepted socket did not become a message stream.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    /// The peer did not complete the TLS handshake and a first request within 10 seconds after the accept, or the
    /// next request within 10 seconds after the one before.
    #[error("the peer sent no complete request within {} seconds", REQUEST_TIMEOUT.as_secs())]
    Deadline,
    /// The TLS handshake failed.
    #[error("the TLS handshake failed: {0}")]
    Tls(io::Error),
    /// The peer sent something that is not HTTP/1, or the connection ended in the middle of a request or its answer.
    #[error("the HTTP exchange failed: {0}")]
    Http(hyper::Error),
    /// Reading the first byte from a Unix socket failed.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
}

/// What an accepted socket has become.
#[derive(Debug)]
pub enum Accepted {
    /// The connection of a client.
    Client(AcceptedStream),
    /// A socket with binary messages that was opened at [`DIRECT_PATH`](crate::DIRECT_PATH), with a ticket that
    /// [`HttpSurface::take_ticket`] has accepted.
    TicketHolder(MessageStream),
}

/// The connection of a client over an accepted socket.
#[derive(Debug)]
pub struct AcceptedStream {
    /// Both directions of the connection.
    pub stream: MessageStream,
    /// The client behind the connection.
    pub principal: Principal,
}

/// Serves HTTP/1 on an accepted socket until the peer upgrades to a WebSocket. Returns `None` if the peer leaves
/// without an upgrade. `surface` is the server behind the listener: it decides who may connect, and provides the
/// metrics.
///
/// On a Unix socket the first byte from the peer selects the protocol. A letter, with which every HTTP method begins,
/// selects HTTP. Any other byte selects one message per line, without HTTP. Neither protocol needs a token on a Unix
/// socket, because the kernel has reported the user of the peer.
pub async fn accept_messages(
    socket: Socket,
    surface: Arc<dyn HttpSurface>,
    limits: MessageLimits,
) -> Result<Option<Accepted>, AcceptError> {
    let Socket { stream, peer, trust, accepted_at, .. } = socket;
    let deadline = accepted_at + REQUEST_TIMEOUT;
    let connection = HttpConnection { surface, peer, limits, deadline };
    match stream {
        SocketStream::Tcp(stream) => connection.serve(stream, TcpStream::into_split, trust).await,
        SocketStream::Tls(stream, tls) => {
            let handshake = timeout_at(deadline, tls.accept(stream)).await.map_err(|_| AcceptError::Deadline)?;
            connection.serve(handshake.map_err(AcceptError::Tls)?, tokio::io::split, trust).await
        }
        SocketStream::Unix(stream, uid) => match first_byte(&stream, deadline).await? {
            None => Ok(None),
            Some(byte) if byte.is_ascii_alphabetic() => connection.serve(stream, UnixStream::into_split, trust).await,
            Some(_) => {
                let (read, write) = stream.into_split();
                let stream = lines(read, write, connection.peer, limits);
                Ok(Some(Accepted::Client(AcceptedStream { stream, principal: Principal::User(uid) })))
            }
        },
    }
}

/// The settings of a connection over HTTP, the same for every kind of socket.
struct HttpConnection {
    surface: Arc<dyn HttpSurface>,
    peer: PeerLabel,
    limits: MessageLimits,
    deadline: Instant,
}

impl HttpConnection {
    async fn serve<T, R, W>(
        self,
        io: T,
        split: impl FnOnce(T) -> (R, W),
        trust: Trust,
    ) -> Result<Option<Accepted>, AcceptError>
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let Some(upgraded) = http::serve(io, self.surface, trust, self.deadline).await? else {
            return Ok(None);
        };
        let Upgraded { io, already_read, by } = upgraded;
        let (framing, limits) = match &by {
            UpgradedBy::Client(_) => (Framing::WebSocketServer, self.limits),
            UpgradedBy::TicketHolder(limits) => (Framing::BinaryWebSocketServer, *limits),
        };
        let stream = MessageStream::upgraded(split(io), framing, already_read, self.peer, limits);
        Ok(Some(match by {
            UpgradedBy::Client(principal) => Accepted::Client(AcceptedStream { stream, principal }),
            UpgradedBy::TicketHolder(_) => Accepted::TicketHolder(stream),
        }))
    }
}

/// Returns the first byte without consuming it, or `None` if the peer left without sending one.
async fn first_byte(stream: &UnixStream, deadline: Instant) -> Result<Option<u8>, AcceptError> {
    let mut byte = [0];
    let peek = stream.async_io(Interest::READABLE, || Ok(rustix::net::recv(stream, &mut byte, RecvFlags::PEEK)?));
    let (count, _) = timeout_at(deadline, peek).await.map_err(|_| AcceptError::Deadline)??;
    Ok((count > 0).then_some(byte[0]))
}

impl From<HttpError> for AcceptError {
    fn from(error: HttpError) -> Self {
        match error {
            HttpError::TimedOut => Self::Deadline,
            HttpError::Failed(error) => Self::Http(error),
        }
    }
}
