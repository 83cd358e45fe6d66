//! What a client knows of a watch: changes in order, each once, and no more than somebody may want to read.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use protocol::PathUri;
use protocol::fs::{ChangedNotification, FileChange};
use tokio::sync::Notify;

use super::Changes;
use crate::error::ExecServerError;

/// Changes of one watch that may wait for the subscriber. With more, they are dropped and the subscriber is told of an overflow.
const WAITING_CHANGES: usize = 50_000;
/// Memory that these changes may take. A server chooses how long its paths are, so their number alone bounds nothing: 50,000 paths of
/// ordinary length need a third of this.
const WAITING_BYTES: usize = 32 * 1024 * 1024;

/// A watch.
pub(crate) struct WatchEntry {
    pub(crate) id: String,
    pub(crate) path: PathUri,
    pub(crate) recursive: bool,
    state: Mutex<State>,
    news: Notify,
}

#[derive(Default)]
struct State {
    has_begun: bool,
    last_seq: u64,
    waiting: VecDeque<Changes>,
    waiting_changes: usize,
    waiting_bytes: usize,
    is_over: bool,
    failure: Option<ExecServerError>,
}

impl State {
    /// Drops what waits, memory included, and leaves word of it.
    fn overflow(&mut self) {
        self.waiting = VecDeque::from([Changes { changes: Vec::new(), overflow: true }]);
        self.waiting_changes = 0;
        self.waiting_bytes = 0;
    }

    fn has_room(&self, changes: usize, bytes: usize) -> bool {
        self.waiting_changes + changes <= WAITING_CHANGES && self.waiting_bytes + bytes <= WAITING_BYTES
    }
}

/// What these changes take in memory.
fn bytes_of(changes: &[FileChange]) -> usize {
    let texts =
        |change: &FileChange| change.path.as_str().len() + change.from.as_ref().map_or(0, |from| from.as_str().len());
    size_of::<Changes>() + changes.iter().map(|change| size_of::<FileChange>() + texts(change)).sum::<usize>()
}

impl WatchEntry {
    pub(crate) fn new(id: String, path: PathUri, recursive: bool) -> Self {
        Self { id, path, recursive, state: Mutex::default(), news: Notify::new() }
    }

    pub(crate) fn last_seq(&self) -> u64 {
        self.state.lock().last_seq
    }

    pub(crate) fn is_over(&self) -> bool {
        self.state.lock().is_over
    }

    pub(crate) fn has_begun(&self) {
        self.state.lock().has_begun = true;
    }

    /// A message of the server. What is known is ignored, and so is what follows a hole: it is told again with what is missing.
    pub(crate) fn push(&self, changed: ChangedNotification) {
        let mut state = self.state.lock();
        let is_next = changed.seq == state.last_seq + 1 || (changed.overflow && changed.seq > state.last_seq);
        if !is_next || state.is_over {
            return;
        }
        state.last_seq = changed.seq;
        let (count, bytes) = (changed.changes.len(), bytes_of(&changed.changes));
        if changed.overflow || !state.has_room(count, bytes) {
            state.overflow();
        }
        // Changes that fill more than the whole room on their own are part of the overflow.
        if count > 0 && state.has_room(count, bytes) {
            state.waiting_changes += count;
            state.waiting_bytes += bytes;
            state.waiting.push_back(Changes { changes: changed.changes, overflow: false });
        }
        state.is_over = changed.ended;
        drop(state);
        self.news.notify_one();
    }

    /// The server has forgotten it; what it tells from now on begins anew.
    pub(crate) fn begins_anew(&self) {
        let mut state = self.state.lock();
        state.last_seq = 0;
        state.overflow();
        drop(state);
        self.news.notify_one();
    }

    pub(crate) fn fail(&self, error: ExecServerError) {
        let mut state = self.state.lock();
        if !state.is_over {
            state.is_over = true;
            state.failure = Some(error);
        }
        drop(state);
        self.news.notify_one();
    }

    pub(super) async fn recv(&self) -> Option<Result<Changes, ExecServerError>> {
        loop {
            {
                let mut state = self.state.lock();
                if let Some(changes) = state.waiting.pop_front() {
                    state.waiting_changes -= changes.changes.len();
                    if !changes.overflow {
                        state.waiting_bytes -= bytes_of(&changes.changes);
                    }
                    return Some(Ok(changes));
                }
                if state.is_over {
                    return state.failure.take().map(Err);
                }
            }
            self.news.notified().await;
        }
    }
}

