//! One name in a directory that is held open. The functions here never follow a symbolic link, so the kernel resolves
//! nothing but this name, and no other process can lead the call to another directory.

use std::ffi::{CStr, OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use rustix::fs::{
    AtFlags, Mode, OFlags, Statx, StatxFlags, Timestamps, mkdirat, openat, readlinkat, statx, symlinkat, utimensat,
};
use rustix::io::{Errno, retry_on_intr};
use rustix::path::Arg;

/// A name in an open directory. The name need not exist.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryAt<'a> {
    pub(super) directory: BorrowedFd<'a>,
    /// A single name. Only on the root of this machine it can be a whole path, see [`EnteredRoot::locate`].
    ///
    /// [`EnteredRoot::locate`]: super::EnteredRoot::locate
    pub(super) name: &'a OsStr,
}

impl<'a> EntryAt<'a> {
    /// `name` must not contain a slash.
    pub(crate) fn new(directory: &'a impl AsFd, name: &'a OsStr) -> Self {
        debug_assert!(!name.as_bytes().contains(&b'/'), "{name:?} is not a single name");
        Self { directory: directory.as_fd(), name }
    }

    /// As [`new`](Self::new), for a name from a directory listing.
    pub(crate) fn listed(directory: &'a impl AsFd, name: &'a CStr) -> Self {
        Self::new(directory, OsStr::from_bytes(name.to_bytes()))
    }

    /// The metadata of the entry itself, also if it is a symbolic link.
    pub(crate) fn stat(self) -> Result<Statx, Errno> {
        statx_at(self.directory, self.name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Opens or creates the entry. For a symbolic link this fails with `ELOOP`, with `ENOTDIR` if `flags` have
    /// `DIRECTORY`, and it opens the link itself if `flags` have `PATH`.
    pub(crate) fn open(self, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        retry_on_intr(|| openat(self.directory, self.name, flags, mode))
    }

    /// Creates a directory. The umask reduces `mode`.
    pub(crate) fn make_directory(self, mode: Mode) -> Result<(), Errno> {
        mkdirat(self.directory, self.name, mode)
    }

    /// Creates a symbolic link with this target.
    pub(crate) fn make_link(self, target: &OsStr) -> Result<(), Errno> {
        symlinkat(target, self.directory, self.name)
    }

    /// The target of a symbolic link, as it is stored.
    pub(crate) fn link_target(self) -> Result<OsString, Errno> {
        let target = readlinkat(self.directory, self.name, Vec::new())?;
        Ok(OsString::from_vec(target.into_bytes()))
    }

    /// Sets the times of the entry itself, also if it is a symbolic link.
    pub(crate) fn set_times(self, times: &Timestamps) -> Result<(), Errno> {
        utimensat(self.directory, self.name, times, AtFlags::SYMLINK_NOFOLLOW)
    }
}

/// Opens an open directory a second time, with other flags.
pub(crate) fn open_self(directory: &OwnedFd, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    retry_on_intr(|| openat(directory, c".", flags | OFlags::CLOEXEC, mode))
}

/// Opens the directory that contains an open directory now. The caller must check that it is the expected one: the
/// directory may have been moved, even out of a sandbox.
pub(crate) fn open_parent(directory: &OwnedFd, flags: OFlags) -> Result<OwnedFd, Errno> {
    retry_on_intr(|| openat(directory, c"..", flags | OFlags::CLOEXEC, Mode::empty()))
}

/// The metadata of an open file.
pub(crate) fn stat_open(opened: impl AsFd) -> Result<Statx, Errno> {
    statx_at(opened, c"", AtFlags::EMPTY_PATH)
}

/// As [`stat_open`], with what the kernel has in its cache.
pub(crate) fn stat_open_cached(opened: impl AsFd) -> Result<Statx, Errno> {
    statx_at(opened, c"", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC)
}

/// `statx` with all members that this crate needs.
pub(super) fn statx_at(directory: impl AsFd, path: impl Arg, flags: AtFlags) -> Result<Statx, Errno> {
    statx(directory, path, flags, StatxFlags::BASIC_STATS | StatxFlags::BTIME | StatxFlags::MNT_ID)
}
