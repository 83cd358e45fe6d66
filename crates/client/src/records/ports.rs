//! The open streams to TCP ports of a client: what the server has sent and nobody has read yet, and how much may be sent.

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

/// How many bytes the server may send on a stream that were not read yet.
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
    /// The last byte was sent.
    has_sent_end: bool,
    /// Why the stream has ended in both directions.
    failure: Option<String>,
    /// The server does not know the stream, for example because the connection to it is lost.
    is_unknown_to_server: bool,
    reader: Option<Waker>,
}

impl PortRecords {
    /// Adds a stream that the server is asked to connect. It may send nothing yet.
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

    /// Removes a stream that nobody uses any more. What the server still sends on it is ignored.
    pub(crate) fn remove(&self, record: &PortRecord) {
        self.streams.lock().remove(&record.id);
    }

    /// Takes bytes of a stream. An error means that the server broke the protocol; the caller closes the connection.
    pub(crate) fn push(&self, data: &PushedTcpData<'_>) -> Result<(), String> {
        let Some(record) = self.find(&data.stream_id) else { return Ok(()) };
        let bytes = decode_base64(&data.chunk).map_err(|error| format!("invalid base64: {error}"))?;
        record.change(|state| state.received.push(bytes, data.end)).map_err(|violation| match violation {
            StreamViolation::OverCredit => "more bytes of a TCP stream than its credit".to_owned(),
            StreamViolation::AfterEnd => "bytes of a TCP stream after its end".to_owned(),
        })
    }

    /// The server allows more bytes on a stream.
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

    /// The connection is lost, and so are its streams. Their readers still get the bytes that came before.
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
    /// More bytes may be sent.
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

    /// Nothing more is sent. Returns whether the server has to be told.
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

    /// The user has taken bytes. Returns the credit that the server must be given now, if it is worth a message.
    pub(crate) fn note_consumed(&self, bytes: usize) -> Option<u64> {
        let mut state = self.state.lock();
        if state.failure.is_some() { None } else { state.received.note_consumed(bytes) }
    }

    /// Whether the server must be told that nobody uses the stream any more.
    pub(crate) fn must_be_closed(&self) -> bool {
        let state = self.state.lock();
        let is_complete = state.has_sent_end && state.received.has_ended();
        !is_complete && !state.is_unknown_to_server
    }

    /// The server has refused the stream, or the connection was lost before it could answer.
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
