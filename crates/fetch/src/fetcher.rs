//! Makes requests: from hop to hop, each over a connection that is new or used again, all within one deadline.

use std::fmt;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use http::header::{ACCEPT, COOKIE, HOST, PROXY_AUTHORIZATION};
use http::{HeaderMap, HeaderValue, Uri, Version};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use parking_lot::Mutex;
use url::{Position, Url};

use crate::body::{Body, Bounds};
use crate::connect::Connector;
use crate::cookies::CookieJar;
use crate::deadline::Deadline;
use crate::environment::Environment;
use crate::error::{FailureKind, FetchError, RequestFailure};
use crate::http1::Http1Connection;
use crate::lookup::{LookupAllowance, Lookups};
use crate::pool::ConnectionPool;
use crate::proxy::{HttpProxy, ProxyRules, Route};
use crate::redirect::{self, MAX_REDIRECTS};
use crate::request::{FetchRequest, Redirects};
use crate::response::{self, FetchResponse};
use crate::roots::Roots;
use crate::validate::{Hop, first_hop};

/// What requests are made with.
#[derive(Default)]
pub struct FetcherConfig {
    /// The variables from which headers get values, and which name proxies (`HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY`,
    /// `NO_PROXY`, also in lower case) and a file with roots of trust (`CODEX_CA_CERTIFICATE`, else `SSL_CERT_FILE`).
    pub environment: Vec<(String, String)>,
}

/// Makes requests. Clones share their connections, and the few cookies that are kept.
#[derive(Clone)]
pub struct Fetcher {
    shared: Arc<FetcherState>,
    allowance: LookupAllowance,
}

struct FetcherState {
    environment: Environment,
    proxies: ProxyRules,
    roots: Roots,
    lookups: Arc<Lookups>,
    pool: Arc<ConnectionPool>,
    cookies: Mutex<CookieJar>,
}

impl Fetcher {
    /// Fails if a file with roots of trust is named and cannot be used. Connects to nobody.
    pub fn new(config: FetcherConfig) -> Result<Self, FetchError> {
        let environment = Environment::new(config.environment);
        let proxies = ProxyRules::from_environment(&environment);
        let roots = Roots::from_environment(&environment)?;
        let (lookups, pool, cookies) = (Arc::default(), Arc::default(), Mutex::default());
        let shared = Arc::new(FetcherState { environment, proxies, roots, lookups, pool, cookies });
        Ok(Self { shared, allowance: LookupAllowance::default() })
    }

    /// The same for one of several clients, whose look-ups of names are bounded by its own allowance.
    pub fn for_client(&self, allowance: LookupAllowance) -> Self {
        Self { shared: Arc::clone(&self.shared), allowance }
    }

    /// Makes a request and waits for the headers of the answer. Dropping the future ends it.
    pub async fn send(&self, request: FetchRequest) -> Result<FetchResponse, FetchError> {
        let started = Instant::now();
        let hop = first_hop(&request, &self.shared.environment)?;
        request_uri(&hop.url, false)
            .map_err(|failure| FetchError::Invalid(format!("http/request url is invalid: {}", failure.text)))?;
        let method = hop.method.clone();
        let deadline = Deadline::after(request.timeout);
        let bounds = Bounds { deadline, max_bytes: request.max_body_bytes };
        let answer =
            deadline.within(self.shared.follow(hop, request.redirects, bounds, &self.allowance)).await.flatten();
        let duration = started.elapsed();
        match &answer {
            Ok(response) => tracing::debug!(%method, status = response.status, ?duration, "HTTP request answered"),
            Err(failure) => tracing::debug!(%method, kind = failure.kind.as_str(), ?duration, "HTTP request failed"),
        }
        answer.map_err(RequestFailure::of_request)
    }
}

/// Without the environment, which holds secrets.
impl fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetcher").finish_non_exhaustive()
    }
}

