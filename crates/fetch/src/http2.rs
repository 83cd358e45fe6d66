//! An HTTP/2 connection that requests share. hyper and h2 do the protocol. This module sets their limits, counts the open streams, and owns
//! the tasks, because an HTTP/2 connection must answer pings and move the bodies of others while nobody waits for one of them.
//! It does not know which requests may be sent again. Start with [`Http2Connection::start`].

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::TrySendError;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::rt::Executor;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::connect::ByteStream;
use crate::error::RequestFailure;
use crate::http1::MAX_HEAD_BYTES;
use crate::metered_stream::{MeteredStream, ProgressMeter};
use crate::request_body::RequestBody;

/// Open streams of a connection. A further request gets another connection, also if the server allows fewer than this.
pub const MAX_STREAMS: usize = 32;

/// Bytes of a body that have arrived and that nobody has taken. It is the window of a stream.
pub const MAX_UNREAD_BYTES: usize = 1 << 20;

/// The window of a connection: what all its streams may have unread. So a body that nobody takes never holds up another.
const CONNECTION_WINDOW_BYTES: usize = MAX_UNREAD_BYTES * MAX_STREAMS;

/// A server that sends nothing for this long while a stream is open gets a ping. Without it, requests would join a dead connection until the
/// kernel gives the connection up, after a quarter of an hour.
const PING_AFTER: Duration = Duration::from_secs(30);

/// A connection whose ping has no answer for this long is lost.
const PONG_TIMEOUT: Duration = Duration::from_secs(20);

/// Frames that have arrived are joined to a piece of about this size.
const JOINED_BYTES: usize = 256 * 1024;

/// How long a connection that nobody needs any more may take to say goodbye to a server that reads slowly.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(2);

/// Streams that we may have to reset because of errors of the server. With more of them, h2 ends the connection.
const MAX_FAULTY_STREAMS: usize = 64;

type Driver = http2::Connection<TokioIo<MeteredStream>, RequestBody, ConnectionTasks>;

/// An HTTP/2 connection. When the last reference to it is dropped, it says goodbye to the server and is closed.
pub(crate) struct Http2Connection {
    sender: SendRequest<RequestBody>,
    /// Hands requests to the connection. None when it takes no more requests.
    driver: Arc<Mutex<Option<Driver>>>,
    usage: Mutex<StreamUsage>,
    /// Takes no more requests, because the server has refused one.
    is_retired: AtomicBool,
    meter: Arc<ProgressMeter>,
    _abandoned: DropGuard,
}

struct StreamUsage {
    open: usize,
    /// When the last stream was closed.
    idle_since: Instant,
}

impl Http2Connection {
    /// Begins HTTP/2 on a stream on which it was negotiated. `owner` gets a task that drives the connection, and ends it when `ended` is
    /// cancelled.
    pub(crate) async fn start(
        stream: Box<dyn ByteStream>,
        owner: &TaskTracker,
        ended: &CancellationToken,
    ) -> Result<Arc<Self>, RequestFailure> {
        let meter = Arc::new(ProgressMeter::default());
        let tasks = ConnectionTasks { tracker: TaskTracker::new(), ended: ended.child_token() };
        let stream = TokioIo::new(MeteredStream::new(stream, Arc::clone(&meter)));
        let (sender, driver) = http2::Builder::new(tasks.clone())
            .timer(TokioTimer::new())
            .initial_stream_window_size(MAX_UNREAD_BYTES as u32)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES as u32)
            .initial_max_send_streams(MAX_STREAMS)
            .max_header_list_size(MAX_HEAD_BYTES as u32)
            .max_local_error_reset_streams(MAX_FAULTY_STREAMS)
            .keep_alive_interval(PING_AFTER)
            .keep_alive_timeout(PONG_TIMEOUT)
            .handshake(stream)
            .await?;
        let driver = Arc::new(Mutex::new(Some(driver)));
        let abandoned = CancellationToken::new();
        owner.spawn(drive(Arc::clone(&driver), tasks, abandoned.clone()));
        Ok(Arc::new(Self {
            sender,
            driver,
            usage: Mutex::new(StreamUsage { open: 0, idle_since: Instant::now() }),
            is_retired: AtomicBool::new(false),
            meter,
            _abandoned: abandoned.drop_guard(),
        }))
    }

    /// Takes one of the streams that the server and we allow. `None` if all are in use.
    pub(crate) fn reserve(self: &Arc<Self>) -> Option<StreamSlot> {
        let allowed = self.driver.lock().as_ref().map_or(0, Driver::current_max_send_streams);
        let mut usage = self.usage.lock();
        if usage.open >= allowed.min(MAX_STREAMS) {
            return None;
        }
        usage.open += 1;
        Some(StreamSlot(Arc::clone(self)))
    }

    /// Whether further requests may be sent.
    pub(crate) fn is_open(&self) -> bool {
        !self.is_retired.load(Ordering::Relaxed) && !self.sender.is_closed()
    }

    /// Sends no further requests over this connection. Those that are under way are not affected.
    pub(crate) fn retire(&self) {
        self.is_retired.store(true, Ordering::Relaxed);
    }

    /// How long no stream was open. `None` while one is.
    pub(crate) fn idle_time(&self) -> Option<Duration> {
        let usage = self.usage.lock();
        (usage.open == 0).then(|| usage.idle_since.elapsed())
    }
}

