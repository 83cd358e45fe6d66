//! Watching a directory, and with it all directories below if that is asked for. A value: it decides what an event or a look into a
//! directory means, and [`watcher`](super::watcher) talks to the kernel.
//!
//! Events tell the past and a look shows the present, so the two are never mixed:
//!
//! - An event changes only what is known of the tree. A directory that appears is noted as one to look into, and keeps that note
//!   while later events rename it.
//! - The watcher looks into a directory when all events have been handled: it opens the directory, watches it, lists it, and then reads
//!   the events once more. If one of those events is about a name on the way to the directory, then the path may have led to
//!   another directory: the look does not count, and is tried again.
//! - A look that counts says what was in the directory before the events that were read after it. A name in these events was there if
//!   its first event takes it away. Any other name was there if it was listed.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::inotify::ReadFlags;

use super::WatchEnd;
use super::coalesce::Happening;
use super::departures::{Departure, Departures};
use super::directories::{Directories, DirectoryId, ROOT};
use super::kernel::{Event, Listing, Look, Number};
use super::watcher::Report;
use crate::FileError;

/// Something takes or loses a name.
const NAMES: ReadFlags =
    ReadFlags::CREATE.union(ReadFlags::DELETE).union(ReadFlags::MOVED_FROM).union(ReadFlags::MOVED_TO);

/// Renames that are remembered until the next one comes back. The kernel tells of two names that change places in one go, so only
/// renames that happen on other processors at the same time come in between.
const MOST_RENAMES: usize = 16;

pub(super) struct Tree {
    root: PathBuf,
    is_recursive: bool,
    max_directories: usize,
    directories: Directories,
    departures: Departures,
    /// The directory that the root is in, and the root's name there. A removed root is told of by itself only when nobody uses it
    /// any longer.
    above: Option<(Number, OsString)>,
    /// Directories to look into.
    unlisted: BTreeSet<DirectoryId>,
    /// Directories that were not where they should be, although no event had said so. They are looked into again after the next
    /// event about a name, which tells where they went.
    missing: BTreeSet<DirectoryId>,
    /// Directories that may not be read. They are looked into again when the attributes of a directory change.
    refused: BTreeSet<DirectoryId>,
    /// Directories that were not watched when the client was told to look at everything. It may have seen what has gone from them since.
    unannounced: HashSet<DirectoryId>,
    /// What was watched when the tree was begun anew.
    former: Vec<Number>,
    unwanted: Vec<Number>,
    /// Each is the last thing that happened in both of its directories.
    last_renames: Vec<Rename>,
    is_unclear: bool,
    has_lost_track: bool,
}

/// A name in a watched directory.
struct Slot<'p> {
    parent: DirectoryId,
    name: &'p OsStr,
    path: PathBuf,
}

/// Between two names, each with the directory that holds it.
struct Rename {
    /// `None` if it came from a directory that is not watched.
    from: Option<(DirectoryId, OsString)>,
    to: (DirectoryId, OsString),
    is_directory: bool,
}

impl Rename {
    fn is_reverse_of(&self, other: &Self) -> bool {
        self.from.as_ref() == Some(&other.to) && other.from.as_ref() == Some(&self.to)
    }

    fn concerns(&self, parent: DirectoryId) -> bool {
        self.to.0 == parent || self.from.as_ref().is_some_and(|from| from.0 == parent)
    }

    fn is_arrival_at(&self, slot: &Slot<'_>) -> bool {
        self.from.is_none() && self.to.0 == slot.parent && self.to.1 == slot.name
    }
}

impl Tree {
    /// The root is watched already. If the tree is recursive, everything else is to be [looked into](Self::next_unlisted).
    pub(super) fn new(
        root: &Path,
        number: Number,
        above: Option<(Number, OsString)>,
        is_recursive: bool,
        max_directories: usize,
    ) -> Self {
        Self {
            root: root.to_owned(),
            is_recursive,
            max_directories,
            directories: Directories::new(number, root),
            departures: Departures::default(),
            above,
            unlisted: BTreeSet::from_iter(is_recursive.then_some(ROOT)),
            missing: BTreeSet::new(),
            refused: BTreeSet::new(),
            unannounced: HashSet::new(),
            former: Vec::new(),
            unwanted: Vec::new(),
            last_renames: Vec::new(),
            is_unclear: false,
            has_lost_track: false,
        }
    }

