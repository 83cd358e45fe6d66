//! Listing one directory. Trees are listed by `walk`.

use std::ffi::{CStr, OsStr, OsString};
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;

use crate::root::{EnteredRoot, EntryAt};
use crate::stat::kind;
use crate::{FileError, FileRoot};

/// Flags to open a directory whose entries are read.
pub(crate) const OPEN_TO_LIST: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// Size of the buffer for one `getdents` call.
const BUFFER_SIZE: usize = 32 * 1024;

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedEntry {
    /// The name without the directory. It need not be UTF-8.
    pub name: OsString,
    /// Whether the entry is a directory or a symbolic link to one.
    pub is_directory: bool,
    /// Whether the entry is a regular file or a symbolic link to one.
    pub is_file: bool,
    /// Whether the entry itself is a symbolic link.
    pub is_symlink: bool,
}

/// How a listing treats symbolic links whose target does not exist or cannot be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DanglingLinks {
    /// The listing does not contain them.
    LeftOut,
    /// The listing contains them, with only `is_symlink` set.
    Listed,
}

/// The entries of a directory in no particular order. A directory with more than `limit` entries is an error that says how many it has;
/// no more than `limit` entries are in memory meanwhile.
pub fn read_directory(
    root: &FileRoot,
    path: &Path,
    limit: usize,
    dangling: DanglingLinks,
) -> Result<Vec<ListedEntry>, FileError> {
    Ok(read_directory_if_it_fits(root, path, limit, dangling, |_| true)?.unwrap_or_default())
}

/// As [`read_directory`], for a caller that limits the memory of the entries. `may_hold` is called with each name, up
/// to `limit` names. When `may_hold` first returns false, the entries so far are dropped. The directory is still read
/// to its end, so that `may_hold` can add up the size of all names. The result is `None` if `may_hold` returned false
/// for any name.
pub fn read_directory_if_it_fits(
    root: &FileRoot,
    path: &Path,
    limit: usize,
    dangling: DanglingLinks,
    may_hold: impl FnMut(&OsStr) -> bool,
) -> Result<Option<Vec<ListedEntry>>, FileError> {
    root.run(&[path], |inside| list(inside, path, limit, dangling, may_hold))
}

fn list(
    inside: &EnteredRoot<'_>,
    path: &Path,
    limit: usize,
    dangling: DanglingLinks,
    mut may_hold: impl FnMut(&OsStr) -> bool,
) -> Result<Option<Vec<ListedEntry>>, FileError> {
    let directory = inside.open(path, OPEN_TO_LIST, Mode::empty()).map_err(FileError::at(path))?;
    let mut entries = Some(Vec::new());
    let mut count = 0usize;
    let listed = each_entry(&directory, &mut buffer(), |name, listed_kind| {
        let entry = EntryAt::listed(&directory, name);
        let name = OsStr::from_bytes(name.to_bytes());
        let own_kind = match listed_kind {
            FileType::Unknown => match entry.stat() {
                Ok(stat) => kind(&stat),
                // Most likely the entry was removed meanwhile.
                Err(_) => return ControlFlow::Continue(()),
            },
            known => known,
        };
        let is_symlink = own_kind == FileType::Symlink;
        let kind = match is_symlink.then(|| inside.stat_following(entry, &path.join(name))) {
            None => own_kind,
            Some(Ok(target)) => kind(&target),
            Some(Err(_)) if dangling == DanglingLinks::Listed => own_kind,
            Some(Err(_)) => return ControlFlow::Continue(()),
        };
        count += 1;
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
        return Err(FileError::failed_check(ErrorKind::Other, text, path));
    }
    Ok(entries)
}

/// A buffer for [`each_entry`], which can be used again for further directories.
pub(crate) fn buffer() -> Vec<u8> {
    Vec::with_capacity(BUFFER_SIZE)
}

/// Calls `visit` for each name except `.` and `..`, until `visit` returns `Break`. The file type is `Unknown` where
/// the file system does not store it in the directory.
pub(crate) fn each_entry<F: AsFd>(
    directory: F,
    buffer: &mut Vec<u8>,
    mut visit: impl FnMut(&CStr, FileType) -> ControlFlow<()>,
) -> Result<(), Errno> {
    let mut listing = RawDir::new(directory, buffer.spare_capacity_mut());
    while let Some(entry) = listing.next() {
        let entry = match entry {
            // The directory was removed after it was opened, so it is empty.
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
