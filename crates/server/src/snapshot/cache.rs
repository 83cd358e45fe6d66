//! The snapshots of a session: each captured once, however many starts wait for it, and the one longest unused forgotten first.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::Key;
use super::state::Snapshot;
use crate::limits::MAX_SNAPSHOTS;
use crate::start_cancel::StartCancel;

/// One that failed is kept as well: it would most likely fail again, and take as long.
type Entry = Arc<OnceCell<Option<Arc<Snapshot>>>>;

/// Snapshots by what they were captured for.
#[derive(Default)]
pub(crate) struct Snapshots {
    /// Latest used last.
    entries: Mutex<VecDeque<(Key, Entry)>>,
    /// Gives up the starts of the shells that are to be captured.
    pub(super) cancel: StartCancel,
}

impl Snapshots {
    /// The snapshot for `key`, which is captured unless that was done or is being done.
    pub(super) async fn get_or_capture(
        &self,
        key: &Key,
        capture: impl AsyncFnOnce() -> Option<Snapshot>,
    ) -> Option<Arc<Snapshot>> {
        let entry = self.entry(key);
        entry.get_or_init(async || capture().await.map(Arc::new)).await.clone()
    }

    /// The session is over: no further profile is run.
    pub(crate) fn cancel_captures(&self) {
        self.cancel.cancel();
    }

    fn entry(&self, key: &Key) -> Entry {
        let mut entries = self.entries.lock();
        let known = entries.iter().position(|(known, _)| known == key).and_then(|place| entries.remove(place));
        let (key, entry) = known.unwrap_or_else(|| (key.clone(), Entry::default()));
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

    fn key(scope: usize) -> Key {
        let shell = ShellInfo { name: "sh".into(), path: "/bin/sh".into() };
        let snapshot = ShellSnapshot { scope_id: scope.to_string(), shell };
        Key { snapshot, cwd: "/".into(), policy: None, deciding: Default::default() }
    }

    #[test]
    fn the_longest_unused_is_forgotten() {
        let snapshots = Snapshots::default();
        let first: Vec<_> = (0..MAX_SNAPSHOTS).map(|scope| snapshots.entry(&key(scope))).collect();
        let is_known = |scope: usize| Arc::ptr_eq(&first[scope], &snapshots.entry(&key(scope)));
        assert!(is_known(0), "and used again by that");
        snapshots.entry(&key(MAX_SNAPSHOTS));
        assert!(is_known(0) && is_known(2));
        assert!(!is_known(1));
        assert_eq!(snapshots.entries.lock().len(), MAX_SNAPSHOTS);
    }

    #[tokio::test]
    async fn a_failure_is_remembered() {
        let snapshots = Snapshots::default();
        assert!(snapshots.get_or_capture(&key(0), async || None).await.is_none());
        let again = snapshots.get_or_capture(&key(0), async || panic!("it is captured again")).await;
        assert!(again.is_none());
    }
}
