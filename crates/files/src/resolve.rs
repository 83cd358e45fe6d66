//! Resolving a path: opens its parent directory, and returns that directory with the last name of the path. An operation that works
//! relative to the opened directory stays in it, even if another process replaces a component of the path by a symbolic link meanwhile.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::FileError;
use crate::root::{EnteredRoot, EntryAt};

/// Whether symbolic links in a path are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// Links are followed everywhere in the path, as the operating system does.
    Yes,
    /// No component of the path may be a link; the operation fails if one is. The only exception is that
    /// [`set_metadata`](crate::set_metadata()) sets the time of a link at the end of the path. The path must be
    /// absolute and without `..`.
    No,
}

/// Flags to open a directory only to reach its entries by their names. The directory need not be readable.
pub(crate) const OPEN_TO_TRAVERSE: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A name in a directory that is held open.
#[derive(Debug)]
pub(crate) struct NameInDirectory {
    pub(crate) directory: OwnedFd,
    pub(crate) name: OsString,
}

impl NameInDirectory {
    /// Opens the parent directory of `path`. The last component itself is not examined and need not exist. Returns
    /// `None` for `/`, which has no parent. Fails if `path` is relative or ends in `..`.
    pub(crate) fn resolve(inside: &EnteredRoot<'_>, path: &Path, follow: Follow) -> Result<Option<Self>, FileError> {
        if !path.is_absolute() {
            return Err(not_normalized(path));
        }
        match path.components().next_back() {
            Some(Component::Normal(name)) => {
                let parent = path.parent().unwrap_or(Path::new("/"));
                let directory = match follow {
                    Follow::Yes => {
                        inside.open(parent, OPEN_TO_TRAVERSE, Mode::empty()).map_err(FileError::at(path))?
                    }
                    Follow::No => open_without_links(inside, parent, path)?,
                };
                Ok(Some(Self { directory, name: name.to_owned() }))
            }
            Some(Component::RootDir) => Ok(None),
            _ => Err(not_normalized(path)),
        }
    }

    pub(crate) fn entry(&self) -> EntryAt<'_> {
        EntryAt::new(&self.directory, &self.name)
    }
}

/// The components of an absolute path. A `..` among them is an error.
pub(crate) fn normal_components(path: &Path) -> Result<Vec<&OsStr>, FileError> {
    let mut components = path.components();
    if components.next() != Some(Component::RootDir) {
        return Err(not_normalized(path));
    }
    let names = components.map(|component| match component {
        Component::Normal(name) => Ok(name),
        _ => Err(not_normalized(path)),
    });
    names.collect()
}

/// Opens a subdirectory without following links. A link fails with `ENOTDIR`.
pub(crate) fn open_child(directory: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    EntryAt::new(directory, name).open(OPEN_TO_TRAVERSE, Mode::empty())
}

fn open_without_links(inside: &EnteredRoot<'_>, directory: &Path, error_path: &Path) -> Result<OwnedFd, FileError> {
    let names = normal_components(directory)?;
    // If this single call fails, the loop below opens the components one by one. The loop fails with the error of the
    // component that is at fault, or succeeds if the path is too long for one call or the kernel has no `openat2`.
    if let Ok(opened) = inside.open_without_links(directory, OPEN_TO_TRAVERSE | OFlags::NOFOLLOW) {
        return Ok(opened);
    }
    let mut reached = inside.open_root().map_err(FileError::at(error_path))?;
    for name in names {
        reached = open_child(&reached, name).map_err(FileError::at(error_path))?;
    }
    Ok(reached)
}

fn not_normalized(path: &Path) -> FileError {
    FileError::refused("path must be absolute and normalized", path)
}
