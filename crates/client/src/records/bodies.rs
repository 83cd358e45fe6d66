//! The streamed HTTP bodies of a client, and the limits on their unread pieces. A body that exceeds a limit fails.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use protocol::{PushedBodyDelta, decode_base64};

use super::backlog::{Backlog, BodyEnd, BodyNext};

/// The most unread pieces of one body, if the server cannot pause a body.
const MAX_PIECES: usize = 256;
/// The most unread bytes of all bodies together, if the server cannot pause a body.
const MAX_UNREAD_BYTES: usize = 16 * 1024 * 1024;
/// The most memory of the unread pieces of one body, if the server can pause a body. It is enough for the pieces that
/// are in flight when the server is asked to pause.
const MAX_PAUSABLE_BYTES: usize = 64 * 1024 * 1024;
/// The largest piece that the protocol allows.
const MAX_PIECE_BYTES: usize = 1024 * 1024;

/// The bodies of a client that are not complete, by request id.
#[derive(Default)]
pub(crate) struct BodyRecords {
    table: Arc<BodyTable>,
}

#[derive(Default)]
struct BodyTable {
    bodies: Mutex<HashMap<String, BodyRecord>>,
    last_id: AtomicU64,
    /// Unread bytes of all bodies.
    unread_bytes: AtomicUsize,
}

struct BodyRecord {
    last_seq: u64,
    backlog: Arc<Backlog>,
}

/// The reader's side of a body. Dropping the value removes the body from the table.
pub(crate) struct BodyRegistration {
    table: Arc<BodyTable>,
    backlog: Arc<Backlog>,
}

