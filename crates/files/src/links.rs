//! Reading and creating symbolic links, and resolving a path through them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, readlinkat, symlinkat};

use crate::FileError;

/// The same path without symbolic links, `.` and `..`. Every component must exist.
pub fn canonicalize(path: &Path) -> Result<PathBuf, FileError> {
    path.canonicalize().map_err(FileError::at(path))
}

/// The target of a symbolic link as it is stored. The target need not exist.
pub fn read_link(path: &Path) -> Result<OsString, FileError> {
    let target = readlinkat(CWD, path, Vec::new()).map_err(FileError::at(path))?;
    Ok(OsString::from_vec(target.into_bytes()))
}

/// Creates a symbolic link at `path`. The target is stored as given and need not exist. Fails with `EEXIST` if `path` exists.
pub fn symlink(target: &OsStr, path: &Path) -> Result<(), FileError> {
    symlinkat(target, CWD, path).map_err(FileError::at(path))
}
