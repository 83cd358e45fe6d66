//! The directories of a watched tree that are not watched yet: those to be scanned next, and those whose scan has
//! failed and is repeated after a certain event. To scan a directory is to add it to inotify and to list it. This is
//! a value without system calls; [`tree`](super::tree) says when a directory moves from one of the sets to another.
//!
//! The *receiver* gets the reported changes. It lists the whole tree when the watch begins and after each *overflow*,
//! which tells it that changes are missing.

use std::collections::{BTreeSet, HashSet};

use super::directories::DirectoryId;

#[derive(Debug, Default)]
pub(super) struct ScanQueue {
    /// Directories to scan when all events were handled.
    waiting: BTreeSet<DirectoryId>,
    /// Directories that a scan did not find at their path, although no event had reported a change. A later event
    /// should tell where such a directory is, so all of them are scanned again after the next event by which a name
    /// appears or disappears.
    missing: BTreeSet<DirectoryId>,
    /// Directories that could not be scanned, because this user may not read them, for example. They are scanned
    /// again when the attributes of any directory in the tree change.
    refused: BTreeSet<DirectoryId>,
    /// Directories that were in one of the sets above when the receiver last had to list the whole tree. The receiver
    /// may know entries of such a directory that were removed before the directory was scanned.
    unwatched_at_listing: HashSet<DirectoryId>,
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

    /// Removes a directory that was scanned, whether or not it could be listed. Not to be called if the scan was
    /// discarded, because the directory must then be scanned again.
    pub(super) fn remove_waiting(&mut self, directory: DirectoryId) {
        self.waiting.remove(&directory);
    }

    /// To be called for an event by which a name appears or disappears.
    pub(super) fn retry_missing(&mut self) {
        self.waiting.append(&mut self.missing);
    }

    /// To be called when the attributes of any directory in the tree have changed.
    pub(super) fn retry_refused(&mut self) {
        self.waiting.append(&mut self.refused);
    }

    /// Removes a directory that is not in the tree any more.
    pub(super) fn forget(&mut self, directory: DirectoryId) {
        self.waiting.remove(&directory);
        self.missing.remove(&directory);
        self.refused.remove(&directory);
        self.unwatched_at_listing.remove(&directory);
    }

    /// To be called before the receiver lists the whole tree: when an overflow is delivered, and after the whole tree
    /// was scanned.
    pub(super) fn prepare_for_receiver_listing(&mut self) {
        self.unwatched_at_listing = self.waiting.iter().chain(&self.missing).chain(&self.refused).copied().collect();
    }

    /// Whether the directory was not watched when the receiver last had to list the whole tree. Returns true only
    /// once for each such listing.
    pub(super) fn take_unwatched_at_listing(&mut self, directory: DirectoryId) -> bool {
        self.unwatched_at_listing.remove(&directory)
    }
}