    pub(super) fn handle(&mut self, event: &Event, now: Instant, report: &mut Report<'_>) -> Result<(), WatchEnd> {
        if let Some((above, root_name)) = &self.above
            && event.number == *above
        {
            let is_over = event.name.as_ref() == Some(root_name);
            return if is_over { Err(WatchEnd::RootRemoved) } else { Ok(()) };
        }
        let Some(directory) = self.directories.by_number(event.number) else { return Ok(()) };
        let Some(name) = &event.name else { return self.handle_self(directory, event, report) };
        let Some(parent_path) = self.directories.path(directory) else { return Ok(()) };
        let slot = Slot { parent: directory, name, path: parent_path.join(name) };
        if event.is(NAMES) {
            self.unlisted.append(&mut self.missing);
            return self.handle_name(&slot, event, now, report).map_err(WatchEnd::Failed);
        }
        if event.is(ReadFlags::MODIFY | ReadFlags::ATTRIB) {
            let is_directory = event.is(ReadFlags::ISDIR);
            report(slot.path, is_directory, Happening::Modified);
            if is_directory {
                self.unlisted.append(&mut self.refused);
            }
        }
        Ok(())
    }

    /// An event about a watched directory itself. What matters of those below the root is told by the directory they are in.
    fn handle_self(
        &mut self,
        directory: DirectoryId,
        event: &Event,
        report: &mut Report<'_>,
    ) -> Result<(), WatchEnd> {
        let is_root = directory == ROOT;
        let is_over = ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::UNMOUNT | ReadFlags::IGNORED;
        if is_root && event.is(is_over) {
            return Err(WatchEnd::RootRemoved);
        }
        if is_root && event.is(ReadFlags::ATTRIB) {
            self.unlisted.append(&mut self.refused);
            report(self.root.clone(), true, Happening::Modified);
        } else if event.is(ReadFlags::UNMOUNT) {
            // Its name has something else in it now, of which no event tells.
            self.lose_track();
        } else if event.is(ReadFlags::IGNORED) {
            self.forget(directory);
        }
        Ok(())
    }

    fn handle_name(
        &mut self,
        slot: &Slot<'_>,
        event: &Event,
        now: Instant,
        report: &mut Report<'_>,
    ) -> Result<(), FileError> {
        let is_directory = event.is(ReadFlags::ISDIR);
        let departure = event.is(ReadFlags::MOVED_TO).then(|| self.departures.arrived(event.cookie)).flatten();
        self.settle_overtaken(slot.parent, report);
        if event.is(ReadFlags::CREATE | ReadFlags::DELETE) {
            self.last_renames.retain(|rename| !rename.concerns(slot.parent));
        }
        if event.is(ReadFlags::CREATE) {
            if let Some(former) = self.directories.child(slot.parent, slot.name) {
                self.forget(former);
                report(slot.path.clone(), true, Happening::Removed);
            }
            report(slot.path.clone(), is_directory, Happening::Created);
            return self.appeared(slot, is_directory);
        }
        if event.is(ReadFlags::DELETE) {
            if let Some(directory) = self.directories.child(slot.parent, slot.name) {
                self.forget(directory);
            }
            report(slot.path.clone(), is_directory, Happening::Removed);
            return Ok(());
        }
        if event.is(ReadFlags::MOVED_FROM) {
            self.moved_from(slot, event.cookie, is_directory, now);
            return Ok(());
        }
        self.moved_to(slot, departure, is_directory, report)
    }

    fn moved_from(&mut self, slot: &Slot<'_>, cookie: u32, is_directory: bool, now: Instant) {
        if self.may_be_exchanged(slot, is_directory) {
            return;
        }
        let directory = self.directories.child(slot.parent, slot.name);
        if let Some(directory) = directory {
            self.directories.detach(directory);
        }
        self.departures.push(Departure {
            cookie,
            parent: slot.parent,
            name: slot.name.to_owned(),
            directory,
            is_directory,
            at: now,
        });
    }

    fn moved_to(
        &mut self,
        slot: &Slot<'_>,
        departure: Option<Departure>,
        is_directory: bool,
        report: &mut Report<'_>,
    ) -> Result<(), FileError> {
        if let Some(former) = self.directories.child(slot.parent, slot.name) {
            // It was replaced, or the two have changed places: the kernel tells both in the same words.
            self.forget(former);
            self.lose_track();
        }
        let to = (slot.parent, slot.name.to_owned());
        let Some(departure) = departure else {
            self.note_rename(Rename { from: None, to, is_directory });
            report(slot.path.clone(), is_directory, Happening::Arrived);
            return self.appeared(slot, is_directory);
        };
        let Some(from) = self.path_of(&departure) else {
            // Where it was has gone, and for the client what was there has gone too.
            if let Some(directory) = departure.directory {
                self.forget(directory);
            }
            report(slot.path.clone(), is_directory, Happening::Arrived);
            return self.appeared(slot, is_directory);
        };
        self.note_rename(Rename { from: Some((departure.parent, departure.name)), to, is_directory });
        report(slot.path.clone(), is_directory, Happening::Renamed { from });
        match departure.directory {
            Some(directory) if self.directories.contains(directory) => {
                if !self.directories.place(directory, slot.parent, slot.name) {
                    self.lose_track();
                }
                Ok(())
            }
            _ => self.appeared(slot, is_directory),
        }
    }

