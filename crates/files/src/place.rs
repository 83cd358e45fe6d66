//! Where a path leads: the directory that holds its last component, opened, and the name in it. Whoever works relative to that
//! directory cannot be led elsewhere by somebody who swaps a component meanwhile.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

use crate::FileError;

/// Whether symbolic links in a path are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// As the operating system does.
    Yes,
    /// No component may be one.
    No,
}

/// A directory by which something is reached; needs no permission to read it.
pub(crate) const PASSAGE: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A name in a directory that is held open.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) directory: OwnedFd,
    pub(crate) name: OsString,
}

impl Place {
    /// Opens the directory that holds the last component of `path`; that component itself is not looked at. `None` is `/`,
    /// which nothing holds.
    pub(crate) fn find(path: &Path, follow: Follow) -> Result<Option<Self>, FileError> {
        if !path.is_absolute() {
            return Err(not_normalized(path));
        }
        match path.components().next_back() {
            Some(Component::Normal(name)) => {
                let parent = path.parent().unwrap_or(Path::new("/"));
                let directory = match follow {
                    Follow::Yes => openat(CWD, parent, PASSAGE, Mode::empty()).map_err(FileError::at(path))?,
                    Follow::No => open_without_links(parent, path)?,
                };
                Ok(Some(Self { directory, name: name.to_owned() }))
            }
            Some(Component::RootDir) => Ok(None),
            _ => Err(not_normalized(path)),
        }
    }
}

/// The components below `/`, none of which leads up.
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

/// Opens the root directory, where every way without links begins.
pub(crate) fn open_root(path: &Path) -> Result<OwnedFd, FileError> {
    openat(CWD, "/", PASSAGE, Mode::empty()).map_err(FileError::at(path))
}

/// One step of a way without links. A link is `ENOTDIR`.
pub(crate) fn step(directory: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    openat(directory, name, PASSAGE | OFlags::NOFOLLOW, Mode::empty())
}

fn open_without_links(directory: &Path, asked: &Path) -> Result<OwnedFd, FileError> {
    let names = normal_components(directory)?;
    let flags = PASSAGE | OFlags::NOFOLLOW;
    // What the one call refuses, for whatever reason, the steps refuse with the error that belongs to the component.
    if let Ok(opened) = openat2(CWD, directory, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        return Ok(opened);
    }
    let mut reached = open_root(asked)?;
    for name in names {
        reached = step(&reached, name).map_err(FileError::at(asked))?;
    }
    Ok(reached)
}

fn not_normalized(path: &Path) -> FileError {
    FileError::refused("path must be absolute and normalized", path)
}
