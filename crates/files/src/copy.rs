//! Copying a file, a symbolic link or a directory tree. Start reading at [`copy`]; the bytes are copied by
//! `contents`.

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

use crate::contents::{CopyContentsError, copy_contents};
use crate::directory_stack::DirectoryStack;
use crate::listing::{OPEN_TO_LIST, buffer, each_entry};
use crate::resolve::OPEN_TO_TRAVERSE;
use crate::stat::{FileIdentity, kind, permissions, stat, stat_open};
use crate::{Cancel, FileError, Follow, read, write};

/// Copies `source` to `destination`: a file with its permissions, a symbolic link as a link, a directory only if
/// `recursive`. A copied directory is merged into an existing one. FIFOs, sockets and devices in a copied directory
/// are left out.
///
/// A file that exists at the destination keeps its inode and gets the new contents and permissions. After an error, a
/// tree may be copied in part, and such a file may hold a part of the new contents. A new file that could not be
/// finished is removed.
///
/// If a file or a directory is copied, a link at `destination` itself is followed. Links below `destination` are not
/// followed, because an earlier copy of a hostile tree may have left a link that leads out of `destination`. A copied
/// file replaces a link below `destination`. A directory whose name is a link below `destination` is not copied, and
/// the error is `EEXIST`. A copied link replaces nothing: if its name exists, the copy fails with `EEXIST`.
pub fn copy(source: &Path, destination: &Path, recursive: bool, cancel: &Cancel) -> Result<(), FileError> {
    cancel.check()?;
    let found = stat(CWD, source, AtFlags::SYMLINK_NOFOLLOW).map_err(FileError::at(source))?;
    let from = CopyEndpoint { directory: CWD, name: source };
    let to = CopyEndpoint { directory: CWD, name: destination };
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

/// The source or the destination of one copied file or link: a name relative to an open directory.
#[derive(Clone, Copy)]
struct CopyEndpoint<F, P> {
    directory: F,
    name: P,
}

fn copy_link<F: AsFd, P: Arg>(from: CopyEndpoint<F, P>, to: CopyEndpoint<F, P>) -> Result<(), Errno> {
    let target = readlinkat(from.directory, from.name, Vec::new())?;
    symlinkat(&*target, to.directory, to.name)
}

/// Copies a regular file. With [`Follow::Yes`] a link at the destination is followed, with [`Follow::No`] the file
/// replaces the link. `source` and `destination` are the whole paths, for errors.
fn copy_file<F: AsFd + Copy, P: Arg + Copy>(
    from: CopyEndpoint<F, P>,
    to: CopyEndpoint<F, P>,
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
    if FileIdentity::of(&found) == FileIdentity::of(&target.found) {
        return Err(FileError::refused("fs/copy cannot copy a file onto itself", destination));
    }
    let output = &target.file;
    let mode = mode_of_copy(&found, &target.found);
    let copied = fchmod(output, mode)
        .and_then(|()| ftruncate(output, 0))
        .map_err(CopyContentsError::from)
        .and_then(|()| copy_contents(&input, found.stx_size, output, cancel))
        // Writing to a file clears its set-user-ID and set-group-ID bits, so they are set again.
        .and_then(|()| if mode.bits() & 0o7000 == 0 { Ok(()) } else { Ok(fchmod(output, mode)?) });
    if copied.is_err() && target.is_new {
        remove_unfinished(to, &target.found);
    }
    copied.map_err(|failure| match failure {
        CopyContentsError::Os(error) => FileError::os(error, destination),
        CopyContentsError::Cancelled(error) => error,
    })
}

/// Removes a new file that holds a part of its contents, unless another file has its name by now.
fn remove_unfinished<F: AsFd + Copy, P: Arg + Copy>(at: CopyEndpoint<F, P>, created: &Statx) {
    let still_there = stat(at.directory, at.name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|found| FileIdentity::of(&found) == FileIdentity::of(created));
    if still_there {
        // The caller returns the error of the copy, which matters more than an error here.
        let _ignored = unlinkat(at.directory, at.name, AtFlags::empty());
    }
}

/// The permissions of the copy. They are those of the source, but the set-user-ID bit is kept only if source and copy
/// have the same owner, and the set-group-ID bit only if they have the same group. Otherwise the copy would run with
/// the rights of another user or group than the source.
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

/// Removes a symbolic link that has the name of the new file. Fails if a FIFO has this name, because opening the FIFO
/// would disturb its reader. Does nothing in all other cases.
fn remove_link<F: AsFd + Copy, P: Arg + Copy>(at: CopyEndpoint<F, P>, path: &Path) -> Result<(), FileError> {
    match stat(at.directory, at.name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| kind(&stat)) {
        Ok(FileType::Symlink) => unlinkat(at.directory, at.name, AtFlags::empty()).map_err(FileError::at(path)),
        Ok(FileType::Fifo) => Err(FileError::not_a_file(path, Follow::Yes)),
        _ => Ok(()),
    }
}

fn copy_tree(source: &Path, destination: &Path, cancel: &Cancel) -> Result<(), FileError> {
    let canonical = source.canonicalize().map_err(FileError::at(source))?;
    if canonical_as_far_as_it_exists(destination).starts_with(canonical) {
        return Err(into_itself_error(destination));
    }
    let from = openat(CWD, source, OPEN_TO_LIST | OFlags::NOFOLLOW, Mode::empty()).map_err(FileError::at(source))?;
    DirBuilder::new().recursive(true).create(destination).map_err(FileError::at(destination))?;
    let to = openat(CWD, destination, OPEN_TO_TRAVERSE, Mode::empty()).map_err(FileError::at(destination))?;
    let mut copying = DirectoryTreeCopy {
        source: DirectoryStack::new(source, OPEN_TO_LIST | OFlags::NOFOLLOW),
        destination: DirectoryStack::new(destination, OPEN_TO_TRAVERSE),
        destination_top: identity(&to, destination)?,
        buffer: buffer(),
        cancel,
    };
    copying.enter(from, to, c"")?;
    copying.run()
}

/// `path` without symbolic links in the part that exists. The rest of the path, which does not exist, is not changed.
fn canonical_as_far_as_it_exists(path: &Path) -> PathBuf {
    let found = path.ancestors().find_map(|existing| {
        let canonical = existing.canonicalize().ok()?;
        Some((canonical, path.strip_prefix(existing).ok()?))
    });
    found.map_or_else(|| path.to_owned(), |(canonical, rest)| canonical.join(rest))
}

fn into_itself_error(destination: &Path) -> FileError {
    let text = "fs/copy cannot copy a directory to itself or one of its descendants";
    FileError::refused(text, destination)
}

fn identity(opened: &OwnedFd, path: &Path) -> Result<FileIdentity, FileError> {
    Ok(FileIdentity::of(&stat_open(opened).map_err(FileError::at(path))?))
}

/// A copy of a directory tree that is under way. Both stacks always have the same depth.
struct DirectoryTreeCopy<'a> {
    /// Each level holds the names of its subdirectories that are not yet copied.
    source: DirectoryStack<Vec<CString>>,
    destination: DirectoryStack<()>,
    /// The top directory of the destination. If the source contains this directory, through a bind mount for example,
    /// the copy would never end, so it fails.
    destination_top: FileIdentity,
    buffer: Vec<u8>,
    cancel: &'a Cancel,
}

