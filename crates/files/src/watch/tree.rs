//! The state of a watched directory tree: which directories it has and which are watched. [`TreeState`] decides what an event or a scan of
//! a directory means. It makes no system calls; [`watched_tree`](super::watched_tree) makes them. The *receiver* gets
//! the changes that this state reports. An *overflow* tells the receiver that changes are missing and that it must
//! list the tree again.
//!
//! An event describes the past, and a scan shows the present. These rules keep the two apart:
//!
//! - An event changes only the recorded state. A new directory is recorded as one to be scanned, and stays so while later events rename it.
//! - A directory is scanned when all events were handled: it is opened, added to inotify and listed, and then further events are read. If
//!   one of those is about a component of the path of the directory, the path may have led to another directory. The scan is then discarded
//!   and repeated.
//! - The events that were read after a scan are handled after it. So the scan must yield the entries that existed before these events,
//!   while the listing may already show their effect. If the first of these events about a name removes it, the name existed before. If the
//!   first event adds it, the name did not exist. A name without such an event existed if it was listed.
//!
//! The parts: `directories` has the tree, `scan_queue` the directories to scan, `pending_renames` and `exchanges` the renames that are not
//! finished or may be part of an exchange. Start with [`TreeState::handle`] and [`TreeState::handle_scan`].

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Instant;

use rustix::fs::inotify::ReadFlags;

use super::WatchEnd;
use super::coalesce::PathEvent;
use super::directories::{DirectoryId, DirectoryTree, ROOT};
use super::exchanges::{CompletedRename, EntryName, Exchange, RecentRenames};
use super::inotify_handle::{DirectoryScan, InotifyEvent, ScannedEntries, WatchDescriptor};
use super::pending_renames::{PendingRename, PendingRenames};
use super::scan_queue::ScanQueue;
use super::watcher::ReportEvent;
use crate::FileError;

/// Events by which a name appears or disappears.
const NAME_EVENTS: ReadFlags =
    ReadFlags::CREATE.union(ReadFlags::DELETE).union(ReadFlags::MOVED_FROM).union(ReadFlags::MOVED_TO);

/// Events about the root itself after which its path no longer leads to it.
const ROOT_REMOVED_EVENTS: ReadFlags =
    ReadFlags::DELETE_SELF.union(ReadFlags::MOVE_SELF).union(ReadFlags::UNMOUNT).union(ReadFlags::IGNORED);

pub(super) struct TreeState {
    config: TreeConfig,
    directories: DirectoryTree,
    scans: ScanQueue,
    pending_renames: PendingRenames,
    recent_renames: RecentRenames,
    sync: SyncState,
    /// Descriptors of directories that were watched before the last [`reset`](Self::reset). They stay in inotify
    /// until [`prepare_for_receiver_listing`](Self::prepare_for_receiver_listing). Those that are not in the tree any
    /// more are removed then.
    descriptors_before_reset: Vec<WatchDescriptor>,
    /// Descriptors that have to be removed from inotify.
    unneeded: Vec<WatchDescriptor>,
}

/// The settings of a watched tree.
#[derive(Clone)]
pub(super) struct TreeConfig {
    pub(super) root: PathBuf,
    /// `None` if the root is `/`, or its parent cannot be watched.
    pub(super) root_parent: Option<RootParent>,
    /// Whether everything below the root is watched, and not only the entries of the root.
    pub(super) is_recursive: bool,
    /// A watch of more directories than this fails.
    pub(super) max_directories: usize,
}

/// The directory that contains the root. Its events report the removal of the root at once, while the root's own event comes only when no
/// process has the root open any more.
#[derive(Clone)]
pub(super) struct RootParent {
    pub(super) descriptor: WatchDescriptor,
    pub(super) root_name: OsString,
}

/// Says whether the recorded state and the reports agree with the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SyncState {
    InSync,
    /// The state is correct, but a change can be reported only as an overflow.
    NeedsOverflow,
    /// The state may be wrong, so the whole tree has to be scanned again.
    OutOfSync,
}

/// Whether the result of a scan was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScanVerdict {
    Accepted,
    /// The directory has to be scanned again, because its path may have led to another directory, or because a rename
    /// of the directory that was found is pending.
    Discarded,
}

/// A name in a watched directory.
struct EntryLocation<'p> {
    parent: DirectoryId,
    name: &'p OsStr,
    path: PathBuf,
}

impl EntryLocation<'_> {
    fn to_entry_name(&self) -> EntryName {
        EntryName { parent: self.parent, name: self.name.to_owned() }
    }
}

