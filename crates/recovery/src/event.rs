//! The events of a process as a client receives them. The event log of the server has a type of its own (`session::LogEvent`).

use bytes::Bytes;
use protocol::{ExitResources, ReadResult, SandboxDenial, Stream};

/// One event of a process. Events are numbered from 1 without holes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The process wrote output.
    Output {
        /// The stream that the process wrote to.
        stream: Stream,
        /// The output. The server decides how output is cut into chunks.
        chunk: Bytes,
    },
    /// The process has exited. Output of its descendants may still follow.
    Exited(Exit),
    /// The process has exited and its streams have ended: this is the last event.
    Closed,
}

impl Event {
    /// Number of bytes of output in the event; 0 if the event is not output.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Output { chunk, .. } => chunk.len(),
            Self::Exited(_) | Self::Closed => 0,
        }
    }
}

/// How a process ended, as far as the server says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Exit code of the process; 128+N if signal N ended it.
    pub code: i32,
    /// Whether the sandbox denied something to the process. `None` from a server that does not say.
    pub sandbox_denied: Option<bool>,
    /// What the sandbox refused, as far as the server knows.
    pub sandbox_denials: Vec<SandboxDenial>,
    /// Whether the server ended the process because its time limit was reached.
    pub timed_out: bool,
    /// What the process has used and which limit it has reached, if the server was asked to say so.
    pub resources: ExitResources,
}

impl Exit {
    /// The exit that the answer to a read reports. `None` if the process has not exited.
    pub fn of_answer(answer: &ReadResult) -> Option<Self> {
        answer.exit_code.filter(|_| answer.exited).map(|code| Self {
            code,
            sandbox_denied: Some(answer.sandbox_denied),
            sandbox_denials: answer.sandbox_denials.clone(),
            timed_out: answer.timed_out,
            resources: answer.resources(),
        })
    }
}
