//! The directories of a watched tree that are not watched yet: those to be scanned next, and those whose scan has failed and is repeated
//! after a certain event. This is a value without system calls; [`tree`](super::tree) says when a directory changes from one set to
//! another.

use std::collections::{BTreeSet, HashSet};

use super::directories::DirectoryId;

#[derive(Debug, Default)]
pub(super) struct ScanQueue {
    /// Directories to scan when all events were handled.
    waiting: BTreeSet<DirectoryId>,
    /// Directories that a scan did not find at their path, although no event had reported a change. A later event about a name tells where
    /// they are, so they are scanned again after the next such event.
    missing: BTreeSet<DirectoryId>,
    /// Directories that this user may not read. They are scanned again when the attributes of a directory change.
    refused: BTreeSet<DirectoryId>,
    /// Directories that were in one of these sets when the last overflow was delivered. The receiver of the changes
    /// has listed them after that, and may know entries that were removed before the directory was scanned.
    unwatched_at_overflow: HashSet<DirectoryId>,
}

impl ScanQueue {
    pub(super) fn add(&mut self, directory: DirectoryId) {
        self.waiting.insert(directory);
    }

    pub(super) fn add_missing(&mut self, directory: DirectoryId) {
        self.missing.insert(directory);
    }

    pub(super) fn add_refused(&mut self, directory: DirectoryId) {
        self.refused.insert(directory);
    }

    /// The directories to scan.
    pub(super) fn waiting(&self) -> impl Iterator<Item = DirectoryId> {
        self.waiting.iter().copied()
    }

    /// To be called when the scan of a directory was not discarded, whether or not the directory could be listed.
    pub(super) fn remove_waiting(&mut self, directory: DirectoryId) {
        self.waiting.remove(&directory);
    }

    /// To be called for an event about a name.
    pub(super) fn retry_missing(&mut self) {
        self.waiting.append(&mut self.missing);
    }

    /// To be called when the attributes of a directory have changed.
    pub(super) fn retry_refused(&mut self) {
        self.waiting.append(&mut self.refused);
    }

    /// Removes a directory that does not exist any more.
    pub(super) fn forget(&mut self, directory: DirectoryId) {
        self.waiting.remove(&directory);
        self.missing.remove(&directory);
        self.refused.remove(&directory);
        self.unwatched_at_overflow.remove(&directory);
    }

    pub(super) fn handle_overflow_delivered(&mut self) {
        self.unwatched_at_overflow = self.waiting.iter().chain(&self.missing).chain(&self.refused).copied().collect();
    }

    /// Whether the directory was not watched when the last overflow was delivered. True only once for each overflow.
    pub(super) fn take_unwatched_at_overflow(&mut self, directory: DirectoryId) -> bool {
        self.unwatched_at_overflow.remove(&directory)
    }
}
