//! The events of a process, as users of the client see them.

use bytes::Bytes;
use protocol::{ExitResources, SandboxDenial, Stream};
use recovery::{Event, Exit};

use super::exit_status::ExitStatus;

/// Bytes that a process wrote to one of its streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessOutputChunk {
    /// The number of this event among all events of the process. The first event is 1.
    pub seq: u64,
    /// The stream that the process wrote to. A process on a terminal has only [`Stream::Pty`].
    pub stream: Stream,
    /// The bytes as they were written. A chunk may begin or end in the middle of a character.
    pub chunk: Bytes,
}

/// One event of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecProcessEvent {
    /// The process wrote output.
    Output(ProcessOutputChunk),
    /// The process has exited. Output of its descendants may still follow.
    Exited {
        /// The number of this event among all events of the process.
        seq: u64,
        /// The exit code, or 128+N if signal N ended the process.
        exit_code: i32,
        /// Whether the sandbox denied something to the process. `None` if the server does not say.
        sandbox_denied: Option<bool>,
        /// What the sandbox refused, as far as the server knows.
        sandbox_denials: Vec<SandboxDenial>,
        /// Whether the server killed the process because the timeout of the process was over.
        timed_out: bool,
        /// What the process has used and which limit it has reached, if it was started with
        /// [`limits`](protocol::StartParams::limits).
        resources: ExitResources,
    },
    /// The process has exited and its streams have ended. No event follows.
    Closed {
        /// The number of this event among all events of the process.
        seq: u64,
    },
    /// The client cannot follow the process any longer, for the reason in the text. No event follows.
    Failed(String),
}

impl ExecProcessEvent {
    pub(crate) fn new(seq: u64, event: Event) -> Self {
        match event {
            Event::Output { stream, chunk } => Self::Output(ProcessOutputChunk { seq, stream, chunk }),
            Event::Exited(Exit { code, sandbox_denied, sandbox_denials, timed_out, resources }) => {
                Self::Exited { seq, exit_code: code, sandbox_denied, sandbox_denials, timed_out, resources }
            }
            Event::Closed => Self::Closed { seq },
        }
    }

    /// The number of the event, and the event in the form that `recovery` takes. `None` for a failure, which has no number.
    pub(crate) fn sequenced(&self) -> Option<(u64, Event)> {
        match self {
            Self::Output(output) => {
                Some((output.seq, Event::Output { stream: output.stream, chunk: output.chunk.clone() }))
            }
            Self::Exited { seq, exit_code, sandbox_denied, sandbox_denials, timed_out, resources } => {
                let exit = Exit {
                    code: *exit_code,
                    sandbox_denied: *sandbox_denied,
                    sandbox_denials: sandbox_denials.clone(),
                    timed_out: *timed_out,
                    resources: *resources,
                };
                Some((*seq, Event::Exited(exit)))
            }
            Self::Closed { seq } => Some((*seq, Event::Closed)),
            Self::Failed(_) => None,
        }
    }

    /// How the process exited, if this is its exit.
    pub fn exit_status(&self) -> Option<ExitStatus> {
        match self.sequenced() {
            Some((_, Event::Exited(exit))) => Some(exit.into()),
            _ => None,
        }
    }

    /// Whether no event follows this one.
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
