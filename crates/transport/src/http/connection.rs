//! Serves HTTP/1 on one connection until it is upgraded, ends, or tries our patience. There is no task behind it: whoever
//! awaits [`serve`] drives the connection.

use std::convert::Infallible;
use std::future::{Ready, poll_fn, ready};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;

use super::{HttpSurface, Trust, routes};

/// From accept to the first whole request, and then from request to request. Whoever needs longer is idle or hostile.
pub(crate) const END_OF_PATIENCE: Duration = Duration::from_secs(10);
/// Far more than the headers of an upgrade need; hyper answers 431 beyond.
const MAX_HEADER_BYTES: usize = 16 * 1024;

/// The connection after a 101, and what the peer sent behind its request.
pub(crate) struct Upgraded<T> {
    pub(crate) io: T,
    pub(crate) already_read: Bytes,
}

/// Why HTTP ended without an upgrade or an orderly close.
#[derive(Debug)]
pub(crate) enum HttpError {
    OutOfPatience,
    Broken(hyper::Error),
}

/// Answers requests on `io`; `None` when the peer is done without having upgraded.
pub(crate) async fn serve<T>(
    io: T,
    surface: Arc<dyn HttpSurface>,
    trust: Trust,
    deadline: Instant,
) -> Result<Option<Upgraded<T>>, HttpError>
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let exchanges = Arc::new(Exchanges::default());
    let router = Router { surface, trust, exchanges: exchanges.clone() };
    let mut connection =
        http1::Builder::new().max_buf_size(MAX_HEADER_BYTES).serve_connection(TokioIo::new(io), router);
    let mut patience = pin!(tokio::time::sleep_until(deadline));
    let mut answered = 0;
    let ended = poll_fn(|cx| {
        if let Poll::Ready(ended) = connection.poll_without_shutdown(cx) {
            return Poll::Ready(ended.map_err(HttpError::Broken));
        }
        let answered_now = exchanges.answered.load(Ordering::Relaxed);
        if answered_now != answered {
            answered = answered_now;
            patience.as_mut().reset(Instant::now() + END_OF_PATIENCE);
        }
        patience.as_mut().poll(cx).map(|()| Err(HttpError::OutOfPatience))
    });
    ended.await?;
    let parts = connection.into_parts();
    let mut io = parts.io.into_inner();
    if exchanges.upgraded.load(Ordering::Relaxed) {
        return Ok(Some(Upgraded { io, already_read: parts.read_buf }));
    }
    // For TLS this is the goodbye without which some clients suspect a cut; a peer that does not take it is gone.
    let _ = tokio::time::timeout_at(patience.deadline(), io.shutdown()).await;
    Ok(None)
}

/// What the router tells the loop that drives the connection. Both run in the same task, so no ordering is needed.
#[derive(Default)]
struct Exchanges {
    answered: AtomicU64,
    upgraded: AtomicBool,
}

struct Router {
    surface: Arc<dyn HttpSurface>,
    trust: Trust,
    exchanges: Arc<Exchanges>,
}

impl Service<Request<Incoming>> for Router {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let answer = routes::answer(&request, &*self.surface, self.trust);
        self.exchanges.answered.fetch_add(1, Ordering::Relaxed);
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            self.exchanges.upgraded.store(true, Ordering::Relaxed);
        }
        ready(Ok(answer))
    }
}
