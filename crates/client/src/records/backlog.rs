//! The pieces of one streamed HTTP body that have come and were not read yet, and when the server has to pause or resume the body.

use std::collections::VecDeque;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The server is asked to pause the body while more than this is unread.
const PAUSE_BYTES: usize = 4 * 1024 * 1024;
/// The server is asked to resume the body when less than this is unread.
const RESUME_BYTES: usize = 1024 * 1024;
/// Memory that a piece takes beside its bytes, roughly.
const PIECE_OVERHEAD_BYTES: usize = 64;

/// The unread pieces of one body.
pub(crate) struct Backlog {
    id: String,
    /// Whether the server can pause a body.
    has_flow: bool,
    state: Mutex<BacklogState>,
    changed: Notify,
}

#[derive(Default)]
struct BacklogState {
    pieces: VecDeque<Bytes>,
    bytes: usize,
    end: Option<BodyEnd>,
    is_paused: bool,
    /// A job tells the server about a change.
    is_telling: bool,
}

/// Why no further piece of a body comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BodyEnd {
    Complete,
    Failed(String),
    /// The reader does not want the rest.
    GivenUp,
}

/// What the reader of a body gets next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BodyNext {
    Piece(Bytes),
    End(BodyEnd),
}

impl BacklogState {
    fn memory(&self) -> usize {
        self.bytes + self.pieces.len() * PIECE_OVERHEAD_BYTES
    }

    fn wants_pause(&self) -> bool {
        let limit = if self.is_paused { RESUME_BYTES } else { PAUSE_BYTES };
        self.end.is_none() && self.memory() > limit
    }

    /// Whether a job must be started that tells the server. One job at a time.
    fn must_tell(&mut self) -> bool {
        let must = self.end.is_none() && !self.is_telling && self.wants_pause() != self.is_paused;
        self.is_telling |= must;
        must
    }
}

impl Backlog {
    pub(crate) fn new(id: String, has_flow: bool) -> Self {
        Self { id, has_flow, state: Mutex::default(), changed: Notify::new() }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn has_flow(&self) -> bool {
        self.has_flow
    }

    /// Number of unread pieces.
    pub(crate) fn pieces(&self) -> usize {
        self.state.lock().pieces.len()
    }

    /// Memory that the unread pieces would take with one more piece of this length.
    pub(crate) fn memory_with(&self, length: usize) -> usize {
        self.state.lock().memory() + length + PIECE_OVERHEAD_BYTES
    }

    /// Adds a piece. Returns true if a job must tell the server to pause.
    pub(crate) fn push(&self, piece: Bytes) -> bool {
        let mut state = self.state.lock();
        state.bytes += piece.len();
        state.pieces.push_back(piece);
        let must_tell = self.has_flow && state.must_tell();
        drop(state);
        self.changed.notify_one();
        must_tell
    }

    /// Waits for the next piece, or for the end behind the last piece. Returns also whether a job must tell the server to resume.
    pub(crate) async fn next(&self) -> (BodyNext, bool) {
        loop {
            if let Some(next) = self.try_next() {
                return next;
            }
            self.changed.notified().await;
        }
    }

    /// As [`next`](Self::next), without waiting.
    pub(crate) fn try_next(&self) -> Option<(BodyNext, bool)> {
        let mut state = self.state.lock();
        if let Some(piece) = state.pieces.pop_front() {
            state.bytes -= piece.len();
            let must_tell = self.has_flow && state.must_tell();
            return Some((BodyNext::Piece(piece), must_tell));
        }
        state.end.clone().map(|end| (BodyNext::End(end), false))
    }

    /// No further piece comes. Only the first reason counts.
    pub(crate) fn end(&self, end: BodyEnd) {
        self.state.lock().end.get_or_insert(end);
        self.changed.notify_one();
    }

    pub(crate) fn wants_pause(&self) -> bool {
        self.state.lock().wants_pause()
    }

    /// The server has confirmed a pause or a resumption. Returns true if the opposite has to be sent by now.
    pub(crate) fn was_told(&self, paused: bool) -> bool {
        let mut state = self.state.lock();
        state.is_paused = paused;
        state.is_telling = false;
        state.must_tell()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(length: usize) -> Bytes {
        vec![0; length].into()
    }

    /// Reads a piece. Returns whether a job must tell the server to resume.
    fn read(backlog: &Backlog) -> bool {
        backlog.try_next().unwrap().1
    }

    #[test]
    fn a_reader_that_lags_pauses_the_server_once_and_resumes_it_once() {
        let backlog = Backlog::new("r".into(), true);
        assert!(!backlog.push(piece(1)));
        assert!(!backlog.push(piece(PAUSE_BYTES / 2)));
        assert!(backlog.push(piece(PAUSE_BYTES)));
        assert!(!backlog.push(piece(1)), "a job is telling the server");
        assert!(backlog.wants_pause() && !backlog.was_told(true));
        assert!(!read(&backlog));
        assert!(!read(&backlog));
        assert!(read(&backlog));
        assert!(!backlog.wants_pause() && !backlog.was_told(false));
    }

    #[test]
    fn a_change_while_the_server_is_told_is_told_next() {
        let backlog = Backlog::new("r".into(), true);
        assert!(backlog.push(piece(PAUSE_BYTES + 1)));
        assert!(!read(&backlog));
        assert!(backlog.was_told(true) && !backlog.wants_pause());
    }

    #[test]
    fn nothing_is_told_without_flow_or_after_the_end() {
        assert!(!Backlog::new("r".into(), false).push(piece(PAUSE_BYTES + 1)));
        let backlog = Backlog::new("r".into(), true);
        backlog.end(BodyEnd::Complete);
        assert!(!backlog.push(piece(PAUSE_BYTES + 1)));
    }

    #[test]
    fn the_end_comes_after_the_last_piece() {
        let backlog = Backlog::new("r".into(), true);
        backlog.push(piece(1));
        backlog.end(BodyEnd::Failed("broken".into()));
        backlog.end(BodyEnd::Complete);
        assert_eq!(backlog.try_next(), Some((BodyNext::Piece(piece(1)), false)));
        assert_eq!(backlog.try_next(), Some((BodyNext::End(BodyEnd::Failed("broken".into())), false)));
    }
}
