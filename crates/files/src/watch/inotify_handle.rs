//! The access of one watch to the inotify instance that all watches share: adds directories, scans them and receives
//! events. A watch has a *root*, which is the directory or file that its caller wants to watch. If the number of
//! watched directories reaches a limit, the error says what to do.

use std::ffi::{OsStr, OsString};
use std::io;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::inotify::{ReadFlags, WatchFlags};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::WatchedDirectoryCount;
use super::event_queue::EventQueue;
use super::shared_inotify::{AddDirectoryError, SharedInotify};
use super::subscriptions::WatchId;
use crate::listing::{OPEN_TO_LIST, buffer, each_entry};
use crate::resolve::{OPEN_TO_TRAVERSE, open_child};
use crate::root::{EnteredRoot, EntryAt, WatchablePath, open_self};
use crate::stat::kind;
use crate::{FileError, FileRoot, Follow};

/// The events that are requested for a watched directory. The last two flags are not events but options.
const CONTENT_EVENTS: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::EXCL_UNLINK)
    .union(WatchFlags::ONLYDIR);

/// The events that are requested for the parent directory of the root, to learn when the root is removed or moved.
/// The last flag is an option.
const ROOT_PARENT_EVENTS: WatchFlags =
    WatchFlags::DELETE.union(WatchFlags::MOVED_FROM).union(WatchFlags::MOVED_TO).union(WatchFlags::ONLYDIR);

/// The number by which inotify identifies a watched directory. The kernel does not use a number again soon.
pub(super) type WatchDescriptor = i32;

/// An event that was read from inotify. If the queue of the kernel overflows, this is an event too, with the
/// descriptor -1.
#[derive(Clone, Debug)]
pub(super) struct InotifyEvent {
    pub(super) descriptor: WatchDescriptor,
    pub(super) flags: ReadFlags,
    /// Equal for the two events of one rename, and 0 for other events.
    pub(super) cookie: u32,
    /// Name of an entry of the directory. `None` if the event is about the directory itself.
    pub(super) name: Option<OsString>,
}

impl InotifyEvent {
    /// Whether the event has any of these flags.
    pub(super) fn is(&self, flags: ReadFlags) -> bool {
        self.flags.intersects(flags)
    }
}

/// The result of scanning a directory.
pub(super) enum DirectoryScan {
    /// The directory was added to inotify with this descriptor, and then had these entries.
    Listed(WatchDescriptor, ScannedEntries),
    /// The path does not exist.
    Missing,
    /// The directory could not be opened, added to inotify or listed: it may not be read, for example, or the path is
    /// not a directory. Holds the descriptor if the directory was added to inotify, but not listed.
    Refused(Option<WatchDescriptor>),
}

impl DirectoryScan {
    pub(super) fn descriptor(&self) -> Option<WatchDescriptor> {
        match self {
            Self::Listed(descriptor, _) => Some(*descriptor),
            Self::Missing => None,
            Self::Refused(descriptor) => *descriptor,
        }
    }
}

/// The entries of a directory.
#[derive(Default)]
pub(super) struct ScannedEntries {
    /// The name of each entry, and whether the entry is a directory.
    pub(super) entries: Vec<(OsString, bool)>,
    /// Whether there were more than `max_files` entries that are not directories, so that some are not in `entries`.
    /// False if only directories were requested.
    pub(super) is_incomplete: bool,
}

/// The access of one watch to the shared inotify instance. Dropping it removes the directories of the watch from
/// inotify, except those that other watches have too.
pub(super) struct InotifyHandle {
    /// The root in which the paths of the watch are resolved.
    file_root: FileRoot,
    shared_inotify: Arc<SharedInotify>,
    watch: WatchId,
    queue: Arc<EventQueue>,
}

