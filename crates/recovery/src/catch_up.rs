//! Adds to an [`EventOrder`] the events that a broken connection has lost. They come from the answers to
//! `process/read`.
//!
//! An answer holds output, and says whether the process has exited and whether it is closed. Only newer servers also
//! say the sequence number of the exit. For other servers, the client infers the numbers of exit and close from the
//! events that are missing. Start at [`EventOrder::handle_read`].

use bytes::Bytes;
use protocol::{OutputChunk, ReadResult};

use crate::event::{Event, Exit};
use crate::order::EventOrder;

/// Why the events that a broken connection has lost cannot be recovered: the server no longer has them, or its answer
/// contradicts itself. The client cannot follow the process any further.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatchUpError {
    /// The server reports that it has dropped output which this client does not have.
    #[error(
        "process events are no longer retained while recovering through sequence {through}: {} of output are lost",
        lost_bytes.map_or("an unknown number of bytes".to_owned(), |bytes| format!("{bytes} bytes"))
    )]
    OutputLost {
        /// Sequence number of the last event that the answer covers.
        through: u64,
        /// Bytes of output that are lost. `None` if the server does not say how much it has dropped.
        lost_bytes: Option<u64>,
    },
    /// At least one event up to this sequence number is missing, and the server reports no gap.
    #[error("process events are no longer retained while recovering through sequence {0}")]
    NotRetained(u64),
    /// The close and output have the same sequence number.
    #[error("process close sequence {0} conflicts with recovered output")]
    CloseConflict(u64),
    /// Output has a larger sequence number than the last event that the answer covers.
    #[error("process output sequence {seq} is beyond the end of the answer at {through}")]
    BeyondEnd {
        /// Sequence number of the output.
        seq: u64,
        /// Sequence number of the last event that the answer covers.
        through: u64,
    },
    /// The process has exited, and the answer has no exit code.
    #[error("the server does not say how the process exited")]
    ExitUnknown,
}

impl EventOrder {
    /// The server has answered a `process/read` that asked for everything after [`EventOrder::last`].
    /// `received_bytes` is the number of bytes of output that were handed out so far; it is needed to report how many
    /// bytes are lost. An event that was also pushed meanwhile is added only once.
    pub fn handle_read(&mut self, mut answer: ReadResult, received_bytes: u64) -> Result<(), CatchUpError> {
        let through = answer.next_seq.saturating_sub(1);
        let closes = answer.closed && !has_later_page(&answer);
        if through <= self.last() {
            // A close with a sequence number would be among the events up to `last`, and would have been handed out.
            if closes {
                self.close_without_number(&answer);
            }
            return Ok(());
        }
        if self.is_closed() {
            return Ok(());
        }
        self.add_denial(&answer);
        self.fill_output(std::mem::take(&mut answer.chunks), through, closes)?;
        let misses_exit = answer.exited && !self.has_exit;
        if closes {
            self.fill_close(&answer, through, misses_exit)?;
        }
        if misses_exit {
            self.fill_exit(&answer, through)?;
        }
        self.check_complete(&answer, through, received_bytes)
    }

    /// The process is closed, and the answer covers no event after the last event that was handed out. So the server
    /// does not number the close. If the exit has not come, this function takes it from the answer, because no later
    /// event will bring it.
    fn close_without_number(&mut self, answer: &ReadResult) {
        let misses_exit = !self.has_exit && !self.may_have_skipped_exit && self.waiting.is_empty();
        let exit = Exit::of_answer(answer);
        if let (true, Some(exit), Some(next)) = (misses_exit, exit, self.last.checked_add(1)) {
            self.insert(next, Event::Exited(exit));
        }
        // If the answer has no exit either, the close must not wait for one.
        self.may_have_skipped_exit = true;
        self.handle_unnumbered_close();
    }

    /// If an exit was pushed and was not handed out yet, adds to it what the answer says about a denial by the
    /// sandbox.
    fn add_denial(&mut self, answer: &ReadResult) {
        if !answer.exited {
            return;
        }
        for event in self.waiting.values_mut() {
            if let Event::Exited(exit) = event {
                exit.sandbox_denied = Some(exit.sandbox_denied.unwrap_or(false) || answer.sandbox_denied);
            }
        }
    }

