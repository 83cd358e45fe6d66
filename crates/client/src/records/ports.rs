//! The open streams of a client to TCP ports. For each stream this is the bytes of the server that were not read yet,
//! and the credit for sending.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use protocol::{
    PushedTcpData, ReceivedBytes, SendCredit, StreamIdJson, StreamViolation, TcpCloseNotification,
    TcpFlowNotification, decode_base64,
};
use tokio::sync::Notify;

use crate::error::ExecServerError;

/// How many unread bytes of the server one stream may hold.
pub(crate) const PORT_WINDOW_BYTES: u64 = 1 << 20;

/// The open streams of a client, by id.
#[derive(Default)]
pub(crate) struct PortRecords {
    streams: Mutex<HashMap<String, Arc<PortRecord>>>,
}

/// One stream. It belongs to one connection to the server.
pub(crate) struct PortRecord {
    pub(crate) id: String,
    pub(crate) id_json: StreamIdJson,
    state: Mutex<PortState>,
    /// Wakes writers: there is more credit, or the stream has ended.
    may_send: Notify,
}

struct PortState {
    received: ReceivedBytes,
    credit: SendCredit,
    /// Whether the client has ended its direction.
    has_sent_end: bool,
    /// Why the stream has ended in both directions.
    failure: Option<String>,
    /// Whether the server does not know the stream, for example because the connection is lost.
    is_unknown_to_server: bool,
    reader: Option<Waker>,
}

impl PortRecords {
    /// Adds a stream that the server is asked to connect. There is no credit for sending yet.
    pub(crate) fn add(&self, id: String) -> Arc<PortRecord> {
        let record = Arc::new(PortRecord {
            id_json: StreamIdJson::from(id.as_str()),
            id: id.clone(),
            state: Mutex::new(PortState {
                received: ReceivedBytes::new(PORT_WINDOW_BYTES),
                credit: SendCredit::new(0),
                has_sent_end: false,
                failure: None,
                is_unknown_to_server: false,
                reader: None,
            }),
            may_send: Notify::new(),
        });
        self.streams.lock().insert(id, Arc::clone(&record));
        record
    }

    /// Removes a stream that was dropped. Later messages of the server about this stream are ignored.
    pub(crate) fn remove(&self, record: &PortRecord) {
        self.streams.lock().remove(&record.id);
    }

    /// Adds bytes that the server has sent. An error means that the server broke the protocol; the caller closes the
    /// connection.
    pub(crate) fn push(&self, data: &PushedTcpData<'_>) -> Result<(), String> {
        let Some(record) = self.find(&data.stream_id) else { return Ok(()) };
        let bytes = decode_base64(&data.chunk).map_err(|error| format!("invalid base64: {error}"))?;
        record.change(|state| state.received.push(bytes, data.end)).map_err(|violation| match violation {
            StreamViolation::OverCredit => "more bytes of a TCP stream than its credit".to_owned(),
            StreamViolation::AfterEnd => "bytes of a TCP stream after its end".to_owned(),
        })
    }

    /// Adds credit that the server has given to a stream.
    pub(crate) fn grant(&self, flow: &TcpFlowNotification) {
        if let Some(record) = self.find(&flow.stream_id) {
            record.grant(flow.credit);
        }
    }

    /// The server has ended a stream in both directions.
    pub(crate) fn close(&self, close: TcpCloseNotification) {
        if let Some(record) = self.find(&close.stream_id) {
            record.fail(close.message.unwrap_or_else(|| "the server has closed the stream".to_owned()));
        }
    }

    /// Ends all streams with this text, because the connection is lost. Their readers still get the bytes that arrived
    /// before.
    pub(crate) fn fail_all(&self, text: &str) {
        for (_, record) in self.streams.lock().drain() {
            record.state.lock().is_unknown_to_server = true;
            record.fail(text.to_owned());
        }
    }

    fn find(&self, id: &str) -> Option<Arc<PortRecord>> {
        self.streams.lock().get(id).cloned()
    }
}

impl PortRecord {
    /// Adds credit for sending.
    pub(crate) fn grant(&self, bytes: u64) {
        self.change(|state| state.credit.grant(bytes));
    }

    /// Takes up to `wanted` bytes of credit, which the caller then sends. 0: there is no credit now.
    pub(crate) fn take_credit(&self, wanted: usize) -> Result<usize, ExecServerError> {
        let mut state = self.state.lock();
        state.check_sending()?;
        let allowed = state.credit.allowed(wanted);
        state.credit.spend(allowed);
        Ok(allowed)
    }

    /// Waits until there is credit, or the stream has ended.
    pub(crate) async fn credit(&self) {
        loop {
            let changed = self.may_send.notified();
            {
                let state = self.state.lock();
                if state.check_sending().is_err() || state.credit.allowed(1) > 0 {
                    return;
                }
            }
            changed.await;
        }
    }

    /// Ends the direction to the server. Returns whether the server has to be told; false if it was told before.
    pub(crate) fn end_sending(&self) -> Result<bool, ExecServerError> {
        let mut state = self.state.lock();
        if state.has_sent_end {
            return Ok(false);
        }
        state.check_sending()?;
        state.has_sent_end = true;
        Ok(true)
    }

    /// Waits for the next bytes. `None` after the last ones. Only one task may wait.
    pub(crate) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Vec<u8>, ExecServerError>>> {
        let mut state = self.state.lock();
        if let Some(bytes) = state.received.pop() {
            return Poll::Ready(Some(Ok(bytes)));
        }
        if state.received.is_over() {
            return Poll::Ready(None);
        }
        if let Some(text) = &state.failure {
            return Poll::Ready(Some(Err(ExecServerError::PortStreamFailed(text.clone()))));
        }
        state.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Notes that the user has taken bytes. Returns the credit that the server must be given now, if it is enough for a
    /// message.
    pub(crate) fn note_consumed(&self, bytes: usize) -> Option<u64> {
        let mut state = self.state.lock();
        if state.failure.is_some() { None } else { state.received.note_consumed(bytes) }
    }

    /// Whether a `tcp/close` must be sent when the stream is dropped.
    pub(crate) fn must_be_closed(&self) -> bool {
        let state = self.state.lock();
        let is_complete = state.has_sent_end && state.received.has_ended();
        !is_complete && !state.is_unknown_to_server
    }

    /// Notes that the server has refused the stream, or that the connection was lost before the answer.
    pub(crate) fn note_unknown_to_server(&self) {
        self.state.lock().is_unknown_to_server = true;
    }

    fn fail(&self, text: String) {
        self.change(|state| {
            state.failure.get_or_insert(text);
        });
    }

    fn change<R>(&self, change: impl FnOnce(&mut PortState) -> R) -> R {
        let mut state = self.state.lock();
        let changed = change(&mut state);
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
        self.may_send.notify_waiters();
        changed
    }
}

impl PortState {
    fn check_sending(&self) -> Result<(), ExecServerError> {
        match &self.failure {
            Some(text) => Err(ExecServerError::PortStreamFailed(text.clone())),
            None if self.has_sent_end => {
                Err(ExecServerError::PortStreamFailed("the end of the stream was sent already".to_owned()))
            }
            None => Ok(()),
        }
    }
}
