//! Paths as texts: removing `.` and `..`, and counting components. No file is looked at.

use std::cmp::Ordering;
use std::os::unix::ffi::OsStrExt as _;
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

/// The prefix of a normalised absolute path that has `depth` names.
pub(super) fn prefix_of_depth(path: &Path, depth: usize) -> &Path {
    let shorter_by = self::depth(path) - depth;
    path.ancestors().nth(shorter_by).unwrap_or(path)
}

/// The order of paths by their components, as the paths themselves have it, but several times as fast. For paths without `.` and repeated
/// slashes.
pub(crate) fn path_order(one: &Path, other: &Path) -> Ordering {
    let (one, other) = (one.as_os_str().as_bytes(), other.as_os_str().as_bytes());
    match one.iter().zip(other).position(|(one, other)| one != other) {
        // A slash ends a component, so it sorts before every other byte.
        Some(at) => (one[at] != b'/', one[at]).cmp(&(other[at] != b'/', other[at])),
        None => one.len().cmp(&other.len()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_quick_order_is_that_of_paths(one in "(/[a.-]{1,2}x){0,4}", other in "(/[a.-]{1,2}x){0,4}") {
            let (one, other) = (PathBuf::from(format!("/r{one}")), PathBuf::from(format!("/r{other}")));
            prop_assert_eq!(path_order(&one, &other), one.cmp(&other));
        }
    }
}
