//! HTTP/1.1 requests of a program: CONNECT, which becomes a tunnel, and requests with an absolute `http` URL, which
//! are forwarded. hyper parses each request, which prevents request smuggling.
//! Each request of a connection is decided on its own. Start with [`serve`].

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;

use http::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING,
};
use http::uri::PathAndQuery;
use http::{Method, Request, Response, StatusCode, Uri, Version};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::net::TcpStream;

use crate::activity::WatchedStream;
use crate::connect_failure::ConnectFailure;
use crate::host::TargetHost;
use crate::joined_body::{JoinedBody, PollCount};
use crate::limits::{MAX_HEADERS, MAX_METHOD_BYTES, MAX_REQUEST_HEAD_BYTES};
use crate::policy::ProxyProtocol;
use crate::program_stream::{DepartureWatch, watch_departure};
use crate::proxy_body::ProxyBody;
use crate::request_gate::TargetRequest;
use crate::serve::ConnectionContext;
use crate::tunnel::tunnel;
use crate::upstream;

/// Headers that are about one connection, and those for the proxy itself. They are not forwarded.
const HOP_BY_HOP: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

const HTTP_PORT: u16 = 80;

/// A CONNECT request that was answered with 200. The tunnel begins when hyper hands over the raw connection
/// (upgrade).
struct PendingTunnel {
    upgrade: OnUpgrade,
    target: TcpStream,
}

/// Serves the requests of one connection, until the program closes it or turns it into a tunnel that ends.
pub(crate) async fn serve(stream: TcpStream, connection: &ConnectionContext) {
    let pending = Arc::new(Mutex::new(None));
    let (stream, departure) = watch_departure(stream);
    let watched = WatchedStream::new(stream, connection.activity.clone());
    let polls = PollCount::default();
    let service = service_fn(|request| {
        let (pending, departure, polls) = (Arc::clone(&pending), &departure, &polls);
        async move { Ok::<_, Infallible>(answer(request, connection, departure, polls, &pending).await) }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(connection.limits.handshake_timeout)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_REQUEST_HEAD_BYTES)
        .max_header_size(MAX_REQUEST_HEAD_BYTES)
        .serve_connection(TokioIo::new(watched), service)
        .with_upgrades();
    let mut serving = pin!(serving);
    let served = poll_fn(|cx| {
        polls.increase();
        serving.as_mut().poll(cx)
    })
    .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection to the proxy has ended");
    }
    let begun: Option<PendingTunnel> = pending.lock().take();
    if let Some(PendingTunnel { upgrade, target }) = begun
        && let Ok(program) = upgrade.await
    {
        tunnel(TokioIo::new(program), target).await;
    }
}

async fn answer(
    request: Request<Incoming>,
    connection: &ConnectionContext,
    departure: &DepartureWatch,
    polls: &PollCount,
    pending: &Mutex<Option<PendingTunnel>>,
) -> Response<ProxyBody> {
    let answered = if request.method() == Method::CONNECT {
        open_tunnel(request, connection, departure, pending).await
    } else {
        forward(request, connection, departure, polls).await
    };
    answered.unwrap_or_else(ProxiedRequestFailure::into_response)
}

