//! An HTTP/2 connection that requests share. hyper and h2 implement the protocol. This module sets their limits,
//! counts the open streams, and starts the tasks of the connection. A connection needs tasks because it must answer
//! pings, and must receive the data of all its streams, even while no caller waits for a body. This module does not
//! know which requests may be sent again. Start with [`Http2Connection::start`].

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

/// Limit for the open streams of a connection; the server may set a lower one. A request beyond the limit gets
/// another connection.
pub const MAX_STREAMS: usize = 32;

/// Limit for the bytes of a body that have arrived and that the caller has not taken. It is the window of a stream.
pub const MAX_UNREAD_BYTES: usize = 1 << 20;

/// The window of a connection. It is as large as the windows of all its streams together, so that bodies that nobody
/// takes never block another body.
const CONNECTION_WINDOW_BYTES: usize = MAX_UNREAD_BYTES * MAX_STREAMS;

/// A server that sends nothing for this long while a stream is open gets a ping. Without pings, requests would be
/// sent over a dead connection until the kernel gives it up, after a quarter of an hour.
const PING_AFTER: Duration = Duration::from_secs(30);

/// A connection whose ping has no answer for this long is lost.
const PONG_TIMEOUT: Duration = Duration::from_secs(20);

/// Data of several frames is joined to a piece of about this size, if it has already arrived.
const JOINED_BYTES: usize = 256 * 1024;

/// When nobody uses a connection any more, its last frames, such as GOAWAY, are sent within this time. The connection
/// is then closed, even if the server has not read them.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Number of streams that h2 resets because of errors of the server, or because data came long after a request was
/// cancelled. After more of them, h2 closes the connection and so ends other responses of the same owner.
const MAX_FAULTY_STREAMS: usize = 1024;

type Driver = http2::Connection<TokioIo<MeteredStream>, RequestBody, ConnectionTasks>;

/// An HTTP/2 connection. When the last reference to it is dropped, it sends GOAWAY to the server and is closed.
pub(crate) struct Http2Connection {
    sender: SendRequest<RequestBody>,
    /// The future of hyper that opens a stream for each request. None once it has ended.
    driver: Arc<Mutex<Option<Driver>>>,
    usage: Mutex<StreamUsage>,
    /// The connection takes no more requests, because a request failed on it and is sent again over another one.
    is_retired: AtomicBool,
    /// Counts the bytes that arrive while no request gets a part of its response.
    meter: Arc<ProgressMeter>,
    /// Tells the task of the connection that the last reference was dropped.
    _abandoned: DropGuard,
}

struct StreamUsage {
    /// Number of streams that requests have reserved.
    open: usize,
    /// The time at which the last stream was closed, or the connection was started.
    idle_since: Instant,
}

impl Http2Connection {
    /// Begins HTTP/2 on a byte stream on which it was negotiated. Spawns a task on `owner` that drives the
    /// connection, and that closes it when `ended` is cancelled.
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

    /// Reserves one of the streams that the server and [`MAX_STREAMS`] allow. `None` if all are in use, or if the
    /// driver has ended.
    pub(crate) fn reserve(self: &Arc<Self>) -> Option<StreamSlot> {
        let allowed = self.driver.lock().as_ref().map_or(0, Driver::current_max_send_streams);
        let mut usage = self.usage.lock();
        if usage.open >= allowed.min(MAX_STREAMS) {
            return None;
        }
        usage.open += 1;
        Some(StreamSlot(Arc::clone(self)))
    }

    /// Whether further requests may be sent: the connection is neither closed nor retired.
    pub(crate) fn is_open(&self) -> bool {
        !self.is_retired.load(Ordering::Relaxed) && !self.sender.is_closed()
    }

    /// Makes this connection take no more requests. Requests that were sent already are not affected.
    pub(crate) fn retire(&self) {
        self.is_retired.store(true, Ordering::Relaxed);
    }

    /// Time since the last stream was closed, or since the start. `None` while a stream is open.
    pub(crate) fn idle_time(&self) -> Option<Duration> {
        let usage = self.usage.lock();
        (usage.open == 0).then(|| usage.idle_since.elapsed())
    }
}

/// The right to use one stream of a connection. Dropping it lets another request use a stream.
pub(crate) struct StreamSlot(Arc<Http2Connection>);

impl StreamSlot {
    pub(crate) fn connection(&self) -> &Http2Connection {
        &self.0
    }

    /// Sends a request and waits for the headers of the response. The error contains the request if no part of it was
    /// sent. Dropping the future resets the stream.
    pub(crate) async fn exchange(
        &self,
        request: http::Request<RequestBody>,
    ) -> Result<http::Response<Incoming>, TrySendError<http::Request<RequestBody>>> {
        let response = self.0.sender.clone().try_send_request(request).await?;
        self.0.meter.note_progress();
        Ok(response)
    }

    /// The next bytes of the body of this stream, never empty. `None` at its end. Trailers are dropped. Joins the
    /// data of frames that have arrived: frames are often as small as 16 KiB, and the caller sends each piece as a
    /// message of its own.
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
        // If the loop stops at the end of the body or at an error, the next call gets the end or the error again.
        while joined.len() < JOINED_BYTES
            && let Poll::Ready(Some(Ok(data))) = self.poll_frame(body, cx)
        {
            joined.extend_from_slice(&data);
        }
        Poll::Ready(Some(Ok(joined.freeze())))
    }

    /// The data of the next frame that is not empty.
    fn poll_frame(&self, body: &mut Incoming, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, RequestFailure>>> {
        loop {
            match ready!(Pin::new(&mut *body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if !data.is_empty() => return Poll::Ready(Some(Ok(data))),
                    _ => {}
                },
                Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
                // hyper reports a stream that the server reset with `NO_ERROR` as one that has ended.
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
    /// Cancelled to end all of them.
    ended: CancellationToken,
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for ConnectionTasks {
    fn execute(&self, future: F) {
        self.tracker.spawn(self.ended.clone().run_until_cancelled_owned(future));
    }
}

/// The task of a connection, from its start to its end. Also waits for the tasks that hyper has started for it.
async fn drive(driver: Arc<Mutex<Option<Driver>>>, tasks: ConnectionTasks, abandoned: CancellationToken) {
    // A tracker must be closed before `wait` can return. Tasks can be added to it nevertheless.
    tasks.tracker.close();
    let until_unused = async {
        // hyper reports an error to the requests and bodies that wait.
        let _ = std::future::poll_fn(|cx| match driver.lock().as_mut() {
            Some(driver) => Pin::new(driver).poll(cx).map(drop),
            None => Poll::Ready(()),
        })
        .await;
        // Dropping the driver fails the requests that were not sent yet.
        *driver.lock() = None;
        // Streams that are open go on: the server may only have refused new ones.
        abandoned.cancelled().await;
        let _ = timeout(CLOSE_TIMEOUT, tasks.tracker.wait()).await;
    };
    tasks.ended.run_until_cancelled(until_unused).await;
    *driver.lock() = None;
    tasks.ended.cancel();
    tasks.tracker.wait().await;
}
