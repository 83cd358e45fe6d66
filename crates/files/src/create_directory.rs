//! Creates one directory, or all directories that are missing on a path. With [`Follow::No`], no component of the
//! path may be a symbolic link.

use std::io::ErrorKind;
use std::path::Path;

use rustix::fs::Mode;
use rustix::io::Errno;

use crate::resolve::{NameInDirectory, normal_components, open_child};
use crate::root::{EnteredRoot, EntryAt};
use crate::{FileError, FileRoot, Follow};

/// Creates a directory. With `recursive`, missing parents are created too, and a directory that exists already is no
/// error, unless it is a placeholder of the sandbox: that one will not stay.
pub fn create_directory(root: &FileRoot, path: &Path, recursive: bool, follow: Follow) -> Result<(), FileError> {
    create(root, path, recursive, follow)?;
    if recursive && root.is_placeholder(path) {
        return Err(FileError::os(Errno::ROFS, path).with_sandbox_denial(true));
    }
    Ok(())
}

fn create(root: &FileRoot, path: &Path, recursive: bool, follow: Follow) -> Result<(), FileError> {
    root.run(&[path], |inside| match (follow, recursive) {
        (Follow::Yes, true) => create_all(inside, path).map_err(FileError::at(path)),
        (Follow::Yes, false) => create_one(inside, path).map_err(FileError::at(path)),
        (Follow::No, true) => create_all_without_links(inside, path),
        (Follow::No, false) => match NameInDirectory::resolve(inside, path, follow)? {
            Some(target) => target.entry().make_directory(new_directory_mode()).map_err(FileError::at(path)),
            // The path is `/`.
            None => Err(FileError::failed_check(ErrorKind::AlreadyExists, "directory already exists", path)),
        },
    })
}

/// Creates all directories that are missing on a path, through links.
pub(crate) fn create_all(inside: &EnteredRoot<'_>, path: &Path) -> Result<(), Errno> {
    let mut missing = Vec::new();
    for directory in path.ancestors().filter(|directory| !directory.as_os_str().is_empty()) {
        match create_one(inside, directory) {
            Ok(()) => break,
            Err(Errno::NOENT) => missing.push(directory),
            Err(_) if inside.is_directory(directory) => break,
            Err(error) => return Err(error),
        }
    }
    for directory in missing.into_iter().rev() {
        match create_one(inside, directory) {
            Err(error) if !inside.is_directory(directory) => return Err(error),
            // Another process may have created the directory meanwhile.
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

fn create_one(inside: &EnteredRoot<'_>, path: &Path) -> Result<(), Errno> {
    inside.locate(path)?.entry().make_directory(new_directory_mode())
}

/// Creates all directories that are missing on a path. Fails if a component of the path is a symbolic link.
fn create_all_without_links(inside: &EnteredRoot<'_>, path: &Path) -> Result<(), FileError> {
    let names = normal_components(path)?;
    let mut reached = inside.open_root().map_err(FileError::at(path))?;
    for (index, name) in names.iter().enumerate() {
        let next = match open_child(&reached, name) {
            // `EEXIST` means that another process has created the directory meanwhile.
            Err(Errno::NOENT) => match EntryAt::new(&reached, name).make_directory(new_directory_mode()) {
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