    fn fill_output(&mut self, chunks: Vec<OutputChunk>, through: u64, closes: bool) -> Result<(), CatchUpError> {
        for chunk in chunks {
            if chunk.seq > through {
                return Err(CatchUpError::BeyondEnd { seq: chunk.seq, through });
            }
            if chunk.seq == through && closes {
                return Err(CatchUpError::CloseConflict(through));
            }
            self.fill(chunk.seq, Event::Output { stream: chunk.stream, chunk: Bytes::from(chunk.chunk.0) });
        }
        Ok(())
    }

    /// Adds the close as the last event that the answer covers. If the exit is that last event, the server does not
    /// number its close, and the close is added without a number.
    fn fill_close(&mut self, answer: &ReadResult, through: u64, misses_exit: bool) -> Result<(), CatchUpError> {
        let only_exit_is_missing = misses_exit
            && !self.may_have_skipped_exit
            && answer.exit_seq.is_none()
            && self.first_hole(through) == Some(through);
        match self.waiting.get(&through) {
            Some(Event::Closed) => {}
            Some(Event::Output { .. }) => return Err(CatchUpError::CloseConflict(through)),
            Some(Event::Exited(_)) => self.handle_unnumbered_close(),
            None if only_exit_is_missing => self.handle_unnumbered_close(),
            None => self.fill(through, Event::Closed),
        }
        Ok(())
    }

    /// Adds the exit. If the server does not say its sequence number, the exit belongs where the first event is missing;
    /// [`check_complete`](Self::check_complete) refuses the answer if another event is missing as well.
    fn fill_exit(&mut self, answer: &ReadResult, through: u64) -> Result<(), CatchUpError> {
        let seq = answer.exit_seq.or_else(|| self.first_hole(through));
        if let Some(seq) = seq.filter(|seq| *seq <= through) {
            let exit = Exit::of_answer(answer).ok_or(CatchUpError::ExitUnknown)?;
            self.fill(seq, Event::Exited(exit));
        }
        Ok(())
    }

    /// Every event that the answer covers must be known now.
    fn check_complete(&self, answer: &ReadResult, through: u64, received_bytes: u64) -> Result<(), CatchUpError> {
        if self.first_hole(through).is_none() {
            return Ok(());
        }
        if !answer.gap {
            return Err(CatchUpError::NotRetained(through));
        }
        let known_bytes = received_bytes + self.waiting_bytes_before(answer.oldest_seq.unwrap_or(answer.next_seq));
        let lost_bytes = answer.dropped_bytes.map(|dropped| dropped.saturating_sub(known_bytes));
        Err(CatchUpError::OutputLost { through, lost_bytes })
    }

    /// Adds the event, unless an event with this number is known.
    fn fill(&mut self, seq: u64, event: Event) {
        if !self.is_known(seq) {
            self.insert(seq, event);
        }
    }

    /// Sequence number of the first missing event up to `through`.
    fn first_hole(&self, through: u64) -> Option<u64> {
        (self.last + 1..=through).find(|seq| !self.waiting.contains_key(seq))
    }

    fn waiting_bytes_before(&self, seq: u64) -> u64 {
        self.waiting.range(..seq).map(|(_, event)| event.bytes() as u64).sum()
    }
}

/// Whether the answer about a closed process is a page that ends before the close, so that another read is needed.
/// Only a server that says the sequence number of the exit (`exit_seq`) answers in pages without being asked to. In
/// an answer of any other server the close should be the last event, so output with the last number contradicts the
/// close.
pub(crate) fn has_later_page(answer: &ReadResult) -> bool {
    let ends_in_output = answer.chunks.last().is_some_and(|chunk| chunk.seq.checked_add(1) == Some(answer.next_seq));
    answer.exit_seq.is_some() && ends_in_output
}

#[cfg(test)]
mod tests;