/// Why the proxy answers a request itself, with an error.
enum ProxiedRequestFailure {
    /// The request cannot be sent to any target.
    Invalid(&'static str),
    /// The request has a transfer coding other than chunked.
    UnsupportedTransferCoding,
    Refused(ConnectFailure),
    /// The target sent no HTTP, too large headers, a transfer coding other than chunked, or a switch to another protocol.
    UnusableResponse,
}

const PROGRAM_HAS_LEFT: ProxiedRequestFailure =
    ProxiedRequestFailure::Invalid("the program has closed the connection");

impl From<ConnectFailure> for ProxiedRequestFailure {
    fn from(refusal: ConnectFailure) -> Self {
        Self::Refused(refusal)
    }
}

impl ProxiedRequestFailure {
    fn into_response(self) -> Response<ProxyBody> {
        let (status, text) = match self {
            Self::Invalid(text) => (StatusCode::BAD_REQUEST, text.to_owned()),
            Self::UnsupportedTransferCoding => (
                StatusCode::NOT_IMPLEMENTED,
                "the proxy passes on no transfer coding other than chunked; use Content-Encoding".to_owned(),
            ),
            Self::UnusableResponse => {
                (StatusCode::BAD_GATEWAY, "the target did not send a usable HTTP response".to_owned())
            }
            Self::Refused(ConnectFailure::Policy { host, reason }) => {
                (StatusCode::FORBIDDEN, format!("the network policy refuses access to {host}: {reason}"))
            }
            Self::Refused(ConnectFailure::Unresolved) => {
                (StatusCode::BAD_GATEWAY, "the host name cannot be resolved".to_owned())
            }
            Self::Refused(ConnectFailure::Unreachable(kind)) => {
                (StatusCode::BAD_GATEWAY, format!("the target cannot be reached: {kind}"))
            }
            Self::Refused(ConnectFailure::TimedOut) => {
                (StatusCode::GATEWAY_TIMEOUT, "looking up or connecting to the target took too long".to_owned())
            }
        };
        let mut response = Response::new(ProxyBody::text(text + "\n"));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        response
    }
}

async fn open_tunnel(
    mut request: Request<Incoming>,
    connection: &ConnectionContext,
    departure: &DepartureWatch,
    pending: &Mutex<Option<PendingTunnel>>,
) -> Result<Response<ProxyBody>, ProxiedRequestFailure> {
    let no_port = ProxiedRequestFailure::Invalid("CONNECT needs a target of the form HOST:PORT");
    let Some(port) = port_of(request.uri())? else { return Err(no_port) };
    // hyper would take the first bytes of the tunnel for the body, and they would not reach the target.
    if !request.body().is_end_stream() {
        return Err(ProxiedRequestFailure::Invalid("a CONNECT request cannot have a body"));
    }
    let wanted = TargetRequest {
        protocol: ProxyProtocol::HttpsConnect,
        host: host_of(request.uri())?,
        port,
        method: Some("CONNECT".to_owned()),
        client: connection.client,
    };
    // hyper sees that the program closes its connection, unless the program has sent bytes for the tunnel already.
    let target = tokio::select! {
        reached = connection.connect_if_allowed(&wanted) => reached?,
        () = departure.reset() => return Err(PROGRAM_HAS_LEFT),
    };
    *pending.lock() = Some(PendingTunnel { upgrade: hyper::upgrade::on(&mut request), target });
    Ok(Response::new(ProxyBody::empty()))
}

async fn forward(
    mut request: Request<Incoming>,
    connection: &ConnectionContext,
    departure: &DepartureWatch,
    polls: &PollCount,
) -> Result<Response<ProxyBody>, ProxiedRequestFailure> {
    let uri = request.uri().clone();
    if uri.scheme_str() != Some("http") {
        return Err(ProxiedRequestFailure::Invalid(
            "this is a proxy; send an absolute http URL, or CONNECT for https",
        ));
    }
    if request.method().as_str().len() > MAX_METHOD_BYTES {
        return Err(ProxiedRequestFailure::Invalid("the method is too long"));
    }
    if has_unsupported_transfer_coding(request.headers()) {
        return Err(ProxiedRequestFailure::UnsupportedTransferCoding);
    }
    let port = port_of(&uri)?.unwrap_or(HTTP_PORT);
    let host = host_of(&uri)?;
    let wanted = TargetRequest {
        protocol: ProxyProtocol::Http,
        host: host.clone(),
        port,
        method: Some(request.method().to_string()),
        client: connection.client,
    };
    let target = tokio::select! {
        reached = connection.connect_if_allowed(&wanted) => reached?,
        () = departure.left() => return Err(PROGRAM_HAS_LEFT),
    };
    rewrite_for_target(&mut request, &uri, &host, port)?;
    let request = request.map(|body| JoinedBody::new(body, polls.clone()));
    let response = upstream::exchange(target, request).await.map_err(|error| {
        tracing::debug!(%error, "the proxy got no HTTP response");
        // hyper blames its user, the proxy, if the body of the request fails. The program sends that body.
        if error.is_user() {
            return ProxiedRequestFailure::Invalid("the body of the request is not valid");
        }
        ProxiedRequestFailure::UnusableResponse
    })?;
    // `Upgrade` was removed from the request, so a 101 is an error of the target.
    if response.status() == StatusCode::SWITCHING_PROTOCOLS || has_unsupported_transfer_coding(response.headers()) {
        return Err(ProxiedRequestFailure::UnusableResponse);
    }
    let mut response = response.map(|body| ProxyBody::Upstream(Box::new(JoinedBody::new(body, polls.clone()))));
    // With both headers, hyper has ignored the length (RFC 9112, section 6.3), so it is not that of the body.
    if response.headers().contains_key(TRANSFER_ENCODING) {
        response.headers_mut().remove(CONTENT_LENGTH);
    }
    remove_hop_by_hop(response.headers_mut());
    *response.version_mut() = Version::HTTP_11;
    Ok(response)
}

/// The port of a URL. None if it has none. The crate `http` does not check the text behind the host.
fn port_of(uri: &Uri) -> Result<Option<u16>, ProxiedRequestFailure> {
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let host_and_port = authority.rsplit('@').next().unwrap_or_default();
    let behind_host = host_and_port.strip_prefix(uri.host().unwrap_or_default()).unwrap_or(host_and_port);
    if behind_host.is_empty() {
        return Ok(None);
    }
    let digits = behind_host.strip_prefix(':').filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let port = digits.and_then(|digits| digits.parse().ok()).filter(|port| *port != 0);
    port.map(Some).ok_or(ProxiedRequestFailure::Invalid("the port of the URL is not valid"))
}

fn host_of(uri: &Uri) -> Result<TargetHost, ProxiedRequestFailure> {
    let host = uri.host().and_then(|host| TargetHost::parse(host).ok());
    host.ok_or(ProxiedRequestFailure::Invalid("the host is not valid"))
}

/// Changes a request to the proxy into one to the target. The header `Host` is made from the URL, because the rules
/// were asked about the host in the URL.
fn rewrite_for_target(
    request: &mut Request<Incoming>,
    uri: &Uri,
    host: &TargetHost,
    port: u16,
) -> Result<(), ProxiedRequestFailure> {
    // The path of `http://host#fragment` is empty. `as_str` shows it as `/`, but hyper would send it as it is.
    let path = uri.path_and_query().filter(|path| path.as_str() != "/").cloned();
    let path = path.unwrap_or_else(|| PathAndQuery::from_static("/"));
    *request.uri_mut() = Uri::from(path);
    *request.version_mut() = Version::HTTP_11;
    let host = if port == HTTP_PORT { host.in_url() } else { format!("{}:{port}", host.in_url()) };
    let host = HeaderValue::try_from(host).map_err(|_| ProxiedRequestFailure::Invalid("the host is not valid"))?;
    let headers = request.headers_mut();
    // A request with another coding was refused.
    let is_chunked = headers.contains_key(TRANSFER_ENCODING);
    remove_hop_by_hop(headers);
    if is_chunked {
        // Without this header, hyper sends no body with GET and HEAD.
        headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    // hyper sends `100 Continue` to the program itself.
    headers.remove(EXPECT);
    headers.insert(HOST, host);
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    Ok(())
}

/// Whether the body has a transfer coding other than chunked. hyper undoes and makes only the coding chunked, so the
/// receiver would get encoded bytes without the header that says so.
fn has_unsupported_transfer_coding(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => false,
        (Some(only), None) => !only.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked"),
        (Some(_), Some(_)) => true,
    }
}

fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        // `Connection: content-length` must not remove the length of the body.
        .filter(|name| *name != CONTENT_LENGTH && *name != HOST)
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in HOP_BY_HOP {
        headers.remove(*name);
    }
}
