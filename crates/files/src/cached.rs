//! What the kernel can answer at once, for callers on a thread that must not block. `None` means nothing but that the blocking call
//! has to be made: here only the plain case is answered, and it is answered as there.

use std::io::IoSliceMut;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Statx, openat2};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use crate::local_devices::is_local;
use crate::stat::{Metadata, describe, kind, stat};
use crate::{FileError, Follow};

/// More than this takes long enough to copy that a thread that may block should do it.
const LARGEST_READ: u64 = 64 * 1024;

/// What [`metadata`](crate::metadata) says of `path`, following links, if that is known without waiting.
pub fn metadata_if_cached(path: &Path) -> Option<Result<Metadata, FileError>> {
    let found = match open_cached(path, OFlags::PATH | OFlags::NOFOLLOW)? {
        Ok(opened) => stat_cached(&opened)?,
        Err(error) => return Some(Err(error)),
    };
    let is_plain = kind(&found) != FileType::Symlink && is_local(&found);
    is_plain.then(|| Ok(describe(&found, Follow::Yes)))
}

/// What [`read_file`](crate::read_file) says of `path`, following links, if the file is small and in memory.
pub fn read_file_if_cached(path: &Path, limit: u64) -> Option<Result<Vec<u8>, FileError>> {
    // Looked at before it is opened, since opening anything but a file of a local device may wait.
    let size = match open_cached(path, OFlags::PATH)? {
        Ok(opened) => readable_size(&stat_cached(&opened)?, limit)?,
        Err(error) => return Some(Err(error)),
    };
    // Whatever stands there by now: to read it without waiting works for a file only, and one byte more than there should be shows
    // whether it is as long.
    let file = open_cached(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?.ok()?;
    let mut bytes = vec![0; size + 1];
    let count = preadv2(&file, &mut [IoSliceMut::new(&mut bytes)], 0, ReadWriteFlags::NOWAIT).ok()?;
    bytes.truncate(count);
    (count == size).then_some(Ok(bytes))
}

fn open_cached(path: &Path, flags: OFlags) -> Option<Result<OwnedFd, FileError>> {
    match openat2(CWD, path, flags | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::CACHED) {
        Ok(opened) => Some(Ok(opened)),
        // The kernel remembers names that are not there, too.
        Err(error @ (Errno::NOENT | Errno::NOTDIR)) => Some(Err(FileError::os(error, path))),
        Err(_) => None,
    }
}

fn stat_cached(opened: &OwnedFd) -> Option<Statx> {
    stat(opened, c"", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC).ok()
}

fn readable_size(stat: &Statx, limit: u64) -> Option<usize> {
    let is_plain = kind(stat) == FileType::RegularFile && is_local(stat);
    // A file that says it is empty may be one that is made up while it is read.
    let fits = stat.stx_size > 0 && stat.stx_size <= limit.min(LARGEST_READ);
    if is_plain && fits { usize::try_from(stat.stx_size).ok() } else { None }
}
