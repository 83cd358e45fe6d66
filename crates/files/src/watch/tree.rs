//! Watching a directory, and with it all directories below if that is asked for. Keeps what is watched in step with what is
//! there, and makes one rename of its two halves.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::inotify::ReadFlags;

use super::WatchEnd;
use super::coalesce::Happening;
use super::departures::{Departure, Departures};
use super::directories::Directories;
use super::kernel::{Event, Kernel, Number};
use super::watcher::Report;
use crate::FileError;

pub(super) struct Tree {
    root: PathBuf,
    is_recursive: bool,
    max_directories: usize,
    directories: Directories,
    departures: Departures,
    /// The directory that the root is in, and the root's name there. A removed root is told of by itself only when nobody uses it
    /// any longer.
    above: Option<(Number, OsString)>,
    has_lost_track: bool,
}

/// What to descend into.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// Everything.
    All,
    /// What has not been watched before.
    New,
}

/// What became of the wish to watch a directory.
enum Adoption {
    New(Number),
    Known(Number),
    None,
}

impl Tree {
    pub(super) fn new(
        kernel: &Kernel,
        root: &Path,
        is_recursive: bool,
        max_directories: usize,
    ) -> Result<Self, FileError> {
        let number = kernel.watch_root(root)?;
        let above = match (root.parent(), root.file_name()) {
            (Some(parent), Some(name)) => kernel.watch_above(parent).map(|number| (number, name.to_owned())),
            _ => None,
        };
        let mut tree = Self {
            root: root.to_owned(),
            is_recursive,
            max_directories,
            directories: Directories::new(number, root),
            departures: Departures::default(),
            above,
            has_lost_track: false,
        };
        if is_recursive {
            tree.explore(kernel, number, root.to_owned(), Extent::All, &mut |_, _, _| {})?;
        }
        Ok(tree)
    }

    pub(super) fn handle(
        &mut self,
        kernel: &Kernel,
        event: Event,
        now: Instant,
        report: &mut Report<'_>,
    ) -> Result<(), WatchEnd> {
        if let Some((above, root_name)) = &self.above
            && event.number == *above
        {
            let is_over = event.name.as_ref() == Some(root_name);
            return if is_over { Err(WatchEnd::RootRemoved) } else { Ok(()) };
        }
        let Some(name) = &event.name else { return self.handle_self(kernel, &event, report) };
        let Some(parent_path) = self.directories.path(event.number) else { return Ok(()) };
        let place = Place { parent: event.number, name, path: parent_path.join(name) };
        let is_directory = event.is(ReadFlags::ISDIR);
        if event.is(ReadFlags::MOVED_TO) {
            let departure = self.departures.arrived(event.cookie);
            self.settle_overtaken(kernel, place.parent, report);
            return self.moved_to(kernel, &place, departure, is_directory, report).map_err(WatchEnd::Failed);
        }
        if event.is(ReadFlags::CREATE | ReadFlags::DELETE | ReadFlags::MOVED_FROM) {
            self.settle_overtaken(kernel, place.parent, report);
        }
        if event.is(ReadFlags::CREATE) {
            report(place.path.clone(), is_directory, Happening::Created);
            self.adopt_with_content(kernel, &place, is_directory, report).map_err(WatchEnd::Failed)?;
        } else if event.is(ReadFlags::DELETE) {
            if let Some(number) = self.directories.child(place.parent, name) {
                self.drop_directory(kernel, number);
            }
            report(place.path, is_directory, Happening::Removed);
        } else if event.is(ReadFlags::MOVED_FROM) {
            self.moved_from(&place, event.cookie, is_directory, now);
        } else if event.is(ReadFlags::MODIFY | ReadFlags::ATTRIB) {
            report(place.path.clone(), is_directory, Happening::Modified);
            // One that is not watched may have become readable.
            let is_unwatched = is_directory && self.directories.child(place.parent, name).is_none();
            self.adopt_with_content(kernel, &place, is_unwatched, report).map_err(WatchEnd::Failed)?;
        }
        Ok(())
    }

    /// An event about a watched directory itself. What matters of those below the root is told by the directory they are in.
    fn handle_self(&mut self, kernel: &Kernel, event: &Event, report: &mut Report<'_>) -> Result<(), WatchEnd> {
        let is_root = event.number == self.directories.root();
        let is_over = ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::UNMOUNT | ReadFlags::IGNORED;
        if is_root && event.is(is_over) {
            return Err(WatchEnd::RootRemoved);
        }
        if is_root && event.is(ReadFlags::ATTRIB) {
            report(self.root.clone(), true, Happening::Modified);
        } else if event.is(ReadFlags::IGNORED) {
            self.drop_directory(kernel, event.number);
        }
        Ok(())
    }

    fn moved_from(&mut self, place: &Place<'_>, cookie: u32, is_directory: bool, now: Instant) {
        let number = self.directories.child(place.parent, place.name);
        if let Some(number) = number {
            self.directories.detach(number);
        }
        self.departures.push(Departure {
            cookie,
            parent: place.parent,
            name: place.name.to_owned(),
            path: place.path.clone(),
            number,
            is_directory,
            at: now,
        });
    }

    fn moved_to(
        &mut self,
        kernel: &Kernel,
        place: &Place<'_>,
        departure: Option<Departure>,
        is_directory: bool,
        report: &mut Report<'_>,
    ) -> Result<(), FileError> {
        let Some(departure) = departure else {
            report(place.path.clone(), is_directory, Happening::Arrived);
            return self.adopt_with_content(kernel, place, is_directory, report);
        };
        report(place.path.clone(), is_directory, Happening::Renamed { from: departure.path });
        match departure.number {
            Some(number) if self.directories.contains(number) => {
                self.make_room(kernel, place, number);
                if !self.directories.place(number, place.parent, place.name) {
                    self.lose_track();
                }
                Ok(())
            }
            _ => self.adopt_with_content(kernel, place, is_directory, report),
        }
    }

