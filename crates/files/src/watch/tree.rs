//! The state of a watched directory tree: which directories it has and which are watched. [`TreeState`] decides what an event or a scan of a
//! directory means. It makes no system calls; [`watched_tree`](super::watched_tree) makes them.
//!
//! An event describes the past, and a scan shows the present. These rules keep the two apart:
//!
//! - An event changes only the recorded state. A new directory is recorded as unscanned, and stays so while later events rename it.
//! - A directory is scanned when all events were handled: it is opened, added to inotify and listed, and then further events are read. If one
//!   of those is about a component of the path of the directory, the path may have led to another directory. The scan is then discarded
//!   and repeated.
//! - A valid scan shows what was in the directory before the events that were read after it. A name in these events existed before if its
//!   first event removes it. Any other name existed if it was listed.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::inotify::ReadFlags;

use super::WatchEnd;
use super::coalesce::PathEvent;
use super::directories::{DirectoryId, DirectoryTree, ROOT};
use super::inotify_handle::{DirectoryScan, InotifyEvent, ScannedEntries, WatchDescriptor};
use super::pending_renames::{PendingRename, PendingRenames};
use super::watcher::ReportEvent;
use crate::FileError;

/// Events by which a name appears or disappears.
const NAME_EVENTS: ReadFlags =
    ReadFlags::CREATE.union(ReadFlags::DELETE).union(ReadFlags::MOVED_FROM).union(ReadFlags::MOVED_TO);

/// Renames that are remembered to recognize an exchange of two names. The kernel queues the two renames of an exchange one after the
/// other, so only renames at the same time on other processors come in between.
const MAX_RECENT_RENAMES: usize = 16;

pub(super) struct TreeState {
    root: PathBuf,
    is_recursive: bool,
    max_directories: usize,
    directories: DirectoryTree,
    pending_renames: PendingRenames,
    /// The parent directory of the root, and the name of the root in it. Its events report the removal of the root at once, while the
    /// root's own event comes only when no process has the root open any more.
    root_parent: Option<(WatchDescriptor, OsString)>,
    /// Directories that have to be scanned.
    unscanned: BTreeSet<DirectoryId>,
    /// Directories that a scan did not find at their path, although no event had reported a change. They are scanned again after the next
    /// event about a name, which will tell where they are.
    missing: BTreeSet<DirectoryId>,
    /// Directories that may not be read. They are scanned again when the attributes of a directory change.
    refused: BTreeSet<DirectoryId>,
    /// Directories that were not watched when the last overflow was delivered. The receiver has listed them then, and may know entries
    /// that were removed before the directory was scanned.
    unwatched_at_overflow: HashSet<DirectoryId>,
    /// Descriptors from before the last [`reset`](Self::reset).
    previously_watched: Vec<WatchDescriptor>,
    /// Descriptors that have to be removed from inotify.
    unneeded: Vec<WatchDescriptor>,
    /// Each is the last event about a name in both of its directories.
    recent_renames: Vec<RecentRename>,
    /// Set if a change can be reported only as an overflow although the state is correct.
    needs_overflow: bool,
    /// Set if the state may be wrong, so that the whole tree has to be scanned again.
    is_out_of_sync: bool,
}

/// A name in a watched directory.
struct EntryLocation<'p> {
    parent: DirectoryId,
    name: &'p OsStr,
    path: PathBuf,
}

/// A rename between two names, each with the directory that contains it.
struct RecentRename {
    /// `None` if the old name is in a directory that is not watched.
    from: Option<(DirectoryId, OsString)>,
    to: (DirectoryId, OsString),
    is_directory: bool,
}

impl RecentRename {
    fn is_reverse_of(&self, other: &Self) -> bool {
        self.from.as_ref() == Some(&other.to) && other.from.as_ref() == Some(&self.to)
    }

    fn concerns(&self, parent: DirectoryId) -> bool {
        self.to.0 == parent || self.from.as_ref().is_some_and(|from| from.0 == parent)
    }

    fn is_arrival_at(&self, entry: &EntryLocation<'_>) -> bool {
        self.from.is_none() && self.to.0 == entry.parent && self.to.1 == entry.name
    }
}

