//! A watched directory, which is the *root* of the watch, and, if the watch is recursive, everything below it.
//! [`WatchedTree`] makes the system calls: it adds directories to inotify, lists them and reads events. [`TreeState`]
//! says which directory to scan next and what the events mean.
//!
//! The *receiver* gets the reported changes. It lists the whole tree when the watch begins and after each *overflow*,
//! which tells it that changes are missing.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::inotify_handle::{InotifyEvent, InotifyHandle};
use super::tree::{RootParent, ScanVerdict, TreeConfig, TreeState};
use super::watcher::ReportEvent;
use super::{WatchEnd, WatchOptions};
use crate::FileError;

/// Maximum number of discarded scans in a row while the whole tree is scanned. After that, the watch goes on although
/// some directories have not been scanned; they are scanned later. Scans are discarded while a process keeps renaming
/// directories.
const MAX_DISCARDED_SCANS: usize = 100;

pub(super) struct WatchedTree {
    root: PathBuf,
    tree: TreeState,
    /// At most this many entries of one directory that are not directories are listed. This is the number of changes
    /// that a watch collects at most, so a longer list would only become an overflow.
    max_listed_files: usize,
}

impl WatchedTree {
    /// Begins to watch a tree. When this function returns, the root is in inotify and, if the watch is recursive,
    /// also the directories below it, except those that could not be scanned yet.
    pub(super) fn new(
        inotify: &InotifyHandle,
        root: &Path,
        is_recursive: bool,
        options: WatchOptions,
    ) -> Result<Self, FileError> {
        let descriptor = inotify.watch_root_directory(root)?;
        let root_parent = match (root.parent(), root.file_name()) {
            (Some(parent), Some(name)) => inotify
                .watch_root_parent(parent)
                .map(|descriptor| RootParent { descriptor, root_name: name.to_owned() }),
            _ => None,
        };
        let max_directories = options.max_directories;
        let config = TreeConfig { root: root.to_owned(), root_parent, is_recursive, max_directories };
        let tree = TreeState::new(config, descriptor);
        let mut watched = Self { root: root.to_owned(), tree, max_listed_files: options.max_pending };
        watched.scan_all(inotify).map_err(|end| match end {
            WatchEnd::Failed(error) => error,
            WatchEnd::RootRemoved => {
                FileError::failed_check(ErrorKind::NotFound, "the directory was removed or moved", root)
            }
        })?;
        Ok(watched)
    }

    /// Handles one event. Fails if the watch has to end.
    pub(super) fn handle(
        &mut self,
        event: &InotifyEvent,
        now: Instant,
        report: &mut ReportEvent<'_>,
    ) -> Result<(), WatchEnd> {
        self.tree.handle(event, now, report)
    }

    /// Whether a directory, or the whole tree, has to be scanned.
    pub(super) fn needs_scan(&self) -> bool {
        self.tree.is_out_of_sync() || self.tree.next_unscanned().is_some()
    }

    /// Scans one directory, if one has to be scanned, and handles the events that came meanwhile.
    pub(super) fn scan_next(
        &mut self,
        inotify: &InotifyHandle,
        now: Instant,
        report: &mut ReportEvent<'_>,
    ) -> Result<(), WatchEnd> {
        self.scan(inotify, now, Some(self.max_listed_files), report).map(|_| ())
    }

    pub(super) fn has_pending_renames(&self) -> bool {
        self.tree.has_pending_renames()
    }

    /// Reports renames as removals if their second event has not come in time.
    pub(super) fn expire_pending_renames(
        &mut self,
        inotify: &InotifyHandle,
        now: Instant,
        report: &mut ReportEvent<'_>,
    ) {
        self.tree.expire_pending_renames(now, report);
        self.unwatch_unneeded(inotify);
    }

    /// Whether something has happened that can be reported only as an overflow. Returns true only once for it.
    pub(super) fn take_needs_overflow(&mut self) -> bool {
        self.tree.take_needs_overflow()
    }

    /// To be called when an overflow is delivered, because the receiver then lists the whole tree. Notes which
    /// directories are not watched yet, since the receiver may miss changes in them after its listing. Directories
    /// that are no longer in the tree will be removed from inotify.
    pub(super) fn prepare_for_receiver_listing(&mut self) {
        self.tree.prepare_for_receiver_listing();
    }

    /// Records that the state of the tree may be wrong until the next [`rescan`](Self::rescan).
    pub(super) fn mark_out_of_sync(&mut self) {
        self.tree.mark_out_of_sync();
    }

    pub(super) fn is_out_of_sync(&self) -> bool {
        self.tree.is_out_of_sync()
    }

    /// Scans the whole tree again, because its state may be wrong. Fails if the path of the root no longer leads to
    /// the same directory.
    pub(super) fn rescan(&mut self, inotify: &InotifyHandle) -> Result<(), WatchEnd> {
        match inotify.watch_root_directory(&self.root) {
            Ok(descriptor) if self.tree.is_root(descriptor) => {}
            _ => return Err(WatchEnd::RootRemoved),
        }
        self.tree.reset();
        self.scan_all(inotify)
    }

    /// Scans all directories that have to be scanned. Reports nothing, because the receiver lists the whole tree
    /// afterwards.
    fn scan_all(&mut self, inotify: &InotifyHandle) -> Result<(), WatchEnd> {
        let mut discarded = 0;
        while discarded < MAX_DISCARDED_SCANS {
            match self.scan(inotify, Instant::now(), None, &mut |_, _, _| {})? {
                Some(ScanVerdict::Accepted) => discarded = 0,
                Some(ScanVerdict::Discarded) => discarded += 1,
                None => break,
            }
        }
        self.tree.prepare_for_receiver_listing();
        self.unwatch_unneeded(inotify);
        Ok(())
    }

    /// Scans one directory, and handles the events that came meanwhile. Returns `None` if there is no directory to
    /// scan. At most `max_files` entries that are not directories are listed; with `None`, only directories are.
    fn scan(
        &mut self,
        inotify: &InotifyHandle,
        now: Instant,
        max_files: Option<usize>,
        report: &mut ReportEvent<'_>,
    ) -> Result<Option<ScanVerdict>, WatchEnd> {
        self.unwatch_unneeded(inotify);
        let Some((directory, path)) = self.tree.next_unscanned() else { return Ok(None) };
        let scan = inotify.scan(&self.root, &path, max_files).map_err(WatchEnd::Failed)?;
        let mut events = Vec::new();
        let has_lost_events =
            inotify.read_events(&mut events).map_err(|error| WatchEnd::Failed(FileError::os(error, &self.root)))?;
        if has_lost_events {
            self.tree.mark_out_of_sync();
        }
        let verdict = self.tree.handle_scan(directory, scan, &events, report)?;
        for event in &events {
            self.tree.handle(event, now, report)?;
        }
        Ok(Some(verdict))
    }

    fn unwatch_unneeded(&mut self, inotify: &InotifyHandle) {
        for descriptor in self.tree.take_unneeded() {
            inotify.unwatch(descriptor);
        }
    }
}
