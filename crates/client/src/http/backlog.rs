//! What of a streamed body waits for its reader, and when the server is to wait for it too.

use parking_lot::Mutex;

/// A reader that lags by more makes the server wait.
const PAUSE_BYTES: usize = 4 * 1024 * 1024;
/// With less the server goes on.
const RELEASE_BYTES: usize = 1024 * 1024;
/// What a piece costs beside its bytes.
const PIECE_BYTES: usize = 64;

/// How far the reader of one body is behind.
pub(crate) struct Backlog {
    id: String,
    /// Whether the server can be made to wait.
    has_flow: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    bytes: usize,
    pieces: usize,
    is_paused: bool,
    is_telling: bool,
    is_over: bool,
}

impl State {
    fn wants_pause(&self) -> bool {
        let limit = if self.is_paused { RELEASE_BYTES } else { PAUSE_BYTES };
        !self.is_over && self.bytes + self.pieces * PIECE_BYTES > limit
    }

    /// Whether somebody must tell the server now.
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

    /// Pieces that wait.
    pub(crate) fn pieces(&self) -> usize {
        self.state.lock().pieces
    }

    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.state.lock().bytes
    }

    /// A piece came. True: the server must be told.
    pub(crate) fn add(&self, bytes: usize) -> bool {
        let mut state = self.state.lock();
        state.bytes += bytes;
        state.pieces += 1;
        self.has_flow && state.must_tell()
    }

    /// A piece was read. True: the server must be told.
    pub(crate) fn taken(&self, bytes: usize) -> bool {
        let mut state = self.state.lock();
        state.bytes -= bytes;
        state.pieces -= 1;
        self.has_flow && state.must_tell()
    }

    /// Nothing more comes.
    pub(crate) fn end(&self) {
        self.state.lock().is_over = true;
    }

    pub(crate) fn wants_pause(&self) -> bool {
        self.state.lock().wants_pause()
    }

    /// The server was told. True: it must be told something else by now.
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
        assert!(!backlog.add(1), "it is being told");
        assert!(backlog.wants_pause() && !backlog.was_told(true));
        assert!(!backlog.taken(1));
        assert!(!backlog.taken(PAUSE_BYTES / 2));
        assert!(backlog.taken(PAUSE_BYTES));
        assert!(!backlog.wants_pause() && !backlog.was_told(false));
    }

    #[test]
    fn what_changes_while_the_server_is_told_is_told_next() {
        let backlog = Backlog::new("r".into(), true);
        assert!(backlog.add(PAUSE_BYTES + 1));
        assert!(!backlog.taken(PAUSE_BYTES + 1));
        assert!(backlog.was_told(true) && !backlog.wants_pause());
    }

    #[test]
    fn a_server_without_flow_is_told_nothing_and_so_is_one_that_is_done() {
        assert!(!Backlog::new("r".into(), false).add(PAUSE_BYTES + 1));
        let backlog = Backlog::new("r".into(), true);
        backlog.end();
        assert!(!backlog.add(PAUSE_BYTES + 1));
    }
}