impl TreeState {
    /// The state of a tree whose root is watched already, with this descriptor. If the tree is recursive, the root
    /// has to be [scanned](Self::next_unscanned).
    pub(super) fn new(config: TreeConfig, root: WatchDescriptor) -> Self {
        let mut scans = ScanQueue::default();
        if config.is_recursive {
            scans.add(ROOT);
        }
        Self {
            directories: DirectoryTree::new(root, &config.root),
            config,
            scans,
            pending_renames: PendingRenames::default(),
            recent_renames: RecentRenames::default(),
            sync: SyncState::InSync,
            descriptors_before_reset: Vec::new(),
            unneeded: Vec::new(),
        }
    }

    /// Handles one event: updates the state, and reports the change to `report`. Fails if the watch has to end.
    pub(super) fn handle(
        &mut self,
        event: &InotifyEvent,
        now: Instant,
        report: &mut ReportEvent<'_>,
    ) -> Result<(), WatchEnd> {
        if let Some(parent) = &self.config.root_parent
            && event.descriptor == parent.descriptor
        {
            let is_about_root = event.name.as_ref() == Some(&parent.root_name);
            return if is_about_root { Err(WatchEnd::RootRemoved) } else { Ok(()) };
        }
        let Some(directory) = self.directories.by_descriptor(event.descriptor) else { return Ok(()) };
        let Some(name) = &event.name else { return self.handle_directory_event(directory, event, report) };
        let Some(parent_path) = self.directories.path(directory) else { return Ok(()) };
        let entry = EntryLocation { parent: directory, name, path: parent_path.join(name) };
        if event.is(NAME_EVENTS) {
            self.scans.retry_missing();
            return self.handle_name_event(&entry, event, now, report).map_err(WatchEnd::Failed);
        }
        if event.is(ReadFlags::MODIFY | ReadFlags::ATTRIB) {
            let is_directory = event.is(ReadFlags::ISDIR);
            if is_directory {
                self.scans.retry_refused();
            } else if self.directories.child(directory, name).is_some() {
                // A process has changed a file that was removed while the process had it open, and a directory has its name
                // now. The kernel leaves such events out, except if the file is removed at the same time.
                return Ok(());
            }
            report(entry.path, is_directory, PathEvent::Modified);
        }
        Ok(())
    }

    /// Handles an event about a watched directory itself. For directories below the root, most of these are ignored, because the parent
    /// directory reports the same change.
    fn handle_directory_event(
        &mut self,
        directory: DirectoryId,
        event: &InotifyEvent,
        report: &mut ReportEvent<'_>,
    ) -> Result<(), WatchEnd> {
        let is_root = directory == ROOT;
        if is_root && event.is(ROOT_REMOVED_EVENTS) {
            return Err(WatchEnd::RootRemoved);
        }
        if is_root && event.is(ReadFlags::ATTRIB) {
            self.scans.retry_refused();
            report(self.config.root.clone(), true, PathEvent::Modified);
        } else if event.is(ReadFlags::UNMOUNT) {
            // The path shows another directory now, and no event describes its contents.
            self.mark_out_of_sync();
        } else if event.is(ReadFlags::IGNORED) {
            self.forget_directory(directory);
        }
        Ok(())
    }

    /// Handles one of the [`NAME_EVENTS`].
    fn handle_name_event(
        &mut self,
        entry: &EntryLocation<'_>,
        event: &InotifyEvent,
        now: Instant,
        report: &mut ReportEvent<'_>,
    ) -> Result<(), FileError> {
        let is_directory = event.is(ReadFlags::ISDIR);
        let pending =
            event.is(ReadFlags::MOVED_TO).then(|| self.pending_renames.take_by_cookie(event.cookie)).flatten();
        self.finish_renames_in(entry.parent, report);
        if event.is(ReadFlags::CREATE | ReadFlags::DELETE) {
            self.recent_renames.forget_directory(entry.parent);
        }
        if event.is(ReadFlags::CREATE) {
            if let Some(replaced) = self.directories.child(entry.parent, entry.name) {
                self.forget_directory(replaced);
                report(entry.path.clone(), true, PathEvent::Removed);
            }
            report(entry.path.clone(), is_directory, PathEvent::Created);
            return self.track_directory(entry, is_directory);
        }
        if event.is(ReadFlags::DELETE) {
            if let Some(directory) = self.directories.child(entry.parent, entry.name) {
                self.forget_directory(directory);
            }
            report(entry.path.clone(), is_directory, PathEvent::Removed);
            return Ok(());
        }
        if event.is(ReadFlags::MOVED_FROM) {
            self.handle_moved_from(entry, event.cookie, is_directory, now);
            return Ok(());
        }
        self.handle_moved_to(entry, pending, is_directory, report)
    }

