//! Opens the byte stream of a route. A route is the way to the target, the server that a URL names, with or without a
//! proxy. The connectors of hyper-util open TCP connections and send the request to a proxy, and rustls makes the TLS
//! handshakes. This module resolves host names for the connectors (`lookup`), offers HTTP/2 to targets, and writes
//! errors that name the host that failed, target or proxy. The deadline of the request is not known here: the caller
//! applies it. Start with [`RouteOpener::open`].

use std::error::Error;
use std::future::{Ready, ready};
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tower_service::Service;

use crate::endpoint::Endpoint;
use crate::error::{FailureKind, RequestFailure};
use crate::lookup::{LookupAllowance, LookupError, Lookups, Resolver};
use crate::proxy::{HttpProxy, Route, SocksProxy};
use crate::roots::Roots;

/// Timeout for connecting to a host. It applies to the IPv4 addresses and to the IPv6 addresses separately. Within a
/// family, each address gets an equal part of the timeout, so that an address that does not answer leaves time for
/// the others.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// The protocols that are offered to a server in the TLS handshake, the preferred one first. HTTP/2 is used only if
/// the server chooses it in the handshake.
#[derive(Clone, Copy)]
pub(crate) enum AlpnOffer {
    Http2AndHttp1,
    Http1,
}

impl AlpnOffer {
    fn protocols(self) -> Vec<Vec<u8>> {
        match self {
            Self::Http2AndHttp1 => vec![HTTP_2.to_vec(), HTTP_1.to_vec()],
            Self::Http1 => vec![HTTP_1.to_vec()],
        }
    }
}

const HTTP_2: &[u8] = b"h2";
const HTTP_1: &[u8] = b"http/1.1";

/// The stream on which a request is sent, to the target or to a proxy, and the protocol that is spoken on it.
pub(crate) enum NegotiatedStream {
    Http1(Box<dyn ByteStream>),
    Http2(Box<dyn ByteStream>),
}

/// A stream of bytes in both directions: TCP, TLS, or TLS in TLS.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// Opens streams for the requests of one client of the exec-server.
pub(crate) struct RouteOpener<'a> {
    pub(crate) roots: &'a Roots,
    pub(crate) lookups: &'a Arc<Lookups>,
    /// Limits the concurrent look-ups of this client.
    pub(crate) allowance: &'a LookupAllowance,
}

