//! Changing the permissions and the modification time of a file.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, fchmod};
use rustix::io::Errno;

use crate::resolve::NameInDirectory;
use crate::root::set_mode_of_opened;
use crate::stat::{kind, stat_open};
use crate::{FileError, FileRoot, Follow};

/// Sets the permission bits of a file (`mode`), its modification time in seconds and nanoseconds since 1970 (`mtime`), or both. With
/// [`Follow::No`], the time of a symbolic link itself is set; setting its permissions is an error.
pub fn set_metadata(
    root: &FileRoot,
    path: &Path,
    mode: Option<u32>,
    mtime: Option<(i64, u32)>,
    follow: Follow,
) -> Result<(), FileError> {
    let times = mtime.map(|mtime| timestamps(mtime, path)).transpose()?;
    root.run(&[path], |inside| {
        let target = match follow {
            Follow::Yes => None,
            Follow::No => NameInDirectory::resolve(inside, path, follow)?,
        };
        if let Some(mode) = mode.map(|bits| Mode::from_raw_mode(bits & 0o7777)) {
            match &target {
                Some(target) => chmod_without_links(target, mode, path)?,
                None => inside.set_mode(path, mode).map_err(FileError::at(path))?,
            }
        }
        if let Some(times) = times {
            match &target {
                Some(target) => target.entry().set_times(&times),
                None => inside.set_times(path, &times),
            }
            .map_err(FileError::at(path))?;
        }
        Ok(())
    })
}

/// Timestamps that change the modification time and keep the access time.
pub(crate) fn timestamps((seconds, nanos): (i64, u32), path: &Path) -> Result<Timestamps, FileError> {
    // Some larger numbers, such as `UTIME_NOW`, have a special meaning for the kernel.
    if nanos >= 1_000_000_000 {
        return Err(FileError::refused("nanoseconds must be below 1000000000", path));
    }
    Ok(Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: seconds, tv_nsec: nanos.into() },
    })
}

fn chmod_without_links(target: &NameInDirectory, mode: Mode, path: &Path) -> Result<(), FileError> {
    let found = target.entry().open(OFlags::PATH, Mode::empty()).map_err(FileError::at(path))?;
    if kind(&stat_open(&found).map_err(FileError::at(path))?) == FileType::Symlink {
        return Err(FileError::symbolic_link(path));
    }
    chmod_found(&found, target, mode).map_err(FileError::at(path))
}

fn chmod_found(found: &OwnedFd, target: &NameInDirectory, mode: Mode) -> Result<(), Errno> {
    match set_mode_of_opened(found, mode) {
        // Without `/proc`, the file has to be opened for reading.
        Err(Errno::NOENT | Errno::NOTDIR) => {
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
            fchmod(target.entry().open(flags, Mode::empty())?, mode)
        }
        done => done,
    }
}
