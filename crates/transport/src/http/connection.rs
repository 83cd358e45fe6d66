//! Serves HTTP/1 on one connection until the connection is upgraded, ends or times out. [`serve`] starts no task: its
//! future drives the connection.

use std::convert::Infallible;
use std::future::{Ready, poll_fn, ready};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;

use super::routes::{self, HttpRoute};
use super::{HttpSurface, Trust, UpgradedBy};

/// Longest time from accept, with the TLS handshake, to the first request whose headers are complete, and from each
/// such request to the next.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Limit for the headers of a request, far more than an upgrade needs. hyper answers a request with longer headers with status 431.
pub const MAX_HEADER_BYTES: usize = 16 * 1024;

/// A connection after the upgrade to a WebSocket.
pub(crate) struct Upgraded<T> {
    pub(crate) io: T,
    /// Bytes that were read after the headers of the request: the beginning of the first WebSocket frames.
    pub(crate) already_read: Bytes,
    /// The peer that has asked for the upgrade.
    pub(crate) by: UpgradedBy,
}

/// Why HTTP ended without an upgrade and without an orderly close.
#[derive(Debug)]
pub(crate) enum HttpError {
    TimedOut,
    Failed(hyper::Error),
}

/// Answers requests on `io` until the upgrade. Returns `None` if the connection is closed without an upgrade. The
/// first request must be complete by `deadline`. `surface` decides who may connect and provides the metrics.
pub(crate) async fn serve<T>(
    io: T,
    surface: Arc<dyn HttpSurface>,
    trust: Trust,
    deadline: Instant,
) -> Result<Option<Upgraded<T>>, HttpError>
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let activity = Arc::new(HttpActivity::default());
    let router = Router { surface, trust, activity: activity.clone() };
    let mut connection =
        http1::Builder::new().max_buf_size(MAX_HEADER_BYTES).serve_connection(TokioIo::new(io), router);
    let mut timeout = pin!(tokio::time::sleep_until(deadline));
    let mut answered = 0;
    let ended = poll_fn(|cx| {
        if let Poll::Ready(ended) = connection.poll_without_shutdown(cx) {
            return Poll::Ready(ended.map_err(HttpError::Failed));
        }
        let answered_now = activity.answered.load(Ordering::Relaxed);
        if answered_now != answered {
            answered = answered_now;
            timeout.as_mut().reset(Instant::now() + REQUEST_TIMEOUT);
        }
        timeout.as_mut().poll(cx).map(|()| Err(HttpError::TimedOut))
    });
    ended.await?;
    let parts = connection.into_parts();
    let mut io = parts.io.into_inner();
    if let Some(by) = activity.upgraded_by.get() {
        return Ok(Some(Upgraded { io, already_read: parts.read_buf, by: by.clone() }));
    }
    // Over TLS this sends `close_notify`; without it some clients report a truncated answer. If it fails or times
    // out, the peer has left or reads nothing, so the result does not matter.
    let _ = tokio::time::timeout_at(timeout.deadline(), io.shutdown()).await;
    Ok(None)
}

/// The values that the router sets and [`serve`] reads. The router and [`serve`] run in the same task, so relaxed
/// memory ordering is enough.
#[derive(Default)]
struct HttpActivity {
    /// Number of requests that were answered.
    answered: AtomicU64,
    /// The peer that has upgraded the connection. Empty before the upgrade.
    upgraded_by: OnceLock<UpgradedBy>,
}

struct Router {
    surface: Arc<dyn HttpSurface>,
    trust: Trust,
    activity: Arc<HttpActivity>,
}

impl Service<Request<Incoming>> for Router {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let route = routes::respond(&request, &*self.surface, self.trust);
        self.activity.answered.fetch_add(1, Ordering::Relaxed);
        ready(Ok(match route {
            HttpRoute::Answer(response) => response,
            HttpRoute::Upgrade(response, by) => {
                // `set` fails only the second time, and hyper reads no further request after an upgrade.
                let _ = self.activity.upgraded_by.set(by);
                response
            }
        }))
    }
}
