//! Reading and creating symbolic links, and resolving a path through them.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::root::EnteredRoot;
use crate::{FileError, FileRoot};

/// The same path without symbolic links, `.` and `..`. Every component must exist.
pub fn canonicalize(root: &FileRoot, path: &Path) -> Result<PathBuf, FileError> {
    root.run(&[path], |inside| inside.canonicalize(path).map_err(FileError::at(path)))
}

/// The target of a symbolic link as it is stored. The target need not exist.
pub fn read_link(root: &FileRoot, path: &Path) -> Result<OsString, FileError> {
    root.run(&[path], |inside| read_link_inside(inside, path))
}

/// [`read_link`] for another operation of this crate.
pub(crate) fn read_link_inside(inside: &EnteredRoot<'_>, path: &Path) -> Result<OsString, FileError> {
    inside.locate(path).and_then(|link| link.entry().link_target()).map_err(FileError::at(path))
}

/// Creates a symbolic link at `path`. The target is stored as given and need not exist. Fails with `EEXIST` if `path` exists.
pub fn symlink(root: &FileRoot, target: &OsStr, path: &Path) -> Result<(), FileError> {
    root.run(&[path], |inside| {
        inside.locate(path).and_then(|link| link.entry().make_link(target)).map_err(FileError::at(path))
    })
}
