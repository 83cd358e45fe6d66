//! Metadata and contents that the kernel has in its cache, for callers on a thread that must not block. These
//! functions return exactly what the blocking functions would return, or `None`. `None` says nothing about the file:
//! the caller must make the blocking call. Only files on local devices are answered for, which are devices whose file
//! system keeps its data on this machine. The module `local_devices` remembers which devices are local.

use std::io::IoSliceMut;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FileType, OFlags, Statx};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use crate::local_devices::is_local;
use crate::root::EnteredRoot;
use crate::stat::{Metadata, describe, kind, stat_open_cached};
use crate::{FileError, FileRoot, Follow};

/// Copying more bytes than this takes too long for a thread that must not block.
const MAX_CACHED_READ_BYTES: u64 = 64 * 1024;

/// Returns the result of [`metadata`](crate::metadata) for `path` with [`Follow::Yes`], if the kernel can answer
/// without waiting. Always `None` for a symbolic link and for a file on a device that is not known to be local.
pub fn metadata_if_cached(root: &FileRoot, path: &Path) -> Option<Result<Metadata, FileError>> {
    let inside = root.enter().ok()?;
    let found = match open_cached(&inside, path, OFlags::PATH | OFlags::NOFOLLOW)? {
        Ok(opened) => stat_open_cached(&opened).ok()?,
        Err(error) => return Some(Err(error)),
    };
    let is_answer = kind(&found) != FileType::Symlink && is_local(&found);
    is_answer.then(|| Ok(describe(&found, Follow::Yes)))
}

/// Returns the result of [`read_file`](crate::read_file) for `path` with [`Follow::Yes`], if the kernel can answer
/// without waiting. The contents are returned only if the whole file is in the page cache and on a device that is
/// known to be local. The file must not be empty, and must have neither more than 64 KiB nor more than `limit` bytes.
pub fn read_file_if_cached(root: &FileRoot, path: &Path, limit: u64) -> Option<Result<Vec<u8>, FileError>> {
    let inside = root.enter().ok()?;
    // The file is checked before it is opened for reading, because opening anything but a regular file on a local
    // device may block.
    let size = match open_cached(&inside, path, OFlags::PATH)? {
        Ok(opened) => readable_size(&stat_open_cached(&opened).ok()?, limit)?,
        Err(error) => return Some(Err(error)),
    };
    // The path may name another file by now. The read fails if it would have to wait, and it asks for one byte more
    // than the expected size, so that a file of another size is noticed.
    let file = open_cached(&inside, path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?.ok()?;
    let mut bytes = vec![0; size + 1];
    let count = preadv2(&file, &mut [IoSliceMut::new(&mut bytes)], 0, ReadWriteFlags::NOWAIT).ok()?;
    bytes.truncate(count);
    (count == size).then_some(Ok(bytes))
}

fn open_cached(inside: &EnteredRoot<'_>, path: &Path, flags: OFlags) -> Option<Result<OwnedFd, FileError>> {
    match inside.open_cached(path, flags) {
        Ok(opened) => Some(Ok(opened)),
        // The kernel also caches that a name does not exist or is no directory, so these two errors are answers.
        Err(error @ (Errno::NOENT | Errno::NOTDIR)) => Some(Err(FileError::os(error, path))),
        Err(_) => None,
    }
}

/// The size of a file that may be read without blocking. `None` if the caller must make the blocking call.
fn readable_size(stat: &Statx, limit: u64) -> Option<usize> {
    let is_local_file = kind(stat) == FileType::RegularFile && is_local(stat);
    // Files whose contents are generated when they are read, as in `/proc`, have size 0.
    let fits = stat.stx_size > 0 && stat.stx_size <= limit.min(MAX_CACHED_READ_BYTES);
    if is_local_file && fits { usize::try_from(stat.stx_size).ok() } else { None }
}
