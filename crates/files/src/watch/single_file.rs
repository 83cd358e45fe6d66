//! Watching one name in a directory: the file may be removed, replaced by another one and made again.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::ReadFlags;

use super::WatchEnd;
use super::coalesce::Happening;
use super::kernel::{Event, Kernel, Number};
use super::watcher::Report;
use crate::FileError;

pub(super) struct SingleFile {
    path: PathBuf,
    parent: Number,
    parent_path: PathBuf,
    name: OsString,
    is_present: bool,
    has_lost_track: bool,
}

impl SingleFile {
    pub(super) fn new(kernel: &Kernel, path: &Path) -> Result<Self, FileError> {
        let (Some(parent_path), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(FileError::refused("a path that ends in `..` cannot be watched", path));
        };
        let parent = kernel.watch_root(parent_path)?;
        Ok(Self {
            path: path.to_owned(),
            parent,
            parent_path: parent_path.to_owned(),
            name: name.to_owned(),
            is_present: std::fs::symlink_metadata(path).is_ok(),
            has_lost_track: false,
        })
    }

    pub(super) fn handle(&mut self, event: &Event, report: &mut Report<'_>) -> Result<(), WatchEnd> {
        if event.number != self.parent {
            return Ok(());
        }
        let Some(name) = &event.name else {
            let is_over = ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::UNMOUNT | ReadFlags::IGNORED;
            return if event.is(is_over) { Err(WatchEnd::RootRemoved) } else { Ok(()) };
        };
        if *name != self.name {
            return Ok(());
        }
        let is_directory = event.is(ReadFlags::ISDIR);
        let mut report = |happening| report(self.path.clone(), is_directory, happening);
        if event.is(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
            if std::mem::replace(&mut self.is_present, true) {
                report(Happening::Removed);
            }
            report(if event.is(ReadFlags::CREATE) { Happening::Created } else { Happening::Arrived });
        } else if event.is(ReadFlags::DELETE | ReadFlags::MOVED_FROM) {
            self.is_present = false;
            report(Happening::Removed);
        } else if event.is(ReadFlags::MODIFY | ReadFlags::ATTRIB) {
            report(Happening::Modified);
        }
        Ok(())
    }

    pub(super) fn lose_track(&mut self) {
        self.has_lost_track = true;
    }

    pub(super) fn has_lost_track(&self) -> bool {
        self.has_lost_track
    }

    pub(super) fn look_again(&mut self) -> Result<(), WatchEnd> {
        self.has_lost_track = false;
        self.is_present = std::fs::symlink_metadata(&self.path).is_ok();
        if self.parent_path.is_dir() { Ok(()) } else { Err(WatchEnd::RootRemoved) }
    }
}
