//! Reading a file at once ([`read_file`]) or in blocks ([`open_file`]). Only regular files are read. The kind of a
//! file is checked before the file is opened: opening a FIFO would wait for a writer or wake a writer that waits, and
//! opening a device can have side effects.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::buffer::spare_capacity;
use rustix::fs::{FileType, Mode, OFlags, Statx};
use rustix::io::{Errno, read, retry_on_intr};

use crate::local_devices;
use crate::regular_file::RegularFile;
use crate::resolve::NameInDirectory;
use crate::root::{EnteredRoot, OpenTarget};
use crate::stat::{kind, stat_open};
use crate::{FileError, FileRoot, Follow};

/// Capacity of the first buffer for a file of size 0. Its contents may be generated when they are read, as in
/// `/proc`. A full buffer grows by at least this much, but not beyond the limit.
const UNKNOWN_SIZE_CAPACITY: usize = 4096;

/// Reads a whole file. For a file of more than `limit` bytes, the error has a [`size_limit`](FileError::size_limit).
pub fn read_file(root: &FileRoot, path: &Path, follow: Follow, limit: u64) -> Result<Vec<u8>, FileError> {
    let (file, stat) = root.run(&[path], |inside| open_regular(inside, path, follow))?;
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
pub fn open_file(root: &FileRoot, path: &Path, follow: Follow) -> Result<RegularFile, FileError> {
    let (file, _) = root.run(&[path], |inside| open_regular(inside, path, follow))?;
    Ok(RegularFile::new(file, path))
}

fn open_regular(inside: &EnteredRoot<'_>, path: &Path, follow: Follow) -> Result<(OwnedFd, Statx), FileError> {
    let opened = match follow {
        Follow::Yes => open_target(inside, OpenTarget::Path(path), path),
        Follow::No => match NameInDirectory::resolve(inside, path, follow)? {
            Some(target) => open_target(inside, OpenTarget::Entry(target.entry()), path),
            None => Err(FileError::not_a_file(path, follow)),
        },
    };
    // If the device is local, the functions of `cached` can use its files from now on.
    opened.inspect(|(_, stat)| local_devices::remember_whether_local(inside, stat, path))
}

/// Opens a regular file for reading. `path` is the path in an error.
pub(crate) fn open_target(
    inside: &EnteredRoot<'_>,
    target: OpenTarget<'_>,
    path: &Path,
) -> Result<(OwnedFd, Statx), FileError> {
    let follow = target.follow();
    let before = inside.stat_target(target).map_err(FileError::at(path))?;
    // With `Follow::No` this can be a symbolic link, which the open below refuses with `ELOOP`.
    if !matches!(kind(&before), FileType::RegularFile | FileType::Symlink) {
        return Err(FileError::not_a_file(path, follow));
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = match inside.open_target(target, flags, Mode::empty()) {
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
