//! Symbolic links: reading and making them, and where a path leads through them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, readlinkat, symlinkat};

use crate::FileError;

/// The same path without links, `.` and `..`. Everything on it must exist.
pub fn canonicalize(path: &Path) -> Result<PathBuf, FileError> {
    path.canonicalize().map_err(FileError::at(path))
}

/// What a symbolic link says, which need not exist.
pub fn read_link(path: &Path) -> Result<OsString, FileError> {
    let target = readlinkat(CWD, path, Vec::new()).map_err(FileError::at(path))?;
    Ok(OsString::from_vec(target.into_bytes()))
}

/// Makes a symbolic link that says `target`, of whatever bytes. Nothing is replaced.
pub fn symlink(target: &OsStr, path: &Path) -> Result<(), FileError> {
    symlinkat(target, CWD, path).map_err(FileError::at(path))
}