    pub(super) fn is_expecting(&self) -> bool {
        !self.departures.is_empty()
    }

    /// Treats as removed what has not arrived anywhere in the tree.
    pub(super) fn give_up_waiting(&mut self, kernel: &Kernel, now: Instant, report: &mut Report<'_>) {
        for departure in self.departures.expired(now) {
            self.settle(kernel, departure, report);
        }
    }

    fn settle_overtaken(&mut self, kernel: &Kernel, parent: Number, report: &mut Report<'_>) {
        for departure in self.departures.overtaken(parent) {
            self.settle(kernel, departure, report);
        }
    }

    fn settle(&mut self, kernel: &Kernel, departure: Departure, report: &mut Report<'_>) {
        report(departure.path, departure.is_directory, Happening::Removed);
        // It may have been seen at its new place before the kernel told of it.
        if let Some(number) = departure.number
            && self.directories.was_at(number, departure.parent, &departure.name)
            && self.directories.child(departure.parent, &departure.name) != Some(number)
        {
            self.drop_directory(kernel, number);
        }
    }

    pub(super) fn lose_track(&mut self) {
        self.has_lost_track = true;
    }

    pub(super) fn has_lost_track(&self) -> bool {
        self.has_lost_track
    }

    /// Brings what is watched in step with what is there, after events were lost.
    pub(super) fn look_again(&mut self, kernel: &Kernel) -> Result<(), WatchEnd> {
        self.departures = Departures::default();
        match kernel.watch_root(&self.root) {
            Ok(number) if number == self.directories.root() => {}
            _ => return Err(WatchEnd::RootRemoved),
        }
        if self.is_recursive {
            let root = self.directories.root();
            let seen = self
                .explore(kernel, root, self.root.clone(), Extent::All, &mut |_, _, _| {})
                .map_err(WatchEnd::Failed)?;
            let stale: Vec<Number> = self.directories.numbers().filter(|number| !seen.contains(number)).collect();
            for number in stale {
                self.drop_directory(kernel, number);
            }
        }
        self.has_lost_track = false;
        Ok(())
    }

    /// Watches what has appeared, and reports what was in it before it was watched.
    fn adopt_with_content(
        &mut self,
        kernel: &Kernel,
        place: &Place<'_>,
        is_directory: bool,
        report: &mut Report<'_>,
    ) -> Result<(), FileError> {
        if !is_directory || !self.is_recursive {
            return Ok(());
        }
        if let Adoption::New(number) = self.adopt(kernel, place)? {
            self.explore(kernel, number, place.path.clone(), Extent::New, report)?;
        }
        Ok(())
    }

    /// Watches the directories below one that is watched. As each is watched before it is read, whatever appears in it is either
    /// read or told by the kernel, or both.
    fn explore(
        &mut self,
        kernel: &Kernel,
        start: Number,
        path: PathBuf,
        extent: Extent,
        report: &mut Report<'_>,
    ) -> Result<HashSet<Number>, FileError> {
        let mut seen = HashSet::from([start]);
        let mut left = vec![(start, path)];
        while let Some((parent, path)) = left.pop() {
            // What is gone by now is told by an event.
            let Ok(entries) = std::fs::read_dir(&path) else { continue };
            for entry in entries.flatten() {
                let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
                let path = entry.path();
                report(path.clone(), is_directory, Happening::Found);
                if !is_directory {
                    continue;
                }
                let adoption = self.adopt(kernel, &Place { parent, name: &entry.file_name(), path: path.clone() })?;
                match adoption {
                    Adoption::New(number) if seen.insert(number) => left.push((number, path)),
                    Adoption::Known(number) if extent == Extent::All && seen.insert(number) => {
                        left.push((number, path));
                    }
                    _ => {}
                }
            }
        }
        Ok(seen)
    }

    fn adopt(&mut self, kernel: &Kernel, place: &Place<'_>) -> Result<Adoption, FileError> {
        let Some(number) = kernel.watch_below(&place.path)? else { return Ok(Adoption::None) };
        if self.directories.child(place.parent, place.name) == Some(number) {
            return Ok(Adoption::Known(number));
        }
        let is_known = self.directories.contains(number);
        if !is_known && self.directories.len() >= self.max_directories {
            kernel.unwatch(number);
            return Err(self.too_many());
        }
        self.make_room(kernel, place, number);
        if !self.directories.place(number, place.parent, place.name) {
            self.lose_track();
            return Ok(Adoption::None);
        }
        Ok(if is_known { Adoption::Known(number) } else { Adoption::New(number) })
    }

    fn too_many(&self) -> FileError {
        let text = format!(
            "there are more than {} directories to watch; watch a smaller tree or raise the limit",
            self.max_directories
        );
        FileError::check(std::io::ErrorKind::QuotaExceeded, text, &self.root)
    }

    /// Forgets the directory that was at a place where another one is now.
    fn make_room(&mut self, kernel: &Kernel, place: &Place<'_>, newcomer: Number) {
        if let Some(former) = self.directories.child(place.parent, place.name)
            && former != newcomer
        {
            self.drop_directory(kernel, former);
        }
    }

    fn drop_directory(&mut self, kernel: &Kernel, number: Number) {
        for number in self.directories.remove(number) {
            kernel.unwatch(number);
        }
    }
}

/// A name in a watched directory.
struct Place<'p> {
    parent: Number,
    name: &'p OsStr,
    path: PathBuf,
}
