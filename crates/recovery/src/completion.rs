//! Following a process to its end by what is pushed. A complete, ordered stream needs no `process/read`; a server that does not say
//! whether the sandbox refused something costs one; so does a stream with a hole.

use protocol::ReadResult;

use crate::catch_up::is_page;
use crate::event::{Event, Exit};

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It is new: use it.
    Take,
    /// It was known: ignore it.
    Skip,
    /// Discard it, read everything after this event and hand the answer to [`Completion::handle_read`].
    Read {
        /// The last event that is known.
        after: u64,
    },
}

/// How far the end of a process is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    last: u64,
    exit: Option<Exit>,
    is_closed: bool,
}

impl Completion {
    /// Follows a process from after this event.
    pub fn after(last: u64) -> Self {
        Self { last, ..Self::default() }
    }

    /// The last event that is known.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// How it ended, once it has.
    pub fn exit(&self) -> Option<Exit> {
        self.exit
    }

    /// Whether nothing will follow.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// An event was pushed.
    pub fn handle_event(&mut self, seq: u64, event: &Event) -> Step {
        if seq <= self.last || self.is_closed {
            return Step::Skip;
        }
        if seq > self.last + 1 {
            return self.handle_lag();
        }
        match event {
            Event::Exited(Exit { sandbox_denied: None, .. }) => return self.handle_lag(),
            Event::Exited(exit) => self.exit = Some(*exit),
            Event::Closed => self.is_closed = true,
            Event::Output { .. } => {}
        }
        self.last = seq;
        Step::Take
    }

    /// Events were missed.
    pub fn handle_lag(&self) -> Step {
        Step::Read { after: self.last }
    }

    /// The answer to a read after [`Completion::last`]. Its chunks with a later number than that, as it was before, are new. An
    /// ended process may have more to read than fits one answer.
    pub fn handle_read(&mut self, answer: &ReadResult) -> Step {
        self.last = self.last.max(answer.next_seq.saturating_sub(1));
        if let (true, Some(code)) = (answer.exited, answer.exit_code) {
            let sandbox_denied = Some(answer.sandbox_denied);
            self.exit = Some(Exit { code, sandbox_denied, timed_out: answer.timed_out });
        }
        if answer.closed && is_page(answer) {
            return self.handle_lag();
        }
        self.is_closed |= answer.closed;
        Step::Take
    }
}

#[cfg(test)]
mod tests;
