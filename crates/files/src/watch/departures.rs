//! The first halves of renames. The kernel tells where something went from and where it came to as two events; the second may
//! never come, when something leaves the tree, and the first is then a removal.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use super::directories::DirectoryId;

/// The kernel queues the second half right after the first, so one that is not there by now does not exist.
pub(super) const PATIENCE: Duration = Duration::from_millis(10);

/// Something has gone from a name.
#[derive(Debug)]
pub(super) struct Departure {
    pub(super) cookie: u32,
    pub(super) parent: DirectoryId,
    pub(super) name: OsString,
    /// The directory that has gone, if it is a directory that the watch follows.
    pub(super) directory: Option<DirectoryId>,
    pub(super) is_directory: bool,
    pub(super) at: Instant,
}

/// Those whose second half has not come.
#[derive(Default)]
pub(super) struct Departures(Vec<Departure>);

impl Departures {
    pub(super) fn push(&mut self, departure: Departure) {
        self.0.push(departure);
    }

    /// The first half of the rename whose second half has come.
    pub(super) fn arrived(&mut self, cookie: u32) -> Option<Departure> {
        let index = self.0.iter().position(|one| one.cookie == cookie)?;
        Some(self.0.swap_remove(index))
    }

    /// Those that are over because something else has happened in the same directory: its lock is held over both halves.
    pub(super) fn overtaken(&mut self, parent: DirectoryId) -> Vec<Departure> {
        self.0.extract_if(.., |one| one.parent == parent).collect()
    }

    /// Those that nobody waits for any longer.
    pub(super) fn expired(&mut self, now: Instant) -> Vec<Departure> {
        self.0.extract_if(.., |one| now.saturating_duration_since(one.at) >= PATIENCE).collect()
    }

    pub(super) fn take_all(&mut self) -> Vec<Departure> {
        std::mem::take(&mut self.0)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
