//! Makes the plan of a sandbox from a policy and from the files that the host has now. A policy names paths, but a mount
//! belongs to one file. So the planner resolves links, searches for matches of globs, and protects paths that do not exist
//! yet. Start with [`plan_for_owner`].
//!
//! The entries are followed to real files first, into an [`AccessTree`]. Only this tree says what a command could
//! change, because the paths of a policy can lead through links. Then come the paths that do not exist, then the links.
//!
//! The plan must hold against commands of other sandboxes that change files meanwhile. So the launcher resolves each
//! path again without following links, and compares the file with the one that the plan means.

mod access_tree;
mod error;
mod glob_scan;
mod host_mounts;
mod host_path;
mod placeholder;
mod placeholder_paths;
mod steps;
mod without_namespaces;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};

pub use error::PlanError;
pub use glob_scan::{
    MAX_COMPARISON_STEPS as MAX_GLOB_STEPS, MAX_MATCHES as MAX_GLOB_MATCHES, MAX_SCANNED as MAX_GLOB_SCANNED,
};
pub use placeholder::{
    MAX_PLACEHOLDERS_OF_OWNER, PlaceholderNotes, PlaceholderOwner, Placeholders, remove_unused_placeholder,
};
pub use placeholder_paths::PlaceholderPaths;
pub use without_namespaces::{LandlockUnfit, plan_landlock};

use self::access_tree::{AccessNode, AccessTree};
use self::host_path::{FollowedPath, FoundLink, HostPaths, PathEnd};
use self::placeholder::{LastParent, PlaceholderError};
use self::steps::StepList;
use crate::file_id::{FileFacts, FileId};
use crate::plan::{BaseTree, MountKind, PlannedMount, SandboxNetwork, SandboxPlan};
use crate::policy::{Access, EntrySource, EntryTarget, FilePolicy, path_order};

/// A plan, and the empty directories on the host that it needs as places for mounts. They are
/// removed when no sandbox uses them any more.
#[derive(Debug)]
pub struct PlannedSandbox {
    /// What the launcher has to do.
    pub plan: SandboxPlan,
    /// Directories that exist because a protected path does not. This plan or another sandbox has made them.
    pub placeholders: Placeholders,
}

/// Makes the plan of a sandbox that allows what `policy` allows. Blocks while it examines files.
pub fn plan_sandbox(policy: &FilePolicy, network: SandboxNetwork) -> Result<PlannedSandbox, PlanError> {
    plan_for_owner(policy, network, &PlaceholderOwner::default())
}

/// As [`plan_sandbox`]. The placeholders count for `owner` and are reported to its notes.
pub fn plan_for_owner(
    policy: &FilePolicy,
    network: SandboxNetwork,
    owner: &PlaceholderOwner,
) -> Result<PlannedSandbox, PlanError> {
    let mut planned = plan_once(policy, network, owner);
    for _ in 0..MAX_VANISHED_RETRIES {
        match planned {
            Err(PlanError::Host { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                planned = plan_once(policy, network, owner);
            }
            other => return other,
        }
    }
    planned
}

/// How often a plan is made again because a file has vanished while it was being made. The usual reason is another sandbox that ends, and
/// removes its placeholders one after the other.
const MAX_VANISHED_RETRIES: usize = 50;

fn plan_once(
    policy: &FilePolicy,
    network: SandboxNetwork,
    owner: &PlaceholderOwner,
) -> Result<PlannedSandbox, PlanError> {
    let mut planner = Planner::new(policy, owner);
    let entries = planner.find_entries()?;
    for entry in &entries {
        planner.add_existing(entry)?;
    }
    for entry in &entries {
        planner.add_protection(entry);
    }
    for entry in &entries {
        planner.add_obstructed(entry);
    }
    planner.make_placeholders()?;
    for entry in &entries {
        planner.add_links(entry)?;
    }
    planner.finish(network)
}

/// An entry of a policy, or a file that matches a glob, and where it leads.
struct FoundEntry {
    path: PathBuf,
    access: Access,
    origin: EntryOrigin,
    found: FollowedPath,
}

/// Where an entry comes from, as far as it matters for the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntryOrigin {
    /// The client has named the path.
    Named,
    /// The path matches a deny glob of the client.
    Matched,
    /// The path is a directory that could not be searched for matches of a glob.
    Unsearched,
    /// The path protects metadata in a writable directory.
    Protection,
}

/// A path that does not exist, and that a command could make.
struct MissingPath {
    /// The access that the command gets to the path.
    access: Access,
    /// The placeholder that is at the path already.
    placeholder: Option<FileId>,
}

