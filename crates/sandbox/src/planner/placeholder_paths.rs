//! The paths of the placeholders of a sandbox, in a form in which a server with many of them finds quickly whether one is in the
//! way of a command.

use std::path::{Path, PathBuf};

/// Paths of placeholders. They contain no link.
#[derive(Debug, Default)]
pub struct PlaceholderPaths {
    /// Sorted, so that those below a directory follow each other.
    paths: Vec<PathBuf>,
    /// The directories in which they are, sorted.
    parents: Vec<PathBuf>,
}

impl PlaceholderPaths {
    pub(super) fn new(mut paths: Vec<PathBuf>) -> Self {
        paths.sort_unstable();
        let mut parents: Vec<PathBuf> = paths.iter().filter_map(|path| path.parent()).map(Path::to_owned).collect();
        parents.sort_unstable();
        parents.dedup();
        Self { paths, parents }
    }

    /// All paths, sorted.
    pub fn as_slice(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Whether there is no placeholder.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// Whether this is the path of a placeholder.
    pub fn contains(&self, path: &Path) -> bool {
        self.paths.binary_search_by(|known| known.as_path().cmp(path)).is_ok()
    }

    /// Whether a placeholder is in this directory, in a directory below it, or in one of those above it.
    pub fn has_around(&self, directory: &Path) -> bool {
        let first = self.paths.partition_point(|path| path.as_path() < directory);
        self.paths.get(first).is_some_and(|path| path.starts_with(directory))
            || directory
                .ancestors()
                .any(|above| self.parents.binary_search_by(|parent| parent.as_path().cmp(above)).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_beside_the_directory_and_below_it_are_around_it() {
        let paths = ["/ws/.git", "/ws/sub/deep/.git", "/other/x/.git", "/ws-2/.git"].map(PathBuf::from).to_vec();
        let paths = PlaceholderPaths::new(paths);
        for around in ["/", "/ws", "/ws/sub", "/ws/sub/deep", "/ws/any/where", "/other", "/other/x/y", "/ws/.git"] {
            assert!(paths.has_around(Path::new(around)), "{around}");
        }
        for elsewhere in ["/w", "/ws-3", "/other/y", "/usr/bin"] {
            assert!(!paths.has_around(Path::new(elsewhere)), "{elsewhere}");
        }
        assert!(paths.contains(Path::new("/ws-2/.git")) && !paths.contains(Path::new("/ws-2")));
        assert!(!PlaceholderPaths::default().has_around(Path::new("/")));
    }
}
