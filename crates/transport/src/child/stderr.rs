//! Reads the stderr of a child line by line. Passes each line that is not blank to a callback, and keeps the last of
//! these lines for the report of the child's exit.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::io::AsyncRead;
use tokio::task::JoinHandle;

use crate::framing::Framing;
use crate::message::{MessageLimits, ReadEvent};
use crate::reader::Reader;

/// A longer line is cut to its first KiB, which is what a [`Reader`] keeps of a message over its limit.
const MAX_LINE_BYTES: usize = 4 * 1024;
/// How many lines are kept. Eight are usually enough for an error message and its cause.
const KEPT_LINES: usize = 8;

/// The last lines of stderr, at most [`KEPT_LINES`], oldest first. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct StderrTail {
    lines: Arc<Mutex<VecDeque<String>>>,
}

impl StderrTail {
    pub(super) fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    fn push(&self, line: String) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == KEPT_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }
}

/// Reads lines in a task, until every process that has the pipe as its stderr has closed it.
pub(super) fn read_lines(
    stderr: impl AsyncRead + Send + Unpin + 'static,
    mut on_line: impl FnMut(&str) + Send + 'static,
    stderr_tail: StderrTail,
) -> JoinHandle<()> {
    let mut reader =
        Reader::new(stderr, Framing::Lines, Bytes::new(), MessageLimits { message_bytes: MAX_LINE_BYTES });
    tokio::spawn(async move {
        while let Ok(ReadEvent::Message(line) | ReadEvent::TooLarge { prefix: line }) = reader.next().await {
            let line = String::from_utf8_lossy(&line).into_owned();
            on_line(&line);
            stderr_tail.push(line);
        }
    })
}
