//! What is in one directory.

use std::ffi::{CStr, OsStr, OsString};
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, openat};
use rustix::io::Errno;

use crate::FileError;
use crate::stat::{kind, stat};

/// A directory whose entries are read.
pub(crate) const READABLE: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// As much as one system call can be asked for without being noticed as memory.
const BUFFER_SIZE: usize = 32 * 1024;

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedEntry {
    /// The name, of whatever bytes.
    pub name: OsString,
    /// It is a directory, or a link to one.
    pub is_directory: bool,
    /// It is a regular file, or a link to one.
    pub is_file: bool,
    /// The name itself is a link.
    pub is_symlink: bool,
}

/// What becomes of links that lead nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DanglingLinks {
    /// They are not there.
    LeftOut,
    /// They are entries that are links, and neither file nor directory.
    Listed,
}

/// The entries of a directory in no particular order. With more than `limit` entries there is an error that says how many there
/// are, and no more than `limit` are held meanwhile.
pub fn read_directory(path: &Path, limit: usize, dangling: DanglingLinks) -> Result<Vec<ListedEntry>, FileError> {
    Ok(read_directory_while(path, limit, dangling, |_| true)?.unwrap_or_default())
}

/// As [`read_directory`], for a caller that limits the memory of the entries. `may_hold` is called with each name, up to `limit` names.
/// When it first returns false, the entries so far are dropped; it is still called with the other names, so that it can add up their
/// size. Returns `None` if it returned false for any name.
pub fn read_directory_while(
    path: &Path,
    limit: usize,
    dangling: DanglingLinks,
    mut may_hold: impl FnMut(&OsStr) -> bool,
) -> Result<Option<Vec<ListedEntry>>, FileError> {
    let directory = openat(CWD, path, READABLE, Mode::empty()).map_err(FileError::at(path))?;
    let mut entries = Some(Vec::new());
    let mut count = 0usize;
    let listed = each_entry(&directory, &mut buffer(), |name, listed_kind| {
        let own_kind = match listed_kind {
            FileType::Unknown => match stat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => kind(&stat),
                Err(_) => return ControlFlow::Continue(()),
            },
            known => known,
        };
        let is_symlink = own_kind == FileType::Symlink;
        let kind = match is_symlink.then(|| stat(&directory, name, AtFlags::empty())) {
            None => own_kind,
            Some(Ok(target)) => kind(&target),
            Some(Err(_)) if dangling == DanglingLinks::Listed => own_kind,
            Some(Err(_)) => return ControlFlow::Continue(()),
        };
        count += 1;
        let name = OsStr::from_bytes(name.to_bytes());
        if count > limit {
            return ControlFlow::Continue(());
        }
        if !may_hold(name) {
            entries = None;
        }
        if let Some(entries) = &mut entries {
            entries.push(ListedEntry {
                name: name.to_owned(),
                is_directory: kind == FileType::Directory,
                is_file: kind == FileType::RegularFile,
                is_symlink,
            });
        }
        ControlFlow::Continue(())
    });
    listed.map_err(FileError::at(path))?;
    if count > limit {
        let text = format!("fs/readDirectory returned {count} entries; limit is {limit}");
        return Err(FileError::check(ErrorKind::Other, text, path));
    }
    Ok(entries)
}

/// Room for listings, to be used for one after another.
pub(crate) fn buffer() -> Vec<u8> {
    Vec::with_capacity(BUFFER_SIZE)
}

/// Calls `visit` for each name but `.` and `..`, with the kind as far as the directory knows it.
pub(crate) fn each_entry<F: AsFd>(
    directory: F,
    buffer: &mut Vec<u8>,
    mut visit: impl FnMut(&CStr, FileType) -> ControlFlow<()>,
) -> Result<(), Errno> {
    let mut listing = RawDir::new(directory, buffer.spare_capacity_mut());
    while let Some(entry) = listing.next() {
        let entry = match entry {
            // The directory was removed since it was opened, so there is nothing in it.
            Err(Errno::NOENT) => break,
            entry => entry?,
        };
        let name = entry.file_name();
        if name != c"." && name != c".." && visit(name, entry.file_type()).is_break() {
            break;
        }
    }
    Ok(())
}
