//! The unread pieces of one streamed HTTP body. The backlog also decides when the server must pause or resume the
//! body. The request to pause or resume is called *flow*; a background job sends it.

use std::collections::VecDeque;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The server is asked to pause the body when the unread pieces take more memory than this.
const PAUSE_BYTES: usize = 4 * 1024 * 1024;
/// The server is asked to resume the body when the unread pieces take no more memory than this.
const RESUME_BYTES: usize = 1024 * 1024;
/// Memory of a piece beside its bytes, roughly.
const PIECE_OVERHEAD_BYTES: usize = 64;

/// The unread pieces of one body.
pub(crate) struct Backlog {
    id: String,
    /// Whether the server can pause a body.
    can_pause: bool,
    state: Mutex<BacklogState>,
    changed: Notify,
}

#[derive(Default)]
struct BacklogState {
    pieces: VecDeque<Bytes>,
    bytes: usize,
    end: Option<BodyEnd>,
    /// The server has confirmed a pause and no resumption since.
    is_paused: bool,
    /// A job is asking the server to pause or resume, or has failed to do so.
    is_sending_flow: bool,
}

/// The reason why no further piece of a body comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BodyEnd {
    Complete,
    Failed(String),
    /// The reader does not want the rest of the body.
    GivenUp,
}

/// The next piece of a body, or its end.
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

    /// Returns true if the caller must add a job that asks the server to pause or resume. The job counts as running
    /// from now on, because there is one such job at a time.
    fn claim_flow_job(&mut self) -> bool {
        let must = self.end.is_none() && !self.is_sending_flow && self.wants_pause() != self.is_paused;
        self.is_sending_flow |= must;
        must
    }
}

impl Backlog {
    pub(crate) fn new(id: String, can_pause: bool) -> Self {
        Self { id, can_pause, state: Mutex::default(), changed: Notify::new() }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn can_pause(&self) -> bool {
        self.can_pause
    }

    /// Number of unread pieces.
    pub(crate) fn piece_count(&self) -> usize {
        self.state.lock().pieces.len()
    }

    /// Memory of the unread pieces if one more piece of this length were added.
    pub(crate) fn memory_with(&self, length: usize) -> usize {
        self.state.lock().memory() + length + PIECE_OVERHEAD_BYTES
    }

    /// Adds a piece. Returns true if a job must ask the server to pause.
    pub(crate) fn push(&self, piece: Bytes) -> bool {
        let mut state = self.state.lock();
        state.bytes += piece.len();
        state.pieces.push_back(piece);
        let must_send_flow = self.can_pause && state.claim_flow_job();
        drop(state);
        self.changed.notify_one();
        must_send_flow
    }

    /// Waits for the next piece, or for the end after the last piece. Also returns whether a job must ask the server
    /// to resume.
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
            let must_send_flow = self.can_pause && state.claim_flow_job();
            return Some((BodyNext::Piece(piece), must_send_flow));
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

    /// The server has confirmed a pause or a resumption. Returns true if the job must now send the opposite.
    pub(crate) fn note_flow_confirmed(&self, paused: bool) -> bool {
        let mut state = self.state.lock();
        state.is_paused = paused;
        state.is_sending_flow = false;
        state.claim_flow_job()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(length: usize) -> Bytes {
        vec![0; length].into()
    }

    /// Reads a piece. Returns whether a job must ask the server to resume.
    fn read(backlog: &Backlog) -> bool {
        backlog.try_next().unwrap().1
    }

    #[test]
    fn a_reader_that_lags_pauses_the_server_once_and_resumes_it_once() {
        let backlog = Backlog::new("r".into(), true);
        assert!(!backlog.push(piece(1)));
        assert!(!backlog.push(piece(PAUSE_BYTES / 2)));
        assert!(backlog.push(piece(PAUSE_BYTES)));
        assert!(!backlog.push(piece(1)), "a job is asking the server already");
        assert!(backlog.wants_pause() && !backlog.note_flow_confirmed(true));
        assert!(!read(&backlog));
        assert!(!read(&backlog));
        assert!(read(&backlog));
        assert!(!backlog.wants_pause() && !backlog.note_flow_confirmed(false));
    }

    #[test]
    fn a_resumption_that_is_needed_while_a_pause_is_being_sent_follows_the_pause() {
        let backlog = Backlog::new("r".into(), true);
        assert!(backlog.push(piece(PAUSE_BYTES + 1)));
        assert!(!read(&backlog));
        assert!(backlog.note_flow_confirmed(true) && !backlog.wants_pause());
    }

    #[test]
    fn no_pause_is_sent_to_a_server_that_cannot_pause_or_after_the_end() {
        assert!(!Backlog::new("r".into(), false).push(piece(PAUSE_BYTES + 1)));
        let backlog = Backlog::new("r".into(), true);
        backlog.end(BodyEnd::Complete);
        assert!(!backlog.push(piece(PAUSE_BYTES + 1)));
    }

    #[test]
    fn only_the_first_end_counts_and_it_comes_after_the_last_piece() {
        let backlog = Backlog::new("r".into(), true);
        backlog.push(piece(1));
        backlog.end(BodyEnd::Failed("broken".into()));
        backlog.end(BodyEnd::Complete);
        assert_eq!(backlog.try_next(), Some((BodyNext::Piece(piece(1)), false)));
        assert_eq!(backlog.try_next(), Some((BodyNext::End(BodyEnd::Failed("broken".into())), false)));
    }
}
