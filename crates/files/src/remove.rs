//! Removing files and directory trees. Every entry is removed by its name relative to an open directory, so that another process cannot
//! lead the operation out of the tree by replacing a directory by a link. Mount points are neither entered nor removed.

use std::ffi::{CStr, CString};
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, SeekFrom, Statx, seek};
use rustix::io::Errno;

use crate::directory_stack::DirectoryStack;
use crate::listing::{OPEN_TO_LIST, buffer, each_entry};
use crate::resolve::NameInDirectory;
use crate::root::{EnteredRoot, EntryAt};
use crate::stat::{FileIdentity, device, is_mount_point, kind, stat_open};
use crate::{Cancel, FileError, FileRoot, Follow};

/// Most names of subdirectories that are held in memory for one directory. If there are more, the directory is listed
/// again later.
const MAX_PENDING_DIRECTORIES: usize = 1024;
/// Most retries in a row. A removal is retried if an entry has changed its kind or a directory is not empty after
/// all, mostly because another process changes the tree. After this many retries the removal fails.
const MAX_RETRIES: usize = 64;
/// So many retries in a row come without a pause.
const QUICK_RETRIES: usize = 8;
/// By so much each pause before a retry is longer than the one before. All of them together are about 10 ms.
const RETRY_PAUSE_STEP: Duration = Duration::from_micros(5);

