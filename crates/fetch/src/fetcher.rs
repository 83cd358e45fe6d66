//! Makes the requests of callers and follows redirects. A hop is the request to one URL, and each redirect leads to
//! another hop. All hops of a caller's request share one deadline. The module `exchange` sends the request of a hop.
//! Start with [`Fetcher::send`].

use std::fmt;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use http::Method;
use parking_lot::Mutex;

use crate::body::{Body, BodyLimits};
use crate::cookies::CookieJar;
use crate::deadline::Deadline;
use crate::environment::Environment;
use crate::error::{FetchError, RequestFailure};
use crate::lookup::Lookups;
use crate::message::origin_uri;
use crate::owner::RequestOwner;
use crate::pool::ConnectionPool;
use crate::proxy::ProxyRules;
use crate::redirect::{self, MAX_REDIRECTS};
use crate::request::{FetchRequest, Redirects};
use crate::response::{self, FetchResponse};
use crate::roots::Roots;
use crate::validate::{Hop, first_hop};

/// The settings of a [`Fetcher`].
#[derive(Default)]
pub struct FetcherConfig {
    /// The environment variables from which headers get values, and which name proxies (`HTTP_PROXY`, `HTTPS_PROXY`,
    /// `ALL_PROXY`, `NO_PROXY`, also in lower case) and a file with root certificates (`CODEX_CA_CERTIFICATE`, else
    /// `SSL_CERT_FILE`).
    pub environment: Vec<(String, String)>,
    /// Resolves host names. Other parts of the program may use the same value.
    pub lookups: Arc<Lookups>,
}

/// Makes HTTP requests. Clones share the cookies that are kept, and clones with the same owner share their
/// connections. When the last clone and the last body are dropped, all connections are closed. [`Fetcher::close`] also
/// waits until the tasks of HTTP/2 connections have ended.
#[derive(Clone)]
pub struct Fetcher {
    shared: Arc<FetcherState>,
    owner: RequestOwner,
}

/// The state that the clones of a [`Fetcher`] share.
pub(crate) struct FetcherState {
    environment: Environment,
    pub(crate) proxies: ProxyRules,
    pub(crate) roots: Roots,
    pub(crate) lookups: Arc<Lookups>,
    pub(crate) pool: Arc<ConnectionPool>,
    pub(crate) cookies: Mutex<CookieJar>,
}

impl Fetcher {
    /// Fails if the environment names a file with root certificates that cannot be used. Opens no connection.
    pub fn new(config: FetcherConfig) -> Result<Self, FetchError> {
        let FetcherConfig { environment, lookups } = config;
        let environment = Environment::new(environment);
        let proxies = ProxyRules::from_environment(&environment);
        let roots = Roots::from_environment(&environment)?;
        let (pool, cookies) = (Arc::default(), Mutex::default());
        let shared = Arc::new(FetcherState { environment, proxies, roots, lookups, pool, cookies });
        Ok(Self { shared, owner: RequestOwner::default() })
    }

    /// A clone that makes the requests of another owner.
    pub fn for_owner(&self, owner: RequestOwner) -> Self {
        Self { shared: Arc::clone(&self.shared), owner }
    }

    /// Makes a request and waits for the headers of the response. Dropping the future cancels the request.
    pub async fn send(&self, request: FetchRequest) -> Result<FetchResponse, FetchError> {
        let started = Instant::now();
        let hop = first_hop(&request, &self.shared.environment)?;
        // The crate `http` refuses some URLs that the crate `url` accepts, for example very long ones.
        origin_uri(&hop.url)
            .map_err(|failure| FetchError::Invalid(format!("http/request url is invalid: {}", failure.text)))?;
        let method = hop.method.clone();
        let deadline = Deadline::after(request.timeout);
        let limits = BodyLimits { deadline, max_bytes: request.max_body_bytes };
        let answer = deadline.within(self.shared.follow(hop, request.redirects, limits, &self.owner)).await.flatten();
        let duration = started.elapsed();
        match &answer {
            Ok(response) => tracing::debug!(%method, status = response.status, ?duration, "HTTP request answered"),
            Err(failure) => tracing::debug!(%method, kind = failure.kind.as_str(), ?duration, "HTTP request failed"),
        }
        answer.map_err(RequestFailure::into_request_error)
    }

    /// Closes idle connections and all HTTP/2 connections, also those of responses that are still read, and waits
    /// until their tasks have ended. An HTTP/1.1 connection stays open for a response that is still read. The caller
    /// must make no request afterwards.
    pub async fn close(&self) {
        self.shared.pool.close().await;
    }
}

/// Shows nothing of the environment, which holds secrets.
impl fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetcher").finish_non_exhaustive()
    }
}

impl FetcherState {
    /// Sends the request of a hop, and follows redirects if `redirects` says so. Returns the last response.
    async fn follow(
        &self,
        mut hop: Hop,
        redirects: Redirects,
        limits: BodyLimits,
        owner: &RequestOwner,
    ) -> Result<FetchResponse, RequestFailure> {
        let mut followed = 0;
        loop {
            let (response, lease) = self.exchange(&hop, owner).await?;
            let (head, incoming) = response.into_parts();
            self.cookies.lock().store(&hop.url, &head.headers, SystemTime::now());
            let mut body = Body::new(incoming, lease, limits);
            // A response to HEAD has no body, although its `content-length` may say otherwise. Over HTTP/2, the end
            // of the stream can arrive later than the headers, and is not waited for.
            if hop.method == Method::HEAD {
                body.release_connection();
            }
            let next = match redirects {
                Redirects::Follow => redirect::next_hop(&hop, head.status, &head.headers)?,
                Redirects::Stop => None,
            };
            let Some(next) = next else {
                let headers = response::visible_headers(&head.headers);
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
}