    fn handle_moved_from(&mut self, entry: &EntryLocation<'_>, cookie: u32, is_directory: bool, now: Instant) {
        if let Some(exchange) = self.recent_renames.handle_moved_from(entry.parent, entry.name, is_directory) {
            self.handle_exchange(&exchange);
            return;
        }
        let directory = self.directories.child(entry.parent, entry.name);
        if let Some(directory) = directory {
            self.directories.detach(directory);
        }
        self.pending_renames.push(PendingRename {
            cookie,
            parent: entry.parent,
            name: entry.name.to_owned(),
            directory,
            is_directory,
            since: now,
        });
    }

    /// Handles the second event of a rename. `pending` is the first event. It is `None` if the old name is not in a
    /// watched directory, or if the wait for the second event has timed out.
    fn handle_moved_to(
        &mut self,
        entry: &EntryLocation<'_>,
        pending: Option<PendingRename>,
        is_directory: bool,
        report: &mut ReportEvent<'_>,
    ) -> Result<(), FileError> {
        if let Some(replaced) = self.directories.child(entry.parent, entry.name) {
            // Either the directory was replaced, or the two entries were exchanged: the events are the same.
            self.forget_directory(replaced);
            self.mark_out_of_sync();
        }
        let to = entry.to_entry_name();
        let Some(pending) = pending else {
            self.remember_rename(CompletedRename { from: None, to, is_directory });
            report(entry.path.clone(), is_directory, PathEvent::MovedIn);
            return self.track_directory(entry, is_directory);
        };
        let Some(from) = self.origin_path(&pending) else {
            // The directory that contained the old name was removed, so the receiver has forgotten the entry too.
            if let Some(directory) = pending.directory {
                self.forget_directory(directory);
            }
            report(entry.path.clone(), is_directory, PathEvent::MovedIn);
            return self.track_directory(entry, is_directory);
        };
        let old_name = EntryName { parent: pending.parent, name: pending.name };
        self.remember_rename(CompletedRename { from: Some(old_name), to, is_directory });
        report(entry.path.clone(), is_directory, PathEvent::Renamed { from });
        match pending.directory {
            Some(directory) if self.directories.contains(directory) => {
                let is_moved = self.directories.move_to(directory, entry.parent, entry.name);
                if !is_moved {
                    // The new parent is recorded below the directory itself, so the recorded tree is wrong.
                    self.mark_out_of_sync();
                }
                Ok(())
            }
            _ => self.track_directory(entry, is_directory),
        }
    }

    /// The old path of a renamed entry, with the current names of the directories above it, which may have been
    /// renamed since. `None` if the directory that contained the entry is not in the tree any more.
    fn origin_path(&self, pending: &PendingRename) -> Option<PathBuf> {
        Some(self.directories.path(pending.parent)?.join(&pending.name))
    }

    fn remember_rename(&mut self, rename: CompletedRename) {
        if let Some(exchange) = self.recent_renames.push(rename) {
            self.handle_exchange(&exchange);
        }
    }

    /// Handles an exchange, which cannot be reported as such, because it may have been a rename and a rename back. If
    /// a directory may have been exchanged, it is also unknown which directory has which name.
    fn handle_exchange(&mut self, exchange: &Exchange) {
        let needed = if exchange.has_directory { SyncState::OutOfSync } else { SyncState::NeedsOverflow };
        self.sync = self.sync.max(needed);
    }

    /// Records a new directory, which has to be scanned. Its entries are reported after the scan. Does nothing for a
    /// file, or if the watch is not recursive.
    fn track_directory(&mut self, entry: &EntryLocation<'_>, is_directory: bool) -> Result<(), FileError> {
        if !is_directory || !self.config.is_recursive {
            return Ok(());
        }
        if self.directories.len() >= self.config.max_directories {
            return Err(self.too_many_directories());
        }
        let directory = self.directories.insert(entry.parent, entry.name);
        self.scans.add(directory);
        Ok(())
    }

    fn too_many_directories(&self) -> FileError {
        let text = format!(
            "there are more than {} directories to watch, which is the limit for one watch; watch a smaller tree",
            self.config.max_directories
        );
        FileError::failed_check(std::io::ErrorKind::QuotaExceeded, text, &self.config.root)
    }