impl RouteOpener<'_> {
    /// Opens a stream for requests of this route. `offer` is for the TLS handshake with the target.
    pub(crate) async fn open(&self, route: &Route, offer: AlpnOffer) -> Result<NegotiatedStream, RequestFailure> {
        let (stream, target) = match route {
            Route::Direct(target) => (self.connect(target).await?, target),
            Route::Forward(proxy) => return Ok(NegotiatedStream::Http1(self.reach_proxy(&proxy.endpoint).await?)),
            Route::Tunnel(proxy, target) => (self.connect_by_tunnel(proxy, target).await?, target),
            Route::Socks(proxy, target) => (self.connect_by_socks(proxy, target).await?, target),
        };
        if !target.is_secure {
            return Ok(NegotiatedStream::Http1(stream));
        }
        let stream = self.start_tls(stream, target, offer).await?;
        Ok(match stream.get_ref().1.alpn_protocol() {
            Some(HTTP_2) => NegotiatedStream::Http2(Box::new(stream)),
            _ => NegotiatedStream::Http1(Box::new(stream)),
        })
    }

    /// Connects to a proxy, over TLS if the endpoint is secure. HTTP/2 is not offered to proxies.
    async fn reach_proxy(&self, proxy: &Endpoint) -> Result<Box<dyn ByteStream>, RequestFailure> {
        let stream = self.connect(proxy).await?;
        if !proxy.is_secure {
            return Ok(stream);
        }
        Ok(Box::new(self.start_tls(stream, proxy, AlpnOffer::Http1).await?))
    }

    /// Opens a TCP connection to a host. If the host has IPv4 and IPv6 addresses, and the first family has not
    /// connected after 300 ms, the connector tries the other family at the same time.
    async fn connect(&self, endpoint: &Endpoint) -> Result<Box<dyn ByteStream>, RequestFailure> {
        let resolver = Resolver::new(Arc::clone(self.lookups), self.allowance.clone());
        let mut connector = HttpConnector::new_with_resolver(resolver);
        connector.enforce_http(false);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        // A request is written in one piece, so the kernel must not wait for more bytes before it sends them.
        connector.set_nodelay(true);
        let connected = connector.call(endpoint.uri()?).await.map_err(|error| {
            if let Some(LookupError(error)) = error.source().and_then(|source| source.downcast_ref()) {
                return lookup_failure(endpoint, error);
            }
            let text = format!("cannot connect to {endpoint}: {}", root_cause(&error));
            RequestFailure::new(FailureKind::Connect, text)
        })?;
        Ok(Box::new(connected.into_inner()))
    }

    /// Asks an HTTP proxy for a connection to the target.
    async fn connect_by_tunnel(
        &self,
        proxy: &HttpProxy,
        target: &Endpoint,
    ) -> Result<Box<dyn ByteStream>, RequestFailure> {
        let stream = self.reach_proxy(&proxy.endpoint).await?;
        let mut tunnel = Tunnel::new(proxy.endpoint.uri()?, OpenedStream::new(stream));
        if let Some(authorization) = &proxy.authorization {
            tunnel = tunnel.with_auth(authorization.clone());
        }
        let opened = tunnel.call(target.uri()?).await;
        opened.map(TokioIo::into_inner).map_err(|error| proxy_failure(&proxy.endpoint, target, root_cause(&error)))
    }

    /// Asks a SOCKS proxy for a connection to the target. If the proxy does not resolve names, this function resolves
    /// the name of the target, and asks the proxy to connect to each address in turn until one can be reached.
    async fn connect_by_socks(
        &self,
        proxy: &SocksProxy,
        target: &Endpoint,
    ) -> Result<Box<dyn ByteStream>, RequestFailure> {
        if proxy.resolves_names {
            return self.request_socks(proxy, target, target).await;
        }
        // The connector of hyper-util could resolve the name too, but it would block this thread.
        let addresses = self.lookups.addresses(&target.host, target.port, self.allowance).await;
        let mut failure = None;
        for address in addresses.map_err(|error| lookup_failure(target, &error))? {
            let numeric = Endpoint { host: address.ip().to_string(), ..target.clone() };
            match self.request_socks(proxy, &numeric, target).await {
                Ok(stream) => return Ok(stream),
                Err(error) => failure = Some(error),
            }
        }
        let no_address = || lookup_failure(target, &io::Error::new(io::ErrorKind::NotFound, "it has no address"));
        Err(failure.unwrap_or_else(no_address))
    }

    /// Asks a SOCKS proxy for a connection to `destination`, which is the target or one of its addresses. If the
    /// proxy opens no connection, the error names the target instead of the address.
    async fn request_socks(
        &self,
        proxy: &SocksProxy,
        destination: &Endpoint,
        target: &Endpoint,
    ) -> Result<Box<dyn ByteStream>, RequestFailure> {
        let stream = self.reach_proxy(&proxy.endpoint).await?;
        let mut socks = SocksV5::new(proxy.endpoint.uri()?, OpenedStream::new(stream));
        if let Some((user, password)) = &proxy.credentials {
            socks = socks.with_auth(user.clone(), password.clone());
        }
        let opened = socks.call(destination.uri()?).await;
        opened.map(TokioIo::into_inner).map_err(|error| proxy_failure(&proxy.endpoint, target, error.to_string()))
    }

    /// Makes the TLS handshake with `endpoint` over a stream that is connected to it.
    async fn start_tls(
        &self,
        stream: Box<dyn ByteStream>,
        endpoint: &Endpoint,
        offer: AlpnOffer,
    ) -> Result<TlsStream<Box<dyn ByteStream>>, RequestFailure> {
        let failed =
            |reason: String| RequestFailure::new(FailureKind::Tls, format!("no TLS with {endpoint}: {reason}"));
        let name = ServerName::try_from(endpoint.host.clone()).map_err(|error| failed(error.to_string()))?;
        let connector = TlsConnector::from(self.roots.client_config().await?);
        let connected = connector.with_alpn(offer.protocols()).connect(name, stream).await;
        connected.map_err(|error| failed(error.to_string()))
    }
}

/// Hands a stream that is open already to a connector that wants to open one itself.
struct OpenedStream(Option<TokioIo<Box<dyn ByteStream>>>);

impl OpenedStream {
    fn new(stream: Box<dyn ByteStream>) -> Self {
        Self(Some(TokioIo::new(stream)))
    }
}

impl Service<Uri> for OpenedStream {
    type Response = TokioIo<Box<dyn ByteStream>>;
    type Error = io::Error;
    type Future = Ready<io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        ready(self.0.take().ok_or_else(|| io::Error::other("the stream was taken before")))
    }
}

fn lookup_failure(endpoint: &Endpoint, error: &io::Error) -> RequestFailure {
    RequestFailure::new(FailureKind::Dns, format!("cannot find the address of {}: {error}", endpoint.host))
}

fn proxy_failure(proxy: &Endpoint, target: &Endpoint, reason: String) -> RequestFailure {
    let text = format!("the proxy {proxy} opened no connection to {target}: {reason}");
    RequestFailure::new(FailureKind::Connect, text)
}

/// The text of the innermost error. The connectors wrap the error that names the cause into errors that do not name
/// it.
fn root_cause(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
