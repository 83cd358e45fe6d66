//! Renaming, also to another directory of the same file system.

use std::path::Path;

use rustix::fs::{AtFlags, FileType, RenameFlags};
use rustix::io::Errno;

use crate::root::{EnteredRoot, EntryAt};
use crate::stat::kind;
use crate::{FileError, FileRoot};

/// Renames `source` to `destination`. Without `replace`, an existing `destination` fails with `EEXIST`. The rename is
/// atomic, except without `replace` on a kernel or file system that has no `RENAME_NOREPLACE`.
pub fn rename(root: &FileRoot, source: &Path, destination: &Path, replace: bool) -> Result<(), FileError> {
    root.run(&[source, destination], |inside| {
        rename_inside(inside, source, destination, replace).map_err(|error| {
            let is_about_source = error == Errno::NOENT && inside.stat_itself(source).is_err();
            FileError::os(error, if is_about_source { source } else { destination })
        })
    })
}

fn rename_inside(inside: &EnteredRoot<'_>, source: &Path, destination: &Path, replace: bool) -> Result<(), Errno> {
    let (source, destination) = (inside.locate(source)?, inside.locate(destination)?);
    if replace {
        return inside.rename(source.entry(), destination.entry(), RenameFlags::empty());
    }
    match inside.rename(source.entry(), destination.entry(), RenameFlags::NOREPLACE) {
        // The kernel or the file system does not know the flag. A request that is itself invalid fails again in `rename_to_free_name`.
        Err(Errno::NOSYS | Errno::INVAL) => rename_to_free_name(inside, source.entry(), destination.entry()),
        renamed => renamed,
    }
}

/// Renames without `RENAME_NOREPLACE`. A new hard link does not replace a `destination` that another process creates
/// meanwhile. Directories cannot have hard links, and some file systems have no hard links. In these cases, such a
/// `destination` can be replaced if it is created between the check and the rename.
fn rename_to_free_name(inside: &EnteredRoot<'_>, source: EntryAt<'_>, destination: EntryAt<'_>) -> Result<(), Errno> {
    let is_directory = kind(&source.stat()?) == FileType::Directory;
    if !is_directory {
        match inside.link(source, destination) {
            Ok(()) => return inside.unlink(source, AtFlags::empty()),
            Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => {}
            Err(error) => return Err(error),
        }
    }
    match destination.stat() {
        Ok(_) => Err(Errno::EXIST),
        Err(Errno::NOENT) => inside.rename(source, destination, RenameFlags::empty()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn without_the_kernel_flag_valid_renames_to_free_names_succeed_and_others_fail() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        let try_rename = |source: &Path, destination: &Path| {
            let inside = FileRoot::host().enter().unwrap();
            let (source, destination) = (inside.locate(source).unwrap(), inside.locate(destination).unwrap());
            rename_to_free_name(&inside, source.entry(), destination.entry())
        };
        fs::write(at("a"), "a").unwrap();
        fs::write(at("taken"), "taken").unwrap();
        fs::create_dir(at("d")).unwrap();

        assert_eq!(try_rename(&at("a"), &at("taken")), Err(Errno::EXIST));
        assert_eq!(try_rename(&at("d"), &at("taken")), Err(Errno::EXIST));
        assert_eq!(try_rename(&at("none"), &at("b")), Err(Errno::NOENT));
        assert_eq!(try_rename(&at("d"), &at("d/below")), Err(Errno::INVAL));
        try_rename(&at("a"), &at("b")).unwrap();
        try_rename(&at("d"), &at("e")).unwrap();

        assert_eq!(fs::read(at("b")).unwrap(), b"a");
        assert!(at("e").is_dir() && !at("a").exists() && !at("d").exists());
        assert_eq!(fs::read(at("taken")).unwrap(), b"taken");
    }
}
