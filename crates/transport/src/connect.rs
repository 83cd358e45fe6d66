//! The client's side of making a connection: `ws://` over TCP and lines over a Unix socket. It sets no deadline of its own:
//! how long to wait is the caller's policy.

mod upgrade;

use std::io;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use crate::framing::Framing;
use crate::message::Limits;
use crate::peer::PeerLabel;
use crate::stream::{MessageStream, lines};

/// What a client may choose.
#[derive(Clone, Debug, Default)]
pub struct ConnectOptions {
    /// Sent as `Authorization: Bearer …`.
    pub bearer_token: Option<String>,
    /// For what the server sends.
    pub limits: Limits,
    /// Further headers of the upgrade request.
    pub headers: Vec<(String, String)>,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Neither `ws://` nor `unix://`.
    #[error("cannot connect to `{0}`; expected `ws://HOST:PORT` or `unix:///PATH`")]
    UnsupportedUrl(String),
    /// A header that cannot be sent as given.
    #[error("the header `{0}` has characters that no header may have")]
    InvalidHeader(String),
    /// The connection failed.
    #[error("cannot connect to {url}: {source}")]
    Io {
        /// Where to.
        url: String,
        /// What the system said.
        source: io::Error,
    },
    /// The server answered, but not with an upgrade.
    #[error("the server refused the connection with HTTP status {status}")]
    Refused {
        /// The HTTP status.
        status: u16,
    },
    /// What answered is not a WebSocket server.
    #[error("the server's answer is not a WebSocket upgrade: {0}")]
    BadResponse(&'static str),
}

/// Connects to `ws://HOST:PORT` or, without token and headers, to `unix:///PATH`.
pub async fn connect(url: &str, options: ConnectOptions) -> Result<MessageStream, ConnectError> {
    let failed = |source| ConnectError::Io { url: url.into(), source };
    if let Some(path) = url.strip_prefix("unix://") {
        let (read, write) = UnixStream::connect(path).await.map_err(failed)?.into_split();
        return Ok(lines(read, write, PeerLabel::Unix, options.limits));
    }
    let Some(authority) = url.strip_prefix("ws://") else {
        return Err(ConnectError::UnsupportedUrl(url.into()));
    };
    let host = authority.trim_end_matches('/');
    let mut stream = TcpStream::connect(host).await.map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    let peer = PeerLabel::Tcp(stream.peer_addr().map_err(failed)?);
    let already_read = upgrade::request(&mut stream, host, &options).await?;
    Ok(MessageStream::new(stream.into_split(), Framing::WebSocketClient, already_read, peer, options.limits))
}

/// Makes a WebSocket of any connected byte stream, such as a TLS session. `host` goes into the `Host` header.
pub async fn upgrade_client<T>(
    mut io: T,
    host: &str,
    peer: PeerLabel,
    options: ConnectOptions,
) -> Result<MessageStream, ConnectError>
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let already_read = upgrade::request(&mut io, host, &options).await?;
    Ok(MessageStream::new(tokio::io::split(io), Framing::WebSocketClient, already_read, peer, options.limits))
}
