//! Which directories are watched, and where they are: a tree of names, so that moving one moves everything below it at once.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::kernel::Number;

pub(super) struct Directories {
    root: Number,
    root_path: PathBuf,
    nodes: HashMap<Number, Node>,
}

struct Node {
    parent: Number,
    name: OsString,
    children: HashMap<OsString, Number>,
}

impl Node {
    fn new(parent: Number, name: OsString) -> Self {
        Self { parent, name, children: HashMap::new() }
    }
}

impl Directories {
    pub(super) fn new(root: Number, root_path: &Path) -> Self {
        // The root is its own parent.
        let nodes = HashMap::from([(root, Node::new(root, OsString::new()))]);
        Self { root, root_path: root_path.to_owned(), nodes }
    }

    pub(super) fn root(&self) -> Number {
        self.root
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn contains(&self, number: Number) -> bool {
        self.nodes.contains_key(&number)
    }

    pub(super) fn child(&self, parent: Number, name: &OsStr) -> Option<Number> {
        self.nodes.get(&parent)?.children.get(name).copied()
    }

    /// Whether the directory stands where it is said to have stood.
    pub(super) fn was_at(&self, number: Number, parent: Number, name: &OsStr) -> bool {
        self.nodes.get(&number).is_some_and(|node| node.parent == parent && node.name == name)
    }

    pub(super) fn path(&self, number: Number) -> Option<PathBuf> {
        let mut names = Vec::new();
        let mut at = number;
        while at != self.root {
            let node = self.nodes.get(&at)?;
            names.push(node.name.as_os_str());
            at = node.parent;
        }
        let mut path = self.root_path.clone();
        path.extend(names.into_iter().rev());
        Some(path)
    }

    /// Puts a directory, known or new, at a place that is free. `false` if that would put it below itself: then what we believe
    /// about the tree is wrong.
    #[must_use]
    pub(super) fn place(&mut self, number: Number, parent: Number, name: &OsStr) -> bool {
        if !self.nodes.contains_key(&parent) || self.is_at_or_above(number, parent) {
            return false;
        }
        self.detach(number);
        let node = self.nodes.entry(number).or_insert_with(|| Node::new(parent, name.to_owned()));
        node.parent = parent;
        name.clone_into(&mut node.name);
        if let Some(above) = self.nodes.get_mut(&parent) {
            above.children.insert(name.to_owned(), number);
        }
        true
    }

    /// Takes a directory out of the one it is in. Its own path stays what it was.
    pub(super) fn detach(&mut self, number: Number) {
        let Some(node) = self.nodes.get(&number) else { return };
        let (parent, name) = (node.parent, node.name.clone());
        if let Some(above) = self.nodes.get_mut(&parent)
            && above.children.get(&name) == Some(&number)
        {
            above.children.remove(&name);
        }
    }

    /// Forgets a directory and everything below it, and returns their numbers.
    pub(super) fn remove(&mut self, number: Number) -> Vec<Number> {
        if number == self.root {
            return Vec::new();
        }
        self.detach(number);
        let mut removed = Vec::new();
        let mut left = vec![number];
        while let Some(next) = left.pop() {
            if let Some(node) = self.nodes.remove(&next) {
                removed.push(next);
                left.extend(node.children.into_values());
            }
        }
        removed
    }

    /// All numbers but the root's.
    pub(super) fn numbers(&self) -> impl Iterator<Item = Number> {
        self.nodes.keys().copied().filter(|&number| number != self.root)
    }

    fn is_at_or_above(&self, number: Number, below: Number) -> bool {
        let mut at = below;
        loop {
            if at == number {
                return true;
            }
            match self.nodes.get(&at) {
                Some(node) if at != self.root => at = node.parent,
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

    fn tree() -> Directories {
        let mut tree = Directories::new(1, Path::new("/r"));
        assert!(tree.place(2, 1, name("a")) && tree.place(3, 2, name("b")) && tree.place(4, 3, name("c")));
        tree
    }

    #[test]
    fn moving_a_directory_moves_what_is_below() {
        let mut tree = tree();
        assert_eq!(tree.path(4).unwrap(), Path::new("/r/a/b/c"));
        assert!(tree.place(3, 1, name("z")));
        assert_eq!(tree.path(4).unwrap(), Path::new("/r/z/c"));
        assert_eq!((tree.child(2, name("b")), tree.child(1, name("z"))), (None, Some(3)));
    }

    #[test]
    fn a_directory_is_never_put_below_itself() {
        let mut tree = tree();
        assert!(!tree.place(2, 4, name("x")));
        assert!(!tree.place(2, 2, name("x")));
        assert!(!tree.place(9, 8, name("x")), "the parent is unknown");
        assert_eq!(tree.path(4).unwrap(), Path::new("/r/a/b/c"));
    }

    #[test]
    fn removing_takes_everything_below() {
        let mut tree = tree();
        tree.detach(3);
        assert_eq!(tree.path(4).unwrap(), Path::new("/r/a/b/c"), "a detached one still knows where it was");
        assert_eq!(tree.remove(3), [3, 4]);
        assert_eq!((tree.len(), tree.path(4), tree.remove(1).len()), (2, None, 0));
    }
}