impl InotifyHandle {
    /// Subscribes a new watch, whose paths are resolved in `file_root`, and whose events are put into `queue`. Its
    /// directories are counted in `count`. `root` is only the path in an error.
    pub(super) fn new(
        file_root: &FileRoot,
        root: &Path,
        count: &WatchedDirectoryCount,
        queue: Arc<EventQueue>,
    ) -> Result<Self, FileError> {
        let shared_inotify = SharedInotify::current(root)?;
        let watch = shared_inotify.subscribe(Arc::clone(&queue), count.clone());
        Ok(Self { file_root: file_root.clone(), shared_inotify, watch, queue })
    }

    /// Adds the root, or the directory that contains the root if the root is a single file. A symbolic link is
    /// followed.
    pub(super) fn watch_root_directory(&self, path: &Path) -> Result<WatchDescriptor, FileError> {
        self.add(path, Follow::Yes, CONTENT_EVENTS).map_err(|error| watch_error(error, path))
    }

    /// Adds the parent directory of a root that is a directory, only for the events that the root is removed or
    /// moved. `None` if that fails, for lack of permission for example; the watch then works without these events.
    pub(super) fn watch_root_parent(&self, path: &Path) -> Option<WatchDescriptor> {
        self.add(path, Follow::Yes, ROOT_PARENT_EVENTS).ok()
    }

    /// Opens a directory, adds it to inotify and lists it. All three steps concern the same directory, even if its
    /// path changes meanwhile, unless there is no `/proc`. The names of `path` below `root` are expected to be
    /// directories and not symbolic links. If one of them has been replaced, the scan may be of another directory;
    /// the caller must find this out from the events. At most `max_files` entries that are not directories are
    /// listed; with `None`, only directories are.
    pub(super) fn scan(
        &self,
        root: &Path,
        path: &Path,
        max_files: Option<usize>,
    ) -> Result<DirectoryScan, FileError> {
        let inside = self.file_root.enter().map_err(FileError::at(path))?;
        let directory = match open(&inside, root, path) {
            Ok(directory) => directory,
            Err(Errno::NOENT) => return Ok(DirectoryScan::Missing),
            Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => return Err(FileError::os(error, path)),
            Err(_) => return Ok(DirectoryScan::Refused(None)),
        };
        let opened = WatchablePath::Borrowed(&directory);
        let added = match self.shared_inotify.add_directory(self.watch, &opened, CONTENT_EVENTS) {
            // There is no `/proc`. The path may lead to another directory by now. An event then says so, and the
            // caller discards the scan.
            Err(AddDirectoryError::Kernel(Errno::NOENT)) => {
                self.add(path, Follow::No, CONTENT_EVENTS | WatchFlags::DONT_FOLLOW)
            }
            added => added,
        };
        let descriptor = match added {
            Ok(descriptor) => descriptor,
            Err(
                error @ (AddDirectoryError::Kernel(Errno::NOSPC | Errno::NOMEM)
                | AddDirectoryError::TooManyDirectories { .. }),
            ) => {
                return Err(watch_error(error, path));
            }
            Err(AddDirectoryError::Kernel(Errno::NOENT)) => return Ok(DirectoryScan::Missing),
            Err(AddDirectoryError::Kernel(_)) => return Ok(DirectoryScan::Refused(None)),
        };
        Ok(match list(&directory, max_files) {
            Ok(listing) => DirectoryScan::Listed(descriptor, listing),
            Err(_) => DirectoryScan::Refused(Some(descriptor)),
        })
    }

    /// Removes a directory from this watch, and from inotify if no other watch has it.
    pub(super) fn unwatch(&self, descriptor: WatchDescriptor) {
        self.shared_inotify.remove_directory(self.watch, descriptor);
    }

    /// Waits for events, at most for `timeout`. Returns `Break` if the watch has to end.
    pub(super) fn wait(&self, timeout: Option<Duration>) -> ControlFlow<()> {
        self.queue.wait(timeout)
    }

    /// Appends to `events` all events of this watch that the kernel has queued by now. Returns whether events were
    /// lost.
    pub(super) fn read_events(&self, events: &mut Vec<InotifyEvent>) -> Result<bool, Errno> {
        self.shared_inotify.read_events()?;
        self.queue.take(events)
    }

