//! Writing a whole file in place. A file that must never be seen incomplete is written by `upload` instead.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, Statx, ftruncate};
use rustix::io::{Errno, pwrite, retry_on_intr};

use crate::resolve::NameInDirectory;
use crate::root::{EnteredRoot, OpenTarget};
use crate::stat::{FileIdentity, kind, stat_open};
use crate::write_lock::WriteLock;
use crate::{FileError, FileRoot, Follow};

/// Replaces the contents of a file by `data`, or creates the file. An existing file keeps its inode, and so its mode, owner and hard
/// links. After an error, such as a full disk, the file may hold a part of the data. Concurrent calls for the same
/// file write one after the other.
pub fn write_file(root: &FileRoot, path: &Path, data: &[u8], follow: Follow) -> Result<(), FileError> {
    root.run(&[path], |inside| {
        let mode = Mode::from_raw_mode(0o666);
        let target = match follow {
            Follow::Yes => open_target(inside, OpenTarget::Path(path), path, mode)?,
            Follow::No => match NameInDirectory::resolve(inside, path, follow)? {
                Some(target) => open_target(inside, OpenTarget::Entry(target.entry()), path, mode)?,
                None => return Err(FileError::os(Errno::ISDIR, path)),
            },
        };
        let _lock = WriteLock::acquire(FileIdentity::of(&target.found));
        replace_contents(&target.file, data).map_err(FileError::at(path))
    })
}

/// A regular file that is open for writing.
pub(crate) struct WriteTarget {
    pub(crate) file: OwnedFd,
    /// Metadata of the file, read after it was opened.
    pub(crate) found: Statx,
    /// Whether opening the file has created it under the requested name.
    pub(crate) is_new: bool,
}

/// Overwrites the contents, and then truncates the file if the old contents were longer. Truncating first would be
/// several times slower: ext4, for example, waits for the disk when a file that was truncated to 0 is closed.
fn replace_contents(file: &OwnedFd, data: &[u8]) -> Result<(), Errno> {
    let written = write_reporting_progress(file, 0, data);
    let length = written.as_ref().map_or_else(|(length, _)| *length, |()| data.len() as u64);
    // The file is truncated also after an error, so that it does not keep old data behind the new data. The size is
    // read only now, because another program may have made the file longer since it was opened.
    let size = stat_open(file).map(|stat| stat.stx_size);
    let truncated = size.and_then(|size| if length < size { ftruncate(file, length) } else { Ok(()) });
    written.map_err(|(_, error)| error).and(truncated)
}

/// Opens a regular file for writing, or creates it with the permissions `mode`. The contents are not truncated. `path`
/// is only the path in an error.
pub(crate) fn open_target(
    inside: &EnteredRoot<'_>,
    target: OpenTarget<'_>,
    path: &Path,
    mode: Mode,
) -> Result<WriteTarget, FileError> {
    let follow = target.follow();
    // Opening a device can have side effects, and opening a FIFO disturbs its reader. With `Follow::No`, a FIFO is
    // opened nevertheless, without waiting, because clients expect the error `ENXIO` if no process reads the FIFO.
    let before = inside.stat_target(target).map(|stat| kind(&stat));
    match (before, follow) {
        (Ok(FileType::CharacterDevice | FileType::BlockDevice | FileType::Socket), _)
        | (Ok(FileType::Fifo), Follow::Yes) => return Err(FileError::not_a_file(path, follow)),
        _ => {}
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NONBLOCK | OFlags::NOCTTY;
    let created = match before {
        Err(Errno::NOENT) => inside.open_target(target, flags | OFlags::EXCL, mode).ok(),
        _ => None,
    };
    let is_new = created.is_some();
    let opened = created.map_or_else(|| inside.open_target(target, flags, mode), Ok);
    let file = opened.map_err(FileError::at(path))?;
    let found = stat_open(&file).map_err(FileError::at(path))?;
    if kind(&found) != FileType::RegularFile {
        return Err(FileError::not_a_file(path, follow));
    }
    Ok(WriteTarget { file, found, is_new })
}

/// Writes all of `data`, from `offset` on.
pub(crate) fn write_at<F: AsFd>(file: F, offset: u64, data: &[u8]) -> Result<(), Errno> {
    write_reporting_progress(file, offset, data).map_err(|(_, error)| error)
}

/// Does the same as [`write_at`]. The error contains the number of bytes that were written before the failure.
fn write_reporting_progress<F: AsFd>(file: F, offset: u64, data: &[u8]) -> Result<(), (u64, Errno)> {
    let mut done = 0;
    while done < data.len() {
        let at = offset + done as u64;
        let written = retry_on_intr(|| pwrite(&file, &data[done..], at)).and_then(|written| match written {
            0 => Err(Errno::NOSPC),
            some => Ok(some),
        });
        done += written.map_err(|error| (done as u64, error))?;
    }
    Ok(())
}
