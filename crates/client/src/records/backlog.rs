//! How much of a streamed HTTP body waits for its reader, and when the server has to pause or resume the body.

use parking_lot::Mutex;

/// The server is asked to pause the body while more than this is unread.
const PAUSE_BYTES: usize = 4 * 1024 * 1024;
/// The server is asked to resume the body when less than this is unread.
const RESUME_BYTES: usize = 1024 * 1024;
/// Memory that a piece takes beside its bytes, roughly.
const PIECE_BYTES: usize = 64;

/// The unread amount of one body.
pub(crate) struct Backlog {
    id: String,
    /// Whether the server can pause a body.
    has_flow: bool,
    state: Mutex<BacklogState>,
}

#[derive(Default)]
struct BacklogState {
    bytes: usize,
    pieces: usize,
    is_paused: bool,
    /// A job tells the server about a change.
    is_telling: bool,
    is_over: bool,
}

impl BacklogState {
    fn wants_pause(&self) -> bool {
        let limit = if self.is_paused { RESUME_BYTES } else { PAUSE_BYTES };
        !self.is_over && self.bytes + self.pieces * PIECE_BYTES > limit
    }

    /// Whether a job must be started that tells the server. One job at a time.
    fn must_tell(&mut self) -> bool {
        let must = !self.is_over && !self.is_telling && self.wants_pause() != self.is_paused;
        self.is_telling |= must;
        must
    }
}

impl Backlog {
    pub(crate) fn new(id: String, has_flow: bool) -> Self {
        Self { id, has_flow, state: Mutex::default() }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn has_flow(&self) -> bool {
        self.has_flow
    }

    pub(crate) fn pieces(&self) -> usize {
        self.state.lock().pieces
    }

    pub(crate) fn bytes(&self) -> usize {
        self.state.lock().bytes
    }

    /// A piece came. Returns true if a job must tell the server to pause.
    pub(crate) fn add(&self, bytes: usize) -> bool {
        let mut state = self.state.lock();
        state.bytes += bytes;
        state.pieces += 1;
        self.has_flow && state.must_tell()
    }

    /// A piece was read. Returns true if a job must tell the server to resume.
    pub(crate) fn remove(&self, bytes: usize) -> bool {
        let mut state = self.state.lock();
        state.bytes -= bytes;
        state.pieces -= 1;
        self.has_flow && state.must_tell()
    }

    /// No further piece comes.
    pub(crate) fn end(&self) {
        self.state.lock().is_over = true;
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

    #[test]
    fn a_reader_that_lags_pauses_the_server_once_and_releases_it_once() {
        let backlog = Backlog::new("r".into(), true);
        assert!(!backlog.add(PAUSE_BYTES / 2));
        assert!(backlog.add(PAUSE_BYTES));
        assert!(!backlog.add(1), "a job is telling the server");
        assert!(backlog.wants_pause() && !backlog.was_told(true));
        assert!(!backlog.remove(1));
        assert!(!backlog.remove(PAUSE_BYTES / 2));
        assert!(backlog.remove(PAUSE_BYTES));
        assert!(!backlog.wants_pause() && !backlog.was_told(false));
    }

    #[test]
    fn a_change_while_the_server_is_told_is_told_next() {
        let backlog = Backlog::new("r".into(), true);
        assert!(backlog.add(PAUSE_BYTES + 1));
        assert!(!backlog.remove(PAUSE_BYTES + 1));
        assert!(backlog.was_told(true) && !backlog.wants_pause());
    }

    #[test]
    fn nothing_is_told_without_flow_or_after_the_end() {
        assert!(!Backlog::new("r".into(), false).add(PAUSE_BYTES + 1));
        let backlog = Backlog::new("r".into(), true);
        backlog.end();
        assert!(!backlog.add(PAUSE_BYTES + 1));
    }
}