/// The watches of a client.
#[derive(Default)]
pub(crate) struct Watches(Mutex<HashMap<String, Arc<WatchEntry>>>);

impl Watches {
    pub(crate) fn add(&self, entry: &Arc<WatchEntry>) {
        self.0.lock().insert(entry.id.clone(), Arc::clone(entry));
    }

    pub(crate) fn remove(&self, id: &str) {
        self.0.lock().remove(id);
    }

    pub(crate) fn push(&self, changed: ChangedNotification) {
        let entry = self.0.lock().get(&changed.watch_id).cloned();
        if let Some(entry) = entry {
            entry.push(changed);
        }
    }

    /// Those to take up again over another connection.
    pub(crate) fn recoverable(&self) -> Vec<Arc<WatchEntry>> {
        let watches = self.0.lock();
        let is_wanted = |entry: &&Arc<WatchEntry>| {
            let state = entry.state.lock();
            state.has_begun && !state.is_over
        };
        watches.values().filter(is_wanted).cloned().collect()
    }

    /// Nothing will come any more.
    pub(crate) fn fail_all(&self, text: &str) {
        let watches = std::mem::take(&mut *self.0.lock());
        watches.values().for_each(|entry| entry.fail(ExecServerError::Disconnected(text.to_owned())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(seq: u64, overflow: bool, paths: &[&str]) -> ChangedNotification {
        let change = |path: &&str| FileChange {
            path: path.parse().unwrap(),
            kind: protocol::fs::ChangeKind::Created,
            from: None,
            is_directory: false,
        };
        let changes = paths.iter().map(change).collect();
        ChangedNotification { watch_id: "w".into(), seq, changes, overflow, ended: false }
    }

    async fn told(entry: &WatchEntry) -> (Vec<String>, bool) {
        let changes = entry.recv().await.unwrap().unwrap();
        (changes.changes.iter().map(|change| change.path.as_str().to_owned()).collect(), changes.overflow)
    }

    #[tokio::test]
    async fn what_is_told_twice_is_heard_once_and_holes_are_waited_for() {
        let entry = WatchEntry::new("w".into(), "file:///".parse().unwrap(), true);
        entry.push(changed(1, false, &["file:///1"]));
        entry.push(changed(3, false, &["file:///3"]));
        entry.push(changed(1, false, &["file:///1"]));
        assert_eq!(entry.last_seq(), 1);
        for seq in [1, 2, 3] {
            entry.push(changed(seq, false, &[&format!("file:///{seq}")]));
        }
        for expected in ["file:///1", "file:///2", "file:///3"] {
            assert_eq!(told(&entry).await, (vec![expected.to_owned()], false));
        }
        entry.push(changed(9, true, &[]));
        assert_eq!((told(&entry).await, entry.last_seq()), ((vec![], true), 9));
    }

    #[tokio::test]
    async fn long_paths_overflow_before_they_fill_the_memory() {
        let entry = WatchEntry::new("w".into(), "file:///".parse().unwrap(), true);
        let long = format!("file:///{}", "x".repeat(WAITING_BYTES / 4));
        for seq in 1..=20 {
            entry.push(changed(seq, false, &[&long]));
            let waiting: usize = entry.state.lock().waiting.iter().map(|changes| bytes_of(&changes.changes)).sum();
            assert!(
                waiting <= WAITING_BYTES + size_of::<Changes>(),
                "{waiting} bytes wait after {seq} notifications"
            );
        }
        assert_eq!(told(&entry).await, (vec![], true));
        while !entry.state.lock().waiting.is_empty() {
            assert_eq!(told(&entry).await, (vec![long.clone()], false));
        }
        assert_eq!(entry.state.lock().waiting_bytes, 0);
        // One notification alone is too much, and the next one is not.
        entry.push(changed(21, false, &[long.as_str(); 5]));
        entry.push(changed(22, false, &["file:///y"]));
        assert_eq!(told(&entry).await, (vec![], true));
        assert_eq!(told(&entry).await, (vec!["file:///y".to_owned()], false));
    }

    #[tokio::test]
    async fn a_reader_that_is_far_behind_must_look_at_everything() {
        let entry = WatchEntry::new("w".into(), "file:///".parse().unwrap(), true);
        let many = vec!["file:///x"; WAITING_CHANGES];
        entry.push(changed(1, false, &many));
        entry.push(changed(2, false, &["file:///y"]));
        assert_eq!(told(&entry).await, (vec![], true));
        assert_eq!(told(&entry).await, (vec!["file:///y".to_owned()], false));
    }
}
