//! The streamed HTTP bodies of a client, and how much of them may be unread. A body that exceeds a limit fails.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use protocol::{PushedBodyDelta, decode_base64};

use super::backlog::{Backlog, BodyEnd, BodyNext};

/// Unread pieces of one body, from a server that cannot pause a body.
const PIECES: usize = 256;
/// Unread bytes of all such bodies together.
const UNREAD_BYTES: usize = 16 * 1024 * 1024;
/// Memory of the unread pieces of one body, from a server that can pause it: enough for what is on its way when the server is told.
const PAUSED_BYTES: usize = 64 * 1024 * 1024;
/// The largest piece that the protocol allows.
const PIECE_BYTES: usize = 1024 * 1024;

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

/// The reader's side of a body. Dropping it removes the body from the table.
pub(crate) struct BodyRegistration {
    table: Arc<BodyTable>,
    backlog: Arc<Backlog>,
}

impl BodyRecords {
    pub(crate) fn next_id(&self) -> String {
        format!("http-{}", self.table.last_id.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Adds a body. `has_flow`: the server can pause it.
    pub(crate) fn register(&self, has_flow: bool) -> BodyRegistration {
        let id = self.next_id();
        let backlog = Arc::new(Backlog::new(id.clone(), has_flow));
        self.table.bodies.lock().insert(id, BodyRecord { last_seq: 0, backlog: Arc::clone(&backlog) });
        BodyRegistration { table: Arc::clone(&self.table), backlog }
    }

    /// Takes a piece. Returns the body that the server must be told to pause, if there is one. An error means that the server broke the
    /// protocol, and ends the connection.
    pub(crate) fn push(&self, delta: &PushedBodyDelta<'_>) -> Result<Option<Arc<Backlog>>, String> {
        let mut bodies = self.table.bodies.lock();
        // A body that is not in the table has no reader any more.
        let Some(body) = bodies.get_mut(&*delta.request_id) else { return Ok(None) };
        let bytes = decode_base64(&*delta.delta_base64).map_err(|error| format!("invalid base64: {error}"))?;
        if bytes.len() > PIECE_BYTES {
            return Err(format!("body delta exceeds {PIECE_BYTES} bytes"));
        }
        let taken = body.take(delta, Bytes::from(bytes), &self.table.unread_bytes);
        let must_tell = matches!(taken, Ok(true));
        let to_tell = must_tell.then(|| Arc::clone(&body.backlog));
        if taken.is_err() || delta.done {
            let body = bodies.remove(&*delta.request_id);
            if let (Err(failure), Some(body)) = (taken, body) {
                body.backlog.end(BodyEnd::Failed(failure));
            }
        }
        Ok(to_tell)
    }

    /// Ends all bodies with this failure. Their readers get the pieces that have come before it.
    pub(crate) fn fail_all(&self, text: &str) {
        for (_, body) in self.table.bodies.lock().drain() {
            body.backlog.end(BodyEnd::Failed(text.to_owned()));
        }
    }
}

impl BodyRecord {
    /// Returns true if the server must be told to pause the body.
    fn take(&mut self, delta: &PushedBodyDelta<'_>, bytes: Bytes, unread: &AtomicUsize) -> Result<bool, String> {
        if delta.seq != self.last_seq + 1 {
            return Err(format!("body delta {} came after {}", delta.seq, self.last_seq));
        }
        self.last_seq = delta.seq;
        let mut must_tell = false;
        if !bytes.is_empty() {
            self.check_room(bytes.len(), unread)?;
            unread.fetch_add(bytes.len(), Ordering::Relaxed);
            must_tell = self.backlog.push(bytes);
        }
        match (&delta.error, delta.done) {
            (Some(error), _) => Err(error.clone()),
            (None, true) if !self.backlog.has_flow() && self.backlog.pieces() >= PIECES => Err(too_many_pieces()),
            (None, true) => {
                self.backlog.end(BodyEnd::Complete);
                Ok(false)
            }
            (None, false) => Ok(must_tell),
        }
    }

    fn check_room(&self, length: usize, unread: &AtomicUsize) -> Result<(), String> {
        let too_much = |limit: usize| Err(format!("queued body deltas exceed {limit} bytes"));
        if self.backlog.has_flow() {
            let fits = self.backlog.memory_with(length) <= PAUSED_BYTES;
            return if fits { Ok(()) } else { too_much(PAUSED_BYTES) };
        }
        if unread.load(Ordering::Relaxed) + length > UNREAD_BYTES {
            return too_much(UNREAD_BYTES);
        }
        if self.backlog.pieces() >= PIECES { Err(too_many_pieces()) } else { Ok(()) }
    }
}

fn too_many_pieces() -> String {
    "body delta channel filled before delivery".to_owned()
}

impl BodyRegistration {
    pub(crate) fn id(&self) -> &str {
        self.backlog.id()
    }

    /// Waits for the next piece or the end of the body. Returns also the body that the server must be told to resume, if there is one.
    pub(crate) async fn next(&self) -> (BodyNext, Option<Arc<Backlog>>) {
        let (next, must_tell) = self.backlog.next().await;
        self.note_read(&next);
        (next, must_tell.then(|| Arc::clone(&self.backlog)))
    }

    /// Takes no further piece. Returns true if the body was not complete.
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
    fn a_server_that_goes_on_with_tiny_pieces_although_it_was_paused_meets_the_limit() {
        let bodies = BodyRecords::default();
        let registration = bodies.register(true);
        let mut pushed = 0;
        while registration.backlog.memory_with(1) <= PAUSED_BYTES {
            pushed += 1;
            bodies.push(&delta(pushed)).unwrap();
        }
        let queued = registration.backlog.pieces();
        bodies.push(&delta(pushed + 1)).unwrap();
        assert_eq!(registration.backlog.pieces(), queued, "the piece that is too much is not queued");
        assert!(bodies.table.bodies.lock().is_empty(), "the body has failed");
        assert!(queued < 2 * PAUSED_BYTES / 64);
        drop(registration);
        assert_eq!(bodies.table.unread_bytes.load(Ordering::Relaxed), 0);
    }
}
