//! What a handle tells about its process.

use bytes::Bytes;
use protocol::Stream;
use recovery::{Event, Exit};

/// A piece of output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessOutputChunk {
    /// Its place among the events of the process.
    pub seq: u64,
    /// Where it came from.
    pub stream: Stream,
    /// The bytes.
    pub chunk: Bytes,
}

/// One event of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecProcessEvent {
    /// It wrote something.
    Output(ProcessOutputChunk),
    /// It has exited; output may still follow.
    Exited {
        /// Its place among the events.
        seq: u64,
        /// 128+N after signal N.
        exit_code: i32,
        /// Whether the sandbox refused something; none from a server that does not say.
        sandbox_denied: Option<bool>,
        /// Whether the server ended it because its time was over.
        timed_out: bool,
    },
    /// It has exited and its streams have ended: nothing follows.
    Closed {
        /// Its place among the events.
        seq: u64,
    },
    /// It can no longer be followed: nothing follows.
    Failed(String),
}

impl ExecProcessEvent {
    pub(crate) fn new(seq: u64, event: Event) -> Self {
        match event {
            Event::Output { stream, chunk } => Self::Output(ProcessOutputChunk { seq, stream, chunk }),
            Event::Exited(Exit { code, sandbox_denied, timed_out }) => {
                Self::Exited { seq, exit_code: code, sandbox_denied, timed_out }
            }
            Event::Closed => Self::Closed { seq },
        }
    }

    /// The same as a rule sees it; none for what has no number.
    pub(crate) fn sequenced(&self) -> Option<(u64, Event)> {
        match self {
            Self::Output(output) => {
                Some((output.seq, Event::Output { stream: output.stream, chunk: output.chunk.clone() }))
            }
            Self::Exited { seq, exit_code, sandbox_denied, timed_out } => {
                let exit = Exit { code: *exit_code, sandbox_denied: *sandbox_denied, timed_out: *timed_out };
                Some((*seq, Event::Exited(exit)))
            }
            Self::Closed { seq } => Some((*seq, Event::Closed)),
            Self::Failed(_) => None,
        }
    }

    /// Whether nothing follows it.
    pub fn is_last(&self) -> bool {
        matches!(self, Self::Closed { .. } | Self::Failed(_))
    }

    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Output(output) => output.chunk.len(),
            _ => 0,
        }
    }
}
