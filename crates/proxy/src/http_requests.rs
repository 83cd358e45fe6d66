//! HTTP/1.1 requests of a program: CONNECT, which becomes a tunnel, and requests with an absolute `http` URL, which
//! are sent on. hyper reads the requests, so the length of a body cannot hide a second request that nobody checks.
//! Each request of a connection is decided on its own. Start with [`serve`].

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use http::{Method, Request, Response, StatusCode, Uri, Version};
use http_body_util::{Either, Empty, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::net::TcpStream;

use crate::activity::WatchedStream;
use crate::host::TargetHost;
use crate::limits::{MAX_METHOD_BYTES, MAX_REQUEST_HEAD_BYTES};
use crate::policy::ProxyProtocol;
use crate::refusal::ProxyRefusal;
use crate::serve::ProgramConnection;
use crate::target_policy::TargetRequest;
use crate::tunnel::tunnel;
use crate::upstream::{self, UpstreamBody};

/// Headers that are about one connection, and those for the proxy itself. They are not sent on.
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

type ProxyBody = Either<Either<Full<Bytes>, Empty<Bytes>>, UpstreamBody>;

/// A CONNECT request that was answered with 200. The tunnel begins when hyper has given up the connection.
struct PendingTunnel {
    upgrade: OnUpgrade,
    target: TcpStream,
}

/// Serves the requests of one connection, until the program closes it or turns it into a tunnel that ends.
pub(crate) async fn serve(stream: TcpStream, connection: &ProgramConnection) {
    let pending = Arc::new(Mutex::new(None));
    let watched = WatchedStream::new(stream, connection.activity.clone());
    let service = service_fn(|request| {
        let pending = Arc::clone(&pending);
        async move { Ok::<_, Infallible>(answer(request, connection, &pending).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(connection.limits.handshake_timeout)
        .max_buf_size(MAX_REQUEST_HEAD_BYTES)
        .serve_connection(TokioIo::new(watched), service)
        .with_upgrades()
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
    connection: &ProgramConnection,
    pending: &Mutex<Option<PendingTunnel>>,
) -> Response<ProxyBody> {
    let answered = if request.method() == Method::CONNECT {
        open_tunnel(request, connection, pending).await
    } else {
        send_on(request, connection).await
    };
    answered.unwrap_or_else(UnansweredRequest::into_response)
}

/// Why a request got no answer from its target.
enum UnansweredRequest {
    /// The request cannot be sent to any target.
    Invalid(&'static str),
    Refused(ProxyRefusal),
    /// The target has not answered with HTTP.
    BadAnswer,
}

impl From<ProxyRefusal> for UnansweredRequest {
    fn from(refusal: ProxyRefusal) -> Self {
        Self::Refused(refusal)
    }
}

impl UnansweredRequest {
    fn into_response(self) -> Response<ProxyBody> {
        let (status, text) = match self {
            Self::Invalid(text) => (StatusCode::BAD_REQUEST, text.to_owned()),
            Self::BadAnswer => (StatusCode::BAD_GATEWAY, "the target has not answered with HTTP".to_owned()),
            Self::Refused(ProxyRefusal::Policy { host, reason }) => {
                (StatusCode::FORBIDDEN, format!("the network policy refuses access to {host}: {reason}"))
            }
            Self::Refused(ProxyRefusal::Unresolved) => {
                (StatusCode::BAD_GATEWAY, "the host name cannot be resolved".to_owned())
            }
            Self::Refused(ProxyRefusal::Unreachable(kind)) => {
                (StatusCode::BAD_GATEWAY, format!("the target cannot be reached: {kind}"))
            }
            Self::Refused(ProxyRefusal::TimedOut) => {
                (StatusCode::GATEWAY_TIMEOUT, "connecting to the target took too long".to_owned())
            }
        };
        let mut response = Response::new(Either::Left(Either::Left(Full::from(text + "\n"))));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        response
    }
}

async fn open_tunnel(
    mut request: Request<Incoming>,
    connection: &ProgramConnection,
    pending: &Mutex<Option<PendingTunnel>>,
) -> Result<Response<ProxyBody>, UnansweredRequest> {
    let no_port = UnansweredRequest::Invalid("CONNECT needs a target of the form HOST:PORT");
    let Some(port) = request.uri().port_u16().filter(|port| *port != 0) else { return Err(no_port) };
    let wanted = TargetRequest {
        protocol: ProxyProtocol::HttpsConnect,
        host: host_of(request.uri())?,
        port,
        method: Some("CONNECT".to_owned()),
        client: connection.client,
    };
    let target = connection.reach(&wanted).await?;
    *pending.lock() = Some(PendingTunnel { upgrade: hyper::upgrade::on(&mut request), target });
    Ok(Response::new(Either::Left(Either::Right(Empty::new()))))
}

async fn send_on(
    mut request: Request<Incoming>,
    connection: &ProgramConnection,
) -> Result<Response<ProxyBody>, UnansweredRequest> {
    let uri = request.uri().clone();
    if uri.scheme_str() != Some("http") {
        return Err(UnansweredRequest::Invalid("this is a proxy; send an absolute http URL, or CONNECT for https"));
    }
    if request.method().as_str().len() > MAX_METHOD_BYTES {
        return Err(UnansweredRequest::Invalid("the method is too long"));
    }
    let port = uri.port_u16().unwrap_or(HTTP_PORT);
    if port == 0 || uri.authority().is_some_and(|authority| authority.as_str().ends_with(':')) {
        return Err(UnansweredRequest::Invalid("the port of the URL is not valid"));
    }
    let host = host_of(&uri)?;
    let wanted = TargetRequest {
        protocol: ProxyProtocol::Http,
        host: host.clone(),
        port,
        method: Some(request.method().to_string()),
        client: connection.client,
    };
    let target = connection.reach(&wanted).await?;
    address_to(&mut request, &uri, &host, port)?;
    let response = upstream::exchange(target, request).await.map_err(|error| {
        tracing::debug!(%error, "the proxy got no HTTP response");
        UnansweredRequest::BadAnswer
    })?;
    // The request asked for no other protocol, and what follows such an answer is no HTTP.
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return Err(UnansweredRequest::BadAnswer);
    }
    let mut response = response.map(Either::Right);
    remove_hop_by_hop(response.headers_mut());
    *response.version_mut() = Version::HTTP_11;
    Ok(response)
}

fn host_of(uri: &Uri) -> Result<TargetHost, UnansweredRequest> {
    let host = uri.host().and_then(|host| TargetHost::parse(host).ok());
    host.ok_or(UnansweredRequest::Invalid("the host is not valid"))
}

/// Changes a request to the proxy into one to the target. The header `Host` is made from the URL, because the rules
/// were asked about the host in the URL.
fn address_to(
    request: &mut Request<Incoming>,
    uri: &Uri,
    host: &TargetHost,
    port: u16,
) -> Result<(), UnansweredRequest> {
    let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    *request.uri_mut() = Uri::from(path);
    *request.version_mut() = Version::HTTP_11;
    let host = if port == HTTP_PORT { host.in_url() } else { format!("{}:{port}", host.in_url()) };
    let host = HeaderValue::try_from(host).map_err(|_| UnansweredRequest::Invalid("the host is not valid"))?;
    let headers = request.headers_mut();
    remove_hop_by_hop(headers);
    // The proxy itself has asked the program for the body.
    headers.remove(EXPECT);
    headers.insert(HOST, host);
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    Ok(())
}

fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        // A program must not remove the length of its own body on the way.
        .filter(|name| *name != http::header::CONTENT_LENGTH && *name != HOST)
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in HOP_BY_HOP {
        headers.remove(*name);
    }
}
