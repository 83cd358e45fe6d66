//! What a watch asks of inotify, and its limits as errors that say what to do.

use std::ffi::{OsStr, OsString};
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::inotify::{ReadFlags, WatchFlags};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, openat};
use rustix::io::Errno;

use super::WatchedDirectoryCount;
use super::hub::{AddError, Hub};
use super::inbox::Inbox;
use super::routes::WatchNumber;
use crate::FileError;
use crate::listing::{OPEN_TO_LIST, buffer, each_entry};
use crate::resolve::{OPEN_TO_PASS, open_child};
use crate::stat::{kind, stat};

/// What is asked about a directory whose content matters.
const CONTENT: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::EXCL_UNLINK)
    .union(WatchFlags::ONLYDIR);

/// What is asked about the directory that the root is in: only whether the root stays.
const ABOVE: WatchFlags =
    WatchFlags::DELETE.union(WatchFlags::MOVED_FROM).union(WatchFlags::MOVED_TO).union(WatchFlags::ONLYDIR);

/// The number by which the kernel speaks of a watched directory. It is not given out again soon.
pub(super) type Number = i32;

/// One event, out of the kernel's buffer.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) number: Number,
    pub(super) flags: ReadFlags,
    pub(super) cookie: u32,
    pub(super) name: Option<OsString>,
}

impl Event {
    pub(super) fn is(&self, flag: ReadFlags) -> bool {
        self.flags.intersects(flag)
    }
}

/// What came of a look into a directory.
pub(super) enum Look {
    /// It is watched under this number, and this was in it afterwards.
    Listed(Number, Listing),
    /// Nothing is at its path.
    Missing,
    /// It is no directory, or may not be read. It is watched all the same if there is a number.
    Refused(Option<Number>),
}

impl Look {
    /// By which the kernel speaks of the directory.
    pub(super) fn number(&self) -> Option<Number> {
        match self {
            Self::Listed(number, _) => Some(*number),
            Self::Missing => None,
            Self::Refused(number) => *number,
        }
    }
}

/// What is in a directory.
#[derive(Default)]
pub(super) struct Listing {
    /// SortedNames, and whether each is a directory.
    pub(super) entries: Vec<(OsString, bool)>,
    /// There were more files than wanted, and some are left out.
    pub(super) is_cut: bool,
}

/// What one watch asks of the kernel, through the hub that it shares with the others.
pub(super) struct Kernel {
    hub: Arc<Hub>,
    watch: WatchNumber,
    inbox: Arc<Inbox>,
}

impl Kernel {
    pub(super) fn new(root: &Path, share: &WatchedDirectoryCount, inbox: Arc<Inbox>) -> Result<Self, FileError> {
        let hub = Hub::current(root)?;
        let watch = hub.join(Arc::clone(&inbox), share.clone());
        Ok(Self { hub, watch, inbox })
    }

    /// Watches the root, where a symbolic link is followed.
    pub(super) fn watch_root(&self, path: &Path) -> Result<Number, FileError> {
        self.add(path, CONTENT).map_err(|error| refusal(error, path))
    }

    /// Watches the directory that the root is in. It may be refused to us, and then the root alone must do.
    pub(super) fn watch_above(&self, path: &Path) -> Option<Number> {
        self.add(path, ABOVE).ok()
    }

