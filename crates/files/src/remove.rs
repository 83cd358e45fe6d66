//! Removing. Everything is removed by its name in a directory that is held open, so nobody can lead the operation out of the tree by
//! swapping a directory for a link. Mounts are never removed nor entered.

use std::ffi::{CStr, CString};
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, SeekFrom, Statx, openat, seek, unlinkat};
use rustix::io::Errno;

use crate::descent::Descent;
use crate::listing::{READABLE, buffer, each_entry};
use crate::place::Place;
use crate::stat::{Identity, device, is_mount_point, kind, stat, stat_open};
use crate::{Cancel, FileError, Follow};

/// So many names of subdirectories are kept at a time; the directory is listed again for the rest.
const SUBDIRECTORIES_KEPT: usize = 1024;
/// How often something may turn out to be other than it was just found before whoever changes it has won.
const SURPRISES: usize = 64;

/// Removes what is at `path`; a link itself, not what it leads to. A directory must be empty unless `recursive`. With `force` it is
/// fine if there is nothing.
pub fn remove(path: &Path, recursive: bool, force: bool, follow: Follow, cancel: &Cancel) -> Result<(), FileError> {
    if recursive && follow == Follow::No {
        let text = "recursive no-follow removal is unsupported";
        return Err(FileError::check(ErrorKind::Unsupported, text, path));
    }
    cancel.check()?;
    match remove_present(path, recursive, follow, cancel) {
        // Once a tree is being removed, what is missing in it is no error to begin with.
        Err(error) if force && error.kind() == ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

fn remove_present(path: &Path, recursive: bool, follow: Follow, cancel: &Cancel) -> Result<(), FileError> {
    let place = Place::find(path, follow)?.ok_or_else(|| mount_point(path))?;
    let found = stat(&place.directory, &place.name, AtFlags::SYMLINK_NOFOLLOW).map_err(FileError::at(path))?;
    let above = device(&stat_open(&place.directory).map_err(FileError::at(path))?);
    if is_mount_point(&found, above) {
        return Err(mount_point(path));
    }
    match kind(&found) {
        FileType::Symlink if follow == Follow::No => Err(FileError::symbolic_link(path)),
        FileType::Directory if recursive => {
            let name = CString::new(place.name.into_vec()).map_err(FileError::at(path))?;
            Removal::new(&place.directory, path, &found, cancel).run(&name)
        }
        FileType::Directory => {
            unlinkat(&place.directory, &place.name, AtFlags::REMOVEDIR).map_err(FileError::at(path))
        }
        _ => unlinkat(&place.directory, &place.name, AtFlags::empty()).map_err(FileError::at(path)),
    }
}

fn mount_point(path: &Path) -> FileError {
    FileError::check(
        ErrorKind::ResourceBusy,
        format!("`{}` is a mount point and is not removed", path.display()),
        path,
    )
}

/// Names of directories that were found in a directory and have yet to be removed.
type Pending = Vec<CString>;

struct Removal<'a> {
    above: &'a OwnedFd,
    descent: Descent<Pending>,
    device: u64,
    surprises: usize,
    buffer: Vec<u8>,
    cancel: &'a Cancel,
}

impl<'a> Removal<'a> {
    fn new(above: &'a OwnedFd, path: &Path, top: &Statx, cancel: &'a Cancel) -> Self {
        let descent = Descent::below(path, READABLE | OFlags::NOFOLLOW);
        Self { above, descent, device: device(top), surprises: 0, buffer: buffer(), cancel }
    }

    fn run(mut self, name: &CStr) -> Result<(), FileError> {
        self.enter(name)?;
        loop {
            self.cancel.check()?;
            let Some((_, pending)) = self.descent.here() else { return Ok(()) };
            if let Some(child) = pending.pop() {
                self.enter(&child)?;
            } else if !self.sweep()? {
                self.leave()?;
            }
        }
    }

    /// Opens a directory below where it is; what turns out to be none is removed at once.
    fn enter(&mut self, name: &CStr) -> Result<(), FileError> {
        let here = self.descent.here().map_or(self.above, |(directory, _)| directory);
        let opened = match openat(here, name, READABLE | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(opened) => opened,
            Err(Errno::NOENT) => return Ok(()),
            Err(Errno::NOTDIR | Errno::LOOP) => {
                return match unlinkat(here, name, AtFlags::empty()) {
                    Err(Errno::ISDIR) if self.may_try_again() => self.enter(name),
                    removed => self.removed(removed, name),
                };
            }
            // What cannot be listed may still be empty.
            Err(error @ Errno::ACCESS) => {
                let removed = unlinkat(here, name, AtFlags::REMOVEDIR).map_err(|_| error);
                return self.removed(removed, name);
            }
            Err(error) => return Err(FileError::os(error, &self.descent.path_of(name))),
        };
        let found = stat_open(&opened).map_err(|error| FileError::os(error, &self.descent.path_of(name)))?;
        if is_mount_point(&found, self.device) {
            return Err(mount_point(&self.descent.path_of(name)));
        }
        self.descent.enter(opened, Identity::of(&found), name, Pending::new());
        Ok(())
    }

    /// Removes everything but directories from where it is and notes those. Says whether there are any.
    fn sweep(&mut self) -> Result<bool, FileError> {
        let Some((directory, pending)) = self.descent.here() else { return Ok(false) };
        let mut failed = None;
        let swept = seek(directory, SeekFrom::Start(0)).and_then(|_| {
            each_entry(directory, &mut self.buffer, |name, kind| {
                if self.cancel.is_cancelled() {
                    return ControlFlow::Break(());
                }
                let unlinked = match kind {
                    FileType::Directory => Err(Errno::ISDIR),
                    _ => unlinkat(directory, name, AtFlags::empty()),
                };
                match unlinked {
                    Ok(()) | Err(Errno::NOENT) => ControlFlow::Continue(()),
                    Err(Errno::ISDIR) => {
                        pending.push(name.to_owned());
                        if pending.len() < SUBDIRECTORIES_KEPT {
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
        let found_any = !pending.is_empty();
        swept.map_err(|error| FileError::os(error, self.descent.path()))?;
        if let Some((error, name)) = failed {
            return Err(self.refusal(error, &name));
        }
        self.cancel.check()?;
        Ok(found_any)
    }

    /// Removes the directory that was emptied.
    fn leave(&mut self) -> Result<(), FileError> {
        let Some(name) = self.descent.leave()? else { return Ok(()) };
        let here = self.descent.here().map_or(self.above, |(directory, _)| directory);
        match unlinkat(here, &*name, AtFlags::REMOVEDIR) {
            // Some file systems leave out names when others are removed during a listing, and somebody may have made new ones.
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) if self.may_try_again() => self.enter(&name),
            removed => {
                self.surprises = 0;
                self.removed(removed, &name)
            }
        }
    }

    fn may_try_again(&mut self) -> bool {
        self.surprises += 1;
        self.surprises <= SURPRISES
    }

    fn removed(&self, removed: Result<(), Errno>, name: &CStr) -> Result<(), FileError> {
        match removed {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(self.refusal(error, name)),
        }
    }

    /// The kernel's word for a mount is the one for everything that is in use.
    fn refusal(&self, error: Errno, name: &CStr) -> FileError {
        let path = self.descent.path_of(name);
        let looked_at = stat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW);
        match (error, looked_at) {
            (Errno::BUSY, Ok(found)) if is_mount_point(&found, self.device) => mount_point(&path),
            _ => FileError::os(error, &path),
        }
    }
}
