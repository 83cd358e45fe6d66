//! The shell snapshots of a session (see `snapshot.rs`). Each snapshot is captured once, however many starts wait for
//! it. If there are more than [`MAX_SNAPSHOTS`], the least recently used snapshot is dropped.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::SnapshotKey;
use super::state::Snapshot;
use crate::limits::MAX_SNAPSHOTS;
use crate::start_cancel::StartCancel;

/// A capture that is under way or done. A failed capture is kept as None, because it would probably fail again and take as long.
type SnapshotEntry = Arc<OnceCell<Option<Arc<Snapshot>>>>;

/// All snapshots of a session.
#[derive(Default)]
pub(crate) struct Snapshots {
    /// The most recently used snapshot is the last.
    entries: Mutex<VecDeque<(SnapshotKey, SnapshotEntry)>>,
    /// Cancels the starts of shells for captures.
    pub(super) cancel: StartCancel,
}

impl Snapshots {
    /// The snapshot for `key`. `capture` is called only if no snapshot for the key is known or being captured; other
    /// callers wait for its result. None: the capture has failed.
    pub(super) async fn get_or_capture(
        &self,
        key: &SnapshotKey,
        capture: impl AsyncFnOnce() -> Option<Snapshot>,
    ) -> Option<Arc<Snapshot>> {
        let entry = self.entry(key);
        entry.get_or_init(async || capture().await.map(Arc::new)).await.clone()
    }

    /// Cancels captures whose shell is not started yet. From now on no capture can start a shell.
    pub(crate) fn cancel_captures(&self) {
        self.cancel.cancel();
    }

    fn entry(&self, key: &SnapshotKey) -> SnapshotEntry {
        let mut entries = self.entries.lock();
        let known = entries.iter().position(|(known, _)| known == key).and_then(|index| entries.remove(index));
        let (key, entry) = known.unwrap_or_else(|| (key.clone(), SnapshotEntry::default()));
        if entries.len() == MAX_SNAPSHOTS {
            entries.pop_front();
        }
        entries.push_back((key, Arc::clone(&entry)));
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::{ShellInfo, ShellSnapshot};

    fn key(scope: usize) -> SnapshotKey {
        let shell = ShellInfo { name: "sh".into(), path: "/bin/sh".into() };
        let snapshot = ShellSnapshot { scope_id: scope.to_string(), shell };
        SnapshotKey { snapshot, cwd: "/".into(), policy: None, startup_variables: Default::default(), sandbox: None }
    }

    #[test]
    fn the_least_recently_used_snapshot_is_dropped() {
        let snapshots = Snapshots::default();
        let first: Vec<_> = (0..MAX_SNAPSHOTS).map(|scope| snapshots.entry(&key(scope))).collect();
        let is_known = |scope: usize| Arc::ptr_eq(&first[scope], &snapshots.entry(&key(scope)));
        assert!(is_known(0), "the first snapshot is known, and now used again");
        snapshots.entry(&key(MAX_SNAPSHOTS));
        assert!(is_known(0) && is_known(2));
        assert!(!is_known(1));
        assert_eq!(snapshots.entries.lock().len(), MAX_SNAPSHOTS);
    }

    #[tokio::test]
    async fn a_failed_capture_is_not_repeated() {
        let snapshots = Snapshots::default();
        assert!(snapshots.get_or_capture(&key(0), async || None).await.is_none());
        let again = snapshots.get_or_capture(&key(0), async || panic!("a failed capture must not be repeated")).await;
        assert!(again.is_none());
    }
}
