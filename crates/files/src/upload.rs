//! Writing a file in blocks. The file appears under its name, or replaces the file there, only with [`Upload::commit`].

use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use parking_lot::RwLock;
use rustix::fs::{FileType, Gid, Mode, OFlags, Statx, Uid, fchmod, fchown, fsync, ftruncate, futimens};
use rustix::io::Errno;

use crate::links::read_link_inside;
use crate::resolve::NameInDirectory;
use crate::root::{EnteredRoot, open_self};
use crate::set_metadata::timestamps;
use crate::stat::{kind, permissions, stat_open};
use crate::temporary_file::TemporaryFile;
use crate::write::write_at;
use crate::{FileError, FileRoot, Follow};

/// Most symbolic links that are followed in a row, as many as the kernel follows.
pub const MAX_LINKS: usize = 40;

/// The properties that [`Upload::commit`] gives to the file before the file appears under its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommitOptions {
    /// Final size in bytes: a longer file is truncated, a shorter one is filled with zeros. `None` keeps the size.
    pub size: Option<u64>,
    /// Permission bits, regardless of the umask. `None` keeps those of the replaced file, but set-user-ID and
    /// set-group-ID only if the file can keep its owner. For a new file see `mode_if_new`.
    pub mode: Option<u32>,
    /// Permission bits of a file that replaces none, reduced by the umask. `None` is `0o666`, as for any new file.
    pub mode_if_new: Option<u32>,
    /// Modification time in seconds and nanoseconds since 1970. `None` is the time of the last write.
    pub mtime: Option<(i64, u32)>,
    /// Whether the commit waits until the file and its name are on the disk.
    pub sync: bool,
}

/// A file that is being written. Dropping it without a commit removes what was written.
#[derive(Debug)]
pub struct Upload {
    root: FileRoot,
    destination: PathBuf,
    replace: bool,
    follow: Follow,
    /// `None` after a commit, whether it succeeded or not. Blocks are written under the read lock, several at once; a commit takes the
    /// write lock.
    temporary: RwLock<Option<TemporaryFile>>,
    /// The first failure to write a block: the kind of the error, and a sentence for the user. A file that misses a
    /// block is never committed.
    failure: OnceLock<(ErrorKind, String)>,
}

impl Upload {
    /// Begins to write a file for `destination`. With `replace` and [`Follow::Yes`], a symbolic link there is followed, and its target is
    /// replaced. Without `replace`, a `destination` that exists fails with `EEXIST`.
    pub fn create(root: &FileRoot, destination: &Path, replace: bool, follow: Follow) -> Result<Self, FileError> {
        let temporary = root.run(&[destination], |inside| {
            let target = match follow {
                Follow::Yes if replace => follow_links(inside, destination)?,
                _ => destination.to_owned(),
            };
            let target = NameInDirectory::resolve(inside, &target, follow)?
                .ok_or_else(|| FileError::os(Errno::ISDIR, destination))?;
            existing_file(&target, destination, replace, follow)?;
            TemporaryFile::create(root, target).map_err(FileError::at(destination))
        })?;
        Ok(Self {
            root: root.clone(),
            destination: destination.to_owned(),
            replace,
            follow,
            temporary: RwLock::new(Some(temporary)),
            failure: OnceLock::new(),
        })
    }

    /// Writes a block. Blocks may come in any order and from several threads at once. After one block has failed, every further block and
    /// the commit fail. So a caller may request the commit before it knows the results of the blocks.
    pub fn write_block(&self, offset: u64, data: &[u8]) -> Result<(), FileError> {
        self.check_not_failed()?;
        let written = self.try_write_block(offset, data);
        if let Err(error) = &written {
            let sentence = format!("{} bytes at offset {offset} were not written: {error}", data.len());
            // If a failure is recorded already, it stays: it is the cause of this one.
            let _ignored = self.failure.set((error.kind(), sentence));
        }
        written
    }

    fn try_write_block(&self, offset: u64, data: &[u8]) -> Result<(), FileError> {
        let end = offset.checked_add(data.len() as u64).filter(|end| i64::try_from(*end).is_ok());
        if end.is_none() {
            return Err(FileError::refused("file write offset overflowed", &self.destination));
        }
        let temporary = self.temporary.read();
        let temporary = temporary.as_ref().ok_or_else(|| self.finished_error())?;
        write_at(&temporary.file, offset, data).map_err(FileError::at(&self.destination))
    }

