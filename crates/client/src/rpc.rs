//! Calls and answers over one connection. This module knows no recovery. Of the session it knows only whether another
//! client has taken it over. When the connection ends, each waiting call learns whether its request may have reached
//! the server. Start with `Rpc::start`, which starts a reading and a writing task.

mod answering;
mod calls;
mod outbox;
mod reading;
mod writing;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use protocol::{
    PushedOutput, PushedTcpData, RequestId, TcpData, WireError, encode_notification, encode_request, error_kind,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use transport::MessageStream;

use crate::connector::{Companion, ServerConnection};
use crate::error::ExecServerError;
use answering::Answering;
use calls::{AnswerReceiver, Calls, MAX_CALLS};
use outbox::Outbox;

// Says whether a call counts towards the limit for ordinary calls or towards that for cleanup calls.
pub(crate) use calls::CallSlot;

/// Takes the notifications and requests of the server. The functions must not wait, because the reading task calls
/// them.
pub(crate) trait PeerHandler: Send + Sync + 'static {
    /// Takes output of a process, if the message has the usual form, for which there is a fast decoder. An error
    /// means that the server broke the protocol, and ends the connection.
    fn handle_output(&self, output: &PushedOutput<'_>) -> Result<(), String>;

    /// Takes bytes of a TCP stream from a message that [`protocol::recognise_tcp_data`] has recognised. An error ends
    /// the connection, as for output.
    fn handle_tcp_data(&self, data: &PushedTcpData<'_>) -> Result<(), String>;

    /// Takes every other notification. Unknown notifications are ignored. An error ends the connection, as for
    /// output.
    fn handle_notification(&self, method: &str, params: Option<&RawValue>) -> Result<(), String>;

    /// Answers a request of the server. With [`AnswerLoad::TooHigh`] the answer must be [`RequestAnswer::Now`].
    fn answer_request(&self, method: &str, params: Option<&RawValue>, load: AnswerLoad) -> RequestAnswer;
}

/// The result of a request of the server, or the error that is sent instead.
pub(crate) type RequestResult = Result<serde_json::Value, WireError>;

/// How a request of the server is answered.
pub(crate) enum RequestAnswer {
    Now(RequestResult),
    /// When the future is ready. The future is dropped if the connection ends.
    Later(Pin<Box<dyn Future<Output = RequestResult> + Send>>),
}

/// Whether a further request of the server can be answered later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerLoad {
    Bearable,
    /// Too many requests wait for their answers.
    TooHigh,
}

/// How long a companion may take to end after the connection was closed in order.
const COMPANION_PATIENCE: Duration = Duration::from_secs(2);

/// One connection to the server.
pub(crate) struct Rpc {
    outbox: Outbox,
    calls: Mutex<Calls>,
    /// Requests of the server that are being answered.
    answering: Mutex<Answering>,
    /// `None` while the connection lives.
    end: watch::Sender<Option<Disconnect>>,
    /// The server has said that another client took the session over.
    is_taken_over: AtomicBool,
    /// Stops both tasks.
    stop: CancellationToken,
    /// Something that lives as long as the connection, for example the child process that serves it.
    companion: Mutex<Option<Box<dyn Companion>>>,
    /// Whether the companion may end by itself when the connection is closed in order. Otherwise it is dropped at once.
    lets_companion_end: AtomicBool,
}

/// The reason why a connection ended. `None` if it is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Disconnect(pub(crate) Option<String>);

/// The reason why a call has no result.
#[derive(Debug)]
pub(crate) enum CallError {
    /// The connection ended before a byte of the request was sent.
    NotSent,
    /// The connection ended before the answer came. The server may have handled the request.
    Lost,
    /// The server refused the request, the client had too many unanswered calls, or the answer could not be decoded.
    Failed(ExecServerError),
}

impl Rpc {
    /// Starts the reading and the writing task of a connection. `tasks` owns both tasks, and a task for each request of
    /// the server that is answered later. If the transport has pings,
    /// the connection ends when the server gives no sign of life for `silence_timeout`, although it was pinged.
    pub(crate) fn start(
        connection: ServerConnection,
        handler: Arc<dyn PeerHandler>,
        silence_timeout: Duration,
        tasks: &TaskTracker,
    ) -> Arc<Self> {
        let MessageStream { reader, writer, framing, peer, .. } = connection.stream;
        let rpc = Arc::new(Self {
            outbox: Outbox::new(framing),
            calls: Mutex::new(Calls::default()),
            answering: Mutex::default(),
            end: watch::Sender::new(None),
            is_taken_over: AtomicBool::new(false),
            stop: CancellationToken::new(),
            companion: Mutex::new(connection.companion),
            lets_companion_end: AtomicBool::new(false),
        });
        tracing::debug!(%peer, "connected");
        tasks.spawn(writing::run(Arc::clone(&rpc), writer));
        tasks.spawn(reading::run(Arc::clone(&rpc), reader, handler, silence_timeout, tasks.clone()));
        rpc
    }

