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
pub(super) enum PathEvent {
    /// It was made, where nothing was.
    Created,
    /// It was seen in a directory that has not been watched before. The kernel may still tell of its creation.
    Listed,
    /// It came from outside of the tree, and may have replaced something.
    MovedIn,
    /// Content or attributes.
    Modified,
    /// Removed, or gone out of the tree.
    Removed,
    /// It came from another path of the tree.
    Renamed { from: PathBuf },
}

pub(super) struct Coalescer {
    collect_time: Duration,
    max_pending: usize,
    /// When the first change of this delivery came.
    since: Option<Instant>,
    is_overflow: bool,
    /// In order, and no longer merged with what comes.
    sealed: Vec<PathChange>,
    /// Ordered by path, so that what is below a directory follows it.
    pending: BTreeMap<PathBuf, PendingChange>,
    sequence: u64,
    listed: HashSet<PathBuf>,
    listed_before: HashSet<PathBuf>,
}

/// What is to be told about a path.
#[derive(Debug, Default)]
struct PendingChange {
    /// It is certain that nothing was here at the last delivery.
    is_new: bool,
    /// What was here at the last delivery is gone.
    removed: Option<RemovedItem>,
    /// What is here now is not, or not quite, what was here.
    now: Option<CurrentItem>,
}

#[derive(Debug)]
struct RemovedItem {
    is_directory: bool,
    order: u64,
}

#[derive(Debug)]
struct CurrentItem {
    state: CurrentState,
    is_directory: bool,
    order: u64,
}

#[derive(Debug)]
enum CurrentState {
    Created,
    Modified,
    Renamed { from: PathBuf, is_modified: bool },
}

impl Coalescer {
    pub(super) fn new(collect_time: Duration, max_pending: usize) -> Self {
        Self {
            collect_time,
            max_pending,
            since: None,
            is_overflow: false,
            sealed: Vec::new(),
            pending: BTreeMap::new(),
            sequence: 0,
            listed: HashSet::new(),
            listed_before: HashSet::new(),
        }
    }

    /// When there will be something to deliver.
    pub(super) fn due(&self) -> Option<Instant> {
        self.since.map(|since| since + self.collect_time)
    }

    /// Takes what is to be delivered: the changes, and whether there were too many.
    pub(super) fn take(&mut self) -> (Vec<PathChange>, bool) {
        self.seal();
        self.since = None;
        self.listed_before = std::mem::take(&mut self.listed);
        (std::mem::take(&mut self.sealed), std::mem::take(&mut self.is_overflow))
    }

    /// More has happened than is known. Until the next delivery nothing else matters.
    pub(super) fn overflow(&mut self, now: Instant) {
        self.since.get_or_insert(now);
        self.is_overflow = true;
        self.sealed = Vec::new();
        self.pending = BTreeMap::new();
        self.listed = HashSet::new();
    }

    pub(super) fn push(&mut self, now: Instant, path: PathBuf, is_directory: bool, event: PathEvent) {
        if self.is_overflow {
            return;
        }
        self.since.get_or_insert(now);
        self.sequence += 1;
        match event {
            PathEvent::Created => self.handle_created(path, is_directory, true),
            PathEvent::Listed => {
                self.listed.insert(path.clone());
                self.handle_created(path, is_directory, false);
            }
            PathEvent::MovedIn => self.handle_moved_in(path, is_directory),
            PathEvent::Modified => self.handle_modified(path, is_directory),
            PathEvent::Removed => self.handle_removed(&path, is_directory),
            PathEvent::Renamed { from } if is_directory => self.handle_directory_renamed(from, path),
            PathEvent::Renamed { from } => self.handle_file_renamed(from, path),
        }
        if self.sealed.len() + self.pending.len() > self.max_pending {
            self.overflow(now);
        }
    }

    fn handle_created(&mut self, path: PathBuf, is_directory: bool, is_certain: bool) {
        let is_certain = is_certain && !self.listed.contains(&path) && !self.listed_before.contains(&path);
        let order = self.sequence;
        let change = self
            .pending
            .entry(path)
            .or_insert_with(|| PendingChange { is_new: is_certain, ..PendingChange::default() });
        if change.now.is_none() {
            change.now = Some(CurrentItem { state: CurrentState::Created, is_directory, order });
        }
    }

    fn handle_moved_in(&mut self, path: PathBuf, is_directory: bool) {
        self.replace_item(path, CurrentState::Created, is_directory);
    }

    fn handle_modified(&mut self, path: PathBuf, is_directory: bool) {
        let order = self.sequence;
        let change = self.pending.entry(path).or_default();
        match &mut change.now {
            Some(CurrentItem { state: CurrentState::Renamed { is_modified, .. }, .. }) => *is_modified = true,
            Some(_) => {}
            // Late news of something that is gone.
            None if change.removed.is_some() => {}
            None => change.now = Some(CurrentItem { state: CurrentState::Modified, is_directory, order }),
        }
    }

    fn handle_removed(&mut self, path: &Path, is_directory: bool) {
        if is_directory {
            self.drop_changes_below(path);
        }
        let change = self.pending.remove(path).unwrap_or_default();
        self.mark_vacated(path, &change, is_directory);
        if let Some(CurrentItem { state: CurrentState::Renamed { from, .. }, is_directory, .. }) = change.now {
            self.mark_origin_removed(from, is_directory);
        }
    }

    /// Nothing is at the path any longer, and what was there before this delivery has not been renamed.
    fn mark_vacated(&mut self, path: &Path, change: &PendingChange, is_directory: bool) {
        let removed = match &change.removed {
            Some(removed) => RemovedItem { is_directory: removed.is_directory, order: removed.order },
            None if change.is_new => return,
            None => RemovedItem { is_directory, order: self.sequence },
        };
        self.pending.insert(path.to_owned(), PendingChange { is_new: false, removed: Some(removed), now: None });
    }

