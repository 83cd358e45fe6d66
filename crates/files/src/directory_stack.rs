//! The stack of directories of a depth-first walk through a tree of any depth. Only the deepest directories of the
//! stack are kept open, so that a deep tree does not use up the file descriptors. A directory further up is opened
//! again through `..` when the walk returns to it, and the walk fails if `..` is not the same directory as before.

use std::ffi::{CStr, CString, OsStr};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::FileError;
use crate::root::open_parent;
use crate::stat::{FileIdentity, stat_open};

/// The most directories that one walk keeps open. Ordinary trees are less deep, so none of their directories is
/// opened twice.
const MAX_OPEN_LEVELS: usize = 32;

/// The directories from the top of a tree to the current one, with a state of type `T` for each.
pub(crate) struct DirectoryStack<T> {
    /// Path of the current directory, or of the top while the stack is empty.
    path: PathBuf,
    flags: OFlags,
    levels: Vec<Level<T>>,
}

struct Level<T> {
    /// `None` while the directory is closed. The current directory is always open.
    directory: Option<OwnedFd>,
    identity: FileIdentity,
    name: CString,
    state: T,
}

impl<T> DirectoryStack<T> {
    /// An empty stack. `flags` are used to open a directory again.
    pub(crate) fn new(top: &Path, flags: OFlags) -> Self {
        Self { path: top.to_owned(), flags, levels: Vec::new() }
    }

    /// Makes a subdirectory of the current directory the current one. If the stack is empty, `directory` is the top
    /// directory, and `name` is not added to the path.
    pub(crate) fn push(&mut self, directory: OwnedFd, identity: FileIdentity, name: &CStr, state: T) {
        if !self.levels.is_empty() {
            self.path.push(OsStr::from_bytes(name.to_bytes()));
        }
        self.levels.push(Level { directory: Some(directory), identity, name: name.to_owned(), state });
        if let Some(index) = self.levels.len().checked_sub(MAX_OPEN_LEVELS + 1) {
            self.levels[index].directory = None;
        }
    }

    /// The current directory and its state. `None` if the stack is empty.
    pub(crate) fn current(&mut self) -> Option<(&OwnedFd, &mut T)> {
        let level = self.levels.last_mut()?;
        Some((level.directory.as_ref()?, &mut level.state))
    }

    /// Makes the parent the current directory, and returns the name of the directory that was left. `None` if the
    /// stack is empty.
    pub(crate) fn pop(&mut self) -> Result<Option<CString>, FileError> {
        let Some(left) = self.levels.pop() else { return Ok(None) };
        let Some(above) = self.levels.last_mut() else { return Ok(Some(left.name)) };
        self.path.pop();
        if let (None, Some(from)) = (&above.directory, &left.directory) {
            let opened = open_parent(from, self.flags).map_err(FileError::at(&self.path))?;
            if FileIdentity::of(&stat_open(&opened).map_err(FileError::at(&self.path))?) != above.identity {
                let text = format!("`{}` was moved meanwhile", self.path.display());
                return Err(FileError::failed_check(ErrorKind::Other, text, &self.path));
            }
            above.directory = Some(opened);
        }
        Ok(Some(left.name))
    }

    /// The path of the current directory.
    pub(crate) fn current_path(&self) -> &Path {
        &self.path
    }

    /// The path of an entry of the current directory; while the stack is empty, the path of the top.
    pub(crate) fn child_path(&self, name: &CStr) -> PathBuf {
        if self.levels.is_empty() { self.path.clone() } else { self.path.join(OsStr::from_bytes(name.to_bytes())) }
    }
}