    /// Calls a method and waits for its answer.
    pub(crate) async fn call<R: DeserializeOwned>(
        self: &Arc<Self>,
        method: &str,
        params: &impl Serialize,
        slot: CallSlot,
    ) -> Result<R, CallError> {
        self.begin(method, params, slot).await?.answer().await
    }

    /// Sends a request and returns the pending call. Waits only while the outbox, the queue of the writing task, is
    /// full.
    pub(crate) async fn begin(
        self: &Arc<Self>,
        method: &str,
        params: &impl Serialize,
        slot: CallSlot,
    ) -> Result<PendingCall, CallError> {
        self.begin_encoded(slot, |id| encode_request(id, method, params)).await
    }

    /// As [`begin`](Self::begin), for a request that the caller encodes.
    pub(crate) async fn begin_encoded(
        self: &Arc<Self>,
        slot: CallSlot,
        encode: impl FnOnce(&RequestId) -> Vec<u8>,
    ) -> Result<PendingCall, CallError> {
        // Locked outside of the `match`, which would keep the lock in its arms, where `close` locks again.
        let registered = self.calls.lock().register(slot);
        let (id, reply) = match registered {
            Ok(registered) => registered,
            Err(calls::CallRefused::ConnectionEnded) => return Err(CallError::NotSent),
            Err(calls::CallRefused::TooMany) => {
                if slot == CallSlot::Cleanup {
                    // The server does not answer cleanups over this connection. It may answer over a new connection.
                    self.close("too many pending cleanup requests");
                }
                return Err(CallError::Failed(ExecServerError::TooManyRequests(MAX_CALLS)));
            }
        };
        let mut pending = PendingCall { rpc: Arc::clone(self), id, slot, reply: Some(reply), position: u64::MAX };
        self.outbox.wait_for_room().await;
        pending.position = self.outbox.push(&encode(&RequestId::Integer(id)));
        Ok(pending)
    }

    pub(crate) fn notify(&self, method: &str, params: &impl Serialize) {
        self.outbox.push(&encode_notification(method, params));
    }

    /// Queues bytes of a TCP stream, without waiting for room in the outbox.
    pub(crate) fn send_tcp_data(&self, data: &TcpData<'_>) {
        self.outbox.push_written(data.encoded_len(), |out| data.write_to(out));
    }

    /// Whether the outbox has room, or the connection has ended.
    pub(crate) fn has_room_now(&self) -> bool {
        self.outbox.has_room_now()
    }

    /// Waits until [`has_room_now`](Self::has_room_now) is true.
    pub(crate) async fn wait_for_room(&self) {
        self.outbox.wait_for_room().await;
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.end.borrow().is_some()
    }

    /// Waits until the connection has ended.
    pub(crate) async fn ended(&self) -> Disconnect {
        let mut end = self.end.subscribe();
        // `self` holds the sender, so waiting cannot fail.
        let ended = end.wait_for(Option::is_some).await;
        ended.ok().and_then(|end| end.clone()).unwrap_or(Disconnect(None))
    }

