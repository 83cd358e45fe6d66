//! What a client knows of a watch: changes in order, each once, and no more than somebody may want to read.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use protocol::PathUri;
use protocol::fs::ChangedNotification;
use tokio::sync::Notify;

use super::Changes;
use crate::error::ExecServerError;

/// Changes that may wait for a reader. With more of them it must look at everything.
const WAITING_CHANGES: usize = 50_000;

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
    is_over: bool,
    failure: Option<ExecServerError>,
}

impl State {
    fn overflow(&mut self) {
        self.waiting.clear();
        self.waiting_changes = 0;
        self.waiting.push_back(Changes { changes: Vec::new(), overflow: true });
    }
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
        if changed.overflow || state.waiting_changes + changed.changes.len() > WAITING_CHANGES {
            state.overflow();
        }
        if !changed.changes.is_empty() {
            state.waiting_changes += changed.changes.len();
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
        let change = |path: &&str| protocol::fs::FileChange {
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
    async fn a_reader_that_is_far_behind_must_look_at_everything() {
        let entry = WatchEntry::new("w".into(), "file:///".parse().unwrap(), true);
        let many = vec!["file:///x"; WAITING_CHANGES];
        entry.push(changed(1, false, &many));
        entry.push(changed(2, false, &["file:///y"]));
        assert_eq!(told(&entry).await, (vec![], true));
        assert_eq!(told(&entry).await, (vec!["file:///y".to_owned()], false));
    }
}
