//! Paths as texts: removing `.` and `..`, and counting components. No file is looked at.

use std::path::{Component, Path, PathBuf};

/// The path without `.`, `..`, doubled and trailing slashes. `..` at the root stays at the root, as in the kernel. None
/// if the path is not absolute.
pub(super) fn normalised(path: &Path) -> Option<PathBuf> {
    if !path.is_absolute() {
        return None;
    }
    let mut result = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::ParentDir => {
                result.pop();
            }
            Component::Normal(name) => result.push(name),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    Some(result)
}

/// How many names a normalised absolute path has: 0 for `/`, 2 for `/usr/bin`.
pub(super) fn depth(path: &Path) -> usize {
    path.components().count() - 1
}

/// The beginning of a normalised absolute path that has `depth` names.
pub(super) fn beginning(path: &Path, depth: usize) -> &Path {
    let shorter_by = self::depth(path) - depth;
    path.ancestors().nth(shorter_by).unwrap_or(path)
}