    /// A directory that has to be scanned, and its path. The path of a directory is unknown while its rename, or that
    /// of a directory above it, is pending; such a directory is skipped.
    pub(super) fn next_unscanned(&self) -> Option<(DirectoryId, PathBuf)> {
        let reachable = self.scans.waiting().find(|directory| self.directories.components(*directory).is_some())?;
        Some((reachable, self.directories.path(reachable)?))
    }

    /// Handles the scan of a directory. `events` are those that were read after the scan; the caller must handle them
    /// next.
    pub(super) fn handle_scan(
        &mut self,
        directory: DirectoryId,
        scan: DirectoryScan,
        events: &[InotifyEvent],
        report: &mut ReportEvent<'_>,
    ) -> Result<ScanVerdict, WatchEnd> {
        if !self.is_path_certain(directory, events) {
            self.discard_scan(&scan);
            return Ok(ScanVerdict::Discarded);
        }
        self.scans.remove_waiting(directory);
        match scan {
            DirectoryScan::Listed(descriptor, listing) => match self.directories.by_descriptor(descriptor) {
                Some(known) if known == directory => {
                    self.handle_listed(directory, descriptor, listing, events, report)?;
                }
                _ if directory == ROOT => return Err(WatchEnd::RootRemoved),
                None => self.handle_listed(directory, descriptor, listing, events, report)?,
                Some(known) if self.directories.components(known).is_none() => {
                    // The directory was moved into one that was not watched yet, so the second event of its rename
                    // will never come.
                    for pending in self.pending_renames.take_all() {
                        self.report_removed(pending, report);
                    }
                    self.scans.add(directory);
                    return Ok(ScanVerdict::Discarded);
                }
                // A mount gives one directory two paths. The directory is watched under the path that was found
                // first.
                Some(_) => {}
            },
            DirectoryScan::Missing | DirectoryScan::Refused(_) if directory == ROOT => {
                return Err(WatchEnd::RootRemoved);
            }
            DirectoryScan::Missing => self.scans.add_missing(directory),
            DirectoryScan::Refused(_) => {
                self.discard_scan(&scan);
                self.scans.add_refused(directory);
            }
        }
        Ok(ScanVerdict::Accepted)
    }

    /// Drops a scan that is not used. The scanned directory is removed from inotify, unless it is recorded in the
    /// tree.
    fn discard_scan(&mut self, scan: &DirectoryScan) {
        self.unneeded
            .extend(scan.descriptor().filter(|&descriptor| self.directories.by_descriptor(descriptor).is_none()));
    }

    /// Whether the path of a directory led to this directory during its whole scan, according to `events`, which were
    /// read after the scan.
    fn is_path_certain(&self, directory: DirectoryId, events: &[InotifyEvent]) -> bool {
        let Some(components) = self.directories.components(directory) else { return false };
        if events.is_empty() {
            return true;
        }
        let components: HashSet<(WatchDescriptor, &OsStr)> = components
            .into_iter()
            .filter_map(|(parent, name)| Some((self.directories.descriptor(parent)?, name)))
            .collect();
        let is_on_path = |event: &InotifyEvent| {
            let name = event.name.as_deref();
            event.is(NAME_EVENTS) && name.is_some_and(|name| components.contains(&(event.descriptor, name)))
        };
        !events.iter().any(is_on_path)
    }

    /// Handles a scan by which a directory was added to inotify and listed. `events` were read after the scan.
    fn handle_listed(
        &mut self,
        directory: DirectoryId,
        descriptor: WatchDescriptor,
        listing: ScannedEntries,
        events: &[InotifyEvent],
        report: &mut ReportEvent<'_>,
    ) -> Result<(), WatchEnd> {
        self.directories.set_descriptor(directory, descriptor);
        let Some(path) = self.directories.path(directory) else { return Ok(()) };
        if listing.is_incomplete {
            self.mark_out_of_sync();
        }
        if self.scans.take_unwatched_at_listing(directory) && directory != ROOT {
            // The receiver may know entries that no longer exist. The removal of the directory makes it forget them.
            report(path.clone(), true, PathEvent::Removed);
            report(path.clone(), true, PathEvent::Created);
        }
        for (name, is_directory) in entries_before(descriptor, listing, events) {
            let entry = EntryLocation { parent: directory, name: &name, path: path.join(&name) };
            report(entry.path.clone(), is_directory, PathEvent::Listed);
            self.track_directory(&entry, is_directory).map_err(WatchEnd::Failed)?;
        }
        Ok(())
    }

    pub(super) fn has_pending_renames(&self) -> bool {
        !self.pending_renames.is_empty()
    }

