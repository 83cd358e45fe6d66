//! What a watch asks of inotify, and its limits as errors that say what to do.

use std::ffi::OsString;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::inotify::{ReadFlags, WatchFlags};
use rustix::io::Errno;

use super::WatchShare;
use super::hub::{AddError, Hub};
use super::inbox::Inbox;
use super::routes::WatchNumber;
use crate::FileError;

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

/// What one watch asks of the kernel, through the hub that it shares with the others.
pub(super) struct Kernel {
    hub: Arc<Hub>,
    watch: WatchNumber,
    inbox: Arc<Inbox>,
}

impl Kernel {
    pub(super) fn new(root: &Path, share: &WatchShare, inbox: Arc<Inbox>) -> Result<Self, FileError> {
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

    /// Watches a directory below the root; `None` if it is gone, is no directory, or may not be read.
    pub(super) fn watch_below(&self, path: &Path) -> Result<Option<Number>, FileError> {
        match self.add(path, CONTENT | WatchFlags::DONT_FOLLOW) {
            Ok(number) => Ok(Some(number)),
            Err(error @ (AddError::Kernel(Errno::NOSPC | Errno::NOMEM) | AddError::TooMany { .. })) => {
                Err(refusal(error, path))
            }
            Err(AddError::Kernel(_)) => Ok(None),
        }
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
