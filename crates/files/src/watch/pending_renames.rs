//! Renames whose second event has not come yet. The kernel reports a rename as two events with the same cookie, `MOVED_FROM` and
//! `MOVED_TO`. If an entry is moved out of the tree, the second one never comes, and the rename is reported as a removal.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use super::directories::DirectoryId;

/// Time to wait for the second event. The kernel queues it right after the first, so it will not come later than
/// this.
pub(super) const SECOND_EVENT_TIMEOUT: Duration = Duration::from_millis(10);

/// A rename whose `MOVED_TO` event has not come.
#[derive(Debug)]
pub(super) struct PendingRename {
    pub(super) cookie: u32,
    pub(super) parent: DirectoryId,
    pub(super) name: OsString,
    /// The renamed directory, if it is one that the watch tracks.
    pub(super) directory: Option<DirectoryId>,
    pub(super) is_directory: bool,
    /// When the first event was handled.
    pub(super) since: Instant,
}

/// All pending renames of a watch.
#[derive(Default)]
pub(super) struct PendingRenames(Vec<PendingRename>);

impl PendingRenames {
    pub(super) fn push(&mut self, rename: PendingRename) {
        self.0.push(rename);
    }

    /// Takes the rename whose second event has come.
    pub(super) fn take_by_cookie(&mut self, cookie: u32) -> Option<PendingRename> {
        let index = self.0.iter().position(|rename| rename.cookie == cookie)?;
        Some(self.0.swap_remove(index))
    }

    /// Takes the renames out of a directory in which another event has happened. The kernel holds the lock of the directory during a
    /// rename, so the second events of those renames will not come.
    pub(super) fn take_in_directory(&mut self, parent: DirectoryId) -> Vec<PendingRename> {
        self.0.extract_if(.., |rename| rename.parent == parent).collect()
    }

    /// Takes the renames that have waited longer than [`SECOND_EVENT_TIMEOUT`].
    pub(super) fn take_expired(&mut self, now: Instant) -> Vec<PendingRename> {
        self.0.extract_if(.., |rename| now.saturating_duration_since(rename.since) >= SECOND_EVENT_TIMEOUT).collect()
    }

    pub(super) fn take_all(&mut self) -> Vec<PendingRename> {
        std::mem::take(&mut self.0)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
