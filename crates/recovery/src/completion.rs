//! Following a process to its end by the events that the server pushes. A complete stream of events needs no
//! `process/read`. A read is needed if an event is missing, or if the exit event of the server does not say whether
//! the sandbox denied something. Events are not kept here: the caller keeps what it needs. Start with [`Completion`].

use protocol::ReadResult;

use crate::catch_up::has_later_page;
use crate::event::{Event, Exit};

/// What the caller of a [`Completion`] does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionStep {
    /// Use the event, which is new, or the answer.
    Take,
    /// The event is known already: ignore it.
    Skip,
    /// Send `process/read` for everything after the event `after`, and pass the answer to
    /// [`Completion::handle_read`]. If an event led to this step, discard the event: the read returns it again. If an
    /// answer did, use the answer first.
    Read {
        /// Sequence number of the last event that is known.
        after: u64,
    },
}

/// Which events of one process a client knows, and how the process has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    last: u64,
    exit: Option<Exit>,
    is_closed: bool,
}

impl Completion {
    /// Follows a process whose events up to `last` are known.
    pub fn after(last: u64) -> Self {
        Self { last, ..Self::default() }
    }

    /// Sequence number of the last event that is known; 0 if there is none.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// How the process ended. `None` while it runs, and for a process that was closed without an exit code.
    pub fn exit(&self) -> Option<Exit> {
        self.exit.clone()
    }

    /// Whether the last event of the process is known.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// The server has pushed an event.
    pub fn handle_event(&mut self, seq: u64, event: &Event) -> CompletionStep {
        if seq <= self.last || self.is_closed {
            return CompletionStep::Skip;
        }
        if seq > self.last + 1 {
            return self.read_rest();
        }
        match event {
            Event::Exited(Exit { sandbox_denied: None, .. }) => return self.read_rest(),
            Event::Exited(exit) => self.exit = Some(exit.clone()),
            Event::Closed => self.is_closed = true,
            Event::Output { .. } => {}
        }
        self.last = seq;
        CompletionStep::Take
    }

    /// Pushed events were lost before they were passed to [`handle_event`](Self::handle_event).
    pub fn handle_lag(&self) -> CompletionStep {
        self.read_rest()
    }

    fn read_rest(&self) -> CompletionStep {
        CompletionStep::Read { after: self.last }
    }

    /// The server has answered a read after [`Completion::last`]. Chunks with a larger sequence number than `last`
    /// had before this call are new. Returns [`CompletionStep::Read`] if the process is closed and the answer does
    /// not hold all of its output.
    pub fn handle_read(&mut self, answer: &ReadResult) -> CompletionStep {
        self.last = self.last.max(answer.next_seq.saturating_sub(1));
        if let Some(exit) = Exit::of_answer(answer) {
            self.exit = Some(exit);
        }
        if answer.closed && has_later_page(answer) {
            return self.read_rest();
        }
        self.is_closed |= answer.closed;
        CompletionStep::Take
    }
}

#[cfg(test)]
mod tests;
