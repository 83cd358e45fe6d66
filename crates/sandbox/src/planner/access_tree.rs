//! What is allowed where, by real paths: the entries of a policy after links were followed.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::{Path, PathBuf};

use crate::file_id::FileId;
use crate::policy::Access;

/// Directories of which a sandbox has its own. Nothing that is allowed around them reaches into them.
const OWN_DIRECTORIES: [&str; 2] = ["/dev", "/proc"];

/// A place in the file tree where the access changes.
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
    /// A directory comes before what is below it.
    nodes: BTreeMap<PathBuf, AccessNode>,
}

impl AccessTree {
    pub(super) fn new(root: Access) -> Self {
        Self { root, nodes: BTreeMap::new() }
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
        let mut kept = Self::new(self.root);
        for (path, node) in std::mem::take(&mut self.nodes) {
            if node.access != kept.above(&path) || path.starts_with("/dev") {
                kept.nodes.insert(path, node);
            }
        }
        *self = kept;
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = (&Path, &AccessNode)> {
        self.nodes.iter().map(|(path, node)| (path.as_path(), node))
    }

    pub(super) fn contains(&self, path: &Path) -> bool {
        self.nodes.contains_key(path)
    }

    /// Whether something below a denied path is allowed.
    pub(super) fn grants_below(&self, path: &Path) -> bool {
        // What is below a path follows it directly.
        let below = self.nodes.range::<Path, _>((Bound::Excluded(path), Bound::Unbounded));
        below.take_while(|(other, _)| other.starts_with(path)).any(|(_, node)| node.access > Access::Deny)
    }
}

/// Files of the kernel are about the whole machine, so they can never be written.
fn capped(path: &Path, access: Access) -> Access {
    if path.starts_with("/sys") { access.min(Access::Read) } else { access }
}
