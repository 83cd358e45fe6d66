//! The pieces of streamed HTTP bodies that have come and were not read yet, and how much of them may wait.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use protocol::{PushedBodyDelta, decode_base64};
use tokio::sync::mpsc;

use super::backlog::Backlog;

/// Unread pieces of one body, from a server that cannot pause a body.
const PIECES: usize = 256;
/// Unread bytes of all such bodies together.
const WAITING_BYTES: usize = 16 * 1024 * 1024;
/// Unread bytes of one body, from a server that can pause it: enough for what is on its way when the server is told.
const PAUSED_BYTES: usize = 64 * 1024 * 1024;
/// The largest piece that the protocol allows.
const PIECE_BYTES: usize = 1024 * 1024;

pub(crate) enum BodyPiece {
    Bytes(Bytes),
    End,
    Failed(String),
}

#[derive(Default)]
pub(crate) struct BodyRecords {
    table: Arc<BodyTable>,
}

#[derive(Default)]
struct BodyTable {
    streams: Mutex<HashMap<String, BodyRecord>>,
    last_id: AtomicU64,
    waiting_bytes: AtomicUsize,
}

struct BodyRecord {
    // Bounded by what the backlog allows.
    sender: mpsc::UnboundedSender<BodyPiece>,
    last_seq: u64,
    backlog: Arc<Backlog>,
}

/// Keeps a body in the table until it is dropped.
pub(crate) struct BodyRegistration {
    table: Arc<BodyTable>,
    backlog: Arc<Backlog>,
}

impl BodyRecords {
    pub(crate) fn next_id(&self) -> String {
        format!("http-{}", self.table.last_id.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Adds a body. `has_flow`: the server can pause it.
    pub(crate) fn register(&self, has_flow: bool) -> (BodyRegistration, mpsc::UnboundedReceiver<BodyPiece>) {
        let id = self.next_id();
        let (sender, pieces) = mpsc::unbounded_channel();
        let backlog = Arc::new(Backlog::new(id.clone(), has_flow));
        let stream = BodyRecord { sender, last_seq: 0, backlog: Arc::clone(&backlog) };
        self.table.streams.lock().insert(id, stream);
        (BodyRegistration { table: Arc::clone(&self.table), backlog }, pieces)
    }

    /// Takes a piece. Returns the body that the server must be told to pause, if there is one. An error means that the server broke the
    /// protocol, and ends the connection.
    pub(crate) fn push(&self, delta: &PushedBodyDelta<'_>) -> Result<Option<Arc<Backlog>>, String> {
        let mut streams = self.table.streams.lock();
        // The reader of this body is gone.
        let Some(stream) = streams.get_mut(&*delta.request_id) else { return Ok(None) };
        let bytes = decode_base64(&*delta.delta_base64).map_err(|error| format!("invalid base64: {error}"))?;
        if bytes.len() > PIECE_BYTES {
            return Err(format!("body delta exceeds {PIECE_BYTES} bytes"));
        }
        let taken = stream.take(delta, Bytes::from(bytes), &self.table.waiting_bytes);
        let must_tell = matches!(taken, Ok(true));
        let to_tell = must_tell.then(|| Arc::clone(&stream.backlog));
        if taken.is_err() || delta.done {
            let stream = streams.remove(&*delta.request_id);
            if let (Err(failure), Some(stream)) = (taken, stream) {
                stream.fail(failure);
            }
        }
        Ok(to_tell)
    }

    /// Ends all bodies, because the connection was lost.
    pub(crate) fn fail_all(&self, text: &str) {
        for (_, stream) in self.table.streams.lock().drain() {
            stream.fail(text.to_owned());
        }
    }
}

impl BodyRecord {
    /// Returns true if the server must be told to pause the body.
    fn take(&mut self, delta: &PushedBodyDelta<'_>, bytes: Bytes, waiting: &AtomicUsize) -> Result<bool, String> {
        if delta.seq != self.last_seq + 1 {
            return Err(format!("body delta {} came after {}", delta.seq, self.last_seq));
        }
        self.last_seq = delta.seq;
        let mut must_tell = false;
        if !bytes.is_empty() {
            let length = bytes.len();
            self.check_room(length, waiting)?;
            waiting.fetch_add(length, Ordering::Relaxed);
            must_tell = self.backlog.add(length);
            // The reader removes the body from the table before it drops the receiver.
            let _gone = self.sender.send(BodyPiece::Bytes(bytes));
        }
        match (&delta.error, delta.done) {
            (Some(error), _) => Err(error.clone()),
            (None, true) if !self.backlog.has_flow() && self.backlog.pieces() >= PIECES => Err(full()),
            (None, true) => {
                self.backlog.end();
                let _gone = self.sender.send(BodyPiece::End);
                Ok(false)
            }
            (None, false) => Ok(must_tell),
        }
    }

    fn check_room(&self, length: usize, waiting: &AtomicUsize) -> Result<(), String> {
        let too_many = |limit: usize| Err(format!("queued body deltas exceed {limit} bytes"));
        if self.backlog.has_flow() {
            let fits = self.backlog.bytes() + length <= PAUSED_BYTES;
            return if fits { Ok(()) } else { too_many(PAUSED_BYTES) };
        }
        if waiting.load(Ordering::Relaxed) + length > WAITING_BYTES {
            return too_many(WAITING_BYTES);
        }
        if self.backlog.pieces() >= PIECES { Err(full()) } else { Ok(()) }
    }

    /// The reader gets the pieces that have come, and then the failure.
    fn fail(self, text: String) {
        self.backlog.end();
        let _gone = self.sender.send(BodyPiece::Failed(text));
    }
}

fn full() -> String {
    "body delta channel filled before delivery".to_owned()
}

impl BodyRegistration {
    pub(crate) fn id(&self) -> &str {
        self.backlog.id()
    }

    /// Notes that a piece was read. Returns the body that the server must be told to resume, if there is one.
    pub(crate) fn taken(&self, length: usize) -> Option<Arc<Backlog>> {
        self.table.waiting_bytes.fetch_sub(length, Ordering::Relaxed);
        self.backlog.remove(length).then(|| Arc::clone(&self.backlog))
    }

    /// Takes no further piece. Returns true if the body was not complete.
    pub(crate) fn give_up(&self) -> bool {
        self.backlog.end();
        self.table.streams.lock().remove(self.id()).is_some()
    }
}

impl Drop for BodyRegistration {
    fn drop(&mut self) {
        self.give_up();
    }
}