impl TreeState {
    /// The state of a tree whose root is watched already. If the tree is recursive, the root has to be [scanned](Self::next_unscanned).
    pub(super) fn new(
        root: &Path,
        descriptor: WatchDescriptor,
        root_parent: Option<(WatchDescriptor, OsString)>,
        is_recursive: bool,
        max_directories: usize,
    ) -> Self {
        Self {
            root: root.to_owned(),
            is_recursive,
            max_directories,
            directories: DirectoryTree::new(descriptor, root),
            pending_renames: PendingRenames::default(),
            root_parent,
            unscanned: BTreeSet::from_iter(is_recursive.then_some(ROOT)),
            missing: BTreeSet::new(),
            refused: BTreeSet::new(),
            unwatched_at_overflow: HashSet::new(),
            previously_watched: Vec::new(),
            unneeded: Vec::new(),
            recent_renames: Vec::new(),
            needs_overflow: false,
            is_out_of_sync: false,
        }
    }

    pub(super) fn handle(
        &mut self,
        event: &InotifyEvent,
        now: Instant,
        report: &mut ReportEvent<'_>,
    ) -> Result<(), WatchEnd> {
        if let Some((root_parent, root_name)) = &self.root_parent
            && event.descriptor == *root_parent
        {
            let ends_watch = event.name.as_ref() == Some(root_name);
            return if ends_watch { Err(WatchEnd::RootRemoved) } else { Ok(()) };
        }
        let Some(directory) = self.directories.by_descriptor(event.descriptor) else { return Ok(()) };
        let Some(name) = &event.name else { return self.handle_self(directory, event, report) };
        let Some(parent_path) = self.directories.path(directory) else { return Ok(()) };
        let entry = EntryLocation { parent: directory, name, path: parent_path.join(name) };
        if event.is(NAME_EVENTS) {
            self.unscanned.append(&mut self.missing);
            return self.handle_name(&entry, event, now, report).map_err(WatchEnd::Failed);
        }
        if event.is(ReadFlags::MODIFY | ReadFlags::ATTRIB) {
            let is_directory = event.is(ReadFlags::ISDIR);
            report(entry.path, is_directory, PathEvent::Modified);
            if is_directory {
                self.unscanned.append(&mut self.refused);
            }
        }
        Ok(())
    }

    /// Handles an event about a watched directory itself. For directories below the root, most of these are ignored, because the parent
    /// directory reports the same change.
    fn handle_self(
        &mut self,
        directory: DirectoryId,
        event: &InotifyEvent,
        report: &mut ReportEvent<'_>,
    ) -> Result<(), WatchEnd> {
        let is_root = directory == ROOT;
        let ends_watch = ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::UNMOUNT | ReadFlags::IGNORED;
        if is_root && event.is(ends_watch) {
            return Err(WatchEnd::RootRemoved);
        }
        if is_root && event.is(ReadFlags::ATTRIB) {
            self.unscanned.append(&mut self.refused);
            report(self.root.clone(), true, PathEvent::Modified);
        } else if event.is(ReadFlags::UNMOUNT) {
            // The path shows another directory now, and no event describes its contents.
            self.mark_out_of_sync();
        } else if event.is(ReadFlags::IGNORED) {
            self.forget_directory(directory);
        }
        Ok(())
    }

