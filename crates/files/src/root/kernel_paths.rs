//! System calls with fixed paths of the host, which no client chooses: `/proc/self/fd/N`, which names a file that this
//! process has open, and the settings of the kernel in `/proc/sys`.

use std::ffi::OsString;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, WatchFlags};
use rustix::fs::{Access, AtFlags, CWD, Mode, Timestamps, accessat, chmodat, linkat, readlinkat, utimensat};
use rustix::io::Errno;

use super::EntryAt;

/// Sets the permission bits of a file that may be open with `O_PATH`. Fails with `ENOENT` or `ENOTDIR` if there is no
/// `/proc`.
pub(crate) fn set_mode_of_opened(opened: &OwnedFd, mode: Mode) -> Result<(), Errno> {
    chmodat(CWD, path_of_opened(opened), mode, AtFlags::empty())
}

/// Sets the times of a file that may be open with `O_PATH`.
pub(crate) fn set_times_of_opened(opened: &OwnedFd, times: &Timestamps) -> Result<(), Errno> {
    utimensat(CWD, path_of_opened(opened), times, AtFlags::empty())
}

/// Whether this thread has the right `access` to a file that may be open with `O_PATH`.
pub(super) fn may_access_opened(opened: &OwnedFd, access: Access) -> Result<(), Errno> {
    accessat(CWD, path_of_opened(opened), access, AtFlags::EACCESS)
}

/// Fails if this process has no `/proc`, which [`link_opened_file`] needs.
pub(crate) fn check_proc_fd() -> Result<(), Errno> {
    accessat(CWD, "/proc/self/fd", Access::EXEC_OK, AtFlags::empty())
}

/// Gives an open file without a name the name `to`. Fails with `EEXIST` if the name exists.
pub(crate) fn link_opened_file(file: &OwnedFd, to: EntryAt<'_>) -> Result<(), Errno> {
    linkat(CWD, path_of_opened(file), to.directory, to.name, AtFlags::SYMLINK_FOLLOW)
}

/// The path that the kernel shows for an open file, in the mount namespace in which the file was opened. If the file
/// was removed, the kernel adds ` (deleted)` to its last path.
pub(super) fn shown_path_of_opened(opened: &impl AsFd) -> Result<PathBuf, Errno> {
    let shown = readlinkat(CWD, path_of_opened(opened), Vec::new())?;
    Ok(PathBuf::from(OsString::from_vec(shown.into_bytes())))
}

fn path_of_opened(opened: &impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", opened.as_fd().as_raw_fd()))
}

/// The text of a file with a setting of the kernel.
pub(crate) fn read_kernel_setting(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// A directory that can be added to inotify.
pub(crate) enum WatchablePath<'p> {
    /// A path that the kernel resolves on the host when the directory is added.
    OnHost(&'p Path),
    /// A directory that is open, also with `O_PATH`.
    Opened(OwnedFd),
    /// As `Opened`, for a directory that the caller needs further on.
    Borrowed(&'p OwnedFd),
}

impl WatchablePath<'_> {
    /// Adds the directory to an inotify instance, and returns its watch descriptor. The kernel checks that this thread
    /// may read the directory. Adding an open directory fails with `ENOENT` if there is no `/proc`.
    pub(crate) fn add_to(&self, inotify: &OwnedFd, flags: WatchFlags) -> Result<i32, Errno> {
        // With this flag, the kernel would watch the link in `/proc` and not the directory.
        let followed = flags.difference(WatchFlags::DONT_FOLLOW);
        match self {
            Self::OnHost(path) => inotify::add_watch(inotify, *path, flags),
            Self::Opened(opened) => inotify::add_watch(inotify, path_of_opened(opened), followed),
            Self::Borrowed(opened) => inotify::add_watch(inotify, path_of_opened(opened), followed),
        }
    }
}
