//! A tree that is watched: does what the [`Tree`] asks for, and has no rules of its own.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::kernel::{Event, Kernel};
use super::tree::Tree;
use super::watcher::Report;
use super::{WatchEnd, WatchOptions};
use crate::FileError;

/// Looks in a row that do not count, because directories are renamed all the time, before a watch begins without them. They are looked
/// into later.
const MOST_FUTILE_LOOKS: usize = 100;

pub(super) struct WatchedTree {
    root: PathBuf,
    tree: Tree,
    /// More files in one directory than this are an overflow, so they need not be listed.
    max_pending: usize,
}

impl WatchedTree {
    /// Watches everything that is there.
    pub(super) fn new(
        kernel: &Kernel,
        root: &Path,
        is_recursive: bool,
        options: WatchOptions,
    ) -> Result<Self, FileError> {
        let number = kernel.watch_root(root)?;
        let above = match (root.parent(), root.file_name()) {
            (Some(parent), Some(name)) => kernel.watch_above(parent).map(|number| (number, name.to_owned())),
            _ => None,
        };
        let tree = Tree::new(root, number, above, is_recursive, options.max_directories);
        let mut watched = Self { root: root.to_owned(), tree, max_pending: options.max_pending };
        watched.look_into_all(kernel).map_err(|end| match end {
            WatchEnd::Failed(error) => error,
            WatchEnd::RootRemoved => {
                FileError::check(ErrorKind::NotFound, "the directory was removed or moved", root)
            }
        })?;
        Ok(watched)
    }

    pub(super) fn handle(&mut self, event: &Event, now: Instant, report: &mut Report<'_>) -> Result<(), WatchEnd> {
        self.tree.handle(event, now, report)
    }

    /// Whether a directory is to be looked into, or all of them.
    pub(super) fn has_work(&self) -> bool {
        self.tree.has_lost_track() || self.tree.next_unlisted().is_some()
    }

    /// Looks into one directory, if one is to be looked into, and handles what has happened meanwhile.
    pub(super) fn look_into_next(
        &mut self,
        kernel: &Kernel,
        now: Instant,
        report: &mut Report<'_>,
    ) -> Result<(), WatchEnd> {
        self.look(kernel, now, Some(self.max_pending), report).map(|_| ())
    }

    pub(super) fn is_expecting(&self) -> bool {
        self.tree.is_expecting()
    }

    pub(super) fn give_up_waiting(&mut self, kernel: &Kernel, now: Instant, report: &mut Report<'_>) {
        self.tree.give_up_waiting(now, report);
        self.unwatch_unwanted(kernel);
    }

    pub(super) fn take_unclear(&mut self) -> bool {
        self.tree.take_unclear()
    }

    pub(super) fn announced(&mut self) {
        self.tree.announced();
    }

    pub(super) fn lose_track(&mut self) {
        self.tree.lose_track();
    }

    pub(super) fn has_lost_track(&self) -> bool {
        self.tree.has_lost_track()
    }

    /// Brings what is watched in step with what is there, after events were lost.
    pub(super) fn look_again(&mut self, kernel: &Kernel) -> Result<(), WatchEnd> {
        match kernel.watch_root(&self.root) {
            Ok(number) if self.tree.is_root(number) => {}
            _ => return Err(WatchEnd::RootRemoved),
        }
        self.tree.begin_anew();
        self.look_into_all(kernel)
    }

    /// Looks into everything and tells nothing: whoever watches is going to look at everything after this.
    fn look_into_all(&mut self, kernel: &Kernel) -> Result<(), WatchEnd> {
        let mut futile = 0;
        while futile < MOST_FUTILE_LOOKS {
            match self.look(kernel, Instant::now(), None, &mut |_, _, _| {})? {
                Some(true) => futile = 0,
                Some(false) => futile += 1,
                None => break,
            }
        }
        self.tree.announced();
        self.unwatch_unwanted(kernel);
        Ok(())
    }

    /// Returns whether the look counts, and nothing if there is no directory to look into.
    fn look(
        &mut self,
        kernel: &Kernel,
        now: Instant,
        most_files: Option<usize>,
        report: &mut Report<'_>,
    ) -> Result<Option<bool>, WatchEnd> {
        self.unwatch_unwanted(kernel);
        let Some((directory, path)) = self.tree.next_unlisted() else { return Ok(None) };
        let look = kernel.look(&self.root, &path, most_files).map_err(WatchEnd::Failed)?;
        let mut events = Vec::new();
        let is_lost = kernel.read(&mut events).map_err(|error| WatchEnd::Failed(FileError::os(error, &self.root)))?;
        if is_lost {
            self.tree.lose_track();
        }
        let counts = self.tree.looked(directory, look, &events, report)?;
        for event in &events {
            self.tree.handle(event, now, report)?;
        }
        Ok(Some(counts))
    }

    fn unwatch_unwanted(&mut self, kernel: &Kernel) {
        for number in self.tree.take_unwanted() {
            kernel.unwatch(number);
        }
    }
}
