//! From an accepted socket to a message stream: TLS, HTTP and its upgrade, or plain lines on a Unix socket.

use std::io;
use std::sync::Arc;

use rustix::net::RecvFlags;
use tokio::io::{AsyncRead, AsyncWrite, Interest};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, timeout_at};

use crate::framing::Framing;
use crate::http::{self, END_OF_PATIENCE, HttpError, HttpSurface, Trust, Upgraded};
use crate::message::MessageLimits;
use crate::peer::PeerLabel;
use crate::socket::{Socket, Wire};
use crate::stream::{MessageStream, lines};

/// Why an accepted socket came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    /// Handshake, headers or the next request took too long.
    #[error("the peer sent no complete request within {} seconds", END_OF_PATIENCE.as_secs())]
    Deadline,
    /// The TLS handshake failed.
    #[error("the TLS handshake failed: {0}")]
    Tls(io::Error),
    /// What the peer sent is not HTTP, or it left in the middle.
    #[error("the HTTP exchange failed: {0}")]
    Http(hyper::Error),
    /// The connection itself failed.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
}

/// Serves HTTP/1 on a fresh socket until it is upgraded or ends; `None` if the peer only used HTTP.
///
/// On a Unix socket a first byte that is no letter, so that no HTTP method begins with it, means one message per line; and
/// nobody is asked for a token there, because the kernel has already said whose process it is.
pub async fn accept_messages(
    socket: Socket,
    surface: Arc<dyn HttpSurface>,
    limits: MessageLimits,
) -> Result<Option<MessageStream>, AcceptError> {
    let Socket { wire, peer, trust, accepted_at } = socket;
    let deadline = accepted_at + END_OF_PATIENCE;
    let visit = Visit { surface, peer, limits, deadline };
    match wire {
        Wire::Tcp(stream) => visit.over_http(stream, TcpStream::into_split, trust).await,
        Wire::Tls(stream, tls) => {
            let handshake = timeout_at(deadline, tls.accept(stream)).await.map_err(|_| AcceptError::Deadline)?;
            visit.over_http(handshake.map_err(AcceptError::Tls)?, tokio::io::split, trust).await
        }
        Wire::Unix(stream) => match first_byte(&stream, deadline).await? {
            None => Ok(None),
            Some(byte) if byte.is_ascii_alphabetic() => visit.over_http(stream, UnixStream::into_split, trust).await,
            Some(_) => {
                let (read, write) = stream.into_split();
                Ok(Some(lines(read, write, peer, limits)))
            }
        },
    }
}

/// What is known of a connection whatever its wire.
struct Visit {
    surface: Arc<dyn HttpSurface>,
    peer: PeerLabel,
    limits: MessageLimits,
    deadline: Instant,
}

impl Visit {
    async fn over_http<T, R, W>(
        self,
        io: T,
        split: impl FnOnce(T) -> (R, W),
        trust: Trust,
    ) -> Result<Option<MessageStream>, AcceptError>
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let Some(Upgraded { io, already_read }) = http::serve(io, self.surface, trust, self.deadline).await? else {
            return Ok(None);
        };
        Ok(Some(MessageStream::new(split(io), Framing::WebSocketServer, already_read, self.peer, self.limits)))
    }
}

/// Looks at the first byte without taking it; `None` if the peer left without sending any.
async fn first_byte(stream: &UnixStream, deadline: Instant) -> Result<Option<u8>, AcceptError> {
    let mut byte = [0];
    let peek = stream.async_io(Interest::READABLE, || Ok(rustix::net::recv(stream, &mut byte, RecvFlags::PEEK)?));
    let (count, _) = timeout_at(deadline, peek).await.map_err(|_| AcceptError::Deadline)??;
    Ok((count > 0).then_some(byte[0]))
}

impl From<HttpError> for AcceptError {
    fn from(error: HttpError) -> Self {
        match error {
            HttpError::OutOfPatience => Self::Deadline,
            HttpError::Broken(error) => Self::Http(error),
        }
    }
}
