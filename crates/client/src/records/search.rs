//! The unread matches of a search. A server cannot be asked to search more slowly, so the search fails if the unread
//! matches exceed a limit.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use protocol::fs::{FoundFile, FoundLine, FoundNotification, MatchRange};
use tokio::sync::Notify;

use crate::error::ExecServerError;

/// The most memory of the unread matches of one search, roughly. Beyond it, the search fails.
const MAX_UNREAD_BYTES: usize = 64 * 1024 * 1024;
/// Memory of a line or a file beside its text, roughly.
const OVERHEAD_BYTES: usize = 128;

/// The unread matches of one search.
pub(crate) struct SearchRecord {
    pub(crate) id: String,
    state: Mutex<SearchState>,
    changed: Notify,
}

#[derive(Default)]
struct SearchState {
    last_seq: u64,
    files: VecDeque<FoundFile>,
    bytes: usize,
    failure: Option<ExecServerError>,
}

impl SearchRecord {
    pub(crate) fn new(id: String) -> Self {
        Self { id, state: Mutex::default(), changed: Notify::new() }
    }

    fn push(&self, found: FoundNotification) {
        let mut state = self.state.lock();
        if found.seq == state.last_seq + 1 {
            state.last_seq = found.seq;
        } else {
            let text = format!("results {} came after {}", found.seq, state.last_seq);
            state.failure.get_or_insert(ExecServerError::Protocol(text));
        }
        state.bytes += found.files.iter().map(memory_of).sum::<usize>();
        if state.bytes > MAX_UNREAD_BYTES {
            let text = format!("more than {MAX_UNREAD_BYTES} bytes of results wait to be read");
            state.failure.get_or_insert(ExecServerError::Protocol(text));
        }
        if state.failure.is_none() {
            state.files.extend(found.files);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// The next file that has come, or `None` if none waits. A failure is returned once, after the files that came
    /// before it.
    pub(crate) fn take(&self) -> Result<Option<FoundFile>, ExecServerError> {
        let mut state = self.state.lock();
        if let Some(file) = state.files.pop_front() {
            state.bytes = state.bytes.saturating_sub(memory_of(&file));
            return Ok(Some(file));
        }
        state.failure.take().map_or(Ok(None), Err)
    }

    /// Waits until [`take`](Self::take) may return something new.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}

fn memory_of(file: &FoundFile) -> usize {
    let raw = |line: &FoundLine| line.raw.as_ref().map_or(0, |raw| raw.0.len());
    let matches = |line: &FoundLine| line.matches.len() * size_of::<MatchRange>();
    let lines: usize =
        file.lines.iter().map(|line| OVERHEAD_BYTES + line.text.len() + raw(line) + matches(line)).sum();
    OVERHEAD_BYTES + file.path.as_str().len() + lines
}

/// The records of all searches of a client, by search id.
#[derive(Default)]
pub(crate) struct SearchRecords(Mutex<HashMap<String, Arc<SearchRecord>>>);

impl SearchRecords {
    pub(crate) fn add(&self, record: &Arc<SearchRecord>) {
        self.0.lock().insert(record.id.clone(), Arc::clone(record));
    }

    pub(crate) fn remove(&self, id: &str) {
        self.0.lock().remove(id);
    }

    pub(crate) fn push(&self, found: FoundNotification) {
        let record = self.0.lock().get(&found.search_id).cloned();
        if let Some(record) = record {
            record.push(found);
        }
    }
}
