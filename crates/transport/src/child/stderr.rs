//! What a child says on its stderr: every line goes to whoever listens, and the last ones are kept for the report of its end.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::io::AsyncRead;
use tokio::task::JoinHandle;

use crate::framing::Framing;
use crate::message::{MessageLimits, ReadEvent};
use crate::reader::Reader;

/// A longer line is cut to what a reader keeps of too long messages.
const MAX_LINE_BYTES: usize = 4 * 1024;
/// Enough for an error and its reason.
const KEPT_LINES: usize = 8;

/// The last lines, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct LastWords {
    lines: Arc<Mutex<VecDeque<String>>>,
}

impl LastWords {
    pub(super) fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    fn keep(&self, line: String) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == KEPT_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }
}

/// Hands out lines until nobody can write any.
pub(super) fn listen(
    stderr: impl AsyncRead + Send + Unpin + 'static,
    mut on_line: impl FnMut(&str) + Send + 'static,
    last_words: LastWords,
) -> JoinHandle<()> {
    let mut reader =
        Reader::new(stderr, Framing::Lines, Bytes::new(), MessageLimits { message_bytes: MAX_LINE_BYTES });
    tokio::spawn(async move {
        while let Ok(ReadEvent::Message(line) | ReadEvent::TooLarge { prefix: line }) = reader.next().await {
            let line = String::from_utf8_lossy(&line).into_owned();
            on_line(&line);
            last_words.keep(line);
        }
    })
}
