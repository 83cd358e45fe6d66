//! Copying a file, a symbolic link or a directory tree. Start reading at [`copy`]; the bytes are copied by
//! `contents`.

use std::ffi::{CStr, CString, OsStr};
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Statx, fchmod, ftruncate};
use rustix::io::Errno;

use crate::contents::{CopyContentsError, copy_contents};
use crate::create_directory::create_all;
use crate::directory_stack::DirectoryStack;
use crate::listing::{OPEN_TO_LIST, buffer, each_entry};
use crate::resolve::OPEN_TO_TRAVERSE;
use crate::root::{EnteredRoot, EntryAt, OpenTarget};
use crate::stat::{FileIdentity, kind, permissions, stat_open};
use crate::{Cancel, FileError, FileRoot, Follow, read, write};

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
pub fn copy(
    root: &FileRoot,
    source: &Path,
    destination: &Path,
    recursive: bool,
    cancel: &Cancel,
) -> Result<(), FileError> {
    cancel.check()?;
    root.run(&[source, destination], |inside| copy_inside(inside, source, destination, recursive, cancel))
}

fn copy_inside(
    inside: &EnteredRoot<'_>,
    source: &Path,
    destination: &Path,
    recursive: bool,
    cancel: &Cancel,
) -> Result<(), FileError> {
    let from = inside.locate(source).map_err(FileError::at(source))?;
    match kind(&from.entry().stat().map_err(FileError::at(source))?) {
        FileType::RegularFile => {
            copy_file(inside, from.entry(), OpenTarget::Path(destination), source, destination, cancel)
        }
        FileType::Symlink => inside
            .locate(destination)
            .and_then(|to| copy_link(from.entry(), to.entry()))
            .map_err(FileError::at(destination)),
        FileType::Directory if !recursive => {
            Err(FileError::refused("fs/copy requires recursive: true when sourcePath is a directory", source))
        }
        FileType::Directory => copy_tree(inside, source, destination, cancel),
        _ => Err(FileError::refused("fs/copy only supports regular files, directories, and symlinks", source)),
    }
}

fn copy_link(from: EntryAt<'_>, to: EntryAt<'_>) -> Result<(), Errno> {
    to.make_link(&from.link_target()?)
}

/// Copies a regular file. A link at the destination is followed if `to` is a path. If `to` is an entry, the file
/// replaces the link. `source` and `destination` are the whole paths, for errors.
fn copy_file(
    inside: &EnteredRoot<'_>,
    from: EntryAt<'_>,
    to: OpenTarget<'_>,
    source: &Path,
    destination: &Path,
    cancel: &Cancel,
) -> Result<(), FileError> {
    let (input, found) = read::open_target(inside, OpenTarget::Entry(from), source)?;
    if let OpenTarget::Entry(entry) = to {
        remove_link(inside, entry, destination)?;
    }
    let new_mode = Mode::from_raw_mode(permissions(&found) & 0o777);
    let target = write::open_target(inside, to, destination, new_mode)?;
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
        remove_unfinished(inside, to, &target.found);
    }
    copied.map_err(|failure| match failure {
        CopyContentsError::Os(error) => FileError::os(error, destination),
        CopyContentsError::Cancelled(error) => error,
    })
}

/// Removes a new file that holds a part of its contents, unless another file has its name by now.
fn remove_unfinished(inside: &EnteredRoot<'_>, at: OpenTarget<'_>, created: &Statx) {
    let remove = |entry: EntryAt<'_>| match entry.stat() {
        Ok(found) if FileIdentity::of(&found) == FileIdentity::of(created) => inside.unlink(entry, AtFlags::empty()),
        _ => Ok(()),
    };
    // The caller returns the error of the copy, which matters more than an error here.
    let _ignored = match at {
        OpenTarget::Path(path) => inside.locate(path).and_then(|located| remove(located.entry())),
        OpenTarget::Entry(entry) => remove(entry),
    };
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
fn remove_link(inside: &EnteredRoot<'_>, entry: EntryAt<'_>, path: &Path) -> Result<(), FileError> {
    match entry.stat().map(|stat| kind(&stat)) {
        Ok(FileType::Symlink) => inside.unlink(entry, AtFlags::empty()).map_err(FileError::at(path)),
        Ok(FileType::Fifo) => Err(FileError::not_a_file(path, Follow::Yes)),
        _ => Ok(()),
    }
}

fn copy_tree(inside: &EnteredRoot<'_>, source: &Path, destination: &Path, cancel: &Cancel) -> Result<(), FileError> {
    let canonical = inside.canonicalize(source).map_err(FileError::at(source))?;
    if canonical_as_far_as_it_exists(inside, destination).starts_with(canonical) {
        return Err(into_itself_error(destination));
    }
    let from = inside.open(source, OPEN_TO_LIST | OFlags::NOFOLLOW, Mode::empty()).map_err(FileError::at(source))?;
    create_all(inside, destination).map_err(FileError::at(destination))?;
    let to = inside.open(destination, OPEN_TO_TRAVERSE, Mode::empty()).map_err(FileError::at(destination))?;
    let mut copying = DirectoryTreeCopy {
        inside,
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
fn canonical_as_far_as_it_exists(inside: &EnteredRoot<'_>, path: &Path) -> PathBuf {
    let found = path.ancestors().find_map(|existing| {
        let canonical = inside.canonicalize(existing).ok()?;
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
    inside: &'a EnteredRoot<'a>,
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
        let opened = EntryAt::listed(from, name).open(OPEN_TO_LIST, Mode::empty());
        let opened = opened.map_err(|error| FileError::os(error, &self.source.child_path(name)))?;
        let made = EntryAt::listed(to, name);
        let made = match made.make_directory(Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => made.open(OPEN_TO_TRAVERSE, Mode::empty()),
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
                    FileType::Unknown => EntryAt::listed(from, name).stat().map(|stat| kind(&stat)),
                    known => Ok(known),
                };
                let below = |directory: &Path| directory.join(OsStr::from_bytes(name.to_bytes()));
                let (from_entry, to_entry) = (EntryAt::listed(from, name), EntryAt::listed(to, name));
                match kind.map_err(FileError::at(&source))? {
                    FileType::Directory => pending.push(name.to_owned()),
                    FileType::RegularFile => {
                        let to_entry = OpenTarget::Entry(to_entry);
                        let (source, destination) = (below(&source), below(&destination));
                        copy_file(self.inside, from_entry, to_entry, &source, &destination, self.cancel)?;
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
