//! Maps a request to its response, without I/O.

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;

use super::host::is_for_this_machine;
use super::{DIRECT_PATH, HttpSurface, Trust, UpgradedBy};
use crate::principal::Principal;
use crate::websocket::accept_key;

type RouteResponse = Response<Full<Bytes>>;

/// The response to a request, and whether it upgrades the connection.
#[derive(Debug)]
pub(super) enum HttpRoute {
    Answer(RouteResponse),
    /// After this response the connection is a WebSocket.
    Upgrade(RouteResponse, UpgradedBy),
}

const METRICS_CONTENT_TYPE: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");
const UPGRADE: HeaderValue = HeaderValue::from_static("upgrade");
const WEBSOCKET_VERSION: HeaderValue = HeaderValue::from_static("13");

/// Chooses the response to one request. Does not do any I/O.
pub(super) fn respond<B>(request: &Request<B>, surface: &dyn HttpSurface, trust: Trust) -> HttpRoute {
    // A request with an `Origin` comes from a web page in a browser, and no web page may use this server.
    if request.headers().contains_key(header::ORIGIN) {
        return HttpRoute::Answer(status(StatusCode::FORBIDDEN));
    }
    if trust == Trust::Loopback && !is_for_this_machine(request, |host| surface.serves_host(host)) {
        return HttpRoute::Answer(foreign_host());
    }
    let principal = || match trust {
        Trust::VerifiedUser(uid) => Some(Principal::User(uid)),
        Trust::Loopback | Trust::Network => surface.authorize(request.headers()),
    };
    HttpRoute::Answer(match request.uri().path() {
        "/healthz" => text("ok"),
        // A server that shuts down first closes its listeners and HTTP connections, so a server that answers is
        // ready.
        "/readyz" => status(StatusCode::OK),
        "/metrics" if principal().is_none() => unauthorized(),
        "/metrics" => with_header(text(surface.metrics()), header::CONTENT_TYPE, METRICS_CONTENT_TYPE),
        "/" => match websocket_key(request) {
            None => upgrade_required(),
            Some(key) => match principal() {
                None => unauthorized(),
                Some(principal) => {
                    return HttpRoute::Upgrade(switching_protocols(key), UpgradedBy::Client(principal));
                }
            },
        },
        DIRECT_PATH if !matches!(trust, Trust::VerifiedUser(_)) => {
            let admitted =
                websocket_key(request).and_then(|key| Some((key, surface.take_ticket(request.headers())?)));
            match admitted {
                None => status(StatusCode::NOT_FOUND),
                Some((key, limits)) => {
                    return HttpRoute::Upgrade(switching_protocols(key), UpgradedBy::TicketHolder(limits));
                }
            }
        }
        _ => status(StatusCode::NOT_FOUND),
    })
}

/// The key of a complete WebSocket upgrade request; `None` for any other request.
fn websocket_key<B>(request: &Request<B>) -> Option<&HeaderValue> {
    let headers = request.headers();
    let is_upgrade = request.method() == Method::GET
        && has_token(headers, header::CONNECTION, "upgrade")
        && has_token(headers, header::UPGRADE, "websocket")
        && headers.get(header::SEC_WEBSOCKET_VERSION) == Some(&WEBSOCKET_VERSION);
    if is_upgrade { headers.get(header::SEC_WEBSOCKET_KEY) } else { None }
}

fn has_token(headers: &HeaderMap, name: HeaderName, token: &str) -> bool {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|item| item.trim().eq_ignore_ascii_case(token))
}

fn switching_protocols(key: &HeaderValue) -> RouteResponse {
    let mut response = status(StatusCode::SWITCHING_PROTOCOLS);
    response.headers_mut().insert(header::UPGRADE, WEBSOCKET);
    response.headers_mut().insert(header::CONNECTION, UPGRADE);
    if let Ok(accept) = HeaderValue::try_from(accept_key(key.as_bytes())) {
        response.headers_mut().insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    }
    response
}

fn upgrade_required() -> RouteResponse {
    let mut response = text("this is an exec-server; connect with a WebSocket client (version 13)\n");
    *response.status_mut() = StatusCode::UPGRADE_REQUIRED;
    response.headers_mut().insert(header::UPGRADE, WEBSOCKET);
    response.headers_mut().insert(header::CONNECTION, UPGRADE);
    with_header(response, header::SEC_WEBSOCKET_VERSION, WEBSOCKET_VERSION)
}

fn foreign_host() -> RouteResponse {
    let mut response = text(
        "this exec-server listens on loopback and answers requests for localhost and loopback addresses only; --allow-host NAME adds a host\n",
    );
    *response.status_mut() = StatusCode::FORBIDDEN;
    response
}

fn unauthorized() -> RouteResponse {
    with_header(status(StatusCode::UNAUTHORIZED), header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))
}

fn text(body: impl Into<Bytes>) -> RouteResponse {
    let response = Response::new(Full::new(body.into()));
    with_header(response, header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"))
}

fn status(code: StatusCode) -> RouteResponse {
    let mut response = Response::new(Full::default());
    *response.status_mut() = code;
    response
}

fn with_header(mut response: RouteResponse, name: HeaderName, value: HeaderValue) -> RouteResponse {
    response.headers_mut().insert(name, value);
    response
}
