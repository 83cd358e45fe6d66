//! The first halves of renames. The kernel tells where something went from and where it came to as two events; the second may
//! never come, when something leaves the tree, and the first is then a removal.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use super::directories::DirectoryId;

/// The kernel queues the second half right after the first, so one that is not there by now does not exist.
pub(super) const SECOND_HALF_TIMEOUT: Duration = Duration::from_millis(10);

/// Something has gone from a name.
#[derive(Debug)]
pub(super) struct PendingRename {
    pub(super) cookie: u32,
    pub(super) parent: DirectoryId,
    pub(super) name: OsString,
    /// The directory that has gone, if it is a directory that the watch follows.
    pub(super) directory: Option<DirectoryId>,
    pub(super) is_directory: bool,
    pub(super) since: Instant,
}

/// Those whose second half has not come.
#[derive(Default)]
pub(super) struct PendingRenames(Vec<PendingRename>);

impl PendingRenames {
    pub(super) fn push(&mut self, rename: PendingRename) {
        self.0.push(rename);
    }

    /// The first half of the rename whose second half has come.
    pub(super) fn take_by_cookie(&mut self, cookie: u32) -> Option<PendingRename> {
        let index = self.0.iter().position(|rename| rename.cookie == cookie)?;
        Some(self.0.swap_remove(index))
    }

    /// Those that are over because something else has happened in the same directory: its lock is held over both halves.
    pub(super) fn take_in_directory(&mut self, parent: DirectoryId) -> Vec<PendingRename> {
        self.0.extract_if(.., |rename| rename.parent == parent).collect()
    }

    /// Those that nobody waits for any longer.
    pub(super) fn take_expired(&mut self, now: Instant) -> Vec<PendingRename> {
        self.0.extract_if(.., |rename| now.saturating_duration_since(rename.since) >= SECOND_HALF_TIMEOUT).collect()
    }

    pub(super) fn take_all(&mut self) -> Vec<PendingRename> {
        std::mem::take(&mut self.0)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
