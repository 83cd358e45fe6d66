//! What is allowed where, by real paths: the entries of a policy after links were followed.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::file_id::FileId;
use crate::policy::{Access, path_order};

/// Each sandbox has its own `/dev` and `/proc`. An entry for a directory above them does not apply to them.
const OWN_DIRECTORIES: [&str; 2] = ["/dev", "/proc"];

/// A path at which the allowed access differs from that of the directory above it.
#[derive(Clone, Debug)]
pub(super) struct AccessNode {
    pub(super) access: Access,
    pub(super) is_directory: bool,
    pub(super) id: FileId,
}

/// All places where the access changes.
#[derive(Debug)]
pub(super) struct AccessTree {
    root: Access,
    nodes: HashMap<PathBuf, AccessNode>,
}

impl AccessTree {
    pub(super) fn new(root: Access) -> Self {
        Self { root, nodes: HashMap::new() }
    }

    /// If several entries lead to the same file, the strictest one applies.
    pub(super) fn add(&mut self, path: &Path, mut node: AccessNode) {
        node.access = capped(path, node.access);
        let known = self.nodes.entry(path.to_owned()).or_insert_with(|| node.clone());
        known.access = known.access.min(node.access);
    }

    /// What is allowed for a path.
    pub(super) fn at(&self, path: &Path) -> Access {
        self.nearest(path, 0)
    }

    /// What would be allowed for a path without a node of its own.
    pub(super) fn above(&self, path: &Path) -> Access {
        self.nearest(path, 1)
    }

    fn nearest(&self, path: &Path, skipped: usize) -> Access {
        for ancestor in path.ancestors().skip(skipped) {
            if let Some(node) = self.nodes.get(ancestor) {
                return capped(path, node.access);
            }
            if OWN_DIRECTORIES.iter().any(|own| ancestor == Path::new(own)) {
                return Access::Deny;
            }
        }
        capped(path, self.root)
    }

    /// Removes nodes that change nothing. Those in `/dev` change something even if they allow what the root allows.
    pub(super) fn remove_redundant(&mut self) {
        let mut nodes: Vec<_> = std::mem::take(&mut self.nodes).into_iter().collect();
        nodes.sort_by(|(one, _), (other, _)| path_order(one, other));
        for (path, node) in nodes {
            if node.access != self.above(&path) || path.starts_with("/dev") {
                self.nodes.insert(path, node);
            }
        }
    }

    /// All nodes. The nodes below a directory come directly after the directory.
    pub(super) fn sorted(&self) -> Vec<(&Path, &AccessNode)> {
        let mut nodes: Vec<_> = self.nodes.iter().map(|(path, node)| (path.as_path(), node)).collect();
        nodes.sort_by(|(one, _), (other, _)| path_order(one, other));
        nodes
    }

    pub(super) fn contains(&self, path: &Path) -> bool {
        self.nodes.contains_key(path)
    }
}

/// Writing to `/sys` would change settings of the whole machine, so it can at most be read.
fn capped(path: &Path, access: Access) -> Access {
    if path.starts_with("/sys") { access.min(Access::Read) } else { access }
}
