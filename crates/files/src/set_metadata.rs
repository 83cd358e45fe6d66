//! Changing what is known of a file.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, chmodat, fchmod, openat, utimensat,
};
use rustix::io::Errno;

use crate::place::Place;
use crate::stat::{kind, stat_open};
use crate::{FileError, Follow};

/// Sets the permission bits of a file, or when it was last written in seconds and nanoseconds since 1970. A link that is not to be
/// followed has a time of its own, but no permissions.
pub fn set_metadata(
    path: &Path,
    mode: Option<u32>,
    mtime: Option<(i64, u32)>,
    follow: Follow,
) -> Result<(), FileError> {
    let times = mtime.map(|mtime| timestamps(mtime, path)).transpose()?;
    let place = match follow {
        Follow::Yes => None,
        Follow::No => Place::find(path, follow)?,
    };
    if let Some(mode) = mode.map(|bits| Mode::from_raw_mode(bits & 0o7777)) {
        match &place {
            Some(place) => chmod_without_links(place, mode, path)?,
            None => chmodat(CWD, path, mode, AtFlags::empty()).map_err(FileError::at(path))?,
        }
    }
    if let Some(times) = times {
        match &place {
            Some(place) => utimensat(&place.directory, &place.name, &times, AtFlags::SYMLINK_NOFOLLOW),
            None => utimensat(CWD, path, &times, AtFlags::empty()),
        }
        .map_err(FileError::at(path))?;
    }
    Ok(())
}

/// Only the time of the last write; that of the last access stays.
pub(crate) fn timestamps((seconds, nanos): (i64, u32), path: &Path) -> Result<Timestamps, FileError> {
    // Larger numbers mean something else to the kernel.
    if nanos >= 1_000_000_000 {
        return Err(FileError::refused("nanoseconds must be below 1000000000", path));
    }
    Ok(Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: seconds, tv_nsec: nanos.into() },
    })
}

fn chmod_without_links(place: &Place, mode: Mode, path: &Path) -> Result<(), FileError> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = openat(&place.directory, &place.name, flags, Mode::empty()).map_err(FileError::at(path))?;
    if kind(&stat_open(&found).map_err(FileError::at(path))?) == FileType::Symlink {
        return Err(FileError::symbolic_link(path));
    }
    chmod_found(&found, place, mode).map_err(FileError::at(path))
}

fn chmod_found(found: &OwnedFd, place: &Place, mode: Mode) -> Result<(), Errno> {
    match chmodat(CWD, format!("/proc/self/fd/{}", found.as_raw_fd()), mode, AtFlags::empty()) {
        // Without /proc the file has to be opened for real.
        Err(Errno::NOENT | Errno::NOTDIR) => {
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            fchmod(openat(&place.directory, &place.name, flags, Mode::empty())?, mode)
        }
        done => done,
    }
}
