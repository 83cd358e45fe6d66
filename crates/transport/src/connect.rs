//! Connects a client to a server: WebSocket over TCP or TLS, or one message per line over a Unix socket. Start reading at [`connect`]. This
//! module has no timeout and does not retry; the caller decides about both. [`ConnectError::is_retryable`] says whether a retry can help.

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
pub use error::{CertificateFault, ConnectError, retry_after};
use server_url::{ServerUrl, WebSocketUrl};
pub use tls_roots::TlsRoots;
use upgrade::UpgradeTarget;

/// Options of a client connection.
#[derive(Clone, Default)]
pub struct ConnectOptions {
    /// Token for the `Authorization: Bearer` header of the upgrade request. Not used with `unix://`.
    pub bearer_token: Option<String>,
    /// Limits for the messages that the server sends.
    pub limits: MessageLimits,
    /// Further headers of the upgrade request, as name and value. Not used with `unix://`.
    pub headers: Vec<(String, String)>,
    /// Root certificates for `wss://`; by default those of the system.
    pub tls_roots: TlsRoots,
    /// Whether messages are sent in binary frames, and those of the peer in text frames are dropped. Not used with
    /// `unix://`.
    pub is_binary: bool,
}

impl ConnectOptions {
    fn framing(&self) -> Framing {
        if self.is_binary { Framing::BinaryWebSocketClient } else { Framing::WebSocketClient }
    }
}

impl fmt::Debug for ConnectOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The token and the values of the headers are secrets, and this text may end up in a log.
        let headers: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("ConnectOptions")
            .field("bearer_token", &self.bearer_token.as_ref().map(|_| "…"))
            .field("limits", &self.limits)
            .field("headers", &headers)
            .field("tls_roots", &self.tls_roots)
            .field("is_binary", &self.is_binary)
            .finish()
    }
}

/// Connects to `ws://HOST[:PORT][/PATH]`, `wss://HOST[:PORT][/PATH]` or `unix:///PATH`. Without a port, `ws` uses 80
/// and `wss` uses 443.
pub async fn connect(url: &str, options: ConnectOptions) -> Result<MessageStream, ConnectError> {
    match ServerUrl::parse(url)? {
        ServerUrl::Unix(path) => {
            let stream =
                UnixStream::connect(path).await.map_err(|source| ConnectError::Io { url: url.into(), source });
            let (read, write) = stream?.into_split();
            Ok(lines(read, write, PeerLabel::new("unix"), options.limits))
        }
        ServerUrl::WebSocket(url) => connect_websocket(&url, options).await,
    }
}

/// Whether [`connect`] can use this URL at all. Connects to nothing.
pub fn check_url(url: &str) -> Result<(), ConnectError> {
    ServerUrl::parse(url).map(|_| ())
}

/// Upgrades any connected byte stream, such as a TLS connection, to a WebSocket. `host` is sent in the `Host` header,
/// and the path of the request is `/`.
pub async fn upgrade_client<T>(
    mut io: T,
    host: &str,
    peer: PeerLabel,
    options: ConnectOptions,
) -> Result<MessageStream, ConnectError>
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let target = UpgradeTarget { authority: host, path_and_query: "/", display_url: host };
    let already_read = upgrade::request(&mut io, target, &options).await?;
    Ok(MessageStream::upgraded(tokio::io::split(io), options.framing(), already_read, peer, options.limits))
}

async fn connect_websocket(url: &WebSocketUrl, options: ConnectOptions) -> Result<MessageStream, ConnectError> {
    let target =
        UpgradeTarget { authority: &url.authority, path_and_query: &url.path_and_query, display_url: &url.display };
    // Checked before connecting, so that a header that HTTP forbids causes no traffic.
    upgrade::check_headers(&options)?;
    let (mut tcp, peer) = connect_tcp(url).await?;
    let (limits, framing) = (options.limits, options.framing());
    if !url.is_secure {
        let already_read = upgrade::request(&mut tcp, target, &options).await?;
        return Ok(MessageStream::upgraded(tcp.into_split(), framing, already_read, peer, limits));
    }
    let mut tls = handshake_tls(tcp, url, &options.tls_roots).await?;
    let already_read = upgrade::request(&mut tls, target, &options).await?;
    Ok(MessageStream::upgraded(tokio::io::split(tls), framing, already_read, peer, limits))
}

/// Resolves the host and connects to the first of its addresses that answers.
async fn connect_tcp(url: &WebSocketUrl) -> Result<(TcpStream, PeerLabel), ConnectError> {
    let failed = |source| ConnectError::Io { url: url.display.clone(), source };
    let resolved = lookup_host((url.host.as_str(), url.port)).await;
    let addresses = resolved.map_err(|source| ConnectError::Unresolved { host: url.host.clone(), source })?;
    let tcp = race::connect_to_first(addresses.collect()).await.map_err(failed)?;
    tcp.set_nodelay(true).map_err(failed)?;
    let peer = PeerLabel::new(tcp.peer_addr().map_err(failed)?);
    Ok((tcp, peer))
}

async fn handshake_tls(
    tcp: TcpStream,
    url: &WebSocketUrl,
    roots: &TlsRoots,
) -> Result<tokio_rustls::client::TlsStream<TcpStream>, ConnectError> {
    let name = ServerName::try_from(url.host.clone()).map_err(|_| ConnectError::InvalidUrl {
        url: url.display.clone(),
        reason: "no certificate can be valid for its host",
    })?;
    let connector = TlsConnector::from(roots.client_config().await?);
    connector.connect(name, tcp).await.map_err(|error| error::handshake_failure(&url.display, error))
}
