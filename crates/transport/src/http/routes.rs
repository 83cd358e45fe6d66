//! Which request gets which answer. Pure: a request in, a response out; a response with status 101 means that the connection
//! is a WebSocket from then on.

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;

use super::host::is_for_this_machine;
use super::{HttpSurface, Trust};
use crate::websocket::accept_key;

type Answer = Response<Full<Bytes>>;

const METRICS_TEXT: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");
const UPGRADE: HeaderValue = HeaderValue::from_static("upgrade");
const SUPPORTED_VERSION: HeaderValue = HeaderValue::from_static("13");

/// The answer to one request.
pub(super) fn answer<B>(request: &Request<B>, surface: &dyn HttpSurface, trust: Trust) -> Answer {
    // Only browsers send it, and no web page has any business here.
    if request.headers().contains_key(header::ORIGIN) {
        return status(StatusCode::FORBIDDEN);
    }
    if trust == Trust::OnLoopback && !is_for_this_machine(request, |host| surface.serves_host(host)) {
        return foreign_host();
    }
    let is_authorized = || trust == Trust::Vouched || surface.authorize(request.headers());
    match request.uri().path() {
        "/healthz" => text("ok"),
        // A server that takes on no new work has stopped listening, so whoever is answered is answered yes.
        "/readyz" => status(StatusCode::OK),
        "/metrics" if !is_authorized() => unauthorized(),
        "/metrics" => with_header(text(surface.metrics()), header::CONTENT_TYPE, METRICS_TEXT),
        "/" => match websocket_key(request) {
            None => upgrade_required(),
            Some(_) if !is_authorized() => unauthorized(),
            Some(key) => switching_protocols(key),
        },
        _ => status(StatusCode::NOT_FOUND),
    }
}

/// The key of a complete WebSocket upgrade request.
fn websocket_key<B>(request: &Request<B>) -> Option<&HeaderValue> {
    let headers = request.headers();
    let asks = request.method() == Method::GET
        && has_token(headers, header::CONNECTION, "upgrade")
        && has_token(headers, header::UPGRADE, "websocket")
        && headers.get(header::SEC_WEBSOCKET_VERSION) == Some(&SUPPORTED_VERSION);
    if asks { headers.get(header::SEC_WEBSOCKET_KEY) } else { None }
}

fn has_token(headers: &HeaderMap, name: HeaderName, token: &str) -> bool {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|one| one.trim().eq_ignore_ascii_case(token))
}

fn switching_protocols(key: &HeaderValue) -> Answer {
    let mut answer = status(StatusCode::SWITCHING_PROTOCOLS);
    answer.headers_mut().insert(header::UPGRADE, WEBSOCKET);
    answer.headers_mut().insert(header::CONNECTION, UPGRADE);
    if let Ok(accept) = HeaderValue::try_from(accept_key(key.as_bytes())) {
        answer.headers_mut().insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    }
    answer
}

fn upgrade_required() -> Answer {
    let mut answer = text("this is an exec-server; connect with a WebSocket client (version 13)\n");
    *answer.status_mut() = StatusCode::UPGRADE_REQUIRED;
    answer.headers_mut().insert(header::UPGRADE, WEBSOCKET);
    answer.headers_mut().insert(header::CONNECTION, UPGRADE);
    with_header(answer, header::SEC_WEBSOCKET_VERSION, SUPPORTED_VERSION)
}

fn foreign_host() -> Answer {
    let mut answer = text(
        "this exec-server listens on loopback and answers requests for localhost and loopback addresses only; --allow-host NAME adds a host\n",
    );
    *answer.status_mut() = StatusCode::FORBIDDEN;
    answer
}

fn unauthorized() -> Answer {
    with_header(status(StatusCode::UNAUTHORIZED), header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))
}

fn text(body: impl Into<Bytes>) -> Answer {
    let answer = Response::new(Full::new(body.into()));
    with_header(answer, header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"))
}

fn status(code: StatusCode) -> Answer {
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = code;
    answer
}

fn with_header(mut answer: Answer, name: HeaderName, value: HeaderValue) -> Answer {
    answer.headers_mut().insert(name, value);
    answer
}