    /// Fails if a block could not be written.
    fn check_not_failed(&self) -> Result<(), FileError> {
        let Some((kind, sentence)) = self.failure.get() else { return Ok(()) };
        Err(FileError::failed_check(*kind, format!("the upload has failed: {sentence}"), &self.destination))
    }

    /// Gives the file its name atomically. An upload can be committed once, whether that succeeds or not. After an error the old file is
    /// unchanged, with one exception: if only the sync of the directory fails, the new file is in place.
    pub fn commit(&self, options: &CommitOptions) -> Result<(), FileError> {
        self.root.run(&[&self.destination], |inside| self.commit_inside(inside, options))
    }

    fn commit_inside(&self, inside: &EnteredRoot<'_>, options: &CommitOptions) -> Result<(), FileError> {
        let mut temporary = self.temporary.write().take().ok_or_else(|| self.finished_error())?;
        self.check_not_failed()?;
        let existing = existing_file(temporary.target(), &self.destination, self.replace, self.follow)?;
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
            temporary.publish(inside, self.replace)?;
            if options.sync { sync_directory(&temporary.target().directory) } else { Ok(()) }
        })();
        placed.map_err(FileError::at(&self.destination))
    }

    fn finished_error(&self) -> FileError {
        FileError::refused("the upload is finished", &self.destination)
    }
}

/// Follows the symbolic link that `path` names, and the link that this one names, and so on. The target of the last
/// link need not exist.
fn follow_links(inside: &EnteredRoot<'_>, path: &Path) -> Result<PathBuf, FileError> {
    let mut target = path.to_owned();
    for _ in 0..MAX_LINKS {
        match read_link_inside(inside, &target) {
            Ok(next) => target = target.parent().unwrap_or(Path::new("/")).join(next),
            Err(error) if matches!(error.io().raw_os_error(), Some(code) if is_no_link(code)) => return Ok(target),
            Err(error) => return Err(FileError::os(Errno::from_io_error(error.io()).unwrap_or(Errno::IO), path)),
        }
    }
    Err(FileError::os(Errno::LOOP, path))
}

/// Whether `readlink` failed because there is no link: the name is free, or another kind of file has it.
fn is_no_link(code: i32) -> bool {
    [Errno::INVAL, Errno::NOENT].contains(&Errno::from_raw_os_error(code))
}

/// The file that the upload will replace, or `None` if the name is free. Fails if the entry that has the name may not be replaced.
fn existing_file(
    target: &NameInDirectory,
    path: &Path,
    replace: bool,
    follow: Follow,
) -> Result<Option<Statx>, FileError> {
    match target.entry().stat() {
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

/// Permission bits of a new file before the umask, if [`CommitOptions`] has none.
const DEFAULT_NEW_MODE: u32 = 0o666;

/// Gives the new file the owner and group of the replaced one as far as possible, and the permission bits of
/// `options`.
fn set_owner_and_mode(
    temporary: &TemporaryFile,
    existing: Option<&Statx>,
    options: &CommitOptions,
) -> Result<(), Errno> {
    let mut kept_mode = existing.map(permissions);
    if let Some(existing) = existing {
        let own = stat_open(&temporary.file)?;
        let (uid, gid) = (Uid::from_raw(existing.stx_uid), Gid::from_raw(existing.stx_gid));
        let is_same = own.stx_uid == existing.stx_uid && own.stx_gid == existing.stx_gid;
        if !is_same && fchown(&temporary.file, Some(uid), Some(gid)).is_err() {
            // Without privileges, this process can keep at most the group. The set-user-ID and set-group-ID bits are
            // dropped: with another owner, they would let the program run as the user of this process.
            let _ = fchown(&temporary.file, None, Some(gid));
            kept_mode = kept_mode.map(|bits| bits & 0o1777);
        }
    }
    let new_mode = Mode::from_raw_mode(options.mode_if_new.unwrap_or(DEFAULT_NEW_MODE)) & temporary.allowed_mode;
    let mode = options.mode.map(|bits| bits & 0o7777).or(kept_mode).map_or(new_mode, Mode::from_raw_mode);
    fchmod(&temporary.file, mode)
}

/// Syncs the directory that contains the new name. Without this, the name could be lost in a power failure.
fn sync_directory(directory: &OwnedFd) -> Result<(), Errno> {
    match open_self(directory, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()) {
        Ok(opened) => fsync(opened),
        // A directory that this process may write but not read cannot be synced.
        Err(Errno::ACCESS) => Ok(()),
        Err(error) => Err(error),
    }
}
