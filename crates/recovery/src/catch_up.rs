//! Filling what a broken connection has swallowed from one answer of `process/read`.

use bytes::Bytes;
use protocol::ReadResult;

use crate::event::{Event, Exit};
use crate::order::EventOrder;

/// What was missed cannot be had. The process cannot be followed any further.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatchUpError {
    /// The server says that output was dropped, and how much of it.
    #[error(
        "process events are no longer retained while recovering through sequence {through}: {} of output are lost",
        lost_bytes.map_or("an unknown number of bytes".to_owned(), |bytes| format!("{bytes} bytes"))
    )]
    OutputLost {
        /// Where the answer ended.
        through: u64,
        /// How much output, if the server can tell.
        lost_bytes: Option<u64>,
    },
    /// Events are missing that are not output.
    #[error("process events are no longer retained while recovering through sequence {0}")]
    NotRetained(u64),
    /// The end and output claim the same place.
    #[error("process close sequence {0} conflicts with recovered output")]
    CloseConflict(u64),
    /// Output stands after the end of the answer.
    #[error("process output sequence {seq} is beyond the end of the answer at {through}")]
    BeyondEnd {
        /// Where the output claims to be.
        seq: u64,
        /// Where the answer ended.
        through: u64,
    },
    /// It exited, and nobody knows how.
    #[error("the server does not say how the process exited")]
    ExitUnknown,
}

impl EventOrder {
    /// Takes an answer to `process/read` that asked for everything after [`EventOrder::last`]. `received` is how many bytes of output
    /// were handed out so far, to tell how many are lost if some are. Events that were pushed meanwhile are not doubled.
    pub fn handle_read(&mut self, answer: ReadResult, received: u64) -> Result<(), CatchUpError> {
        let through = answer.next_seq.saturating_sub(1);
        let closes = answer.closed && !is_page(&answer);
        let exit = answer.exit_code.map(|code| Exit {
            code,
            sandbox_denied: Some(answer.sandbox_denied),
            timed_out: answer.timed_out,
        });
        if through <= self.last() {
            // An end with a number would have been handed out under it.
            if closes {
                self.close_without_number(exit.filter(|_| answer.exited));
            }
            return Ok(());
        }
        if self.is_closed() {
            return Ok(());
        }
        self.add_denial(&answer);
        for chunk in answer.chunks {
            if chunk.seq > through {
                return Err(CatchUpError::BeyondEnd { seq: chunk.seq, through });
            }
            if chunk.seq == through && closes {
                return Err(CatchUpError::CloseConflict(through));
            }
            self.fill(chunk.seq, Event::Output { stream: chunk.stream, chunk: Bytes::from(chunk.chunk.0) });
        }
        let misses_exit = answer.exited && !self.has_exit;
        if closes {
            let only_the_exit_can_be_there = misses_exit
                && !self.exit_may_be_past
                && answer.exit_seq.is_none()
                && self.first_hole(through) == Some(through);
            // With the exit in the last place there is none left for the end: this server does not number it.
            match self.waiting.get(&through) {
                Some(Event::Closed) => {}
                Some(Event::Output { .. }) => return Err(CatchUpError::CloseConflict(through)),
                Some(Event::Exited(_)) => self.handle_unnumbered_close(),
                None if only_the_exit_can_be_there => self.handle_unnumbered_close(),
                None => self.fill(through, Event::Closed),
            }
        }
        // A server that does not tell the place of the exit leaves a hole there, which must be the only one.
        let place = answer.exit_seq.or_else(|| self.first_hole(through)).filter(|seq| *seq <= through);
        if let (true, Some(seq)) = (misses_exit, place) {
            self.fill(seq, Event::Exited(exit.ok_or(CatchUpError::ExitUnknown)?));
        }
        if self.first_hole(through).is_none() {
            return Ok(());
        }
        if !answer.gap {
            return Err(CatchUpError::NotRetained(through));
        }
        let known = received + self.waiting_bytes_before(answer.oldest_seq.unwrap_or(answer.next_seq));
        let lost_bytes = answer.dropped_bytes.map(|dropped| dropped.saturating_sub(known));
        Err(CatchUpError::OutputLost { through, lost_bytes })
    }

    /// The server has closed the process and has no later event. An exit that was not pushed has no number either, or is never told: nobody
    /// is to wait for it.
    fn close_without_number(&mut self, exit: Option<Exit>) {
        let misses_exit = !self.has_exit && !self.exit_may_be_past && self.waiting.is_empty();
        if let (true, Some(exit), Some(next)) = (misses_exit, exit, self.last.checked_add(1)) {
            self.insert(next, Event::Exited(exit));
        }
        self.exit_may_be_past = true;
        self.handle_unnumbered_close();
    }

    fn fill(&mut self, seq: u64, event: Event) {
        if !self.is_known(seq) {
            self.insert(seq, event);
        }
    }

    /// An exit that came early, before the answer, learns what the answer knows of the sandbox.
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

    fn first_hole(&self, through: u64) -> Option<u64> {
        (self.last + 1..=through).find(|seq| !self.waiting.contains_key(seq))
    }

    fn waiting_bytes_before(&self, seq: u64) -> u64 {
        self.waiting.range(..seq).map(|(_, event)| event.bytes() as u64).sum()
    }
}

/// Whether the answer says that the process has ended, but not all of what it said before. Only a server that tells the place of
/// the exit answers in pages without being asked to; from any other, output in the last place contradicts the end.
pub(crate) fn is_page(answer: &ReadResult) -> bool {
    let ends_in_output = answer.chunks.last().is_some_and(|chunk| chunk.seq.checked_add(1) == Some(answer.next_seq));
    answer.exit_seq.is_some() && ends_in_output
}

#[cfg(test)]
mod tests;