/// Removes a file, directory or symbolic link. The target of a link is not removed; with [`Follow::No`], a link is an
/// error. A directory must be empty unless `recursive`. With `force`, a `path` that does not exist is no error.
/// `recursive` with [`Follow::No`] is unsupported.
pub fn remove(
    root: &FileRoot,
    path: &Path,
    recursive: bool,
    force: bool,
    follow: Follow,
    cancel: &Cancel,
) -> Result<(), FileError> {
    if recursive && follow == Follow::No {
        let text = "recursive no-follow removal is unsupported";
        return Err(FileError::failed_check(ErrorKind::Unsupported, text, path));
    }
    cancel.check()?;
    match root.run(&[path], |inside| remove_existing(inside, path, recursive, follow, cancel)) {
        // The error is about `path` itself: entries of a tree that disappear during the removal never cause `NotFound`.
        Err(error) if force && error.kind() == ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// As [`remove`], but a `path` that does not exist is always an error.
fn remove_existing(
    inside: &EnteredRoot<'_>,
    path: &Path,
    recursive: bool,
    follow: Follow,
    cancel: &Cancel,
) -> Result<(), FileError> {
    // `/` has no parent directory, and it is a mount point.
    let target = NameInDirectory::resolve(inside, path, follow)?.ok_or_else(|| mount_point_error(path))?;
    let found = target.entry().stat().map_err(FileError::at(path))?;
    let parent_device = device(&stat_open(&target.directory).map_err(FileError::at(path))?);
    if is_mount_point(&found, parent_device) {
        return Err(mount_point_error(path));
    }
    match kind(&found) {
        FileType::Symlink if follow == Follow::No => Err(FileError::symbolic_link(path)),
        FileType::Directory if recursive => {
            let name = CString::new(target.name.into_vec()).map_err(FileError::at(path))?;
            Removal::new(inside, &target.directory, path, &found, cancel).run(&name)
        }
        FileType::Directory => inside.unlink(target.entry(), AtFlags::REMOVEDIR).map_err(FileError::at(path)),
        _ => inside.unlink(target.entry(), AtFlags::empty()).map_err(FileError::at(path)),
    }
}

fn mount_point_error(path: &Path) -> FileError {
    FileError::failed_check(
        ErrorKind::ResourceBusy,
        format!("`{}` is a mount point and is not removed", path.display()),
        path,
    )
}

/// Names of the subdirectories of one directory that are not yet removed.
type PendingDirectories = Vec<CString>;

/// The removal of a directory and everything below it.
struct Removal<'a> {
    inside: &'a EnteredRoot<'a>,
    /// The directory that contains the top of the tree.
    parent: &'a OwnedFd,
    /// The directories from the top of the tree to the one whose entries are being removed, which is the current one.
    stack: DirectoryStack<PendingDirectories>,
    /// The device of the top. On old kernels, a directory on another device counts as a mount point.
    device: u64,
    /// Retries since a directory was last removed.
    retries: usize,
    buffer: Vec<u8>,
    cancel: &'a Cancel,
}

impl<'a> Removal<'a> {
    fn new(inside: &'a EnteredRoot<'a>, parent: &'a OwnedFd, path: &Path, top: &Statx, cancel: &'a Cancel) -> Self {
        let stack = DirectoryStack::new(path, OPEN_TO_LIST | OFlags::NOFOLLOW);
        Self { inside, parent, stack, device: device(top), retries: 0, buffer: buffer(), cancel }
    }

    /// Removes the tree whose top is `name` in `parent`.
    fn run(mut self, name: &CStr) -> Result<(), FileError> {
        self.enter(name)?;
        loop {
            self.cancel.check()?;
            let Some((_, pending)) = self.stack.current() else { return Ok(()) };
            if let Some(child) = pending.pop() {
                self.enter(&child)?;
            } else if !self.remove_files()? {
                self.leave()?;
            }
        }
    }

    /// Opens a subdirectory of the current directory and makes it the current one. If the name is not a directory any more, it is unlinked.
    fn enter(&mut self, name: &CStr) -> Result<(), FileError> {
        let directory = self.stack.current().map_or(self.parent, |(current, _)| current);
        let entry = EntryAt::listed(directory, name);
        let opened = match entry.open(OPEN_TO_LIST, Mode::empty()) {
            Ok(opened) => opened,
            Err(Errno::NOENT) => return Ok(()),
            Err(Errno::NOTDIR | Errno::LOOP) => {
                return match self.inside.unlink(entry, AtFlags::empty()) {
                    Err(Errno::ISDIR) if self.may_retry() => self.enter(name),
                    removed => self.check_removed(removed, name),
                };
            }
            // A directory that may not be read can be removed if it is empty.
            Err(error @ Errno::ACCESS) => {
                let removed = self.inside.unlink(entry, AtFlags::REMOVEDIR).map_err(|_| error);
                return self.check_removed(removed, name);
            }
            Err(error) => return Err(FileError::os(error, &self.stack.child_path(name))),
        };
        let found = stat_open(&opened).map_err(|error| FileError::os(error, &self.stack.child_path(name)))?;
        if is_mount_point(&found, self.device) {
            return Err(mount_point_error(&self.stack.child_path(name)));
        }
        self.stack.push(opened, FileIdentity::of(&found), name, PendingDirectories::new());
        Ok(())
    }

    /// Unlinks the entries of the current directory except subdirectories, and adds the subdirectories to the pending
    /// ones. Stops early at [`MAX_PENDING_DIRECTORIES`]. Returns whether there are any subdirectories.
    fn remove_files(&mut self) -> Result<bool, FileError> {
        let Some((directory, pending)) = self.stack.current() else { return Ok(false) };
        let mut failed = None;
        let listed = seek(directory, SeekFrom::Start(0)).and_then(|_| {
            each_entry(directory, &mut self.buffer, |name, kind| {
                if self.cancel.is_cancelled() {
                    return ControlFlow::Break(());
                }
                let unlinked = match kind {
                    FileType::Directory => Err(Errno::ISDIR),
                    _ => self.inside.unlink(EntryAt::listed(directory, name), AtFlags::empty()),
                };
                match unlinked {
                    Ok(()) | Err(Errno::NOENT) => ControlFlow::Continue(()),
                    Err(Errno::ISDIR) => {
                        pending.push(name.to_owned());
                        if pending.len() < MAX_PENDING_DIRECTORIES {
                            ControlFlow::Continue(())
                        } else {
                            ControlFlow::Break(())
                        }
                    }
                    Err(error) => {
                        failed = Some((error, name.to_owned()));
                        ControlFlow::Break(())
                    }
                }
            })
        });
        let has_subdirectories = !pending.is_empty();
        listed.map_err(|error| FileError::os(error, self.stack.current_path()))?;
        if let Some((error, name)) = failed {
            return Err(self.removal_error(error, &name));
        }
        self.cancel.check()?;
        Ok(has_subdirectories)
    }

    /// Makes the parent the current directory, and removes the directory that was left, which should be empty now. If
    /// it is not, enters it again.
    fn leave(&mut self) -> Result<(), FileError> {
        let Some(name) = self.stack.pop()? else { return Ok(()) };
        let directory = self.stack.current().map_or(self.parent, |(current, _)| current);
        match self.inside.unlink(EntryAt::listed(directory, &name), AtFlags::REMOVEDIR) {
            // Some file systems skip names when entries are removed during a listing, and another process may have
            // created new entries or replaced the directory.
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) if self.may_retry() => self.enter(&name),
            removed => {
                self.retries = 0;
                self.check_removed(removed, &name)
            }
        }
    }

    /// Whether another attempt may follow. After a few in a row it waits a little, longer each time: a process that exchanges two entries all
    /// the time can be in step with the attempts, so that each of them finds the wrong one.
    fn may_retry(&mut self) -> bool {
        self.retries += 1;
        if self.retries > QUICK_RETRIES {
            std::thread::sleep(RETRY_PAUSE_STEP.saturating_mul(self.retries as u32));
        }
        self.retries <= MAX_RETRIES
    }

    /// Ignores that the entry was already removed, and turns other errors into a [`FileError`].
    fn check_removed(&self, removed: Result<(), Errno>, name: &CStr) -> Result<(), FileError> {
        match removed {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(self.removal_error(error, name)),
        }
    }

    /// The error for an entry that could not be removed. `EBUSY` has many causes, so a mount point gets a text of its own.
    fn removal_error(&self, error: Errno, name: &CStr) -> FileError {
        let path = self.stack.child_path(name);
        let present = self.inside.stat_itself(&path);
        match (error, present) {
            (Errno::BUSY, Ok(found)) if is_mount_point(&found, self.device) => mount_point_error(&path),
            _ => FileError::os(error, &path),
        }
    }
}
