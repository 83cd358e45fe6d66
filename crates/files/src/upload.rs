//! A file that arrives in pieces, and stands where it belongs only when it is whole.

use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use parking_lot::RwLock;
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Statx, Uid, fchmod, fchown, fsync, ftruncate, futimens, openat,
};
use rustix::io::Errno;

use crate::links::read_link;
use crate::place::Place;
use crate::set_metadata::timestamps;
use crate::stat::{kind, permissions, stat, stat_open};
use crate::temporary::Temporary;
use crate::write::write_at;
use crate::{FileError, Follow};

/// As many as the kernel follows.
const MOST_LINKS: usize = 40;

/// What is to be done with the file before it takes its place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommitOptions {
    /// Cut off or filled up with zeros to so many bytes.
    pub size: Option<u64>,
    /// Permission bits. Otherwise those of the file that is replaced, or those of any new file.
    pub mode: Option<u32>,
    /// Permission bits of a file that replaces none, less those that the umask takes. Without them, those of any new file.
    pub mode_if_new: Option<u32>,
    /// When it was last written, in seconds and nanoseconds since 1970.
    pub mtime: Option<(i64, u32)>,
    /// Wait until it is on the disk.
    pub sync: bool,
}

/// A file on its way. Dropped without a commit, it leaves nothing behind.
#[derive(Debug)]
pub struct Upload {
    destination: PathBuf,
    replace: bool,
    follow: Follow,
    /// `None` once it was committed, whether that succeeded or not. Blocks are written side by side, and none after that.
    temporary: RwLock<Option<Temporary>>,
    /// Why a block was not written, as a kind and a sentence. Such a file has a hole that nobody asked for, so it is never committed.
    failure: OnceLock<(ErrorKind, String)>,
}

impl Upload {
    /// Begins a file that is to stand at `destination`, or, if links are followed, where the link there leads. Without `replace`
    /// nothing may be there.
    pub fn create(destination: &Path, replace: bool, follow: Follow) -> Result<Self, FileError> {
        let target = match follow {
            Follow::Yes if replace => end_of_links(destination)?,
            _ => destination.to_owned(),
        };
        let place = Place::find(&target, follow)?.ok_or_else(|| FileError::os(Errno::ISDIR, destination))?;
        replaceable(&place, destination, replace, follow)?;
        let temporary = Temporary::create(place).map_err(FileError::at(destination))?;
        Ok(Self {
            destination: destination.to_owned(),
            replace,
            follow,
            temporary: RwLock::new(Some(temporary)),
            failure: OnceLock::new(),
        })
    }

    /// Writes a piece, in any order and beside others. One that fails ends the upload: no further piece is written, and the commit
    /// fails too, so that callers may ask for it before they know what became of the pieces.
    pub fn write_block(&self, offset: u64, data: &[u8]) -> Result<(), FileError> {
        self.check()?;
        let written = self.try_write_block(offset, data);
        if let Err(error) = &written {
            let sentence = format!("{} bytes at offset {offset} were not written: {error}", data.len());
            // The first failure explains those that follow it.
            let _explained = self.failure.set((error.kind(), sentence));
        }
        written
    }

    fn try_write_block(&self, offset: u64, data: &[u8]) -> Result<(), FileError> {
        let end = offset.checked_add(data.len() as u64).filter(|end| i64::try_from(*end).is_ok());
        if end.is_none() {
            return Err(FileError::refused("file write offset overflowed", &self.destination));
        }
        let temporary = self.temporary.read();
        let temporary = temporary.as_ref().ok_or_else(|| self.finished())?;
        write_at(&temporary.file, offset, data).map_err(FileError::at(&self.destination))
    }

    fn check(&self) -> Result<(), FileError> {
        let Some((kind, sentence)) = self.failure.get() else { return Ok(()) };
        Err(FileError::check(*kind, format!("the upload has failed: {sentence}"), &self.destination))
    }