impl DirectoryTreeCopy<'_> {
    fn run(mut self) -> Result<(), FileError> {
        while let Some((_, pending)) = self.source.current() {
            self.cancel.check()?;
            match pending.pop() {
                Some(name) => self.copy_directory(&name)?,
                None => {
                    self.source.pop()?;
                    self.destination.pop()?;
                }
            }
        }
        Ok(())
    }

    fn copy_directory(&mut self, name: &CStr) -> Result<(), FileError> {
        let (Some((from, _)), Some((to, ()))) = (self.source.current(), self.destination.current()) else {
            return Ok(());
        };
        let opened = openat(from, name, OPEN_TO_LIST | OFlags::NOFOLLOW, Mode::empty());
        let opened = opened.map_err(|error| FileError::os(error, &self.source.child_path(name)))?;
        let made = match mkdirat(to, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => openat(to, name, OPEN_TO_TRAVERSE | OFlags::NOFOLLOW, Mode::empty()),
            Err(error) => Err(error),
        };
        let made = made.map_err(|error| {
            // A file or a link has the name of the directory.
            let error = if error == Errno::NOTDIR { Errno::EXIST } else { error };
            FileError::os(error, &self.destination.child_path(name))
        })?;
        self.enter(opened, made, name)
    }

    /// Makes `from` and `to` the current directories of the two stacks. Copies the files and links of `from`, and
    /// notes its subdirectories for later. `name` is the name of both directories, or empty for the top directories.
    fn enter(&mut self, from: OwnedFd, to: OwnedFd, name: &CStr) -> Result<(), FileError> {
        let source_path = || self.source.child_path(name);
        let source_identity = identity(&from, &source_path())?;
        if source_identity == self.destination_top {
            return Err(into_itself_error(&source_path()));
        }
        let destination_identity = identity(&to, &self.destination.child_path(name))?;
        self.source.push(from, source_identity, name, Vec::new());
        self.destination.push(to, destination_identity, name, ());

        let source = self.source.current_path().to_owned();
        let destination = self.destination.current_path().to_owned();
        let (Some((from, pending)), Some((to, ()))) = (self.source.current(), self.destination.current()) else {
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
                let (from_entry, to_entry) =
                    (CopyEndpoint { directory: from, name }, CopyEndpoint { directory: to, name });
                match kind.map_err(FileError::at(&source))? {
                    FileType::Directory => pending.push(name.to_owned()),
                    FileType::RegularFile => {
                        copy_file(
                            from_entry,
                            to_entry,
                            &below(&source),
                            &below(&destination),
                            Follow::No,
                            self.cancel,
                        )?;
                    }
                    FileType::Symlink => {
                        copy_link(from_entry, to_entry).map_err(FileError::at(&below(&destination)))?;
                    }
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