impl BodyRecords {
    /// A new request id.
    pub(crate) fn next_id(&self) -> String {
        format!("http-{}", self.table.last_id.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Adds a body. `can_pause` says whether the server can pause a body.
    pub(crate) fn register(&self, can_pause: bool) -> BodyRegistration {
        let id = self.next_id();
        let backlog = Arc::new(Backlog::new(id.clone(), can_pause));
        self.table.bodies.lock().insert(id, BodyRecord { last_seq: 0, backlog: Arc::clone(&backlog) });
        BodyRegistration { table: Arc::clone(&self.table), backlog }
    }

    /// Takes a message with a piece. Returns the body if a job must ask the server to pause it. An error means that
    /// the server broke the protocol; the caller closes the connection.
    pub(crate) fn push(&self, delta: &PushedBodyDelta<'_>) -> Result<Option<Arc<Backlog>>, String> {
        let mut bodies = self.table.bodies.lock();
        // If the body is not in the table, its reader is gone or the body has failed.
        let Some(body) = bodies.get_mut(&*delta.request_id) else { return Ok(None) };
        let bytes = decode_base64(&*delta.delta_base64).map_err(|error| format!("invalid base64: {error}"))?;
        if bytes.len() > MAX_PIECE_BYTES {
            return Err(format!("body delta exceeds {MAX_PIECE_BYTES} bytes"));
        }
        let taken = body.take(delta, Bytes::from(bytes), &self.table.unread_bytes);
        let must_send_flow = matches!(taken, Ok(true));
        let to_pause = must_send_flow.then(|| Arc::clone(&body.backlog));
        if taken.is_err() || delta.done {
            let body = bodies.remove(&*delta.request_id);
            if let (Err(failure), Some(body)) = (taken, body) {
                body.backlog.end(BodyEnd::Failed(failure));
            }
        }
        Ok(to_pause)
    }

    /// Ends all bodies with this failure. Their readers still get the pieces that came before.
    pub(crate) fn fail_all(&self, text: &str) {
        for (_, body) in self.table.bodies.lock().drain() {
            body.backlog.end(BodyEnd::Failed(text.to_owned()));
        }
    }
}

impl BodyRecord {
    /// Adds a piece. Returns true if a job must ask the server to pause the body. An error is the reason why the body
    /// fails.
    fn take(&mut self, delta: &PushedBodyDelta<'_>, bytes: Bytes, unread: &AtomicUsize) -> Result<bool, String> {
        if delta.seq != self.last_seq + 1 {
            return Err(format!("body delta {} came after {}", delta.seq, self.last_seq));
        }
        self.last_seq = delta.seq;
        let mut must_send_flow = false;
        if !bytes.is_empty() {
            self.check_room(bytes.len(), unread)?;
            unread.fetch_add(bytes.len(), Ordering::Relaxed);
            must_send_flow = self.backlog.push(bytes);
        }
        match (&delta.error, delta.done) {
            (Some(error), _) => Err(error.clone()),
            // If the server cannot pause a body, the end needs room in the queue like a piece.
            (None, true) if !self.backlog.can_pause() && self.backlog.piece_count() >= MAX_PIECES => {
                Err(too_many_pieces())
            }
            (None, true) => {
                self.backlog.end(BodyEnd::Complete);
                Ok(false)
            }
            (None, false) => Ok(must_send_flow),
        }
    }

    fn check_room(&self, length: usize, unread: &AtomicUsize) -> Result<(), String> {
        let too_much = |limit: usize| Err(format!("queued body deltas exceed {limit} bytes"));
        if self.backlog.can_pause() {
            let fits = self.backlog.memory_with(length) <= MAX_PAUSABLE_BYTES;
            return if fits { Ok(()) } else { too_much(MAX_PAUSABLE_BYTES) };
        }
        if unread.load(Ordering::Relaxed) + length > MAX_UNREAD_BYTES {
            return too_much(MAX_UNREAD_BYTES);
        }
        if self.backlog.piece_count() >= MAX_PIECES { Err(too_many_pieces()) } else { Ok(()) }
    }
}

/// The failure of a body with [`MAX_PIECES`] unread pieces.
fn too_many_pieces() -> String {
    "body delta channel filled before delivery".to_owned()
}

impl BodyRegistration {
    pub(crate) fn id(&self) -> &str {
        self.backlog.id()
    }

    /// Waits for the next piece or the end of the body. Also returns the body if a job must ask the server to resume it.
    pub(crate) async fn next(&self) -> (BodyNext, Option<Arc<Backlog>>) {
        let (next, must_send_flow) = self.backlog.next().await;
        self.note_read(&next);
        (next, must_send_flow.then(|| Arc::clone(&self.backlog)))
    }

    /// The reader takes no further piece. Returns true if the body was neither complete nor failed nor given up
    /// before, so that the server may still be sending it.
    pub(crate) fn give_up(&self) -> bool {
        self.backlog.end(BodyEnd::GivenUp);
        self.table.bodies.lock().remove(self.id()).is_some()
    }

    fn note_read(&self, next: &BodyNext) {
        if let BodyNext::Piece(bytes) = next {
            self.table.unread_bytes.fetch_sub(bytes.len(), Ordering::Relaxed);
        }
    }
}

impl Drop for BodyRegistration {
    fn drop(&mut self) {
        self.give_up();
        while let Some((next @ BodyNext::Piece(_), _)) = self.backlog.try_next() {
            self.note_read(&next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delta(seq: u64) -> PushedBodyDelta<'static> {
        PushedBodyDelta { request_id: "http-1".into(), seq, delta_base64: "eA==".into(), done: false, error: None }
    }

    #[test]
    fn tiny_pieces_from_a_server_that_ignores_a_pause_reach_the_limit_and_fail_the_body() {
        let bodies = BodyRecords::default();
        let registration = bodies.register(true);
        let mut pushed = 0;
        while registration.backlog.memory_with(1) <= MAX_PAUSABLE_BYTES {
            pushed += 1;
            bodies.push(&delta(pushed)).unwrap();
        }
        let queued = registration.backlog.piece_count();
        bodies.push(&delta(pushed + 1)).unwrap();
        assert_eq!(registration.backlog.piece_count(), queued, "a piece beyond the limit is not queued");
        assert!(bodies.table.bodies.lock().is_empty(), "the body has failed");
        assert!(queued < 2 * MAX_PAUSABLE_BYTES / 64, "each piece counts as at least 64 bytes");
        drop(registration);
        assert_eq!(bodies.table.unread_bytes.load(Ordering::Relaxed), 0);
    }
}
