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
        if self.is_closed() || through <= self.last() {
            return Ok(());
        }
        self.add_denial(&answer);
        let exit = answer.exit_code.map(|code| Exit {
            code,
            sandbox_denied: Some(answer.sandbox_denied),
            timed_out: answer.timed_out,
        });
        let lost = CatchUpError::OutputLost {
            through,
            lost_bytes: answer.dropped_bytes.map(|dropped| dropped.saturating_sub(received)),
        };
        for chunk in answer.chunks {
            if chunk.seq > through {
                return Err(CatchUpError::BeyondEnd { seq: chunk.seq, through });
            }
            if chunk.seq == through && answer.closed {
                return Err(CatchUpError::CloseConflict(through));
            }
            self.fill(chunk.seq, Event::Output { stream: chunk.stream, chunk: Bytes::from(chunk.chunk.0) });
        }
        if answer.closed {
            match self.waiting.get(&through) {
                Some(Event::Closed) => {}
                Some(_) => return Err(CatchUpError::CloseConflict(through)),
                None => self.fill(through, Event::Closed),
            }
        }
        if answer.exited && !self.has_exit {
            let exit = exit.ok_or(CatchUpError::ExitUnknown)?;
            // A server that does not tell the place of the exit leaves a hole there, which must be the only one.
            let place = answer.exit_seq.or_else(|| self.first_hole(through));
            if let Some(seq) = place.filter(|seq| *seq <= through) {
                self.fill(seq, Event::Exited(exit));
            }
        }
        match self.first_hole(through) {
            None => Ok(()),
            Some(_) if answer.gap => Err(lost),
            Some(_) => Err(CatchUpError::NotRetained(through)),
        }
    }

    fn fill(&mut self, seq: u64, event: Event) {
        if !self.is_known(seq) {
            self.insert(seq, event);
        }
    }

    /// An exit that came early, before the answer, learns what the answer knows of the sandbox.
    fn add_denial(&mut self, answer: &ReadResult) {
        for event in self.waiting.values_mut() {
            if let Event::Exited(exit) = event {
                exit.sandbox_denied = Some(exit.sandbox_denied.unwrap_or(false) || answer.sandbox_denied);
            }
        }
    }

    fn first_hole(&self, through: u64) -> Option<u64> {
        let mut expected = self.last + 1;
        for seq in self.waiting.keys() {
            if *seq != expected {
                break;
            }
            expected += 1;
        }
        (expected <= through).then_some(expected)
    }
}