/// The right to one stream of a connection. Gives it back when it is dropped.
pub(crate) struct StreamSlot(Arc<Http2Connection>);

impl StreamSlot {
    pub(crate) fn connection(&self) -> &Http2Connection {
        &self.0
    }

    /// Sends a request and waits for the headers of the response. The error has the request if nothing of it was sent. Dropping the future
    /// resets the stream.
    pub(crate) async fn exchange(
        &self,
        request: http::Request<RequestBody>,
    ) -> Result<http::Response<Incoming>, TrySendError<http::Request<RequestBody>>> {
        let response = self.0.sender.clone().try_send_request(request).await?;
        self.0.meter.note_progress();
        Ok(response)
    }

    /// The next data of the body that belongs to this stream, `None` at its end. Never empty; trailers are dropped. Joins the frames that have
    /// arrived, because servers send small ones, and each piece becomes a message to a client: 16 KiB are common.
    pub(crate) fn poll_data(
        &self,
        body: &mut Incoming,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, RequestFailure>>> {
        let Some(first) = ready!(self.poll_frame(body, cx)).transpose()? else { return Poll::Ready(None) };
        self.0.meter.note_progress();
        let Poll::Ready(Some(Ok(second))) = self.poll_frame(body, cx) else { return Poll::Ready(Some(Ok(first))) };
        let mut joined = BytesMut::from(first);
        joined.extend_from_slice(&second);
        // An end or an error is found again by the next call.
        while joined.len() < JOINED_BYTES
            && let Poll::Ready(Some(Ok(data))) = self.poll_frame(body, cx)
        {
            joined.extend_from_slice(&data);
        }
        Poll::Ready(Some(Ok(joined.freeze())))
    }

    /// The data of the next frame that has any.
    fn poll_frame(&self, body: &mut Incoming, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, RequestFailure>>> {
        loop {
            match ready!(Pin::new(&mut *body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if !data.is_empty() => return Poll::Ready(Some(Ok(data))),
                    _ => {}
                },
                Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
                // hyper takes a stream that the server reset without an error for one that has ended.
                None if !body.is_end_stream() => return Poll::Ready(Some(Err(RequestFailure::incomplete()))),
                None => return Poll::Ready(None),
            }
        }
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        let mut usage = self.0.usage.lock();
        usage.open -= 1;
        usage.idle_since = Instant::now();
    }
}

/// The tasks that hyper starts for a connection: one that reads and writes, and one or two for each request.
#[derive(Clone)]
struct ConnectionTasks {
    tracker: TaskTracker,
    /// Ends all of them.
    ended: CancellationToken,
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for ConnectionTasks {
    fn execute(&self, future: F) {
        self.tracker.spawn(self.ended.clone().run_until_cancelled_owned(future));
    }
}

/// Owns a connection from its start to its end, and waits for the tasks that it has started.
async fn drive(driver: Arc<Mutex<Option<Driver>>>, tasks: ConnectionTasks, abandoned: CancellationToken) {
    tasks.tracker.close();
    let life = async {
        // An error is told to those who wait for responses and bodies.
        let _ = std::future::poll_fn(|cx| match driver.lock().as_mut() {
            Some(driver) => Pin::new(driver).poll(cx).map(drop),
            None => Poll::Ready(()),
        })
        .await;
        // Requests that wait for their turn learn that they were not sent.
        *driver.lock() = None;
        // Streams that are open go on when the server only accepts no new ones.
        abandoned.cancelled().await;
        let _ = timeout(GOODBYE_TIMEOUT, tasks.tracker.wait()).await;
    };
    tasks.ended.run_until_cancelled(life).await;
    *driver.lock() = None;
    tasks.ended.cancel();
    tasks.tracker.wait().await;
}