    /// Opens a directory, watches it and lists it. The three are about one directory, whatever happens to its path meanwhile; whether it
    /// is the right one is for the caller to know. The path below `root` must not lead through symbolic links. At most `most_files`
    /// entries are listed that are no directories; without it, only directories are.
    pub(super) fn look(&self, root: &Path, path: &Path, most_files: Option<usize>) -> Result<Look, FileError> {
        let directory = match open(root, path) {
            Ok(directory) => directory,
            Err(Errno::NOENT) => return Ok(Look::Missing),
            Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => return Err(FileError::os(error, path)),
            Err(_) => return Ok(Look::Refused(None)),
        };
        let opened = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
        let added = match self.add(&opened, CONTENT) {
            // There is no `/proc`. If the path leads elsewhere by now, the kernel tells so, and the caller does not count the look.
            Err(AddError::Kernel(Errno::NOENT)) => self.add(path, CONTENT | WatchFlags::DONT_FOLLOW),
            added => added,
        };
        let number = match added {
            Ok(number) => number,
            Err(error @ (AddError::Kernel(Errno::NOSPC | Errno::NOMEM) | AddError::TooMany { .. })) => {
                return Err(refusal(error, path));
            }
            Err(AddError::Kernel(Errno::NOENT)) => return Ok(Look::Missing),
            Err(AddError::Kernel(_)) => return Ok(Look::Refused(None)),
        };
        Ok(match list(&directory, most_files) {
            Ok(listing) => Look::Listed(number, listing),
            Err(_) => Look::Refused(Some(number)),
        })
    }

    pub(super) fn unwatch(&self, number: Number) {
        self.hub.remove(self.watch, number);
    }

    /// Waits for events, but not longer than `patience`. Breaks when the watch is to end.
    pub(super) fn wait(&self, patience: Option<Duration>) -> ControlFlow<()> {
        self.inbox.wait(patience)
    }

    /// Takes everything that the kernel has told by now, and says whether events were lost.
    pub(super) fn read(&self, events: &mut Vec<Event>) -> Result<bool, Errno> {
        self.hub.pump()?;
        self.inbox.take(events)
    }

    fn add(&self, path: &Path, flags: WatchFlags) -> Result<Number, AddError> {
        self.hub.add(self.watch, path, flags)
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.hub.leave(self.watch);
    }
}

fn open(root: &Path, path: &Path) -> Result<OwnedFd, Errno> {
    if path == root {
        return openat(CWD, path, OPEN_TO_LIST, Mode::empty());
    }
    match openat(CWD, path, OPEN_TO_LIST | OFlags::NOFOLLOW, Mode::empty()) {
        Err(Errno::NAMETOOLONG) => {}
        opened => return opened,
    }
    // The path is longer than the kernel takes at once.
    let mut directory = openat(CWD, root, OPEN_TO_PASS, Mode::empty())?;
    for name in path.strip_prefix(root).unwrap_or(path) {
        directory = open_child(&directory, name)?;
    }
    openat(&directory, c".", OPEN_TO_LIST, Mode::empty())
}

fn list(directory: &OwnedFd, most_files: Option<usize>) -> Result<Listing, Errno> {
    let mut listing = Listing::default();
    let mut files = 0;
    each_entry(directory, &mut buffer(), |name, listed_kind| {
        let is_directory = match listed_kind {
            FileType::Unknown => stat(directory, name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| kind(&stat)),
            known => Ok(known),
        } == Ok(FileType::Directory);
        files += usize::from(!is_directory);
        if is_directory || most_files.is_some_and(|most| files <= most) {
            listing.entries.push((OsStr::from_bytes(name.to_bytes()).to_owned(), is_directory));
        } else {
            listing.is_cut = most_files.is_some();
        }
        ControlFlow::Continue(())
    })?;
    Ok(listing)
}

fn refusal(error: AddError, path: &Path) -> FileError {
    let text = match error {
        AddError::Kernel(Errno::NOSPC) => {
            "no further directory can be watched; raise the sysctl fs.inotify.max_user_watches or watch fewer directories"
                .to_owned()
        }
        AddError::Kernel(other) => return FileError::os(other, path),
        AddError::TooMany { taken, limit } => format!(
            "the session watches {taken} directories and must leave as many of the {limit} for others; watch fewer directories or raise the sysctl fs.inotify.max_user_watches"
        ),
    };
    FileError::check(io::ErrorKind::QuotaExceeded, text, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_the_kernel_is_named() {
        for error in [AddError::Kernel(Errno::NOSPC), AddError::TooMany { taken: 7, limit: 13 }] {
            let error = refusal(error, Path::new("/a"));
            assert!(error.to_string().contains("fs.inotify.max_user_watches"), "{error}");
        }
        let missing = refusal(AddError::Kernel(Errno::NOENT), Path::new("/a"));
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
