//! Creates one directory, or all directories that are missing on a path. With [`Follow::No`], no component of the
//! path may be a symbolic link.

use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::path::Path;

use rustix::fs::{Mode, mkdirat};
use rustix::io::Errno;

use crate::resolve::{NameInDirectory, normal_components, open_child, open_root};
use crate::{FileError, Follow};

/// Creates a directory. With `recursive`, missing parents are created too, and a directory that exists already is no
/// error.
pub fn create_directory(path: &Path, recursive: bool, follow: Follow) -> Result<(), FileError> {
    match (follow, recursive) {
        (Follow::Yes, _) => DirBuilder::new().recursive(recursive).create(path).map_err(FileError::at(path)),
        (Follow::No, true) => create_all_without_links(path),
        (Follow::No, false) => match NameInDirectory::resolve(path, follow)? {
            Some(target) => {
                mkdirat(&target.directory, &target.name, new_directory_mode()).map_err(FileError::at(path))
            }
            // The path is `/`.
            None => Err(FileError::failed_check(ErrorKind::AlreadyExists, "directory already exists", path)),
        },
    }
}

/// Creates all directories that are missing on a path. Fails if a component of the path is a symbolic link.
fn create_all_without_links(path: &Path) -> Result<(), FileError> {
    let names = normal_components(path)?;
    let mut reached = open_root(path)?;
    for (index, name) in names.iter().enumerate() {
        let next = match open_child(&reached, name) {
            // `EEXIST` means that another process has created the directory meanwhile.
            Err(Errno::NOENT) => match mkdirat(&reached, *name, new_directory_mode()) {
                Ok(()) | Err(Errno::EXIST) => open_child(&reached, name),
                Err(error) => Err(error),
            },
            opened => opened,
        };
        let is_last = index + 1 == names.len();
        reached = match next {
            // The directory cannot be created, because a file or a link has its name.
            Err(Errno::NOTDIR) if is_last => return Err(FileError::os(Errno::EXIST, path)),
            next => next.map_err(FileError::at(path))?,
        };
    }
    Ok(())
}

/// The permissions of a new directory, from which the kernel removes those of the umask.
fn new_directory_mode() -> Mode {
    Mode::from_raw_mode(0o777)
}
