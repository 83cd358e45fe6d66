//! What happens to a process, as a client sees it.

use bytes::Bytes;
use protocol::Stream;

/// One event of a process. Events are numbered from 1 without holes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It wrote something.
    Output {
        /// Where to.
        stream: Stream,
        /// What.
        chunk: Bytes,
    },
    /// It has exited; output may still follow.
    Exited(Exit),
    /// It has exited and its streams have ended: nothing follows.
    Closed,
}

impl Event {
    /// How much memory it holds on to.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Output { chunk, .. } => chunk.len(),
            Self::Exited(_) | Self::Closed => 0,
        }
    }
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// 128+N after signal N.
    pub code: i32,
    /// Whether the sandbox refused something; none from a server that does not say.
    pub sandbox_denied: Option<bool>,
    /// Whether the server ended it because its time was over.
    pub timed_out: bool,
}