    /// What was at `origin` and had been renamed is now gone altogether.
    fn mark_origin_removed(&mut self, origin: PathBuf, is_directory: bool) {
        if self.has_removed_parent(&origin) {
            return;
        }
        let order = self.sequence;
        let change = self.pending.entry(origin).or_default();
        change.is_new = false;
        // Whatever is there now has come after it was gone.
        let order = change.now.as_ref().map_or(order, |now| now.order);
        change.removed.get_or_insert(RemovedItem { is_directory, order });
    }

    fn has_removed_parent(&self, path: &Path) -> bool {
        path.ancestors().skip(1).any(|above| self.pending.get(above).is_some_and(|change| change.removed.is_some()))
    }

    fn drop_changes_below(&mut self, directory: &Path) {
        let below: Vec<PathBuf> = self
            .pending
            .range::<Path, _>((Bound::Excluded(directory), Bound::Unbounded))
            .map(|(path, _)| path)
            .take_while(|path| path.starts_with(directory))
            .cloned()
            .collect();
        for path in below {
            if let Some(PendingChange {
                now: Some(CurrentItem { state: CurrentState::Renamed { from, .. }, is_directory, .. }),
                ..
            }) = self.pending.remove(&path)
                && !from.starts_with(directory)
            {
                self.mark_origin_removed(from, is_directory);
            }
        }
    }

    fn handle_directory_renamed(&mut self, from: PathBuf, to: PathBuf) {
        self.seal();
        self.sealed.push(PathChange { path: to, kind: PathChangeKind::Renamed { from }, is_directory: true });
    }

    fn handle_file_renamed(&mut self, from: PathBuf, to: PathBuf) {
        if self.must_seal_before_renaming(&from) {
            self.seal();
        }
        let change = self.pending.remove(&from).unwrap_or_default();
        let state = match &change.now {
            Some(CurrentItem { state: CurrentState::Created, .. }) => {
                self.mark_vacated(&from, &change, false);
                CurrentState::Created
            }
            Some(CurrentItem { state: CurrentState::Renamed { from: origin, is_modified }, .. }) => {
                self.mark_vacated(&from, &change, false);
                CurrentState::Renamed { from: origin.clone(), is_modified: *is_modified }
            }
            Some(CurrentItem { state: CurrentState::Modified, .. }) => {
                CurrentState::Renamed { from, is_modified: true }
            }
            // It is news that there was something.
            None if change.removed.is_some() => {
                self.pending.insert(from, change);
                CurrentState::Created
            }
            None => CurrentState::Renamed { from, is_modified: false },
        };
        match state {
            CurrentState::Renamed { from, is_modified } if from == to => {
                if is_modified {
                    self.replace_item(to, CurrentState::Modified, false);
                }
            }
            state => self.replace_item(to, state, false),
        }
    }

    /// Two renames become one only if the first name still means what it meant.
    fn must_seal_before_renaming(&self, from: &Path) -> bool {
        match self.pending.get(from) {
            Some(PendingChange {
                now: Some(CurrentItem { state: CurrentState::Renamed { from: origin, .. }, .. }),
                ..
            }) => self.pending.contains_key(origin) || self.has_removed_parent(origin),
            _ => false,
        }
    }

    /// Something took the place of whatever was at the path.
    fn replace_item(&mut self, path: PathBuf, state: CurrentState, is_directory: bool) {
        let order = self.sequence;
        let change = self.pending.entry(path).or_default();
        let replaced = change.now.replace(CurrentItem { state, is_directory, order });
        match replaced.map(|now| (now.state, now.is_directory)) {
            Some((CurrentState::Modified, was_directory)) => {
                change.removed.get_or_insert(RemovedItem { is_directory: was_directory, order });
            }
            Some((CurrentState::Renamed { from, .. }, was_directory)) => {
                self.mark_origin_removed(from, was_directory)
            }
            Some((CurrentState::Created, _)) | None => {}
        }
    }

    /// Turns what is to be told into changes, in the order in which it can be applied.
    fn seal(&mut self) {
        let mut ordered = Vec::with_capacity(self.pending.len());
        for (path, change) in std::mem::take(&mut self.pending) {
            change.emit_changes(path, |order, change| ordered.push((order, change)));
        }
        // Stable, and a path tells of its own changes in order.
        ordered.sort_by_key(|(order, _)| *order);
        self.sealed.extend(ordered.into_iter().map(|(_, change)| change));
    }
}

impl PendingChange {
    fn emit_changes(self, path: PathBuf, mut emit: impl FnMut(u64, PathChange)) {
        let is_replaced_file = match (&self.removed, &self.now) {
            (Some(removed), Some(now)) => !removed.is_directory && !now.is_directory,
            _ => false,
        };
        if let Some(removed) = self.removed
            && !is_replaced_file
        {
            let change =
                PathChange { path: path.clone(), kind: PathChangeKind::Removed, is_directory: removed.is_directory };
            emit(removed.order, change);
        }
        let Some(CurrentItem { state, is_directory, order }) = self.now else { return };
        let mut emit_current = |path, kind| emit(order, PathChange { path, kind, is_directory });
        match state {
            CurrentState::Created if is_replaced_file => emit_current(path, PathChangeKind::Modified),
            CurrentState::Created => emit_current(path, PathChangeKind::Created),
            CurrentState::Modified => emit_current(path, PathChangeKind::Modified),
            CurrentState::Renamed { from, is_modified } => {
                emit_current(path.clone(), PathChangeKind::Renamed { from });
                if is_modified {
                    emit_current(path, PathChangeKind::Modified);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
