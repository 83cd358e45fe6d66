//! Renaming, also to another directory of the same file system.

use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, RenameFlags, linkat, renameat, renameat_with, unlinkat};
use rustix::io::Errno;

use crate::FileError;
use crate::stat::{kind, stat};

/// Renames `source` to `destination`. Without `replace`, an existing `destination` fails with `EEXIST`. The rename is
/// atomic, except without `replace` on a kernel or file system that has no `RENAME_NOREPLACE`.
pub fn rename(source: &Path, destination: &Path, replace: bool) -> Result<(), FileError> {
    let renamed = if replace {
        renameat(CWD, source, CWD, destination)
    } else {
        match renameat_with(CWD, source, CWD, destination, RenameFlags::NOREPLACE) {
            // The kernel or the file system does not know the flag. A request that is itself invalid fails again in `rename_to_free_name`.
            Err(Errno::NOSYS | Errno::INVAL) => rename_to_free_name(source, destination),
            renamed => renamed,
        }
    };
    renamed.map_err(|error| {
        let is_about_source = error == Errno::NOENT && stat(CWD, source, AtFlags::SYMLINK_NOFOLLOW).is_err();
        FileError::os(error, if is_about_source { source } else { destination })
    })
}

/// Renames without `RENAME_NOREPLACE`. A new hard link does not replace a `destination` that another process creates
/// meanwhile. Directories cannot have hard links, and some file systems have no hard links. In these cases, such a
/// `destination` can be replaced if it is created between the check and the rename.
fn rename_to_free_name(source: &Path, destination: &Path) -> Result<(), Errno> {
    let is_directory = kind(&stat(CWD, source, AtFlags::SYMLINK_NOFOLLOW)?) == FileType::Directory;
    if !is_directory {
        match linkat(CWD, source, CWD, destination, AtFlags::empty()) {
            Ok(()) => return unlinkat(CWD, source, AtFlags::empty()),
            Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => {}
            Err(error) => return Err(error),
        }
    }
    match stat(CWD, destination, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Err(Errno::EXIST),
        Err(Errno::NOENT) => renameat(CWD, source, CWD, destination),
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
        fs::write(at("a"), "a").unwrap();
        fs::write(at("taken"), "taken").unwrap();
        fs::create_dir(at("d")).unwrap();

        assert_eq!(rename_to_free_name(&at("a"), &at("taken")), Err(Errno::EXIST));
        assert_eq!(rename_to_free_name(&at("d"), &at("taken")), Err(Errno::EXIST));
        assert_eq!(rename_to_free_name(&at("none"), &at("b")), Err(Errno::NOENT));
        assert_eq!(rename_to_free_name(&at("d"), &at("d/below")), Err(Errno::INVAL));
        rename_to_free_name(&at("a"), &at("b")).unwrap();
        rename_to_free_name(&at("d"), &at("e")).unwrap();

        assert_eq!(fs::read(at("b")).unwrap(), b"a");
        assert!(at("e").is_dir() && !at("a").exists() && !at("d").exists());
        assert_eq!(fs::read(at("taken")).unwrap(), b"taken");
    }
}
