//! The unread changes of a watch: in order, each once, and within limits. If a reader is so slow that a limit is
//! reached, all unread changes are dropped and the reader gets an overflow.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use protocol::fs::{ChangedNotification, FileChange, WatchParams};
use protocol::{PathUri, SandboxContext};
use tokio::sync::Notify;

use crate::error::ExecServerError;

/// The most unread changes of one watch. If more come, all unread changes are dropped and the reader gets an overflow.
const MAX_WAITING_CHANGES: usize = 50_000;
/// The most memory of the unread changes of one watch. A limit on their number is not enough, because the server
/// chooses how long the paths are. 50,000 paths of ordinary length need a third of this.
const MAX_WAITING_BYTES: usize = 32 * 1024 * 1024;

/// Changes in a watched file or directory tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The changes, in an order in which they can be applied one after the other.
    pub changes: Vec<FileChange>,
    /// True if changes before these changes were lost. The caller has to read the whole tree again.
    pub overflow: bool,
}

/// The record of one watch: the watched path, and the changes that the reader has not taken.
pub(crate) struct WatchRecord {
    pub(crate) id: String,
    pub(crate) path: PathUri,
    pub(crate) recursive: bool,
    /// The sandbox as it is sent to the server.
    sandbox: Option<SandboxContext>,
    state: Mutex<WatchState>,
    changed: Notify,
}

#[derive(Default)]
struct WatchState {
    has_begun: bool,
    last_seq: u64,
    waiting: VecDeque<Changes>,
    waiting_changes: usize,
    waiting_bytes: usize,
    is_over: bool,
    failure: Option<ExecServerError>,
}

impl WatchState {
    /// Replaces all waiting changes by an overflow, and frees their memory.
    fn overflow(&mut self) {
        self.waiting = VecDeque::from([Changes { changes: Vec::new(), overflow: true }]);
        self.waiting_changes = 0;
        self.waiting_bytes = 0;
    }

    fn has_room(&self, changes: usize, bytes: usize) -> bool {
        self.waiting_changes + changes <= MAX_WAITING_CHANGES && self.waiting_bytes + bytes <= MAX_WAITING_BYTES
    }
}

fn memory_of(changes: &[FileChange]) -> usize {
    let texts =
        |change: &FileChange| change.path.as_str().len() + change.from.as_ref().map_or(0, |from| from.as_str().len());
    size_of::<Changes>() + changes.iter().map(|change| size_of::<FileChange>() + texts(change)).sum::<usize>()
}

impl WatchRecord {
    pub(crate) fn new(id: String, path: PathUri, recursive: bool, sandbox: Option<SandboxContext>) -> Self {
        Self { id, path, recursive, sandbox, state: Mutex::default(), changed: Notify::new() }
    }

    pub(crate) fn last_seq(&self) -> u64 {
        self.state.lock().last_seq
    }

    pub(crate) fn is_over(&self) -> bool {
        self.state.lock().is_over
    }

    /// The server has begun the watch. From now on the watch is resumed over new connections.
    pub(crate) fn set_begun(&self) {
        self.state.lock().has_begun = true;
    }

    /// The request that begins this watch.
    pub(crate) fn begin_params(&self) -> WatchParams {
        WatchParams {
            watch_id: self.id.clone(),
            path: self.path.clone(),
            recursive: self.recursive,
            after_seq: None,
            sandbox: self.sandbox.clone(),
        }
    }

    /// The request that resumes this watch and asks for the changes that were missed.
    pub(crate) fn resume_params(&self) -> WatchParams {
        WatchParams { after_seq: Some(self.last_seq()), ..self.begin_params() }
    }

    /// Takes a notification. A repeated notification is ignored. A notification after a missing one is ignored too,
    /// because the server sends it again after the missing one. An overflow after missing notifications is taken,
    /// because it stands for them.
    pub(crate) fn push(&self, changed: ChangedNotification) {
        let mut state = self.state.lock();
        let is_next = changed.seq == state.last_seq + 1 || (changed.overflow && changed.seq > state.last_seq);
        if !is_next || state.is_over {
            return;
        }
        state.last_seq = changed.seq;
        let (count, bytes) = (changed.changes.len(), memory_of(&changed.changes));
        if changed.overflow || !state.has_room(count, bytes) {
            state.overflow();
        }
        // Changes that exceed the limits on their own are part of the overflow.
        if count > 0 && state.has_room(count, bytes) {
            state.waiting_changes += count;
            state.waiting_bytes += bytes;
            state.waiting.push_back(Changes { changes: changed.changes, overflow: false });
        }
        state.is_over = changed.ended;
        drop(state);
        self.changed.notify_one();
    }

    /// The server no longer knows the watch, so changes are lost and the reader gets an overflow. The caller begins
    /// the watch again; its sequence numbers then start at 1.
    pub(crate) fn note_lost_by_server(&self) {
        let mut state = self.state.lock();
        state.last_seq = 0;
        state.overflow();
        drop(state);
        self.changed.notify_one();
    }