    /// Reports renames as removals if their second event has not come in time.
    pub(super) fn expire_pending_renames(&mut self, now: Instant, report: &mut ReportEvent<'_>) {
        for pending in self.pending_renames.take_expired(now) {
            self.report_removed(pending, report);
        }
    }

    /// Reports the pending renames whose old name is in a directory as removals, because a later event about a name
    /// in this directory has come.
    fn finish_renames_in(&mut self, parent: DirectoryId, report: &mut ReportEvent<'_>) {
        for pending in self.pending_renames.take_in_directory(parent) {
            self.report_removed(pending, report);
        }
    }

    fn report_removed(&mut self, pending: PendingRename, report: &mut ReportEvent<'_>) {
        self.recent_renames.forget_directory(pending.parent);
        if let Some(path) = self.origin_path(&pending) {
            report(path, pending.is_directory, PathEvent::Removed);
        }
        if let Some(directory) = pending.directory {
            self.forget_directory(directory);
        }
    }

    /// Whether the state is correct, but a change can be reported only as an overflow. Returns true only once for
    /// such a change.
    pub(super) fn take_needs_overflow(&mut self) -> bool {
        let needs_overflow = self.sync == SyncState::NeedsOverflow;
        if needs_overflow {
            self.sync = SyncState::InSync;
        }
        needs_overflow
    }

    /// Records that the state may be wrong.
    pub(super) fn mark_out_of_sync(&mut self) {
        self.sync = SyncState::OutOfSync;
    }

    pub(super) fn is_out_of_sync(&self) -> bool {
        self.sync == SyncState::OutOfSync
    }

    pub(super) fn is_root(&self, descriptor: WatchDescriptor) -> bool {
        self.directories.by_descriptor(descriptor) == Some(ROOT)
    }

    /// Discards the state, so that the whole tree has to be scanned again. Directories stay in inotify until
    /// [`prepare_for_receiver_listing`](Self::prepare_for_receiver_listing).
    pub(super) fn reset(&mut self) {
        let Some(root) = self.directories.descriptor(ROOT) else { return };
        let mut descriptors_before_reset = std::mem::take(&mut self.descriptors_before_reset);
        descriptors_before_reset.extend(self.directories.descriptors_below_root());
        let unneeded = std::mem::take(&mut self.unneeded);
        *self = Self { descriptors_before_reset, unneeded, ..Self::new(self.config.clone(), root) };
    }

    /// To be called before the receiver lists the whole tree: when an overflow is delivered, and after the whole tree
    /// was scanned. The directories from before the last reset that are not in the tree any more become unneeded.
    pub(super) fn prepare_for_receiver_listing(&mut self) {
        let before_reset = std::mem::take(&mut self.descriptors_before_reset);
        let gone =
            before_reset.into_iter().filter(|&descriptor| self.directories.by_descriptor(descriptor).is_none());
        self.unneeded.extend(gone);
        self.scans.prepare_for_receiver_listing();
    }

    /// Descriptors that the caller has to remove from inotify. To be called before every scan: as long as a directory
    /// is in inotify, adding it again would return the same descriptor, which would then be removed.
    pub(super) fn take_unneeded(&mut self) -> Vec<WatchDescriptor> {
        std::mem::take(&mut self.unneeded)
    }

    /// Removes a directory and everything below it from the state.
    fn forget_directory(&mut self, directory: DirectoryId) {
        for (directory, descriptor) in self.directories.remove(directory) {
            self.unneeded.extend(descriptor);
            self.scans.forget(directory);
        }
    }
}

/// The names of the entries that a directory had before these events, each with a flag that says whether the entry is
/// a directory. `listing` was made after the directory was added to inotify and before the events were read.
fn entries_before(
    descriptor: WatchDescriptor,
    listing: ScannedEntries,
    events: &[InotifyEvent],
) -> Vec<(OsString, bool)> {
    let mut first_events: HashMap<&OsStr, &InotifyEvent> = HashMap::new();
    for event in events.iter().filter(|event| event.descriptor == descriptor && event.is(NAME_EVENTS)) {
        if let Some(name) = &event.name {
            first_events.entry(name).or_insert(event);
        }
    }
    let mut entries = listing.entries;
    entries.retain(|(name, _)| !first_events.contains_key(name.as_os_str()));
    let removed = first_events.values().filter(|event| event.is(ReadFlags::DELETE | ReadFlags::MOVED_FROM));
    entries.extend(removed.filter_map(|event| Some((event.name.clone()?, event.is(ReadFlags::ISDIR)))));
    entries
}

#[cfg(test)]
mod tests;
