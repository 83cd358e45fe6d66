//! Which paths in writable directories are protected, although a client did not ask for it.

use std::path::{Path, PathBuf};

use super::request::GitDirectories;
use super::{Access, EntrySource, EntryTarget, FilePolicy, PROTECTED_NAMES, PolicyEntry, PolicyError, lexical};

/// The entries that protect metadata in the writable directories of `policy`, which has only the entries of the client.
/// Each of them takes away the right to write a path that could be written without it.
pub(super) fn protections(
    policy: &FilePolicy,
    git_directories_of: &mut GitDirectories<'_>,
) -> Result<Vec<PolicyEntry>, PolicyError> {
    let writable: Vec<&Path> = policy
        .entries()
        .iter()
        .filter(|entry| entry.access == Access::Write)
        .filter_map(|entry| match &entry.target {
            EntryTarget::Path(path) => Some(path.as_path()),
            EntryTarget::Glob(_) => None,
        })
        // A glob can deny a path that an entry makes writable.
        .filter(|path| policy.access(path).access == Access::Write)
        .collect();
    // `writable` is sorted, and the paths below a path come directly after it.
    let has_writable_entry_at_or_below = |path: &Path| {
        writable.get(writable.partition_point(|other| *other < path)).is_some_and(|next| next.starts_with(path))
    };
    // An entry for a path that may not be written anyway would only allow reading what is denied.
    let protects = |path: &Path| !has_writable_entry_at_or_below(path) && policy.access(path).access == Access::Write;

    let mut found = Vec::new();
    for directory in &writable {
        for name in PROTECTED_NAMES {
            let path = directory.join(name);
            if protects(&path) {
                found.push(protection(path, EntrySource::ProtectedName { writable: directory.to_path_buf() }));
            }
        }
        let git_file = directory.join(".git");
        let named = git_directories_of(&git_file)
            .map_err(|reason| PolicyError::GitFile { path: git_file.clone(), reason })?;
        let git_directories = named.iter().filter_map(|path| lexical::normalised(path)).filter(|path| protects(path));
        let source = EntrySource::GitDirectory { git_file };
        found.extend(git_directories.map(|path| protection(path, source.clone())));
    }
    Ok(found)
}

fn protection(path: PathBuf, source: EntrySource) -> PolicyEntry {
    PolicyEntry { target: EntryTarget::Path(path), access: Access::Read, source }
}