    /// Ends the watch with this error, unless the watch is over.
    pub(crate) fn fail(&self, error: ExecServerError) {
        let mut state = self.state.lock();
        if !state.is_over {
            state.is_over = true;
            state.failure = Some(error);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Waits for the next changes. An error is returned once, after all changes. Returns `None` when the watch is
    /// over.
    pub(crate) async fn recv(&self) -> Option<Result<Changes, ExecServerError>> {
        loop {
            {
                let mut state = self.state.lock();
                if let Some(changes) = state.waiting.pop_front() {
                    state.waiting_changes -= changes.changes.len();
                    if !changes.overflow {
                        state.waiting_bytes -= memory_of(&changes.changes);
                    }
                    return Some(Ok(changes));
                }
                if state.is_over {
                    return state.failure.take().map(Err);
                }
            }
            self.changed.notified().await;
        }
    }
}

/// The records of all watches of a client, by watch id.
#[derive(Default)]
pub(crate) struct WatchRecords(Mutex<HashMap<String, Arc<WatchRecord>>>);

impl WatchRecords {
    pub(crate) fn add(&self, record: &Arc<WatchRecord>) {
        self.0.lock().insert(record.id.clone(), Arc::clone(record));
    }

    pub(crate) fn remove(&self, id: &str) {
        self.0.lock().remove(id);
    }

    pub(crate) fn push(&self, changed: ChangedNotification) {
        let record = self.0.lock().get(&changed.watch_id).cloned();
        if let Some(record) = record {
            record.push(changed);
        }
    }

    /// The watches that must be resumed over the next connection.
    pub(crate) fn recoverable(&self) -> Vec<Arc<WatchRecord>> {
        let watches = self.0.lock();
        let is_running = |record: &&Arc<WatchRecord>| {
            let state = record.state.lock();
            state.has_begun && !state.is_over
        };
        watches.values().filter(is_running).cloned().collect()
    }

    /// The client has failed: each watch ends with this text.
    pub(crate) fn fail_all(&self, text: &str) {
        let watches = std::mem::take(&mut *self.0.lock());
        watches.values().for_each(|record| record.fail(ExecServerError::Disconnected(text.to_owned())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notification(seq: u64, overflow: bool, paths: &[&str]) -> ChangedNotification {
        let change = |path: &&str| FileChange {
            path: path.parse().unwrap(),
            kind: protocol::fs::ChangeKind::Created,
            from: None,
            is_directory: false,
        };
        let changes = paths.iter().map(change).collect();
        ChangedNotification { watch_id: "w".into(), seq, changes, overflow, ended: false }
    }

    /// The paths of the next changes, and whether changes were lost before them.
    async fn receive(record: &WatchRecord) -> (Vec<String>, bool) {
        let changes = record.recv().await.unwrap().unwrap();
        (changes.changes.iter().map(|change| change.path.as_str().to_owned()).collect(), changes.overflow)
    }

    #[tokio::test]
    async fn notifications_that_are_repeated_or_follow_a_missing_one_are_ignored_but_an_overflow_is_taken() {
        let record = WatchRecord::new("w".into(), "file:///".parse().unwrap(), true, None);
        record.push(notification(1, false, &["file:///1"]));
        record.push(notification(3, false, &["file:///3"]));
        record.push(notification(1, false, &["file:///1"]));
        assert_eq!(record.last_seq(), 1);
        for seq in [1, 2, 3] {
            record.push(notification(seq, false, &[&format!("file:///{seq}")]));
        }
        for expected in ["file:///1", "file:///2", "file:///3"] {
            assert_eq!(receive(&record).await, (vec![expected.to_owned()], false));
        }
        record.push(notification(9, true, &[]));
        assert_eq!((receive(&record).await, record.last_seq()), ((vec![], true), 9));
    }

    #[tokio::test]
    async fn long_paths_overflow_before_they_exceed_the_limit_on_memory() {
        let record = WatchRecord::new("w".into(), "file:///".parse().unwrap(), true, None);
        let long = format!("file:///{}", "x".repeat(MAX_WAITING_BYTES / 4));
        for seq in 1..=20 {
            record.push(notification(seq, false, &[&long]));
            let waiting: usize = record.state.lock().waiting.iter().map(|changes| memory_of(&changes.changes)).sum();
            assert!(
                waiting <= MAX_WAITING_BYTES + size_of::<Changes>(),
                "{waiting} bytes wait after {seq} notifications"
            );
        }
        assert_eq!(receive(&record).await, (vec![], true));
        while !record.state.lock().waiting.is_empty() {
            assert_eq!(receive(&record).await, (vec![long.clone()], false));
        }
        assert_eq!(record.state.lock().waiting_bytes, 0);
        // A single notification that is too large is dropped. The next notification fits.
        record.push(notification(21, false, &[long.as_str(); 5]));
        record.push(notification(22, false, &["file:///y"]));
        assert_eq!(receive(&record).await, (vec![], true));
        assert_eq!(receive(&record).await, (vec!["file:///y".to_owned()], false));
    }

    #[tokio::test]
    async fn a_reader_that_is_far_behind_gets_an_overflow() {
        let record = WatchRecord::new("w".into(), "file:///".parse().unwrap(), true, None);
        let many = vec!["file:///x"; MAX_WAITING_CHANGES];
        record.push(notification(1, false, &many));
        record.push(notification(2, false, &["file:///y"]));
        assert_eq!(receive(&record).await, (vec![], true));
        assert_eq!(receive(&record).await, (vec!["file:///y".to_owned()], false));
    }
}
