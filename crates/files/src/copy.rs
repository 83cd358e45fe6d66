//! Copying a file, a link or a tree.

use std::ffi::{CStr, CString, OsStr};
use std::fs::DirBuilder;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Statx, fchmod, ftruncate, mkdirat, openat, readlinkat, symlinkat, unlinkat,
};
use rustix::io::Errno;
use rustix::path::Arg;

use crate::contents::{Failure, copy_contents};
use crate::descent::Descent;
use crate::listing::{READABLE, buffer, each_entry};
use crate::place::PASSAGE;
use crate::stat::{Identity, kind, permissions, stat, stat_open};
use crate::{Cancel, FileError, Follow, read, write};

/// Copies `source` to `destination`: a file with its permissions, a link as it is, a directory only if `recursive`. What a directory
/// has is merged into one that is there; things in it that are neither file, link nor directory are left out.
///
/// After an error there may be a part of a tree. A file that was there before keeps its inode and may hold a part of the contents; a new
/// file that could not be finished is removed.
///
/// A link at `destination` itself is followed. No link below it is: an earlier copy of a hostile tree may have left one that leads
/// elsewhere. A file takes the place of such a link; a directory is refused with `EEXIST`.
pub fn copy(source: &Path, destination: &Path, recursive: bool, cancel: &Cancel) -> Result<(), FileError> {
    cancel.check()?;
    let found = stat(CWD, source, AtFlags::SYMLINK_NOFOLLOW).map_err(FileError::at(source))?;
    let from = End { directory: CWD, name: source };
    let to = End { directory: CWD, name: destination };
    match kind(&found) {
        FileType::RegularFile => copy_file(from, to, source, destination, Follow::Yes, cancel),
        FileType::Symlink => copy_link(from, to).map_err(FileError::at(destination)),
        FileType::Directory if !recursive => {
            Err(FileError::refused("fs/copy requires recursive: true when sourcePath is a directory", source))
        }
        FileType::Directory => copy_tree(source, destination, cancel),
        _ => Err(FileError::refused("fs/copy only supports regular files, directories, and symlinks", source)),
    }
}

/// One end of a copy: a name in a directory.
#[derive(Clone, Copy)]
struct End<F, P> {
    directory: F,
    name: P,
}

fn copy_link<F: AsFd, P: Arg>(from: End<F, P>, to: End<F, P>) -> Result<(), Errno> {
    let target = readlinkat(from.directory, from.name, Vec::new())?;
    symlinkat(&*target, to.directory, to.name)
}

/// `follow` decides what becomes of a link at the destination: it is followed, or a file takes its place.
fn copy_file<F: AsFd + Copy, P: Arg + Copy>(
    from: End<F, P>,
    to: End<F, P>,
    source: &Path,
    destination: &Path,
    follow: Follow,
    cancel: &Cancel,
) -> Result<(), FileError> {
    let (input, found) = read::open_at(from.directory, from.name, source, Follow::No)?;
    if follow == Follow::No {
        remove_link(to, destination)?;
    }
    let new_mode = Mode::from_raw_mode(permissions(&found) & 0o777);
    let target = write::open_at(to.directory, to.name, destination, follow, new_mode)?;
    if Identity::of(&found) == Identity::of(&target.found) {
        return Err(FileError::refused("fs/copy cannot copy a file onto itself", destination));
    }
    let output = &target.file;
    let mode = mode_of_copy(&found, &target.found);
    let copied = fchmod(output, mode)
        .and_then(|()| ftruncate(output, 0))
        .map_err(Failure::from)
        .and_then(|()| copy_contents(&input, found.stx_size, output, cancel))
        // Writing takes away the bits that let a program run as somebody else.
        .and_then(|()| if mode.bits() & 0o7000 == 0 { Ok(()) } else { Ok(fchmod(output, mode)?) });
    if copied.is_err() && target.is_new {
        remove_unfinished(to, &target.found);
    }
    copied.map_err(|failure| match failure {
        Failure::Os(error) => FileError::os(error, destination),
        Failure::Cancelled(error) => error,
    })
}

/// Removes a new file that holds a part of its contents, unless something else has its name by now.
fn remove_unfinished<F: AsFd + Copy, P: Arg + Copy>(at: End<F, P>, made: &Statx) {
    let still_there = stat(at.directory, at.name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|found| Identity::of(&found) == Identity::of(made));
    if still_there {
        // The error that is told is why the copy failed.
        let _as_far_as_possible = unlinkat(at.directory, at.name, AtFlags::empty());
    }
}

/// The permissions of the source. Set-user-ID and set-group-ID lend the rights of an owner and a group, so they are kept only where the
/// copy has the same ones.
fn mode_of_copy(source: &Statx, copy: &Statx) -> Mode {
    let mut mode = permissions(source);
    if source.stx_uid != copy.stx_uid {
        mode &= !Mode::SUID.bits();
    }
    if source.stx_gid != copy.stx_gid {
        mode &= !Mode::SGID.bits();
    }
    Mode::from_raw_mode(mode)
}