    /// Puts the file where it belongs, in one step. Once, whether that succeeds or not: after an error everything is as it was
    /// before the upload, except that a disk may fail when all that is left is to sync the directory.
    pub fn commit(&self, options: &CommitOptions) -> Result<(), FileError> {
        let mut temporary = self.temporary.write().take().ok_or_else(|| self.finished())?;
        self.check()?;
        let existing = replaceable(temporary.place(), &self.destination, self.replace, self.follow)?;
        let times = options.mtime.map(|mtime| timestamps(mtime, &self.destination)).transpose()?;
        let placed = (|| {
            if let Some(size) = options.size {
                ftruncate(&temporary.file, size)?;
            }
            set_owner_and_mode(&temporary, existing.as_ref(), options)?;
            if let Some(times) = times {
                futimens(&temporary.file, &times)?;
            }
            if options.sync {
                fsync(&temporary.file)?;
            }
            temporary.take_place(self.replace)?;
            if options.sync { sync_directory(&temporary.place().directory) } else { Ok(()) }
        })();
        placed.map_err(FileError::at(&self.destination))
    }

    fn finished(&self) -> FileError {
        FileError::refused("the upload is finished", &self.destination)
    }
}

/// What the last link of a chain says, which need not exist.
fn end_of_links(path: &Path) -> Result<PathBuf, FileError> {
    let mut target = path.to_owned();
    for _ in 0..MOST_LINKS {
        match read_link(&target) {
            Ok(next) => target = target.parent().unwrap_or(Path::new("/")).join(next),
            Err(error) if matches!(error.io().raw_os_error(), Some(code) if is_no_link(code)) => return Ok(target),
            Err(error) => return Err(FileError::os(Errno::from_io_error(error.io()).unwrap_or(Errno::IO), path)),
        }
    }
    Err(FileError::os(Errno::LOOP, path))
}

fn is_no_link(code: i32) -> bool {
    [Errno::INVAL, Errno::NOENT].contains(&Errno::from_raw_os_error(code))
}

/// What stands there, if it may be replaced.
fn replaceable(place: &Place, path: &Path, replace: bool, follow: Follow) -> Result<Option<Statx>, FileError> {
    match stat(&place.directory, &place.name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(FileError::os(error, path)),
        Ok(_) if !replace => Err(FileError::os(Errno::EXIST, path)),
        Ok(found) => match kind(&found) {
            FileType::RegularFile => Ok(Some(found)),
            FileType::Directory => Err(FileError::os(Errno::ISDIR, path)),
            FileType::Symlink if follow == Follow::No => Err(FileError::symbolic_link(path)),
            _ => Err(FileError::not_a_file(path, follow)),
        },
    }
}

/// The permission bits of a new file of which nothing is said, before the umask.
const USUAL_MODE: u32 = 0o666;

fn set_owner_and_mode(temporary: &Temporary, existing: Option<&Statx>, options: &CommitOptions) -> Result<(), Errno> {
    let mut kept = existing.map(permissions);
    if let Some(existing) = existing {
        let own = stat_open(&temporary.file)?;
        let (uid, gid) = (Uid::from_raw(existing.stx_uid), Gid::from_raw(existing.stx_gid));
        let is_same = own.stx_uid == existing.stx_uid && own.stx_gid == existing.stx_gid;
        if !is_same && fchown(&temporary.file, Some(uid), Some(gid)).is_err() {
            // The group alone may be ours to give. As somebody else's program it must not run under our name.
            let _ = fchown(&temporary.file, None, Some(gid));
            kept = kept.map(|bits| bits & 0o1777);
        }
    }
    let of_new = Mode::from_raw_mode(options.mode_if_new.unwrap_or(USUAL_MODE)) & temporary.allowed_mode;
    let mode = options.mode.map(|bits| bits & 0o7777).or(kept).map_or(of_new, Mode::from_raw_mode);
    fchmod(&temporary.file, mode)
}

/// Only then does the name outlast a power cut as well.
fn sync_directory(directory: &OwnedFd) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match openat(directory, c".", flags, Mode::empty()) {
        Ok(opened) => fsync(opened),
        // One that we may only write to cannot be synced by us.
        Err(Errno::ACCESS) => Ok(()),
        Err(error) => Err(error),
    }
}
