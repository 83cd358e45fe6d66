//! Combines all events since the last delivery into few changes. [`Coalescer`] has no clock; the caller passes the time.
//!
//! The changes, applied in order to the tree at the last delivery, give the present tree. The rules:
//!
//! - Created, then modified: created. Removed, then created: modified, if both are files. For directories, both changes are reported,
//!   because the old contents are gone.
//! - Created, then removed: nothing, if it is certain that nothing had this path before. An entry that was moved in may have replaced a
//!   file; such an entry is reported as removed.
//! - A file that is renamed twice: one rename. A file that is renamed to a backup and created again, whose backup is then removed, as
//!   editors do: modified.
//! - A removed directory: the pending changes below it are dropped.
//! - A renamed directory changes all paths below it. So the changes before the rename are sealed: they are not combined with later ones.

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{PathChange, PathChangeKind};

/// An event at one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PathEvent {
    /// A file or directory was created. Nothing had this path before.
    Created,
    /// A scan has found a file or directory in a directory that was not watched before. An event of its creation may
    /// still follow.
    Listed,
    /// A file or directory was moved in from outside of the tree, and may have replaced a file.
    MovedIn,
    /// The contents or attributes of a file or directory have changed.
    Modified,
    /// A file or directory was removed or moved out of the tree.
    Removed,
    /// A file or directory was renamed from another path of the tree, and may have replaced a file.
    Renamed { from: PathBuf },
}

/// Collects the changes of one watch until they are delivered.
pub(super) struct Coalescer {
    collect_time: Duration,
    max_pending: usize,
    /// The time of the first event since the last delivery.
    since: Option<Instant>,
    is_overflow: bool,
    /// Finished changes in order. Later events are not combined with them.
    sealed: Vec<PathChange>,
    /// Changes that later events may alter. Ordered by path, so that everything below a directory follows it.
    pending: BTreeMap<PathBuf, PendingChange>,
    /// Number of events so far. A change gets its `order` from this.
    sequence: u64,
    /// Paths that scans have found since the last delivery. A creation event for such a path may be about the same creation.
    listed: HashSet<PathBuf>,
    /// Paths that scans had found between the last two deliveries.
    listed_before: HashSet<PathBuf>,
}

/// The change at one path since the last delivery.
#[derive(Debug, Default)]
struct PendingChange {
    /// Whether it is certain that nothing had this path at the last delivery.
    is_new: bool,
    /// Set if the file or directory that had this path at the last delivery was removed.
    removed: Option<RemovedItem>,
    /// The file or directory that has this path now. `None` if there is none, or if it has not changed since the last delivery.
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

    /// The time at which the changes should be delivered. `None` if there was no event since the last delivery.
    pub(super) fn due(&self) -> Option<Instant> {
        self.since.map(|since| since + self.collect_time)
    }

    /// Takes the changes, and whether there was an overflow.
    pub(super) fn take(&mut self) -> (Vec<PathChange>, bool) {
        self.seal();
        self.since = None;
        self.listed_before = std::mem::take(&mut self.listed);
        (std::mem::take(&mut self.sealed), std::mem::take(&mut self.is_overflow))
    }

    /// Records that changes are missing. All changes until the next delivery are dropped, because the receiver lists the tree again.
    pub(super) fn overflow(&mut self, now: Instant) {
        self.since.get_or_insert(now);
        self.is_overflow = true;
        self.sealed = Vec::new();
        self.pending = BTreeMap::new();
        self.listed = HashSet::new();
    }

    /// Combines an event at `path` with the changes so far.
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

    /// `is_certain` says whether the event proves that nothing had this path before.
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
            // A late event about a file that was removed.
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

    /// Records that no entry has this path any more. The path is reported as removed, unless it is certain that
    /// nothing had it at the last delivery.
    fn mark_vacated(&mut self, path: &Path, change: &PendingChange, is_directory: bool) {
        let removed = match &change.removed {
            Some(removed) => RemovedItem { is_directory: removed.is_directory, order: removed.order },
            None if change.is_new => return,
            None => RemovedItem { is_directory, order: self.sequence },
        };
        self.pending.insert(path.to_owned(), PendingChange { is_new: false, removed: Some(removed), now: None });
    }

    /// Records that a file or directory was removed or replaced after it had been renamed from `origin`. For the
    /// receiver, it is removed at `origin`.
    fn mark_origin_removed(&mut self, origin: PathBuf, is_directory: bool) {
        if self.has_removed_ancestor(&origin) {
            return;
        }
        let order = self.sequence;
        let change = self.pending.entry(origin).or_default();
        change.is_new = false;
        // If another entry has the path `origin` now, it came after the rename, so the removal is put before it.
        let order = change.now.as_ref().map_or(order, |now| now.order);
        change.removed.get_or_insert(RemovedItem { is_directory, order });
    }

    fn has_removed_ancestor(&self, path: &Path) -> bool {
        path.ancestors().skip(1).any(|above| self.pending.get(above).is_some_and(|change| change.removed.is_some()))
    }

    /// Drops the changes below a removed directory. A file that was renamed into it from elsewhere is removed at its
    /// origin.
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
            // No event has reported the file that was at `from`, so it is new for the receiver.
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

    /// Whether the changes so far must be sealed before the file at `from` is renamed. If the file was renamed
    /// before, the two renames can be combined only if its first path has no other change and no directory above that
    /// path was removed.
    fn must_seal_before_renaming(&self, from: &Path) -> bool {
        match self.pending.get(from) {
            Some(PendingChange {
                now: Some(CurrentItem { state: CurrentState::Renamed { from: origin, .. }, .. }),
                ..
            }) => self.pending.contains_key(origin) || self.has_removed_ancestor(origin),
            _ => false,
        }
    }

    /// Records that a file or directory has taken this path and replaced the entry that had it before, if any.
    fn replace_item(&mut self, path: PathBuf, state: CurrentState, is_directory: bool) {
        let order = self.sequence;
        let change = self.pending.entry(path).or_default();
        let replaced = change.now.replace(CurrentItem { state, is_directory, order });
        match replaced.map(|now| (now.state, now.is_directory)) {
            Some((CurrentState::Modified, was_directory)) => {
                change.removed.get_or_insert(RemovedItem { is_directory: was_directory, order });
            }
            Some((CurrentState::Renamed { from, .. }, was_directory)) => {
                self.mark_origin_removed(from, was_directory);
            }
            Some((CurrentState::Created, _)) | None => {}
        }
    }

    /// Turns the pending changes into finished ones, in an order in which they can be applied.
    fn seal(&mut self) {
        let mut ordered = Vec::with_capacity(self.pending.len());
        for (path, change) in std::mem::take(&mut self.pending) {
            change.emit_changes(path, |order, change| ordered.push((order, change)));
        }
        // The sort is stable, so several changes of one path stay in order.
        ordered.sort_by_key(|(order, _)| *order);
        self.sealed.extend(ordered.into_iter().map(|(_, change)| change));
    }
}

impl PendingChange {
    /// Calls `emit` with each change at `path` and its order.
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