    /// Where it was, by the names of today: a directory above it may have been renamed since.
    fn path_of(&self, departure: &Departure) -> Option<PathBuf> {
        Some(self.directories.path(departure.parent)?.join(&departure.name))
    }

    /// Two names that change places are told like one that is renamed there and back, with nothing in between.
    fn note_rename(&mut self, rename: Rename) {
        if let Some(last) = self.last_renames.iter().find(|last| rename.is_reverse_of(last)) {
            self.suspect_exchange(rename.is_directory || last.is_directory);
        }
        self.last_renames.retain(|last| {
            !last.concerns(rename.to.0) && rename.from.as_ref().is_none_or(|from| !last.concerns(from.0))
        });
        if self.last_renames.len() == MOST_RENAMES {
            self.last_renames.remove(0);
        }
        self.last_renames.push(rename);
    }

    /// If one of two names that change places is in a directory that is not watched, it looks as if something had come and gone again.
    /// Returns whether that may be so: then something may be at the name.
    fn may_be_exchanged(&mut self, slot: &Slot<'_>, is_directory: bool) -> bool {
        let arrival = self.last_renames.iter().find(|last| last.is_arrival_at(slot));
        let has_directory = arrival.map(|arrival| is_directory || arrival.is_directory);
        self.last_renames.retain(|last| last.from.is_some() || !last.concerns(slot.parent));
        if let Some(has_directory) = has_directory {
            self.suspect_exchange(has_directory);
        }
        has_directory.is_some()
    }

    fn suspect_exchange(&mut self, has_directory: bool) {
        if has_directory {
            self.lose_track();
        } else {
            self.is_unclear = true;
        }
    }

    /// Follows a directory from now on. What is in it is told when it was looked into.
    fn appeared(&mut self, slot: &Slot<'_>, is_directory: bool) -> Result<(), FileError> {
        if !is_directory || !self.is_recursive {
            return Ok(());
        }
        if self.directories.len() >= self.max_directories {
            return Err(self.too_many());
        }
        let directory = self.directories.insert(slot.parent, slot.name);
        self.unlisted.insert(directory);
        Ok(())
    }

    fn too_many(&self) -> FileError {
        let text = format!(
            "there are more than {} directories to watch; watch a smaller tree or raise the limit",
            self.max_directories
        );
        FileError::check(std::io::ErrorKind::QuotaExceeded, text, &self.root)
    }

    /// A directory to look into, and where it is. One that is between the two halves of a rename has no path.
    pub(super) fn next_unlisted(&self) -> Option<(DirectoryId, PathBuf)> {
        let reachable = self.unlisted.iter().find(|&&directory| self.directories.way(directory).is_some())?;
        Some((*reachable, self.directories.path(*reachable)?))
    }

    /// Takes what was seen in a directory, with the events that were read afterwards; they are to be handled next. Returns whether the
    /// look counts.
    pub(super) fn looked(
        &mut self,
        directory: DirectoryId,
        look: Look,
        events: &[Event],
        report: &mut Report<'_>,
    ) -> Result<bool, WatchEnd> {
        if !self.is_way_certain(directory, events) {
            self.discard(&look);
            return Ok(false);
        }
        self.unlisted.remove(&directory);
        match look {
            Look::Listed(number, listing) => match self.directories.by_number(number) {
                Some(known) if known == directory => self.listed(directory, number, listing, events, report)?,
                _ if directory == ROOT => return Err(WatchEnd::RootRemoved),
                None => self.listed(directory, number, listing, events, report)?,
                Some(known) if self.directories.way(known).is_none() => {
                    // It was moved into a directory that was not watched yet, so the second half of its rename will not come.
                    for departure in self.departures.take_all() {
                        self.settle(departure, report);
                    }
                    self.unlisted.insert(directory);
                    return Ok(false);
                }
                // A mount gives one directory two paths. It is watched under the path that was seen first.
                Some(_) => {}
            },
            Look::Missing | Look::Refused(_) if directory == ROOT => return Err(WatchEnd::RootRemoved),
            Look::Missing => {
                self.missing.insert(directory);
            }
            Look::Refused(_) => {
                self.discard(&look);
                self.refused.insert(directory);
            }
        }
        Ok(true)
    }

    fn discard(&mut self, look: &Look) {
        self.unwanted.extend(look.number().filter(|&number| self.directories.by_number(number).is_none()));
    }