/// Removes a link that stands where a file is to be. A FIFO is refused here, because opening it would disturb its reader.
fn remove_link<F: AsFd + Copy, P: Arg + Copy>(at: End<F, P>, path: &Path) -> Result<(), FileError> {
    match stat(at.directory, at.name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| kind(&stat)) {
        Ok(FileType::Symlink) => unlinkat(at.directory, at.name, AtFlags::empty()).map_err(FileError::at(path)),
        Ok(FileType::Fifo) => Err(FileError::not_a_file(path, Follow::Yes)),
        _ => Ok(()),
    }
}

fn copy_tree(source: &Path, destination: &Path, cancel: &Cancel) -> Result<(), FileError> {
    let canonical = source.canonicalize().map_err(FileError::at(source))?;
    if canonical_as_far_as_it_exists(destination).starts_with(canonical) {
        return Err(into_itself(destination));
    }
    let from = openat(CWD, source, READABLE | OFlags::NOFOLLOW, Mode::empty()).map_err(FileError::at(source))?;
    DirBuilder::new().recursive(true).create(destination).map_err(FileError::at(destination))?;
    let to = openat(CWD, destination, PASSAGE, Mode::empty()).map_err(FileError::at(destination))?;
    let mut copying = TreeCopy {
        source: Descent::below(source, READABLE | OFlags::NOFOLLOW),
        destination: Descent::below(destination, PASSAGE),
        made: identity(&to, destination)?,
        buffer: buffer(),
        cancel,
    };
    copying.enter(from, to, c"")?;
    copying.run()
}

fn canonical_as_far_as_it_exists(path: &Path) -> PathBuf {
    let exists = |path: &Path| path.canonicalize().ok();
    let found = path.ancestors().find_map(|above| Some((exists(above)?, path.strip_prefix(above).ok()?)));
    found.map_or_else(|| path.to_owned(), |(canonical, rest)| canonical.join(rest))
}

fn into_itself(destination: &Path) -> FileError {
    let text = "fs/copy cannot copy a directory to itself or one of its descendants";
    FileError::refused(text, destination)
}

fn identity(opened: &OwnedFd, path: &Path) -> Result<Identity, FileError> {
    Ok(Identity::of(&stat_open(opened).map_err(FileError::at(path))?))
}

struct TreeCopy<'a> {
    /// With the names of the directories that have yet to be copied.
    source: Descent<Vec<CString>>,
    destination: Descent<()>,
    /// The copy, which must not be met on the way, by whatever mount.
    made: Identity,
    buffer: Vec<u8>,
    cancel: &'a Cancel,
}

impl TreeCopy<'_> {
    fn run(mut self) -> Result<(), FileError> {
        while let Some((_, pending)) = self.source.here() {
            self.cancel.check()?;
            match pending.pop() {
                Some(name) => self.copy_directory(&name)?,
                None => {
                    self.source.leave()?;
                    self.destination.leave()?;
                }
            }
        }
        Ok(())
    }

    fn copy_directory(&mut self, name: &CStr) -> Result<(), FileError> {
        let (Some((from, _)), Some((to, ()))) = (self.source.here(), self.destination.here()) else { return Ok(()) };
        let opened = openat(from, name, READABLE | OFlags::NOFOLLOW, Mode::empty());
        let opened = opened.map_err(|error| FileError::os(error, &self.source.path_of(name)))?;
        let made = match mkdirat(to, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => openat(to, name, PASSAGE | OFlags::NOFOLLOW, Mode::empty()),
            Err(error) => Err(error),
        };
        let made = made.map_err(|error| {
            let error = if error == Errno::NOTDIR { Errno::EXIST } else { error };
            FileError::os(error, &self.destination.path_of(name))
        })?;
        self.enter(opened, made, name)
    }

    /// Copies what is right in a directory and notes the directories in it.
    fn enter(&mut self, from: OwnedFd, to: OwnedFd, name: &CStr) -> Result<(), FileError> {
        let path = || self.source.path_of(name);
        let copied = identity(&from, &path())?;
        if copied == self.made {
            return Err(into_itself(&path()));
        }
        let made = identity(&to, &self.destination.path_of(name))?;
        self.source.enter(from, copied, name, Vec::new());
        self.destination.enter(to, made, name, ());

        let source = self.source.path().to_owned();
        let destination = self.destination.path().to_owned();
        let (Some((from, pending)), Some((to, ()))) = (self.source.here(), self.destination.here()) else {
            return Ok(());
        };
        let mut result = Ok(());
        let listed = each_entry(from, &mut self.buffer, |name, listed_kind| {
            result = self.cancel.check().and_then(|()| {
                let kind = match listed_kind {
                    FileType::Unknown => stat(from, name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| kind(&stat)),
                    known => Ok(known),
                };
                let below = |directory: &Path| directory.join(OsStr::from_bytes(name.to_bytes()));
                let (one, other) = (End { directory: from, name }, End { directory: to, name });
                match kind.map_err(FileError::at(&source))? {
                    FileType::Directory => pending.push(name.to_owned()),
                    FileType::RegularFile => {
                        copy_file(one, other, &below(&source), &below(&destination), Follow::No, self.cancel)?;
                    }
                    FileType::Symlink => copy_link(one, other).map_err(FileError::at(&below(&destination)))?,
                    _ => {}
                }
                Ok(())
            });
            if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        result?;
        listed.map_err(FileError::at(&source))
    }
}
