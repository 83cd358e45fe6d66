//! What has changed between two deliveries, from everything that happened. A value: the time is passed in.
//!
//! What is told can be applied in its order to what was there before, and leads to what is there now:
//!
//! - Created then modified is created. Removed then created is modified, if both are files; directories are told as removed and
//!   created, because what was below is gone.
//! - Created then removed is nothing, if it is certain that nothing was there before. What arrived by a move may have replaced
//!   something: then it is removed.
//! - A file renamed twice is renamed once. Renamed away and made again, then its backup removed, as editors do, is modified.
//! - A directory that is removed takes everything with it that was to be told about what is below.
//! - A directory that is renamed changes the names of everything below, so what was to be told before it stays as it is, and
//!   what comes after it is not merged with that.

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{PathChange, PathChangeKind};

/// Something that happened to one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Happening {
    /// It was made, where nothing was.
    Created,
    /// It was seen in a directory that has not been watched before. The kernel may still tell of its creation.
    Found,
    /// It came from outside of the tree, and may have replaced something.
    Arrived,
    /// Content or attributes.
    Modified,
    /// Removed, or gone out of the tree.
    Removed,
    /// It came from another path of the tree.
    Renamed { from: PathBuf },
}

pub(super) struct Coalescer {
    settle: Duration,
    max_pending: usize,
    /// When the first change of this delivery came.
    since: Option<Instant>,
    is_overflow: bool,
    /// In order, and no longer merged with what comes.
    sealed: Vec<PathChange>,
    /// Ordered by path, so that what is below a directory follows it.
    entries: BTreeMap<PathBuf, Entry>,
    clock: u64,
    found: HashSet<PathBuf>,
    found_before: HashSet<PathBuf>,
}

/// What is to be told about a path.
#[derive(Debug, Default)]
struct Entry {
    /// It is certain that nothing was here at the last delivery.
    is_new: bool,
    /// What was here at the last delivery is gone.
    gone: Option<Gone>,
    /// What is here now is not, or not quite, what was here.
    now: Option<Now>,
}

#[derive(Debug)]
struct Gone {
    is_directory: bool,
    order: u64,
}

#[derive(Debug)]
struct Now {
    what: What,
    is_directory: bool,
    order: u64,
}

#[derive(Debug)]
enum What {
    Created,
    Modified,
    Renamed { from: PathBuf, is_modified: bool },
}

impl Coalescer {
    pub(super) fn new(settle: Duration, max_pending: usize) -> Self {
        Self {
            settle,
            max_pending,
            since: None,
            is_overflow: false,
            sealed: Vec::new(),
            entries: BTreeMap::new(),
            clock: 0,
            found: HashSet::new(),
            found_before: HashSet::new(),
        }
    }

    /// When there will be something to deliver.
    pub(super) fn due(&self) -> Option<Instant> {
        self.since.map(|since| since + self.settle)
    }

    /// Takes what is to be delivered: the changes, and whether there were too many.
    pub(super) fn take(&mut self) -> (Vec<PathChange>, bool) {
        self.seal();
        self.since = None;
        self.found_before = std::mem::take(&mut self.found);
        (std::mem::take(&mut self.sealed), std::mem::take(&mut self.is_overflow))
    }

    /// More has happened than is known. Until the next delivery nothing else matters.
    pub(super) fn overflow(&mut self, now: Instant) {
        self.since.get_or_insert(now);
        self.is_overflow = true;
        self.sealed = Vec::new();
        self.entries = BTreeMap::new();
        self.found = HashSet::new();
    }

    pub(super) fn push(&mut self, now: Instant, path: PathBuf, is_directory: bool, happening: Happening) {
        if self.is_overflow {
            return;
        }
        self.since.get_or_insert(now);
        self.clock += 1;
        match happening {
            Happening::Created => self.appeared(path, is_directory, true),
            Happening::Found => {
                self.found.insert(path.clone());
                self.appeared(path, is_directory, false);
            }
            Happening::Arrived => self.arrived(path, is_directory),
            Happening::Modified => self.modified(path, is_directory),
            Happening::Removed => self.removed(&path, is_directory),
            Happening::Renamed { from } if is_directory => self.directory_renamed(from, path),
            Happening::Renamed { from } => self.file_renamed(from, path),
        }
        if self.sealed.len() + self.entries.len() > self.max_pending {
            self.overflow(now);
        }
    }

    fn appeared(&mut self, path: PathBuf, is_directory: bool, is_certain: bool) {
        let is_certain = is_certain && !self.found.contains(&path) && !self.found_before.contains(&path);
        let order = self.clock;
        let entry = self.entries.entry(path).or_insert_with(|| Entry { is_new: is_certain, ..Entry::default() });
        if entry.now.is_none() {
            entry.now = Some(Now { what: What::Created, is_directory, order });
        }
    }

    fn arrived(&mut self, path: PathBuf, is_directory: bool) {
        self.put(path, What::Created, is_directory);
    }

    fn modified(&mut self, path: PathBuf, is_directory: bool) {
        let order = self.clock;
        let entry = self.entries.entry(path).or_default();
        match &mut entry.now {
            Some(Now { what: What::Renamed { is_modified, .. }, .. }) => *is_modified = true,
            Some(_) => {}
            // Late news of something that is gone.
            None if entry.gone.is_some() => {}
            None => entry.now = Some(Now { what: What::Modified, is_directory, order }),
        }
    }

    fn removed(&mut self, path: &Path, is_directory: bool) {
        if is_directory {
            self.forget_below(path);
        }
        let entry = self.entries.remove(path).unwrap_or_default();
        self.vacate(path, &entry, is_directory);
        if let Some(Now { what: What::Renamed { from, .. }, is_directory, .. }) = entry.now {
            self.lost(from, is_directory);
        }
    }

