//! inotify as the kernel offers it: watches in, events out, and its limits as errors that say what to do.

use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use crate::FileError;

/// About a thousand events with names of ordinary length.
const READ_BYTES: usize = 64 << 10;
/// Events handed over at a time, to bound what is copied out of the kernel's queue.
const EVENTS_AT_A_TIME: usize = 4096;

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
#[derive(Debug)]
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

/// Whether there is more to read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Queue {
    Empty,
    MoreToRead,
}

pub(super) struct Kernel {
    inotify: OwnedFd,
    buffer: Vec<MaybeUninit<u8>>,
}

impl Kernel {
    pub(super) fn new(root: &Path) -> Result<Self, FileError> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(|error| match error {
            Errno::MFILE => FileError::check(
                io::ErrorKind::QuotaExceeded,
                "no further watch can be started; raise the sysctl fs.inotify.max_user_instances or the limit of open files",
                root,
            ),
            other => FileError::os(other, root),
        })?;
        Ok(Self { inotify, buffer: vec![MaybeUninit::uninit(); READ_BYTES] })
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
            Err(error @ (Errno::NOSPC | Errno::NOMEM)) => Err(refusal(error, path)),
            Err(_) => Ok(None),
        }
    }

    pub(super) fn unwatch(&self, number: Number) {
        // Fails if the directory itself is gone, and the watch with it.
        let _gone_already = inotify::remove_watch(&self.inotify, number);
    }

    /// Reads what is there without waiting.
    pub(super) fn read(&mut self, events: &mut Vec<Event>) -> io::Result<Queue> {
        let mut reader = Reader::new(&self.inotify, &mut self.buffer);
        loop {
            match reader.next() {
                Ok(event) => events.push(Event {
                    number: event.wd(),
                    flags: event.events(),
                    cookie: event.cookie(),
                    name: event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()).to_owned()),
                }),
                Err(Errno::AGAIN) => return Ok(Queue::Empty),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            if events.len() >= EVENTS_AT_A_TIME && reader.is_buffer_empty() {
                return Ok(Queue::MoreToRead);
            }
        }
    }

    fn add(&self, path: &Path, flags: WatchFlags) -> Result<Number, Errno> {
        inotify::add_watch(&self.inotify, path, flags)
    }
}

impl AsFd for Kernel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

fn refusal(error: Errno, path: &Path) -> FileError {
    match error {
        Errno::NOSPC => FileError::check(
            io::ErrorKind::QuotaExceeded,
            "no further directory can be watched; raise the sysctl fs.inotify.max_user_watches or watch fewer directories",
            path,
        ),
        other => FileError::os(other, path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_the_kernel_is_named() {
        let error = refusal(Errno::NOSPC, Path::new("/a"));
        assert!(error.to_string().contains("fs.inotify.max_user_watches"), "{error}");
        assert_eq!(refusal(Errno::NOENT, Path::new("/a")).kind(), io::ErrorKind::NotFound);
    }
}