    pub(crate) fn was_taken_over(&self) -> bool {
        self.is_taken_over.load(Ordering::Relaxed)
    }

    fn note_takeover(&self) {
        self.is_taken_over.store(true, Ordering::Relaxed);
    }

    /// The error text for callers whose connection has ended.
    pub(crate) fn disconnect_text(&self) -> String {
        match &*self.end.borrow() {
            Some(Disconnect(Some(reason))) => format!("exec-server transport disconnected: {reason}"),
            Some(Disconnect(None)) | None => "exec-server transport disconnected".to_owned(),
        }
    }

    /// Ends the connection at once. Queued messages are not sent.
    pub(crate) fn close(&self, reason: &str) {
        self.finish(Disconnect(Some(reason.to_owned())));
    }

    /// Sends the queued messages and a close frame, and waits until the connection has ended. `lets_companion_end`: then waits
    /// until the companion has ended by itself, too.
    pub(crate) async fn close_after_queue(&self, lets_companion_end: bool) {
        self.lets_companion_end.store(lets_companion_end, Ordering::Relaxed);
        self.outbox.push_close();
        self.ended().await;
    }

    /// Waits until the companion, for example the child process that serves the connection, has ended by itself, if the caller
    /// of [`close_after_queue`](Self::close_after_queue) wants that. Dropping the companion would kill a server before it has
    /// removed what it made for sandboxes.
    async fn let_companion_end(&self) {
        if !self.lets_companion_end.load(Ordering::Relaxed) {
            return;
        }
        let companion = self.companion.lock().take();
        if let Some(mut companion) = companion {
            let _ended_or_timed_out = tokio::time::timeout(COMPANION_PATIENCE, companion.exit_report()).await;
        }
    }

    /// Ends the connection. Only the first reason counts.
    fn finish(&self, end: Disconnect) {
        let is_first = self.end.send_if_modified(|current| {
            let is_first = current.is_none();
            current.get_or_insert(end);
            is_first
        });
        if is_first {
            self.outbox.end();
            self.calls.lock().end();
            self.companion.lock().take();
        }
        self.stop.cancel();
    }
}

/// A request whose answer has not come. After the value is dropped, the answer is ignored.
pub(crate) struct PendingCall {
    rpc: Arc<Rpc>,
    id: i64,
    slot: CallSlot,
    reply: Option<AnswerReceiver>,
    /// Position of the request in the outbox. `u64::MAX` until the request is queued.
    position: u64,
}

impl PendingCall {
    /// Waits for the answer and decodes its result.
    pub(crate) async fn answer<R: DeserializeOwned>(mut self) -> Result<R, CallError> {
        self.wait().await
    }

    /// As [`answer`](Self::answer), for a caller that may stop waiting and pass the pending call on. Must not be
    /// called again after it has returned.
    pub(crate) async fn wait<R: DeserializeOwned>(&mut self) -> Result<R, CallError> {
        let result = self.wait_encoded().await?;
        serde_json::from_slice(&result).map_err(|error| CallError::Failed(error.into()))
    }

    /// Waits for the JSON text of the result. Must not be called again after it has returned.
    pub(crate) async fn wait_encoded(&mut self) -> Result<Bytes, CallError> {
        let result = match self.reply.as_mut() {
            Some(reply) => reply.await,
            None => return Err(CallError::Lost),
        };
        match result {
            Ok(Ok(result)) => Ok(result),
            // This error means that another client has the session now. The connection is useless, whether or not the
            // server closes it.
            Ok(Err(error)) if error.is_of_kind(error_kind::SESSION_RESUMED_ELSEWHERE) => {
                self.rpc.note_takeover();
                self.rpc.close(&error.message);
                Err(CallError::Lost)
            }
            Ok(Err(error)) => Err(CallError::Failed(error.into())),
            Err(_) if self.rpc.outbox.was_taken(self.position) => Err(CallError::Lost),
            Err(_) => Err(CallError::NotSent),
        }
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        self.rpc.calls.lock().forget(self.id, self.slot);
    }
}
