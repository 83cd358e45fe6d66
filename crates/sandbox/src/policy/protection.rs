//! Which paths in writable directories are protected, although a client did not ask for it.

use std::path::{Path, PathBuf};

use super::{Access, EntrySource, EntryTarget, FilePolicy, PROTECTED_NAMES, PolicyEntry, lexical};

/// The entries that protect metadata in the writable directories of `policy`, which has only the entries of the client.
/// Each of them takes away the right to write a path that could be written without it.
pub(super) fn protections(
    policy: &FilePolicy,
    git_directory_of: &mut dyn FnMut(&Path) -> Option<PathBuf>,
) -> Vec<PolicyEntry> {
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
    // `writable` is sorted, and what is below a path comes directly after it.
    let reopened = |path: &Path| {
        writable.get(writable.partition_point(|other| *other < path)).is_some_and(|next| next.starts_with(path))
    };
    // An entry for a path that may not be written anyway would only allow to read what is denied.
    let protects = |path: &Path| !reopened(path) && policy.access(path).access == Access::Write;

    let mut found = Vec::new();
    for directory in &writable {
        for name in PROTECTED_NAMES {
            let path = directory.join(name);
            if protects(&path) {
                found.push(protection(path, EntrySource::ProtectedName { writable: directory.to_path_buf() }));
            }
        }
        let git_file = directory.join(".git");
        let git_directory = git_directory_of(&git_file).and_then(|named| lexical::normalised(&directory.join(named)));
        if let Some(path) = git_directory.filter(|path| protects(path)) {
            found.push(protection(path, EntrySource::GitDirectory { git_file }));
        }
    }
    found
}

fn protection(path: PathBuf, source: EntrySource) -> PolicyEntry {
    PolicyEntry { target: EntryTarget::Path(path), access: Access::Read, source }
}