struct Planner<'a> {
    policy: &'a FilePolicy,
    root: Access,
    tree: AccessTree,
    /// Writable entries that do not exist.
    missing_writable: HashSet<PathBuf>,
    /// Links that must not be replaced, because a protected path leads through them.
    pinned_links: BTreeMap<PathBuf, FileId>,
    /// Files that must not be replaced by a directory, because a protected path is below them, and directories that must not be replaced by a
    /// link, because a protected path leads through them and `..`.
    pinned_paths: BTreeMap<PathBuf, FileId>,
    /// Links that lead to granted paths, with their targets. They are made anew where the host's files are not visible.
    links: BTreeMap<PathBuf, PathBuf>,
    /// Paths that do not exist and that a command could make.
    missing: HashMap<PathBuf, MissingPath>,
    placeholders: Placeholders,
    owner: &'a PlaceholderOwner,
}

impl<'a> Planner<'a> {
    fn new(policy: &'a FilePolicy, owner: &'a PlaceholderOwner) -> Self {
        let root = policy.access(Path::new("/")).access;
        Self {
            policy,
            root,
            tree: AccessTree::new(root),
            missing_writable: HashSet::new(),
            pinned_links: BTreeMap::new(),
            pinned_paths: BTreeMap::new(),
            links: BTreeMap::new(),
            missing: HashMap::new(),
            placeholders: Placeholders::default(),
            owner,
        }
    }

