//! Calls and answers over one connection. It knows no session and no recovery: when the connection ends, so does this, and every
//! call that waits is told whether it can have reached the server.

mod calls;
mod outbox;
mod reading;
mod writing;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use protocol::{RequestId, encode_notification, encode_request, error_kind};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use transport::MessageStream;

use crate::connector::{Companion, Connection};
use crate::error::ExecServerError;
use crate::inbound::Inbound;
use calls::{Calls, Reply};
use outbox::Outbox;

use calls::MAX_CALLS;
pub(crate) use calls::Slot;

/// One connection.
pub(crate) struct Rpc {
    outbox: Outbox,
    calls: Mutex<Calls>,
    /// None while it lives; then why it ended, if there is more to say than that.
    end: watch::Sender<Option<End>>,
    /// Another client has taken the session.
    is_taken_over: AtomicBool,
    /// Makes both tasks stop.
    stop: CancellationToken,
    /// What must live as long as the connection, such as the child at its other end.
    companion: Mutex<Option<Box<dyn Companion>>>,
}

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct End(pub(crate) Option<String>);

/// Why a call has no answer.
#[derive(Debug)]
pub(crate) enum CallError {
    /// Not a byte of it went out: it can be repeated.
    NotSent,
    /// The connection ended before the answer came: the server may have done it.
    Lost,
    /// The call itself failed.
    Failed(ExecServerError),
}

impl Rpc {
    /// Starts the tasks of a connection. What the peer sends on its own goes to `inbound`. A peer that gives no sign of life for
    /// `silence_timeout`, although it was pinged, ends it.
    pub(crate) fn start(connection: Connection, inbound: Arc<Inbound>, silence_timeout: Duration) -> Arc<Self> {
        let MessageStream { reader, writer, framing, peer, .. } = connection.stream;
        let rpc = Arc::new(Self {
            outbox: Outbox::new(framing),
            calls: Mutex::new(Calls::default()),
            end: watch::Sender::new(None),
            is_taken_over: AtomicBool::new(false),
            stop: CancellationToken::new(),
            companion: Mutex::new(connection.companion),
        });
        tracing::debug!(%peer, "connected");
        tokio::spawn(writing::run(Arc::clone(&rpc), writer));
        tokio::spawn(reading::run(Arc::clone(&rpc), reader, inbound, silence_timeout));
        rpc
    }

    /// Calls a method and waits for its answer.
    pub(crate) async fn call<R: DeserializeOwned>(
        self: &Arc<Self>,
        method: &str,
        params: &impl Serialize,
        slot: Slot,
    ) -> Result<R, CallError> {
        self.begin(method, params, slot).await?.answer().await
    }

    /// Sends a request. Waits only while too much is already waiting to be sent.
    pub(crate) async fn begin(
        self: &Arc<Self>,
        method: &str,
        params: &impl Serialize,
        slot: Slot,
    ) -> Result<PendingCall, CallError> {
        self.begin_encoded(slot, |id| encode_request(id, method, params)).await
    }

    /// Sends a request that the caller writes.
    pub(crate) async fn begin_encoded(
        self: &Arc<Self>,
        slot: Slot,
        encode: impl FnOnce(&RequestId) -> Vec<u8>,
    ) -> Result<PendingCall, CallError> {
        // The lock is not held in the arms: closing takes it again.
        let registered = self.calls.lock().register(slot);
        let (id, reply) = match registered {
            Ok(registered) => registered,
            Err(calls::Refused::Ended) => return Err(CallError::NotSent),
            Err(calls::Refused::TooMany) => {
                if slot == Slot::Cleanup {
                    // What must be cleaned up cannot be any more: a new connection can.
                    self.close("too many pending cleanup requests");
                }
                return Err(CallError::Failed(ExecServerError::TooManyRequests(MAX_CALLS)));
            }
        };
        let mut pending = PendingCall { rpc: Arc::clone(self), id, slot, reply: Some(reply), position: u64::MAX };
        self.outbox.has_room().await;
        pending.position = self.outbox.push(&encode(&RequestId::Integer(id)));
        Ok(pending)
    }

    /// Sends a notification.
    pub(crate) fn notify(&self, method: &str, params: &impl Serialize) {
        self.outbox.push(&encode_notification(method, params));
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.end.borrow().is_some()
    }

    /// Waits for the end.
    pub(crate) async fn ended(&self) -> End {
        let mut end = self.end.subscribe();
        // The sender is ours and lives as long as we do.
        let ended = end.wait_for(Option::is_some).await;
        ended.ok().and_then(|end| end.clone()).unwrap_or(End(None))
    }

    /// Whether it ended because another client has taken the session.
    pub(crate) fn was_taken_over(&self) -> bool {
        self.is_taken_over.load(Ordering::Relaxed)
    }

    /// The server says that another client has taken the session.
    fn note_takeover(&self) {
        self.is_taken_over.store(true, Ordering::Relaxed);
    }

    /// Says that it has ended, in the words callers are told.
    pub(crate) fn disconnect_text(&self) -> String {
        match &*self.end.borrow() {
            Some(End(Some(reason))) => format!("exec-server transport disconnected: {reason}"),
            Some(End(None)) | None => "exec-server transport disconnected".to_owned(),
        }
    }

    /// Closes the connection because of something the peer did, or because it is replaced.
    pub(crate) fn close(&self, reason: &str) {
        self.finish(End(Some(reason.to_owned())));
    }

    /// Says goodbye and waits until what was queued is sent, for as long as the peer takes it.
    pub(crate) async fn say_goodbye(&self) {
        self.outbox.push_close();
        self.ended().await;
    }

    fn finish(&self, end: End) {
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

/// A request whose answer has not come. Dropping it forgets the answer.
pub(crate) struct PendingCall {
    rpc: Arc<Rpc>,
    id: i64,
    slot: Slot,
    reply: Option<Reply>,
    position: u64,
}

impl PendingCall {
    /// Waits for the answer.
    pub(crate) async fn answer<R: DeserializeOwned>(mut self) -> Result<R, CallError> {
        self.wait().await
    }

    /// As [`answer`](Self::answer), once, for those who may stop waiting and let somebody else go on.
    pub(crate) async fn wait<R: DeserializeOwned>(&mut self) -> Result<R, CallError> {
        let result = self.wait_encoded().await?;
        serde_json::from_slice(&result).map_err(|error| CallError::Failed(error.into()))
    }

    /// The result as it came.
    pub(crate) async fn wait_encoded(&mut self) -> Result<Bytes, CallError> {
        let result = match self.reply.as_mut() {
            Some(reply) => reply.await,
            None => return Err(CallError::Lost),
        };
        match result {
            Ok(Ok(result)) => Ok(result),
            // That is about the connection, not about the call. It is of no use any more, whether or not the server ends it.
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
