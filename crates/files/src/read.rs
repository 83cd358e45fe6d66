//! Reading a file at once ([`read_file`]) or in blocks ([`open_file`]). Only regular files are read. The kind of a
//! file is checked before the file is opened: opening a FIFO would wait for a writer or wake a writer that waits, and
//! opening a device can have side effects.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::buffer::spare_capacity;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Statx, openat};
use rustix::io::{Errno, read, retry_on_intr};
use rustix::path::Arg;

use crate::local_devices;
use crate::regular_file::RegularFile;
use crate::resolve::NameInDirectory;
use crate::stat::{kind, stat, stat_open};
use crate::{FileError, Follow};

/// Capacity of the first buffer for a file of size 0. Its contents may be generated when they are read, as in
/// `/proc`. A full buffer grows by at least this much, but not beyond the limit.
const UNKNOWN_SIZE_CAPACITY: usize = 4096;

/// Reads a whole file. For a file of more than `limit` bytes, the error has a [`size_limit`](FileError::size_limit).
pub fn read_file(path: &Path, follow: Follow, limit: u64) -> Result<Vec<u8>, FileError> {
    let (file, stat) = open_regular(path, follow)?;
    if stat.stx_size > limit {
        return Err(FileError::too_large(limit, path));
    }
    // Both have one byte more than the contents, so that the last read, which returns 0, needs no larger buffer.
    let max_capacity = usize::try_from(limit).unwrap_or(usize::MAX).saturating_add(1);
    let expected = usize::try_from(stat.stx_size).unwrap_or(usize::MAX).saturating_add(1);
    let mut bytes = Vec::with_capacity(if stat.stx_size == 0 {
        UNKNOWN_SIZE_CAPACITY.min(max_capacity)
    } else {
        expected.min(max_capacity)
    });
    loop {
        if bytes.len() == bytes.capacity() {
            bytes.reserve_exact(
                bytes.len().max(UNKNOWN_SIZE_CAPACITY).min(max_capacity.saturating_sub(bytes.len()).max(1)),
            );
        }
        let count = retry_on_intr(|| read(&file, spare_capacity(&mut bytes))).map_err(FileError::at(path))?;
        if count == 0 {
            return Ok(bytes);
        }
        if bytes.len() as u64 > limit {
            return Err(FileError::too_large(limit, path));
        }
    }
}

/// Opens a file to be read in blocks. The result stays the same file when `path` is removed or replaced.
pub fn open_file(path: &Path, follow: Follow) -> Result<RegularFile, FileError> {
    let (file, _) = open_regular(path, follow)?;
    Ok(RegularFile::new(file, path))
}

fn open_regular(path: &Path, follow: Follow) -> Result<(OwnedFd, Statx), FileError> {
    let opened = match follow {
        Follow::Yes => open_at(CWD, path, path, follow),
        Follow::No => match NameInDirectory::resolve(path, follow)? {
            Some(target) => open_at(&target.directory, &target.name, path, follow),
            None => Err(FileError::not_a_file(path, follow)),
        },
    };
    // If the device is local, the functions of `cached` can use its files from now on.
    opened.inspect(|(_, stat)| local_devices::remember_whether_local(stat, path))
}

/// Opens a regular file for reading by its name in a directory. `path` is the path in an error.
pub(crate) fn open_at<F: AsFd, P: Arg + Copy>(
    directory: F,
    name: P,
    path: &Path,
    follow: Follow,
) -> Result<(OwnedFd, Statx), FileError> {
    let (at, no_follow) = match follow {
        Follow::Yes => (AtFlags::empty(), OFlags::empty()),
        Follow::No => (AtFlags::SYMLINK_NOFOLLOW, OFlags::NOFOLLOW),
    };
    let before = stat(&directory, name, at).map_err(FileError::at(path))?;
    // With `Follow::No` this can be a symbolic link, which the open below refuses with `ELOOP`.
    if !matches!(kind(&before), FileType::RegularFile | FileType::Symlink) {
        return Err(FileError::not_a_file(path, follow));
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC | no_follow;
    let file = match openat(&directory, name, flags, Mode::empty()) {
        Ok(file) => file,
        // A socket, for example, has taken the name after the check above.
        Err(Errno::NXIO) => return Err(FileError::not_a_file(path, follow)),
        Err(error) => return Err(FileError::os(error, path)),
    };
    let stat = stat_open(&file).map_err(FileError::at(path))?;
    if kind(&stat) != FileType::RegularFile {
        return Err(FileError::not_a_file(path, follow));
    }
    Ok((file, stat))
}