    /// Nothing is at the path any longer, and what was there before this delivery has not been renamed.
    fn vacate(&mut self, path: &Path, entry: &Entry, is_directory: bool) {
        let gone = match &entry.gone {
            Some(gone) => Gone { is_directory: gone.is_directory, order: gone.order },
            None if entry.is_new => return,
            None => Gone { is_directory, order: self.clock },
        };
        self.entries.insert(path.to_owned(), Entry { is_new: false, gone: Some(gone), now: None });
    }

    /// What was at `origin` and had been renamed is now gone altogether.
    fn lost(&mut self, origin: PathBuf, is_directory: bool) {
        if self.has_lost_parent(&origin) {
            return;
        }
        let order = self.clock;
        let entry = self.entries.entry(origin).or_default();
        entry.is_new = false;
        // Whatever is there now has come after it was gone.
        let order = entry.now.as_ref().map_or(order, |now| now.order);
        entry.gone.get_or_insert(Gone { is_directory, order });
    }

    fn has_lost_parent(&self, path: &Path) -> bool {
        path.ancestors().skip(1).any(|above| self.entries.get(above).is_some_and(|entry| entry.gone.is_some()))
    }

    fn forget_below(&mut self, directory: &Path) {
        let below: Vec<PathBuf> = self
            .entries
            .range::<Path, _>((Bound::Excluded(directory), Bound::Unbounded))
            .map(|(path, _)| path)
            .take_while(|path| path.starts_with(directory))
            .cloned()
            .collect();
        for path in below {
            if let Some(Entry { now: Some(Now { what: What::Renamed { from, .. }, is_directory, .. }), .. }) =
                self.entries.remove(&path)
                && !from.starts_with(directory)
            {
                self.lost(from, is_directory);
            }
        }
    }

    fn directory_renamed(&mut self, from: PathBuf, to: PathBuf) {
        self.seal();
        self.sealed.push(PathChange { path: to, kind: PathChangeKind::Renamed { from }, is_directory: true });
    }

    fn file_renamed(&mut self, from: PathBuf, to: PathBuf) {
        if self.must_seal_before_renaming(&from) {
            self.seal();
        }
        let entry = self.entries.remove(&from).unwrap_or_default();
        let what = match &entry.now {
            Some(Now { what: What::Created, .. }) => {
                self.vacate(&from, &entry, false);
                What::Created
            }
            Some(Now { what: What::Renamed { from: origin, is_modified }, .. }) => {
                self.vacate(&from, &entry, false);
                What::Renamed { from: origin.clone(), is_modified: *is_modified }
            }
            Some(Now { what: What::Modified, .. }) => What::Renamed { from, is_modified: true },
            // It is news that there was something.
            None if entry.gone.is_some() => {
                self.entries.insert(from, entry);
                What::Created
            }
            None => What::Renamed { from, is_modified: false },
        };
        match what {
            What::Renamed { from, is_modified } if from == to => {
                if is_modified {
                    self.put(to, What::Modified, false);
                }
            }
            what => self.put(to, what, false),
        }
    }

    /// Two renames become one only if the first name still means what it meant.
    fn must_seal_before_renaming(&self, from: &Path) -> bool {
        match self.entries.get(from) {
            Some(Entry { now: Some(Now { what: What::Renamed { from: origin, .. }, .. }), .. }) => {
                self.entries.contains_key(origin) || self.has_lost_parent(origin)
            }
            _ => false,
        }
    }

    /// Something took the place of whatever was at the path.
    fn put(&mut self, path: PathBuf, what: What, is_directory: bool) {
        let order = self.clock;
        let entry = self.entries.entry(path).or_default();
        let replaced = entry.now.replace(Now { what, is_directory, order });
        match replaced.map(|now| (now.what, now.is_directory)) {
            Some((What::Modified, was_directory)) => {
                entry.gone.get_or_insert(Gone { is_directory: was_directory, order });
            }
            Some((What::Renamed { from, .. }, was_directory)) => self.lost(from, was_directory),
            Some((What::Created, _)) | None => {}
        }
    }

    /// Turns what is to be told into changes, in the order in which it can be applied.
    fn seal(&mut self) {
        let mut ordered = Vec::with_capacity(self.entries.len());
        for (path, entry) in std::mem::take(&mut self.entries) {
            entry.tell(path, |order, change| ordered.push((order, change)));
        }
        // Stable, and a path tells of its own changes in order.
        ordered.sort_by_key(|(order, _)| *order);
        self.sealed.extend(ordered.into_iter().map(|(_, change)| change));
    }
}

impl Entry {
    fn tell(self, path: PathBuf, mut tell: impl FnMut(u64, PathChange)) {
        let is_replaced_file = match (&self.gone, &self.now) {
            (Some(gone), Some(now)) => !gone.is_directory && !now.is_directory,
            _ => false,
        };
        if let Some(gone) = self.gone
            && !is_replaced_file
        {
            let change =
                PathChange { path: path.clone(), kind: PathChangeKind::Removed, is_directory: gone.is_directory };
            tell(gone.order, change);
        }
        let Some(Now { what, is_directory, order }) = self.now else { return };
        let mut told = |path, kind| tell(order, PathChange { path, kind, is_directory });
        match what {
            What::Created if is_replaced_file => told(path, PathChangeKind::Modified),
            What::Created => told(path, PathChangeKind::Created),
            What::Modified => told(path, PathChangeKind::Modified),
            What::Renamed { from, is_modified } => {
                told(path.clone(), PathChangeKind::Renamed { from });
                if is_modified {
                    told(path, PathChangeKind::Modified);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
