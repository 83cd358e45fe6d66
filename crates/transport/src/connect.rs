//! The client's side of making a connection: WebSocket over TCP or TLS, and lines over a Unix socket. It sets no deadline of
//! its own: how long to wait, and whether to try again, is the caller's policy.

mod error;
mod race;
mod server_url;
mod tls_roots;
mod upgrade;

use std::fmt;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio_rustls::TlsConnector;

use crate::framing::Framing;
use crate::message::MessageLimits;
use crate::peer::PeerLabel;
use crate::stream::{MessageStream, lines};
pub use error::{CertificateFault, ConnectError};
use server_url::{ServerUrl, WebSocketUrl};
pub use tls_roots::TlsRoots;
use upgrade::Target;

/// What a client may choose.
#[derive(Clone, Default)]
pub struct ConnectOptions {
    /// Sent as `Authorization: Bearer …`.
    pub bearer_token: Option<String>,
    /// For what the server sends.
    pub limits: MessageLimits,
    /// Further headers of the upgrade request.
    pub headers: Vec<(String, String)>,
    /// Whose certificates `wss://` accepts; the system's roots unless chosen otherwise.
    pub tls_roots: TlsRoots,
}

impl fmt::Debug for ConnectOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Token and headers are secrets, and what is shown ends up in a log.
        let headers: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("ConnectOptions")
            .field("bearer_token", &self.bearer_token.as_ref().map(|_| "…"))
            .field("limits", &self.limits)
            .field("headers", &headers)
            .field("tls_roots", &self.tls_roots)
            .finish()
    }
}

/// Connects to `ws://HOST[:PORT][/PATH]`, `wss://HOST[:PORT][/PATH]` or, without token and headers, to `unix:///PATH`.
pub async fn connect(url: &str, options: ConnectOptions) -> Result<MessageStream, ConnectError> {
    match ServerUrl::parse(url)? {
        ServerUrl::Unix(path) => {
            let stream =
                UnixStream::connect(path).await.map_err(|source| ConnectError::Io { url: url.into(), source });
            let (read, write) = stream?.into_split();
            Ok(lines(read, write, PeerLabel::Unix, options.limits))
        }
        ServerUrl::WebSocket(url) => connect_websocket(&url, options).await,
    }
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
    let target = Target { authority: host, path_and_query: "/", shown_url: host };
    let already_read = upgrade::request(&mut io, target, &options).await?;
    Ok(MessageStream::new(tokio::io::split(io), Framing::WebSocketClient, already_read, peer, options.limits))
}

async fn connect_websocket(url: &WebSocketUrl, options: ConnectOptions) -> Result<MessageStream, ConnectError> {
    let target = Target { authority: &url.authority, path_and_query: &url.path_and_query, shown_url: &url.shown };
    // Nobody is called before it is known that there is something to say.
    upgrade::check_headers(&options)?;
    let (mut tcp, peer) = dial(url).await?;
    let limits = options.limits;
    if !url.is_secure {
        let already_read = upgrade::request(&mut tcp, target, &options).await?;
        return Ok(MessageStream::new(tcp.into_split(), Framing::WebSocketClient, already_read, peer, limits));
    }
    let mut tls = encrypt(tcp, url, &options.tls_roots).await?;
    let already_read = upgrade::request(&mut tls, target, &options).await?;
    Ok(MessageStream::new(tokio::io::split(tls), Framing::WebSocketClient, already_read, peer, limits))
}

/// Connects to whichever address of the host answers first.
async fn dial(url: &WebSocketUrl) -> Result<(TcpStream, PeerLabel), ConnectError> {
    let failed = |source| ConnectError::Io { url: url.shown.clone(), source };
    let resolved = lookup_host((url.host.as_str(), url.port)).await;
    let addresses = resolved.map_err(|source| ConnectError::Unresolved { host: url.host.clone(), source })?;
    let tcp = race::connect_to_first(addresses.collect()).await.map_err(failed)?;
    tcp.set_nodelay(true).map_err(failed)?;
    let peer = PeerLabel::Tcp(tcp.peer_addr().map_err(failed)?);
    Ok((tcp, peer))
}

async fn encrypt(
    tcp: TcpStream,
    url: &WebSocketUrl,
    roots: &TlsRoots,
) -> Result<tokio_rustls::client::TlsStream<TcpStream>, ConnectError> {
    let name = ServerName::try_from(url.host.clone()).map_err(|_| ConnectError::InvalidUrl {
        url: url.shown.clone(),
        reason: "no certificate can be for its host",
    })?;
    let connector = TlsConnector::from(roots.client_config().await?);
    connector.connect(name, tcp).await.map_err(|error| error::handshake_failure(&url.shown, error))
}
