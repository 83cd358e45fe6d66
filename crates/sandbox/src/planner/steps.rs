//! The steps of a plan while they are collected, from an [`AccessTree`].

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::PlanError;
use super::access_tree::{AccessNode, AccessTree};
use crate::file_id::{FileFacts, FileId};
use crate::plan::{MountKind, PlannedMount};
use crate::policy::Access;

/// Steps in the order in which they are made.
pub(super) struct StepList<'a> {
    /// Has no redundant nodes.
    tree: &'a AccessTree,
    steps: Vec<PlannedMount>,
    /// Paths at which something is mounted.
    mounted: HashSet<PathBuf>,
    /// Directories, files and links that were made in memory.
    made: HashSet<PathBuf>,
}

impl<'a> StepList<'a> {
    pub(super) fn new(tree: &'a AccessTree) -> Self {
        Self { tree, steps: Vec::new(), mounted: HashSet::new(), made: HashSet::new() }
    }

    pub(super) fn finish(self) -> Vec<PlannedMount> {
        self.steps
    }

    /// Mounts what a node allows. `has_places` tells whether something below this denied node is allowed, or a link is made there. Fails
    /// if a directory above cannot be examined, for example because it has vanished.
    pub(super) fn add_node(&mut self, path: &Path, node: &AccessNode, has_places: bool) -> Result<(), PlanError> {
        let above = self.tree.above(path);
        if node.access > Access::Deny && above == Access::Deny {
            self.make_place(path, node.is_directory);
        }
        if above == Access::Write {
            self.pin_ancestors(path)?;
        }
        let kind = match node.access {
            Access::Write => MountKind::Writable,
            Access::Read => MountKind::ReadOnly,
            Access::Deny if !node.is_directory => MountKind::DeniedFile,
            Access::Deny if has_places => MountKind::PassableDirectory,
            Access::Deny => MountKind::DeniedDirectory,
        };
        self.mount(path, kind, node.id);
        Ok(())
    }

    /// Mounts a file or link of a writable directory on itself, so that nothing can take its place.
    pub(super) fn pin(&mut self, path: &Path, kind: MountKind, id: FileId) -> Result<(), PlanError> {
        if !self.mounted.contains(path) {
            self.pin_ancestors(path)?;
            self.mount(path, kind, id);
        }
        Ok(())
    }

    /// Makes a link where the host's files are not visible.
    pub(super) fn make_link(&mut self, link: &Path, target: &Path) {
        self.make_directories_above(link);
        self.make(link, MountKind::MadeLink(target.to_owned()));
    }

    /// A command could rename a writable directory above a protected path and make a new one in its place. A directory on which something is
    /// mounted cannot be renamed, so each of them is mounted on itself.
    fn pin_ancestors(&mut self, path: &Path) -> Result<(), PlanError> {
        let tree = self.tree;
        let is_inside = |above: &&Path| **above != *Path::new("/") && !tree.contains(above);
        let mut pinned: Vec<&Path> = path.ancestors().skip(1).take_while(is_inside).collect();
        pinned.reverse();
        for above in pinned {
            if !self.mounted.contains(above) {
                let facts = FileFacts::of_path(above)
                    .map_err(|error| PlanError::Host { path: above.to_owned(), source: error.into() })?;
                self.mount(above, MountKind::Writable, facts.id);
            }
        }
        Ok(())
    }

    fn mount(&mut self, path: &Path, kind: MountKind, id: FileId) {
        self.mounted.insert(path.to_owned());
        self.steps.push(PlannedMount { path: path.to_owned(), kind, source: Some(id) });
    }

    fn make(&mut self, path: &Path, kind: MountKind) {
        if self.made.insert(path.to_owned()) {
            self.steps.push(PlannedMount { path: path.to_owned(), kind, source: None });
        }
    }

    fn make_place(&mut self, path: &Path, is_directory: bool) {
        self.make_directories_above(path);
        self.make(path, if is_directory { MountKind::MadeDirectory } else { MountKind::MadeFile });
    }

    /// Makes every directory between the nearest node above, which is a directory in memory, and `path`.
    fn make_directories_above(&mut self, path: &Path) {
        let tree = self.tree;
        let is_missing =
            |above: &&Path| **above != *Path::new("/") && **above != *Path::new("/dev") && !tree.contains(above);
        let mut above: Vec<&Path> = path.ancestors().skip(1).take_while(is_missing).collect();
        above.reverse();
        above.into_iter().for_each(|directory| self.make(directory, MountKind::MadeDirectory));
    }
}
