//! Renames whose second event has not come yet. The kernel reports a rename as two events with the same cookie,
//! `MOVED_FROM` and `MOVED_TO`. If an entry is moved out of the watched tree, the second event never comes, and the
//! rename is reported as a removal.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use super::directories::DirectoryId;

/// Time to wait for the second event. The kernel queues it right after the first, so it should not come later than
/// this.
pub(super) const SECOND_EVENT_TIMEOUT: Duration = Duration::from_millis(10);

/// A rename whose `MOVED_TO` event has not come.
#[derive(Debug)]
pub(super) struct PendingRename {
    pub(super) cookie: u32,
    /// The directory that contained the old name.
    pub(super) parent: DirectoryId,
    /// The old name.
    pub(super) name: OsString,
    /// The renamed directory. `None` if a file was renamed, or a directory that the watch has not recorded.
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

    /// Takes the renames whose old name is in `parent`. To be called when a later event about a name in this
    /// directory has come. The kernel keeps the directory locked until it has queued both events of a rename, so the
    /// second events of the taken renames will not come any more.
    pub(super) fn take_in_directory(&mut self, parent: DirectoryId) -> Vec<PendingRename> {
        self.0.extract_if(.., |rename| rename.parent == parent).collect()
    }

    /// Takes the renames that have waited at least for [`SECOND_EVENT_TIMEOUT`].
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