    fn handle_name(
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
            self.recent_renames.retain(|rename| !rename.concerns(entry.parent));
        }
        if event.is(ReadFlags::CREATE) {
            if let Some(previously_watched) = self.directories.child(entry.parent, entry.name) {
                self.forget_directory(previously_watched);
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
        if self.may_be_exchange(entry, is_directory) {
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

    fn handle_moved_to(
        &mut self,
        entry: &EntryLocation<'_>,
        pending: Option<PendingRename>,
        is_directory: bool,
        report: &mut ReportEvent<'_>,
    ) -> Result<(), FileError> {
        if let Some(previously_watched) = self.directories.child(entry.parent, entry.name) {
            // Either the directory was replaced, or the two were exchanged: the events are the same.
            self.forget_directory(previously_watched);
            self.mark_out_of_sync();
        }
        let to = (entry.parent, entry.name.to_owned());
        let Some(pending) = pending else {
            self.remember_rename(RecentRename { from: None, to, is_directory });
            report(entry.path.clone(), is_directory, PathEvent::MovedIn);
            return self.track_directory(entry, is_directory);
        };
        let Some(from) = self.origin_path(&pending) else {
            // The directory that contained the old name was removed, and with it, for the receiver, the entry.
            if let Some(directory) = pending.directory {
                self.forget_directory(directory);
            }
            report(entry.path.clone(), is_directory, PathEvent::MovedIn);
            return self.track_directory(entry, is_directory);
        };
        self.remember_rename(RecentRename { from: Some((pending.parent, pending.name)), to, is_directory });
        report(entry.path.clone(), is_directory, PathEvent::Renamed { from });
        match pending.directory {
            Some(directory) if self.directories.contains(directory) => {
                if !self.directories.move_to(directory, entry.parent, entry.name) {
                    self.mark_out_of_sync();
                }
                Ok(())
            }
            _ => self.track_directory(entry, is_directory),
        }
    }

    /// The old path of a renamed entry, by the current names of the directories above it, which may have been renamed since.
    fn origin_path(&self, pending: &PendingRename) -> Option<PathBuf> {
        Some(self.directories.path(pending.parent)?.join(&pending.name))
    }

    /// Remembers a rename. The events of an exchange of two names are the same as those of one entry that is renamed and renamed back with
    /// nothing in between, so such a pair is handled as an exchange.
    fn remember_rename(&mut self, rename: RecentRename) {
        if let Some(last) = self.recent_renames.iter().find(|last| rename.is_reverse_of(last)) {
            self.handle_exchange(rename.is_directory || last.is_directory);
        }
        self.recent_renames.retain(|last| {
            !last.concerns(rename.to.0) && rename.from.as_ref().is_none_or(|from| !last.concerns(from.0))
        });
        if self.recent_renames.len() == MAX_RECENT_RENAMES {
            self.recent_renames.remove(0);
        }
        self.recent_renames.push(rename);
    }

    /// Whether a name that disappears may be half of an exchange with a name in a directory that is not watched. The events of such an
    /// exchange are an entry that is moved in and moved out again, although afterwards the name still exists.
    fn may_be_exchange(&mut self, entry: &EntryLocation<'_>, is_directory: bool) -> bool {
        let arrival = self.recent_renames.iter().find(|last| last.is_arrival_at(entry));
        let has_directory = arrival.map(|arrival| is_directory || arrival.is_directory);
        self.recent_renames.retain(|last| last.from.is_some() || !last.concerns(entry.parent));
        if let Some(has_directory) = has_directory {
            self.handle_exchange(has_directory);
        }
        has_directory.is_some()
    }

    fn handle_exchange(&mut self, has_directory: bool) {
        if has_directory {
            self.mark_out_of_sync();
        } else {
            self.needs_overflow = true;
        }
    }

    /// Records a new directory, which has to be scanned. Its entries are reported after the scan.
    fn track_directory(&mut self, entry: &EntryLocation<'_>, is_directory: bool) -> Result<(), FileError> {
        if !is_directory || !self.is_recursive {
            return Ok(());
        }
        if self.directories.len() >= self.max_directories {
            return Err(self.too_many_directories());
        }
        let directory = self.directories.insert(entry.parent, entry.name);
        self.unscanned.insert(directory);
        Ok(())
    }

    fn too_many_directories(&self) -> FileError {
        let text = format!(
            "there are more than {} directories to watch; watch a smaller tree or raise the limit",
            self.max_directories
        );
        FileError::check(std::io::ErrorKind::QuotaExceeded, text, &self.root)
    }

    /// A directory that has to be scanned, and its path. Directories between the two halves of a rename have no path and are passed over.
    pub(super) fn next_unscanned(&self) -> Option<(DirectoryId, PathBuf)> {
        let reachable = self.unscanned.iter().find(|&&directory| self.directories.components(directory).is_some())?;
        Some((*reachable, self.directories.path(*reachable)?))
    }

    /// Handles the scan of a directory. `events` are those that were read after the scan; the caller must handle them next. Returns
    /// whether the scan was valid.
    pub(super) fn handle_scan(
        &mut self,
        directory: DirectoryId,
        scan: DirectoryScan,
        events: &[InotifyEvent],
        report: &mut ReportEvent<'_>,
    ) -> Result<bool, WatchEnd> {
        if !self.is_path_certain(directory, events) {
            self.discard_scan(&scan);
            return Ok(false);
        }
        self.unscanned.remove(&directory);
        match scan {
            DirectoryScan::Listed(descriptor, listing) => match self.directories.by_descriptor(descriptor) {
                Some(known) if known == directory => {
                    self.handle_listed(directory, descriptor, listing, events, report)?;
                }
                _ if directory == ROOT => return Err(WatchEnd::RootRemoved),
                None => self.handle_listed(directory, descriptor, listing, events, report)?,
                Some(known) if self.directories.components(known).is_none() => {
                    // It was moved into a directory that was not watched yet, so the second half of its rename will never come.
                    for pending in self.pending_renames.take_all() {
                        self.report_removed(pending, report);
                    }
                    self.unscanned.insert(directory);
                    return Ok(false);
                }
                // A mount gives one directory two paths. It is watched under the path that was found first.
                Some(_) => {}
            },
            DirectoryScan::Missing | DirectoryScan::Refused(_) if directory == ROOT => {
                return Err(WatchEnd::RootRemoved);
            }
            DirectoryScan::Missing => {
                self.missing.insert(directory);
            }
            DirectoryScan::Refused(_) => {
                self.discard_scan(&scan);
                self.refused.insert(directory);
            }
        }
        Ok(true)
    }

    fn discard_scan(&mut self, scan: &DirectoryScan) {
        self.unneeded
            .extend(scan.descriptor().filter(|&descriptor| self.directories.by_descriptor(descriptor).is_none()));
    }

    /// Whether the path of a directory has led to this directory all the time, according to the events read after its scan.
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
        if self.unwatched_at_overflow.remove(&directory) && directory != ROOT {
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

    /// Reports renames as removals if their second half has not come in time.
    pub(super) fn expire_pending_renames(&mut self, now: Instant, report: &mut ReportEvent<'_>) {
        for pending in self.pending_renames.take_expired(now) {
            self.report_removed(pending, report);
        }
    }

    fn finish_renames_in(&mut self, parent: DirectoryId, report: &mut ReportEvent<'_>) {
        for pending in self.pending_renames.take_in_directory(parent) {
            self.report_removed(pending, report);
        }
    }

    fn report_removed(&mut self, pending: PendingRename, report: &mut ReportEvent<'_>) {
        self.recent_renames.retain(|rename| !rename.concerns(pending.parent));
        if let Some(path) = self.origin_path(&pending) {
            report(path, pending.is_directory, PathEvent::Removed);
        }
        if let Some(directory) = pending.directory {
            self.forget_directory(directory);
        }
    }

    /// Whether a change can be reported only as an overflow, although the state is correct. Resets the flag.
    pub(super) fn take_needs_overflow(&mut self) -> bool {
        std::mem::take(&mut self.needs_overflow)
    }

    /// Records that the state may be wrong.
    pub(super) fn mark_out_of_sync(&mut self) {
        self.is_out_of_sync = true;
    }

    pub(super) fn is_out_of_sync(&self) -> bool {
        self.is_out_of_sync
    }

    pub(super) fn is_root(&self, descriptor: WatchDescriptor) -> bool {
        self.directories.by_descriptor(descriptor) == Some(ROOT)
    }

    /// Discards the state, so that the whole tree has to be scanned again. Directories stay in inotify until
    /// [`handle_overflow_delivered`](Self::handle_overflow_delivered).
    pub(super) fn reset(&mut self) {
        let Some(root) = self.directories.descriptor(ROOT) else { return };
        self.previously_watched.extend(self.directories.descriptors_below_root());
        let fresh = Self::new(&self.root, root, self.root_parent.take(), self.is_recursive, self.max_directories);
        let previously_watched = std::mem::take(&mut self.previously_watched);
        let unneeded = std::mem::take(&mut self.unneeded);
        *self = Self { previously_watched, unneeded, ..fresh };
    }

    /// To be called when an overflow is delivered, after which the receiver lists the whole tree.
    pub(super) fn handle_overflow_delivered(&mut self) {
        let gone = std::mem::take(&mut self.previously_watched);
        self.unneeded
            .extend(gone.into_iter().filter(|&descriptor| self.directories.by_descriptor(descriptor).is_none()));
        self.unwatched_at_overflow =
            self.unscanned.iter().chain(&self.missing).chain(&self.refused).copied().collect();
    }

    /// Descriptors that the caller has to remove from inotify. To be called before every scan: as long as a directory is in inotify, adding
    /// it again would return the same descriptor.
    pub(super) fn take_unneeded(&mut self) -> Vec<WatchDescriptor> {
        std::mem::take(&mut self.unneeded)
    }

    fn forget_directory(&mut self, directory: DirectoryId) {
        for (directory, descriptor) in self.directories.remove(directory) {
            self.unneeded.extend(descriptor);
            self.unscanned.remove(&directory);
            self.missing.remove(&directory);
            self.refused.remove(&directory);
            self.unwatched_at_overflow.remove(&directory);
        }
    }
}

/// The entries of a directory before these events, each with whether it is a directory. The directory was listed before the events were
/// read and after it was added to inotify.
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
    let taken_away = first_events.values().filter(|event| event.is(ReadFlags::DELETE | ReadFlags::MOVED_FROM));
    entries.extend(taken_away.filter_map(|event| Some((event.name.clone()?, event.is(ReadFlags::ISDIR)))));
    entries
}

#[cfg(test)]
mod tests;