    /// Whether the path of a directory has led to this directory since all events but these had been handled.
    fn is_way_certain(&self, directory: DirectoryId, events: &[Event]) -> bool {
        let Some(way) = self.directories.way(directory) else { return false };
        if events.is_empty() {
            return true;
        }
        let way: HashSet<(Number, &OsStr)> =
            way.into_iter().filter_map(|(parent, name)| Some((self.directories.number(parent)?, name))).collect();
        let is_on_way = |event: &Event| {
            let name = event.name.as_deref();
            event.is(NAMES) && name.is_some_and(|name| way.contains(&(event.number, name)))
        };
        !events.iter().any(is_on_way)
    }

    fn listed(
        &mut self,
        directory: DirectoryId,
        number: Number,
        listing: Listing,
        events: &[Event],
        report: &mut Report<'_>,
    ) -> Result<(), WatchEnd> {
        self.directories.bind(directory, number);
        let Some(path) = self.directories.path(directory) else { return Ok(()) };
        if listing.is_cut {
            self.lose_track();
        }
        if self.unannounced.remove(&directory) && directory != ROOT {
            report(path.clone(), true, Happening::Removed);
            report(path.clone(), true, Happening::Created);
        }
        for (name, is_directory) in before(number, listing, events) {
            let slot = Slot { parent: directory, name: &name, path: path.join(&name) };
            report(slot.path.clone(), is_directory, Happening::Found);
            self.appeared(&slot, is_directory).map_err(WatchEnd::Failed)?;
        }
        Ok(())
    }

    pub(super) fn is_expecting(&self) -> bool {
        !self.departures.is_empty()
    }

    /// Treats as removed what has not arrived anywhere in the tree.
    pub(super) fn give_up_waiting(&mut self, now: Instant, report: &mut Report<'_>) {
        for departure in self.departures.expired(now) {
            self.settle(departure, report);
        }
    }

    fn settle_overtaken(&mut self, parent: DirectoryId, report: &mut Report<'_>) {
        for departure in self.departures.overtaken(parent) {
            self.settle(departure, report);
        }
    }

    fn settle(&mut self, departure: Departure, report: &mut Report<'_>) {
        self.last_renames.retain(|rename| !rename.concerns(departure.parent));
        if let Some(path) = self.path_of(&departure) {
            report(path, departure.is_directory, Happening::Removed);
        }
        if let Some(directory) = departure.directory {
            self.forget(directory);
        }
    }

    /// Whether something has happened that cannot be told, while everything is known that has to be watched.
    pub(super) fn take_unclear(&mut self) -> bool {
        std::mem::take(&mut self.is_unclear)
    }

    /// What is known of the tree may be wrong.
    pub(super) fn lose_track(&mut self) {
        self.has_lost_track = true;
    }

    pub(super) fn has_lost_track(&self) -> bool {
        self.has_lost_track
    }

    pub(super) fn is_root(&self, number: Number) -> bool {
        self.directories.by_number(number) == Some(ROOT)
    }

    /// Forgets what it knows of the tree, which is wrong: everything is to be looked into again. What is watched stays watched until
    /// [`announced`](Self::announced).
    pub(super) fn begin_anew(&mut self) {
        let Some(root) = self.directories.number(ROOT) else { return };
        self.former.extend(self.directories.numbers_below_root());
        let fresh = Self::new(&self.root, root, self.above.take(), self.is_recursive, self.max_directories);
        let former = std::mem::take(&mut self.former);
        let unwanted = std::mem::take(&mut self.unwanted);
        *self = Self { former, unwanted, ..fresh };
    }

    /// The client is told to look at everything now.
    pub(super) fn announced(&mut self) {
        let gone = std::mem::take(&mut self.former);
        self.unwanted.extend(gone.into_iter().filter(|&number| self.directories.by_number(number).is_none()));
        self.unannounced = self.unlisted.iter().chain(&self.missing).chain(&self.refused).copied().collect();
    }

    /// The numbers of directories that need not be watched any longer. To be asked before every look: the kernel would give a
    /// directory the same number once more.
    pub(super) fn take_unwanted(&mut self) -> Vec<Number> {
        std::mem::take(&mut self.unwanted)
    }

    fn forget(&mut self, directory: DirectoryId) {
        for (directory, number) in self.directories.remove(directory) {
            self.unwanted.extend(number);
            self.unlisted.remove(&directory);
            self.missing.remove(&directory);
            self.refused.remove(&directory);
            self.unannounced.remove(&directory);
        }
    }
}

/// What was in a directory before these events, and whether it was a directory. The listing was made before the events were read, and
/// after the kernel began to tell of them.
fn before(number: Number, listing: Listing, events: &[Event]) -> Vec<(OsString, bool)> {
    let mut first_events: HashMap<&OsStr, &Event> = HashMap::new();
    for event in events.iter().filter(|event| event.number == number && event.is(NAMES)) {
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
