//! The directories of a watched tree. They are linked by name, so that moving one moves everything below it. A
//! directory is recorded as soon as its name is known, and gets a watch descriptor when it is added to inotify. While
//! it is being renamed, it is *detached*: its old parent no longer has it, and its new place is not yet known.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::inotify_handle::WatchDescriptor;

/// Identifies a recorded directory, also when its path changes. An id is not used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct DirectoryId(u64);

/// The root of the watch.
pub(super) const ROOT: DirectoryId = DirectoryId(0);

pub(super) struct DirectoryTree {
    root_path: PathBuf,
    nodes: HashMap<DirectoryId, DirectoryNode>,
    by_descriptor: HashMap<WatchDescriptor, DirectoryId>,
    last_id: DirectoryId,
}

struct DirectoryNode {
    /// The root is its own parent.
    parent: DirectoryId,
    name: OsString,
    children: HashMap<OsString, DirectoryId>,
    /// `None` while the directory is not watched.
    descriptor: Option<WatchDescriptor>,
}

impl DirectoryNode {
    fn new(parent: DirectoryId, name: OsString) -> Self {
        Self { parent, name, children: HashMap::new(), descriptor: None }
    }
}

impl DirectoryTree {
    pub(super) fn new(root: WatchDescriptor, root_path: &Path) -> Self {
        let mut directories = Self {
            root_path: root_path.to_owned(),
            nodes: HashMap::from([(ROOT, DirectoryNode::new(ROOT, OsString::new()))]),
            by_descriptor: HashMap::new(),
            last_id: ROOT,
        };
        directories.set_descriptor(ROOT, root);
        directories
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn contains(&self, id: DirectoryId) -> bool {
        self.nodes.contains_key(&id)
    }

    pub(super) fn child(&self, parent: DirectoryId, name: &OsStr) -> Option<DirectoryId> {
        self.nodes.get(&parent)?.children.get(name).copied()
    }

    pub(super) fn by_descriptor(&self, descriptor: WatchDescriptor) -> Option<DirectoryId> {
        self.by_descriptor.get(&descriptor).copied()
    }

    pub(super) fn descriptor(&self, id: DirectoryId) -> Option<WatchDescriptor> {
        self.nodes.get(&id)?.descriptor
    }

    /// The descriptors of all directories but the root.
    pub(super) fn descriptors_below_root(&self) -> impl Iterator<Item = WatchDescriptor> {
        self.by_descriptor.iter().filter(|&(_, &id)| id != ROOT).map(|(&descriptor, _)| descriptor)
    }

    /// Records that a directory was added to inotify.
    pub(super) fn set_descriptor(&mut self, id: DirectoryId, descriptor: WatchDescriptor) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.descriptor = Some(descriptor);
            self.by_descriptor.insert(descriptor, id);
        }
    }

    /// The path of a directory. If the directory is [detached](Self::detach), the path that it had before.
    pub(super) fn path(&self, id: DirectoryId) -> Option<PathBuf> {
        let mut names = Vec::new();
        let mut at = id;
        while at != ROOT {
            let node = self.nodes.get(&at)?;
            names.push(node.name.as_os_str());
            at = node.parent;
        }
        let mut path = self.root_path.clone();
        path.extend(names.into_iter().rev());
        Some(path)
    }

    /// The components of the path of a directory below the root, the last one first, each with the directory that contains it. `None` if
    /// the directory, or one above it, is detached.
    pub(super) fn components(&self, id: DirectoryId) -> Option<Vec<(DirectoryId, &OsStr)>> {
        let mut components = Vec::new();
        let mut at = id;
        while at != ROOT {
            let node = self.nodes.get(&at)?;
            if self.child(node.parent, &node.name) != Some(at) {
                return None;
            }
            components.push((node.parent, node.name.as_os_str()));
            at = node.parent;
        }
        Some(components)
    }

    /// Adds a directory without a descriptor, under a name that is free.
    pub(super) fn insert(&mut self, parent: DirectoryId, name: &OsStr) -> DirectoryId {
        self.last_id.0 += 1;
        let id = self.last_id;
        self.nodes.insert(id, DirectoryNode::new(parent, name.to_owned()));
        if let Some(above) = self.nodes.get_mut(&parent) {
            above.children.insert(name.to_owned(), id);
        }
        id
    }

    /// Moves a directory to a name that is free. Returns false if the directory or `parent` is unknown, or `parent`
    /// is the directory itself or below it. This means that the recorded tree is wrong.
    #[must_use]
    pub(super) fn move_to(&mut self, id: DirectoryId, parent: DirectoryId, name: &OsStr) -> bool {
        if !self.nodes.contains_key(&parent) || self.is_at_or_above(id, parent) {
            return false;
        }
        self.detach(id);
        let Some(node) = self.nodes.get_mut(&id) else { return false };
        node.parent = parent;
        name.clone_into(&mut node.name);
        if let Some(above) = self.nodes.get_mut(&parent) {
            above.children.insert(name.to_owned(), id);
        }
        true
    }

    /// Removes a directory from its parent. [`path`](Self::path) still returns its old path.
    pub(super) fn detach(&mut self, id: DirectoryId) {
        let Some(node) = self.nodes.get(&id) else { return };
        let (parent, name) = (node.parent, node.name.clone());
        if let Some(above) = self.nodes.get_mut(&parent)
            && above.children.get(&name) == Some(&id)
        {
            above.children.remove(&name);
        }
    }

    /// Removes a directory and everything below it, and returns all removed directories. The root is never removed.
    pub(super) fn remove(&mut self, id: DirectoryId) -> Vec<(DirectoryId, Option<WatchDescriptor>)> {
        if id == ROOT {
            return Vec::new();
        }
        self.detach(id);
        let mut removed = Vec::new();
        let mut remaining = vec![id];
        while let Some(next) = remaining.pop() {
            if let Some(node) = self.nodes.remove(&next) {
                if let Some(descriptor) = node.descriptor {
                    self.by_descriptor.remove(&descriptor);
                }
                removed.push((next, node.descriptor));
                remaining.extend(node.children.into_values());
            }
        }
        removed
    }

    fn is_at_or_above(&self, id: DirectoryId, below: DirectoryId) -> bool {
        let mut at = below;
        loop {
            if at == id {
                return true;
            }
            match self.nodes.get(&at) {
                Some(node) if at != ROOT => at = node.parent,
                _ => return false,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> &OsStr {
        OsStr::new(text)
    }

    /// The directories of `/r/a/b/c` with the root `/r`, and the ids of `a`, `b` and `c`. The descriptors are 1 to 4.
    fn tree() -> (DirectoryTree, [DirectoryId; 3]) {
        let mut tree = DirectoryTree::new(1, Path::new("/r"));
        let a = tree.insert(ROOT, name("a"));
        let b = tree.insert(a, name("b"));
        let c = tree.insert(b, name("c"));
        for (id, descriptor) in [a, b, c].into_iter().zip(2..) {
            tree.set_descriptor(id, descriptor);
        }
        (tree, [a, b, c])
    }

    #[test]
    fn moving_a_directory_moves_everything_below_it() {
        let (mut tree, [a, b, c]) = tree();
        assert_eq!(tree.path(c).unwrap(), Path::new("/r/a/b/c"));
        assert!(tree.move_to(b, ROOT, name("z")));
        assert_eq!(tree.path(c).unwrap(), Path::new("/r/z/c"));
        assert_eq!((tree.child(a, name("b")), tree.child(ROOT, name("z"))), (None, Some(b)));
        assert_eq!(tree.components(c).unwrap(), [(b, name("c")), (ROOT, name("z"))]);
    }

    #[test]
    fn a_directory_is_put_neither_below_itself_nor_below_an_unknown_parent() {
        let (mut tree, [a, _, c]) = tree();
        assert!(!tree.move_to(a, c, name("x")));
        assert!(!tree.move_to(a, a, name("x")));
        assert!(!tree.move_to(a, DirectoryId(99), name("x")), "the parent is unknown");
        assert_eq!(tree.path(c).unwrap(), Path::new("/r/a/b/c"));
    }

    #[test]
    fn a_detached_directory_keeps_its_path_until_it_is_removed_with_everything_below_it() {
        let (mut tree, [_, b, c]) = tree();
        tree.detach(b);
        assert_eq!(tree.path(c).unwrap(), Path::new("/r/a/b/c"), "a detached directory keeps its old path");
        assert_eq!(tree.components(c), None, "a detached directory cannot be reached");
        assert_eq!(tree.remove(b), [(b, Some(3)), (c, Some(4))]);
        assert_eq!((tree.len(), tree.path(c), tree.by_descriptor(4)), (2, None, None));
        assert!(tree.remove(ROOT).is_empty(), "the root is never removed");
    }
}
