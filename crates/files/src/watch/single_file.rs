//! Watching a single file by its name in its directory. The file may be removed, replaced by another file and created
//! again. The watch ends when the directory is removed or moved.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::ReadFlags;

use super::WatchEnd;
use super::coalesce::PathEvent;
use super::inotify_handle::{InotifyEvent, InotifyHandle, WatchDescriptor};
use super::watcher::ReportEvent;
use crate::FileError;

pub(super) struct SingleFile {
    path: PathBuf,
    /// The directory that contains the file. All its events come; those about other names are ignored.
    parent: WatchDescriptor,
    parent_path: PathBuf,
    name: OsString,
    /// Whether the file exists. Read when the watch begins and by [`rescan`](Self::rescan), and updated by the
    /// events.
    is_present: bool,
    /// Whether events were lost, so that `is_present` may be wrong until the next rescan.
    is_out_of_sync: bool,
}

impl SingleFile {
    pub(super) fn new(inotify: &InotifyHandle, path: &Path) -> Result<Self, FileError> {
        let (Some(parent_path), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(FileError::refused("a path that ends in `..` cannot be watched", path));
        };
        let parent = inotify.watch_root_directory(parent_path)?;
        Ok(Self {
            path: path.to_owned(),
            parent,
            parent_path: parent_path.to_owned(),
            name: name.to_owned(),
            is_present: inotify.is_present(path),
            is_out_of_sync: false,
        })
    }

    /// Handles one event. Fails if the directory of the file was removed, moved or unmounted.
    pub(super) fn handle(&mut self, event: &InotifyEvent, report: &mut ReportEvent<'_>) -> Result<(), WatchEnd> {
        if event.descriptor != self.parent {
            return Ok(());
        }
        let Some(name) = &event.name else {
            let ends_watch = ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::UNMOUNT | ReadFlags::IGNORED;
            return if event.is(ends_watch) { Err(WatchEnd::RootRemoved) } else { Ok(()) };
        };
        if *name != self.name {
            return Ok(());
        }
        let is_directory = event.is(ReadFlags::ISDIR);
        let mut report = |event| report(self.path.clone(), is_directory, event);
        if event.is(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
            if std::mem::replace(&mut self.is_present, true) {
                // The new file has replaced the old one.
                report(PathEvent::Removed);
            }
            report(if event.is(ReadFlags::CREATE) { PathEvent::Created } else { PathEvent::MovedIn });
        } else if event.is(ReadFlags::DELETE | ReadFlags::MOVED_FROM) {
            self.is_present = false;
            report(PathEvent::Removed);
        } else if event.is(ReadFlags::MODIFY | ReadFlags::ATTRIB) {
            report(PathEvent::Modified);
        }
        Ok(())
    }

    /// Records that events were lost.
    pub(super) fn mark_out_of_sync(&mut self) {
        self.is_out_of_sync = true;
    }

    pub(super) fn is_out_of_sync(&self) -> bool {
        self.is_out_of_sync
    }

    /// Looks whether the file exists, after events were lost. Reports nothing, because the lost events are reported
    /// as an overflow. Fails if the directory of the file does not exist any more.
    pub(super) fn rescan(&mut self, inotify: &InotifyHandle) -> Result<(), WatchEnd> {
        self.is_out_of_sync = false;
        self.is_present = inotify.is_present(&self.path);
        if inotify.is_directory(&self.parent_path) { Ok(()) } else { Err(WatchEnd::RootRemoved) }
    }
}