    fn add(&self, path: &Path, follow: Follow, flags: WatchFlags) -> Result<WatchDescriptor, AddDirectoryError> {
        let inside = self.file_root.enter().map_err(AddDirectoryError::Kernel)?;
        let watchable = inside.watchable(path, follow).map_err(AddDirectoryError::Kernel)?;
        self.shared_inotify.add_directory(self.watch, &watchable, flags)
    }

    /// Whether the name at the end of a path exists, also if it is a link without a target.
    pub(super) fn is_present(&self, path: &Path) -> bool {
        self.file_root.enter().is_ok_and(|inside| inside.stat_itself(path).is_ok())
    }

    /// Whether a path leads to a directory.
    pub(super) fn is_directory(&self, path: &Path) -> bool {
        self.file_root.enter().is_ok_and(|inside| inside.is_directory(path))
    }
}

impl Drop for InotifyHandle {
    fn drop(&mut self) {
        self.shared_inotify.unsubscribe(self.watch);
    }
}

fn open(inside: &EnteredRoot<'_>, root: &Path, path: &Path) -> Result<OwnedFd, Errno> {
    if path == root {
        return inside.open(path, OPEN_TO_LIST, Mode::empty());
    }
    match inside.open(path, OPEN_TO_LIST | OFlags::NOFOLLOW, Mode::empty()) {
        Err(Errno::NAMETOOLONG) => {}
        opened => return opened,
    }
    // The path is too long for one system call.
    let mut directory = inside.open(root, OPEN_TO_TRAVERSE, Mode::empty())?;
    for name in path.strip_prefix(root).unwrap_or(path) {
        directory = open_child(&directory, name)?;
    }
    open_self(&directory, OPEN_TO_LIST, Mode::empty())
}

fn list(directory: &OwnedFd, max_files: Option<usize>) -> Result<ScannedEntries, Errno> {
    let mut listing = ScannedEntries::default();
    let mut files = 0;
    each_entry(directory, &mut buffer(), |name, listed_kind| {
        let is_directory = match listed_kind {
            FileType::Unknown => EntryAt::listed(directory, name).stat().map(|stat| kind(&stat)),
            known => Ok(known),
        } == Ok(FileType::Directory);
        files += usize::from(!is_directory);
        if is_directory || max_files.is_some_and(|max| files <= max) {
            listing.entries.push((OsStr::from_bytes(name.to_bytes()).to_owned(), is_directory));
        } else {
            listing.is_incomplete = max_files.is_some();
        }
        ControlFlow::Continue(())
    })?;
    Ok(listing)
}

fn watch_error(error: AddDirectoryError, path: &Path) -> FileError {
    let text = match error {
        AddDirectoryError::Kernel(Errno::NOSPC) => {
            "no further directory can be watched; raise the sysctl fs.inotify.max_user_watches or watch fewer directories"
                .to_owned()
        }
        AddDirectoryError::Kernel(other) => return FileError::os(other, path),
        AddDirectoryError::TooManyDirectories { watched, limit } => format!(
            "the session watches {watched} of the {limit} directories that this user may watch, and must leave at least as many free as it watches; watch fewer directories or raise the sysctl fs.inotify.max_user_watches"
        ),
    };
    FileError::failed_check(io::ErrorKind::QuotaExceeded, text, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_about_a_limit_names_the_sysctl_to_raise_and_other_errors_keep_their_kind() {
        for error in
            [AddDirectoryError::Kernel(Errno::NOSPC), AddDirectoryError::TooManyDirectories { watched: 7, limit: 13 }]
        {
            let error = watch_error(error, Path::new("/a"));
            assert!(error.to_string().contains("fs.inotify.max_user_watches"), "{error}");
        }
        let missing = watch_error(AddDirectoryError::Kernel(Errno::NOENT), Path::new("/a"));
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