    /// Follows every path of the policy, and searches for matches of its globs.
    fn find_entries(&mut self) -> Result<Vec<FoundEntry>, PlanError> {
        let mut host = HostPaths::default();
        let find = |host: &mut HostPaths, path: &Path| {
            host.follow(path).map_err(|source| PlanError::Host { path: path.to_owned(), source })
        };
        // Writable paths come before anything below them is followed. The entries are sorted, so a directory comes before those below it.
        let writable = self.policy.entries().iter().filter(|entry| entry.access == Access::Write);
        let path_of = |target: &'a EntryTarget| match target {
            EntryTarget::Path(path) => Some(path.as_path()),
            EntryTarget::Glob(_) => None,
        };
        for path in writable.filter_map(|entry| path_of(&entry.target)) {
            host.follow_writable(path).map_err(|source| PlanError::Host { path: path.to_owned(), source })?;
        }
        let mut entries = Vec::new();
        let mut globs = Vec::new();
        for entry in self.policy.entries() {
            match &entry.target {
                EntryTarget::Path(path) => {
                    if path == Path::new("/") || (is_replaced(path) && entry.access != Access::Deny) {
                        continue;
                    }
                    let found = find(&mut host, path)?;
                    let is_missing = matches!(found.end, PathEnd::Missing { .. });
                    if entry.access == Access::Write && is_missing {
                        self.missing_writable.insert(path.clone());
                    }
                    let origin = match &entry.source {
                        EntrySource::Unrestricted | EntrySource::Request(_) => EntryOrigin::Named,
                        // The writable directory does not exist yet. A command that makes it may make `.git` in it, as in any new directory.
                        EntrySource::ProtectedName { writable } if self.missing_writable.contains(writable) => {
                            continue;
                        }
                        EntrySource::ProtectedName { .. } | EntrySource::GitDirectory { .. } => {
                            EntryOrigin::Protection
                        }
                    };
                    entries.push(FoundEntry { path: path.clone(), access: entry.access, origin, found });
                }
                EntryTarget::Glob(glob) => globs.push(glob),
            }
        }
        let allowed = entries.iter().filter(|entry| entry.access != Access::Deny);
        let granted: Vec<&Path> =
            allowed.flat_map(|entry| [entry.path.as_path(), entry.found.real_path.as_path()]).collect();
        let scan = glob_scan::scan(&globs, self.policy.glob_scan_max_depth(), &granted)?;
        let matched = scan.matches.into_iter().map(|path| (path, EntryOrigin::Matched));
        let unread = scan.unreadable.into_iter().map(|path| (path, EntryOrigin::Unsearched));
        for (path, origin) in matched.chain(unread) {
            let found = find(&mut host, &path)?;
            entries.push(FoundEntry { path, access: Access::Deny, origin, found });
        }
        Ok(entries)
    }

    /// Adds the file to which an entry leads to the tree. Protections and directories that could not be searched come later.
    fn add_existing(&mut self, entry: &FoundEntry) -> Result<(), PlanError> {
        let PathEnd::Existing(facts) = &entry.found.end else { return Ok(()) };
        let real_path = &entry.found.real_path;
        if matches!(entry.origin, EntryOrigin::Protection | EntryOrigin::Unsearched) {
            return Ok(());
        }
        if real_path == Path::new("/") {
            let is_harmless = entry.origin == EntryOrigin::Matched || entry.access == self.root;
            return if is_harmless { Ok(()) } else { Err(PlanError::LinkToRoot { path: entry.path.clone() }) };
        }
        // A command could make a link to `/dev/null` that matches a glob, and later commands would lose the device.
        let is_link_to_replaced =
            entry.origin == EntryOrigin::Matched && is_in_replaced(real_path) && !is_in_replaced(&entry.path);
        if is_link_to_replaced || (is_replaced(real_path) && entry.access != Access::Deny) {
            return Ok(());
        }
        if real_path.starts_with("/proc") {
            return Err(PlanError::DeniedProc { path: entry.path.clone() });
        }
        self.tree.add(real_path, node(entry.access, facts));
        Ok(())
    }

    /// A protection takes the right to write away, and never grants anything, wherever a link leads.
    fn add_protection(&mut self, entry: &FoundEntry) {
        let PathEnd::Existing(facts) = &entry.found.end else { return };
        let real_path = &entry.found.real_path;
        if entry.origin == EntryOrigin::Protection && self.tree.at(real_path) == Access::Write {
            self.tree.add(real_path, node(entry.access, facts));
        }
    }

    /// Protects entries whose path cannot be followed to its end, if a command could make the missing part, or change the permissions of the hidden directory.
    fn add_obstructed(&mut self, entry: &FoundEntry) {
        if entry.access == Access::Write {
            return;
        }
        match &entry.found.end {
            PathEnd::Existing(facts) if entry.origin == EntryOrigin::Unsearched => {
                self.add_hidden(&entry.found.real_path, facts);
            }
            PathEnd::Existing(_) | PathEnd::LinkLoop => {}
            PathEnd::Hidden { directory, facts } => self.add_hidden(directory, facts),
            PathEnd::BehindFile { file, id } => {
                if self.tree.at(file) == Access::Write {
                    self.pinned_paths.insert(file.clone(), *id);
                }
            }
            PathEnd::Missing { first_missing, placeholder } => {
                if self.tree.above(first_missing) == Access::Write {
                    let is_last = *first_missing == entry.found.real_path;
                    let access = if is_last { entry.access } else { Access::Read };
                    let known = self.missing.entry(first_missing.clone());
                    let known = known.or_insert(MissingPath { access, placeholder: *placeholder });
                    known.access = access.min(known.access);
                }
            }
        }
    }

    /// The owner of a directory can give itself the permissions that it lacks, and then reach what is in it. So the whole directory is denied.
    fn add_hidden(&mut self, directory: &Path, facts: &FileFacts) {
        if facts.is_own() && self.tree.at(directory) == Access::Write {
            self.tree.add(directory, node(Access::Deny, facts));
        }
    }

    /// The first missing directory of a path is made on the host, so that something can be mounted on it. Below it nothing exists, so
    /// it is enough that nothing can be written there.
    fn make_placeholders(&mut self) -> Result<(), PlanError> {
        let mut missing: Vec<_> = std::mem::take(&mut self.missing).into_iter().collect();
        // Paths with the same parent directory follow each other, so it is opened once.
        missing.sort_by(|(one, _), (other, _)| path_order(one, other));
        let paths = missing.iter().map(|(path, _)| path.clone()).collect();
        self.placeholders = Placeholders::new(paths, self.owner.clone());
        let mut parents = LastParent::default();
        for (path, MissingPath { access, placeholder }) in missing {
            match self.placeholders.add(&path, placeholder, &mut parents) {
                Ok(id) => self.tree.add(&path, AccessNode { access, is_directory: true, id }),
                Err(PlaceholderError::OwnerHasTooMany) => return Err(PlanError::TooManyPlaceholders),
                Err(PlaceholderError::ProcessHasTooMany) => return Err(PlanError::NoRoomForPlaceholders),
                Err(PlaceholderError::Locked) => return Err(PlanError::LockedPlaceholder { path }),
                Err(PlaceholderError::Host(error)) => {
                    let is_harmless = self.nobody_can_make(&path, &error);
                    if !is_harmless.map_err(|source| PlanError::Host { path: path.clone(), source })? {
                        return Err(PlanError::Host { path, source: error });
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether the `error` that the server got also stops every command that tries to make this path. It does not if the user owns the parent
    /// directory, because a command could then change the permissions of that directory.
    fn nobody_can_make(&self, path: &Path, error: &io::Error) -> io::Result<bool> {
        match error.kind() {
            io::ErrorKind::ReadOnlyFilesystem => Ok(true),
            io::ErrorKind::PermissionDenied => {
                let parent = path.parent().unwrap_or(Path::new("/"));
                Ok(!FileFacts::of_path(parent)?.is_own())
            }
            _ => Ok(false),
        }
    }

    /// A command could replace a link on the way to an entry, or a directory that a link leaves by `..`. If the entry takes access away, the link
    /// or directory is pinned; if it grants access, the policy is refused. Links that lead to a granted path are also remembered, to be made
    /// anew where the files of the host are hidden.
    fn add_links(&mut self, entry: &FoundEntry) -> Result<(), PlanError> {
        let FoundEntry { found, access, origin, .. } = entry;
        let exists = matches!(found.end, PathEnd::Existing(_));
        let grants = exists && *origin == EntryOrigin::Named && *access > self.tree.above(&found.real_path);
        let is_in_writable =
            |path: &Path, tree: &AccessTree| path.parent().is_some_and(|parent| tree.at(parent) == Access::Write);
        for (directory, id) in &found.left_by_dots {
            let is_replaceable = is_in_writable(directory, &self.tree);
            if is_replaceable && grants {
                return Err(PlanError::WritableDetour { path: entry.path.clone(), directory: directory.clone() });
            }
            if is_replaceable && *access < Access::Write {
                self.pinned_paths.insert(directory.clone(), *id);
            }
        }
        for FoundLink { path: link, target, id } in &found.links {
            let is_replaceable = is_in_writable(link, &self.tree);
            if is_replaceable && grants {
                return Err(PlanError::WritableLink { path: entry.path.clone(), link: link.clone() });
            }
            if is_replaceable && *access < Access::Write {
                self.pinned_links.insert(link.clone(), *id);
            }
            if exists && *access > Access::Deny {
                self.links.insert(link.clone(), target.clone());
            }
        }
        Ok(())
    }

    fn finish(mut self, network: SandboxNetwork) -> Result<PlannedSandbox, PlanError> {
        self.tree.remove_redundant();
        let tree = &self.tree;
        // In `/proc` and `/dev` a sandbox has its own links.
        self.links.retain(|link, _| tree.above(link) == Access::Deny && !is_in_replaced(link));
        let links = &self.links;
        let has_link_below = |path: &Path| {
            links
                .range::<Path, _>((Bound::Included(path), Bound::Unbounded))
                .next()
                .is_some_and(|(link, _)| link.starts_with(path))
        };
        let mut steps = StepList::new(tree);
        let mut left_links = links.iter().peekable();
        let nodes = tree.sorted();
        for (index, (path, node)) in nodes.iter().copied().enumerate() {
            while let Some((link, target)) = left_links.next_if(|(link, _)| link.as_path() < path) {
                steps.make_link(link, target);
            }
            let grants_below = || {
                let mut below = nodes[index + 1..].iter().take_while(|(other, _)| other.starts_with(path));
                below.any(|(_, node)| node.access > Access::Deny)
            };
            let has_places = node.access == Access::Deny && (grants_below() || has_link_below(path));
            steps.add_node(path, node, has_places)?;
        }
        left_links.for_each(|(link, target)| steps.make_link(link, target));
        for (link, id) in &self.pinned_links {
            steps.pin(link, MountKind::PinnedLink, *id)?;
        }
        for (file, id) in &self.pinned_paths {
            steps.pin(file, MountKind::Writable, *id)?;
        }
        let base = match self.root {
            Access::Write => BaseTree::WritableHost,
            Access::Read => BaseTree::ReadOnlyHost,
            Access::Deny => BaseTree::Empty,
        };
        let mounts = steps.finish().into_iter().chain(host_mounts(tree, &nodes)).collect();
        let plan = SandboxPlan { base, mounts, network };
        Ok(PlannedSandbox { plan, placeholders: self.placeholders })
    }
}

/// What the host has mounted below the writable directories. Nothing is said about a policy that allows to write in `/`: there are too many
/// mounts of no interest, for example of containers, and each change of them would lead to another sandbox.
fn host_mounts(tree: &AccessTree, nodes: &[(&Path, &AccessNode)]) -> Vec<PlannedMount> {
    let writable = nodes.iter().filter(|(_, node)| node.access == Access::Write && node.is_directory);
    let mounts = host_mounts::below(writable.map(|(path, _)| *path));
    let planned = mounts.into_iter().filter(|(path, _)| tree.at(path) == Access::Write);
    planned.map(|(path, id)| PlannedMount { path, kind: MountKind::HostMount, source: Some(id) }).collect()
}

fn node(access: Access, facts: &FileFacts) -> AccessNode {
    AccessNode { access, is_directory: facts.is_directory(), id: facts.id }
}

/// Whether an entry that allows this path has no effect, because a sandbox has its own `/dev` and `/proc`. An entry for a file in `/dev` has
/// an effect: it adds this file.
fn is_replaced(path: &Path) -> bool {
    path == Path::new("/dev") || path.starts_with("/proc")
}

/// Whether a path is `/dev` or `/proc`, or below one of them.
fn is_in_replaced(path: &Path) -> bool {
    path.starts_with("/dev") || path.starts_with("/proc")
}

#[cfg(test)]
mod tests;