impl FetcherState {
    async fn follow(
        &self,
        mut hop: Hop,
        redirects: Redirects,
        bounds: Bounds,
        allowance: &LookupAllowance,
    ) -> Result<FetchResponse, RequestFailure> {
        let mut followed = 0;
        loop {
            let (answer, connection, route) = self.exchange(&hop, allowance).await?;
            let (head, incoming) = answer.into_parts();
            self.cookies.lock().store(&hop.url, &head.headers, SystemTime::now());
            let body = Body::new(incoming, connection, route, self.pool.clone(), bounds);
            let next = match redirects {
                Redirects::Follow => redirect::next_hop(&hop, head.status, &head.headers)?,
                Redirects::Stop => None,
            };
            let Some(next) = next else {
                let headers = response::visible(&head.headers);
                return Ok(FetchResponse { status: head.status.as_u16(), headers, body });
            };
            if followed == MAX_REDIRECTS {
                return Err(redirect::too_many());
            }
            followed += 1;
            body.discard();
            hop = next;
        }
    }

    async fn exchange(
        &self,
        hop: &Hop,
        allowance: &LookupAllowance,
    ) -> Result<(http::Response<Incoming>, Http1Connection, Route), RequestFailure> {
        let route = self.proxies.route(&hop.url)?;
        let cookie = self.cookies.lock().header(&hop.url, SystemTime::now());
        if let Some(mut connection) = self.pool.take(&route) {
            match connection.exchange(message(hop, &route, cookie.clone())?).await {
                Ok(answer) => return Ok((answer, connection, route)),
                // The server may have closed it just now. What it has not seen, or may see twice, is sent again.
                Err(error) if error.message().is_some() || is_repeatable(hop, error.error()) => {}
                Err(error) => return Err(error.into_error().into()),
            }
        }
        let connector = Connector { roots: &self.roots, lookups: &self.lookups, allowance };
        let mut connection = Http1Connection::new(connector.open(&route).await?).await?;
        let answer = connection.exchange(message(hop, &route, cookie)?).await.map_err(TrySendError::into_error)?;
        Ok((answer, connection, route))
    }
}

fn is_repeatable(hop: &Hop, error: &hyper::Error) -> bool {
    hop.method.is_safe() && !error.is_parse() && !error.is_user()
}

/// A hop as it is written to a connection.
fn message(
    hop: &Hop,
    route: &Route,
    cookie: Option<HeaderValue>,
) -> Result<http::Request<Full<Bytes>>, RequestFailure> {
    let mut message = http::Request::new(Full::new(hop.body.clone()));
    *message.method_mut() = hop.method.clone();
    *message.version_mut() = Version::HTTP_11;
    *message.uri_mut() = request_uri(&hop.url, matches!(route, Route::Forward(_)))?;
    *message.headers_mut() = headers(hop, route, cookie)?;
    Ok(message)
}

/// The headers in the order in which they go out. A body has its length behind them; without a body there is none, whatever the method.
fn headers(hop: &Hop, route: &Route, cookie: Option<HeaderValue>) -> Result<HeaderMap, RequestFailure> {
    let mut headers = HeaderMap::with_capacity(hop.headers.len() + 4);
    headers.extend(hop.headers.clone());
    headers.entry(ACCEPT).or_insert(HeaderValue::from_static("*/*"));
    // What the caller says replaces what was kept.
    if let Some(cookie) = cookie {
        headers.entry(COOKIE).or_insert(cookie);
    }
    if !headers.contains_key(HOST) {
        let host = HeaderValue::try_from(&hop.url[Position::BeforeHost..Position::AfterPort]);
        headers.insert(HOST, host.map_err(|error| RequestFailure::new(FailureKind::Other, error.to_string()))?);
    }
    if let Route::Forward(HttpProxy { authorization: Some(authorization), .. }) = route {
        headers.entry(PROXY_AUTHORIZATION).or_insert_with(|| authorization.clone());
    }
    Ok(headers)
}

/// What stands in the first line: the whole URL for a proxy that passes it on, else only what the server must know. Never
/// the fragment or the user.
fn request_uri(url: &Url, is_absolute: bool) -> Result<Uri, RequestFailure> {
    let path_and_query = &url[Position::BeforePath..Position::AfterQuery];
    let uri = if is_absolute {
        Uri::try_from(format!(
            "{}://{}{path_and_query}",
            url.scheme(),
            &url[Position::BeforeHost..Position::AfterPort]
        ))
    } else {
        Uri::try_from(path_and_query)
    };
    uri.map_err(|error| RequestFailure::new(FailureKind::Other, error.to_string()))
}
