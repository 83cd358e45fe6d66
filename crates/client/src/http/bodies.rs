//! The streamed bodies of one connection, and how much of them may wait to be read.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use protocol::{PushedBodyDelta, decode_base64};
use tokio::sync::mpsc;

use super::backlog::Backlog;

/// Pieces of one body that may wait, from a server that cannot be made to wait itself.
const PIECES: usize = 256;
/// Bytes of all such bodies that may wait.
const WAITING_BYTES: usize = 16 * 1024 * 1024;
/// Bytes of one body that may wait, from a server that can: what is on its way when it is told, and more.
const PAUSED_BYTES: usize = 64 * 1024 * 1024;
/// The largest piece a server sends.
const PIECE_BYTES: usize = 1024 * 1024;

/// What a reader gets.
pub(crate) enum Piece {
    Bytes(Bytes),
    End,
    Failed(String),
}

#[derive(Default)]
pub(crate) struct Bodies {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    streams: Mutex<HashMap<String, Stream>>,
    last_id: AtomicU64,
    waiting_bytes: AtomicUsize,
}

struct Stream {
    // Bounded by what the backlog allows.
    sender: mpsc::UnboundedSender<Piece>,
    last_seq: u64,
    backlog: Arc<Backlog>,
}

/// A place in the table, given back when it is dropped.
pub(crate) struct Registration {
    shared: Arc<Shared>,
    backlog: Arc<Backlog>,
}

impl Bodies {
    pub(crate) fn next_id(&self) -> String {
        format!("http-{}", self.shared.last_id.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// A body to come, from a server that can be made to wait or not.
    pub(crate) fn register(&self, has_flow: bool) -> (Registration, mpsc::UnboundedReceiver<Piece>) {
        let id = self.next_id();
        let (sender, pieces) = mpsc::unbounded_channel();
        let backlog = Arc::new(Backlog::new(id.clone(), has_flow));
        let stream = Stream { sender, last_seq: 0, backlog: Arc::clone(&backlog) };
        self.shared.streams.lock().insert(id, stream);
        (Registration { shared: Arc::clone(&self.shared), backlog }, pieces)
    }

    /// A piece came. An error closes the connection: the server does not keep to the protocol. Returns the body of which
    /// the server must be told to wait.
    pub(crate) fn push(&self, delta: &PushedBodyDelta<'_>) -> Result<Option<Arc<Backlog>>, String> {
        let mut streams = self.shared.streams.lock();
        // Whoever is gone ignores the rest.
        let Some(stream) = streams.get_mut(&*delta.request_id) else { return Ok(None) };
        let bytes = decode_base64(&*delta.delta_base64).map_err(|error| format!("invalid base64: {error}"))?;
        if bytes.len() > PIECE_BYTES {
            return Err(format!("body delta exceeds {PIECE_BYTES} bytes"));
        }
        let taken = stream.take(delta, Bytes::from(bytes), &self.shared.waiting_bytes);
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

    /// The connection is gone.
    pub(crate) fn fail_all(&self, text: &str) {
        for (_, stream) in self.shared.streams.lock().drain() {
            stream.fail(text.to_owned());
        }
    }
}

impl Stream {
    /// True if the server must be told to wait.
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
            // Whoever reads removes the stream from the table before it is gone.
            let _gone = self.sender.send(Piece::Bytes(bytes));
        }
        match (&delta.error, delta.done) {
            (Some(error), _) => Err(error.clone()),
            (None, true) if !self.backlog.has_flow() && self.backlog.pieces() >= PIECES => Err(full()),
            (None, true) => {
                self.backlog.end();
                let _gone = self.sender.send(Piece::End);
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

    /// What was received before is still read; then comes the failure.
    fn fail(self, text: String) {
        self.backlog.end();
        let _gone = self.sender.send(Piece::Failed(text));
    }
}

fn full() -> String {
    "body delta channel filled before delivery".to_owned()
}

impl Registration {
    pub(crate) fn id(&self) -> &str {
        self.backlog.id()
    }

    /// A piece was read. Returns the body of which the server must be told to go on.
    pub(crate) fn taken(&self, length: usize) -> Option<Arc<Backlog>> {
        self.shared.waiting_bytes.fetch_sub(length, Ordering::Relaxed);
        self.backlog.taken(length).then(|| Arc::clone(&self.backlog))
    }

    /// Nothing more is queued from now on. True if more was to come.
    pub(crate) fn give_up(&self) -> bool {
        self.backlog.end();
        self.shared.streams.lock().remove(self.id()).is_some()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.give_up();
    }
}
