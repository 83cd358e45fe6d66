//! A way down into a tree, however deep. Only the last few directories of it are held open; those above are opened again from below
//! when the way leads back, and must then be the same ones.

use std::ffi::{CStr, CString, OsStr};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, openat};

use crate::FileError;
use crate::stat::{Identity, stat_open};

/// Deep enough that ordinary trees are never opened twice, and few enough for many operations at a time.
const HELD_OPEN: usize = 32;

/// The directories from the top of a tree to where an operation is, with a state for each.
pub(crate) struct Descent<T> {
    /// Of where it is, or of the top while it is nowhere.
    path: PathBuf,
    flags: OFlags,
    levels: Vec<Level<T>>,
}

struct Level<T> {
    directory: Option<OwnedFd>,
    identity: Identity,
    name: CString,
    state: T,
}

impl<T> Descent<T> {
    /// No directory yet. `flags` are those with which directories of this tree are opened.
    pub(crate) fn below(top: &Path, flags: OFlags) -> Self {
        Self { path: top.to_owned(), flags, levels: Vec::new() }
    }

    /// Goes into a directory; the name of the top is not used.
    pub(crate) fn enter(&mut self, directory: OwnedFd, identity: Identity, name: &CStr, state: T) {
        if !self.levels.is_empty() {
            self.path.push(OsStr::from_bytes(name.to_bytes()));
        }
        self.levels.push(Level { directory: Some(directory), identity, name: name.to_owned(), state });
        if let Some(index) = self.levels.len().checked_sub(HELD_OPEN + 1) {
            self.levels[index].directory = None;
        }
    }

    /// The directory where it is, and its state. `None` once it has left the top.
    pub(crate) fn here(&mut self) -> Option<(&OwnedFd, &mut T)> {
        let level = self.levels.last_mut()?;
        Some((level.directory.as_ref()?, &mut level.state))
    }

    /// Goes back up, and says the name of what was left.
    pub(crate) fn leave(&mut self) -> Result<Option<CString>, FileError> {
        let Some(left) = self.levels.pop() else { return Ok(None) };
        let Some(above) = self.levels.last_mut() else { return Ok(Some(left.name)) };
        self.path.pop();
        if let (None, Some(from)) = (&above.directory, &left.directory) {
            let opened = openat(from, c"..", self.flags, Mode::empty()).map_err(FileError::at(&self.path))?;
            if Identity::of(&stat_open(&opened).map_err(FileError::at(&self.path))?) != above.identity {
                let text = format!("`{}` was moved meanwhile", self.path.display());
                return Err(FileError::check(ErrorKind::Other, text, &self.path));
            }
            above.directory = Some(opened);
        }
        Ok(Some(left.name))
    }

    /// The path of where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The path of something where it is.
    pub(crate) fn path_of(&self, name: &CStr) -> PathBuf {
        if self.levels.is_empty() { self.path.clone() } else { self.path.join(OsStr::from_bytes(name.to_bytes())) }
    }
}
