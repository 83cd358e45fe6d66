//! Makes the plan of a sandbox from a policy and from the files that the host has now. Policies speak of paths and mounts
//! are about files, so this is where links are resolved, globs are searched for, and paths that do not exist yet are
//! protected. Start with [`plan_sandbox`].
//!
//! The entries are followed to real files first, into an [`AccessTree`]. Only this tree says what a command could
//! change, because the paths of a policy can lead through links. Then come the paths that do not exist, then the links.
//!
//! The plan must hold against commands of other sandboxes that change files meanwhile. So the launcher resolves each
//! path again without following links, and compares the file with the one that the plan means.

mod access_tree;
mod glob_scan;
mod host_path;
mod placeholder;
mod steps;
mod without_namespaces;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use placeholder::{Placeholder, PlaceholderNotes, remove_unused_placeholder};
pub use without_namespaces::{LandlockUnfit, plan_landlock};

use self::access_tree::{AccessNode, AccessTree};
use self::host_path::{FollowedPath, FoundLink, PathEnd};
use self::steps::StepList;
use crate::file_id::{FileFacts, FileId};
use crate::plan::{BaseTree, MountKind, SandboxNetwork, SandboxPlan};
use crate::policy::{Access, EntrySource, EntryTarget, FilePolicy};

/// A plan, and the empty directories on the host that it needs as places for mounts. They exist as long as this value
/// or another user of them does.
#[derive(Debug)]
pub struct PlannedSandbox {
    /// What the launcher has to do.
    pub plan: SandboxPlan,
    /// Directories that were made because a protected path does not exist.
    pub placeholders: Vec<Placeholder>,
}

/// Why a policy cannot be enforced.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// Whoever can replace the link decides what the entry allows.
    #[error(
        "the policy allows access to {}, which is reached through the symbolic link {}, and the sandboxed command could change this link; name the target of the link in the policy instead",
        path.display(),
        link.display()
    )]
    WritableLink {
        /// The path of the entry.
        path: PathBuf,
        /// The symbolic link.
        link: PathBuf,
    },
    /// The processes of a command get a new `/proc`, which has no masks.
    #[error("the policy denies {}, but paths in /proc cannot be denied", path.display())]
    DeniedProc {
        /// The path of the entry.
        path: PathBuf,
    },
    /// The root directory has an entry of its own, and two entries would contradict each other.
    #[error("the policy names {}, which is a symbolic link to the root directory; name the root directory instead", path.display())]
    LinkToRoot {
        /// The path of the entry.
        path: PathBuf,
    },
    /// A glob without a directory at its beginning would have to be searched for on the whole machine.
    #[error("the deny glob {pattern} begins with a wildcard; write a directory in front of it")]
    GlobWithoutDirectory {
        /// The pattern of the entry.
        pattern: String,
    },
    /// More files match than can be covered.
    #[error("deny globs match more than {limit} files; deny their directory instead")]
    TooManyMatches {
        /// The most files that can be covered.
        limit: usize,
    },
    /// The search for matches has looked at too many files.
    #[error(
        "deny globs have to be searched for among more than {limit} files; write a longer directory in front of them, or set glob_scan_max_depth"
    )]
    TooManyFiles {
        /// The most files that are looked at.
        limit: usize,
    },
    /// A file of the host could not be examined, or a placeholder could not be made.
    #[error("cannot prepare {} for the sandbox: {source}", path.display())]
    Host {
        /// The path that was examined.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// Makes the plan of a sandbox that allows what `policy` allows. Blocks while it examines files.
pub fn plan_sandbox(policy: &FilePolicy, network: SandboxNetwork) -> Result<PlannedSandbox, PlanError> {
    plan_with_notes(policy, network, None)
}

/// As [`plan_sandbox`], and tells `notes` of the placeholders.
pub fn plan_with_notes(
    policy: &FilePolicy,
    network: SandboxNetwork,
    notes: Option<Arc<dyn PlaceholderNotes>>,
) -> Result<PlannedSandbox, PlanError> {
    let mut planned = plan_once(policy, network, notes.clone());
    for _ in 0..MAX_VANISHED_RETRIES {
        match planned {
            Err(PlanError::Host { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                planned = plan_once(policy, network, notes.clone());
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
    notes: Option<Arc<dyn PlaceholderNotes>>,
) -> Result<PlannedSandbox, PlanError> {
    let mut planner = Planner::new(policy, notes);
    let entries = planner.find_entries()?;
    for entry in &entries {
        planner.add_existing(entry)?;
    }
    for entry in &entries {
        planner.add_protection(entry);
    }
    for entry in &entries {
        planner.add_obstructed(entry)?;
    }
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
    /// The path is in a directory that could not be searched for matches of a glob.
    Unsearched,
    /// The path protects metadata in a writable directory.
    Protection,
}

struct Planner<'a> {
    policy: &'a FilePolicy,
    root: Access,
    tree: AccessTree,
    /// Writable entries that do not exist.
    missing_writable: BTreeSet<PathBuf>,
    /// Links that must not be replaced, because a protected path leads through them.
    pinned_links: BTreeMap<PathBuf, FileId>,
    /// Files that must not be replaced by a directory, because a protected path is below them.
    pinned_files: BTreeMap<PathBuf, FileId>,
    /// Links that lead to granted paths, with their targets. They are made anew where the host's files are not visible.
    links: BTreeMap<PathBuf, PathBuf>,
    placeholders: Vec<Placeholder>,
    notes: Option<Arc<dyn PlaceholderNotes>>,
}

impl<'a> Planner<'a> {
    fn new(policy: &'a FilePolicy, notes: Option<Arc<dyn PlaceholderNotes>>) -> Self {
        let root = policy.access(Path::new("/")).access;
        Self {
            policy,
            root,
            tree: AccessTree::new(root),
            missing_writable: BTreeSet::new(),
            pinned_links: BTreeMap::new(),
            pinned_files: BTreeMap::new(),
            links: BTreeMap::new(),
            placeholders: Vec::new(),
            notes,
        }
    }

    /// Follows every path of the policy, and searches for its globs.
    fn find_entries(&mut self) -> Result<Vec<FoundEntry>, PlanError> {
        let mut budget = glob_scan::ScanBudget::default();
        let mut entries = Vec::new();
        for entry in self.policy.entries() {
            match &entry.target {
                EntryTarget::Path(path) => {
                    if path == Path::new("/") || (is_replaced(path) && entry.access != Access::Deny) {
                        continue;
                    }
                    let found = find(path)?;
                    let is_missing = matches!(found.end, PathEnd::Missing { .. });
                    if entry.access == Access::Write && is_missing {
                        self.missing_writable.insert(path.clone());
                    }
                    let origin = match &entry.source {
                        EntrySource::Unrestricted | EntrySource::Request(_) => EntryOrigin::Named,
                        // Until its directory exists, it is no worse than the `.git` of any other new directory.
                        EntrySource::ProtectedName { writable } if self.missing_writable.contains(writable) => {
                            continue;
                        }
                        EntrySource::ProtectedName { .. } | EntrySource::GitDirectory { .. } => {
                            EntryOrigin::Protection
                        }
                    };
                    entries.push(FoundEntry { path: path.clone(), access: entry.access, origin, found });
                }
                EntryTarget::Glob(glob) => {
                    let scan = glob_scan::scan(glob, self.policy.glob_scan_max_depth(), &mut budget)?;
                    let matched = scan.matches.into_iter().map(|path| (path, EntryOrigin::Matched));
                    let unread = scan.unreadable.into_iter().map(|path| (path, EntryOrigin::Unsearched));
                    for (path, origin) in matched.chain(unread) {
                        let found = find(&path)?;
                        entries.push(FoundEntry { path, access: Access::Deny, origin, found });
                    }
                }
            }
        }
        Ok(entries)
    }

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
        // Whoever makes a link that matches a glob could take devices away from everybody.
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

    /// Entries whose end could not be reached. They need protection only where a command could change that.
    fn add_obstructed(&mut self, entry: &FoundEntry) -> Result<(), PlanError> {
        if entry.access == Access::Write {
            return Ok(());
        }
        match &entry.found.end {
            PathEnd::Existing(facts) if entry.origin == EntryOrigin::Unsearched => {
                self.add_hidden(&entry.found.real_path, facts);
            }
            PathEnd::Existing(_) | PathEnd::LinkLoop => {}
            PathEnd::Hidden { directory, facts } => self.add_hidden(directory, facts),
            PathEnd::BehindFile { file, id } => {
                if self.tree.at(file) == Access::Write {
                    self.pinned_files.insert(file.clone(), *id);
                }
            }
            PathEnd::Missing { first_missing } => {
                let is_last = *first_missing == entry.found.real_path;
                self.add_missing(first_missing, if is_last { entry.access } else { Access::Read })
                    .map_err(|source| PlanError::Host { path: entry.path.clone(), source })?;
            }
        }
        Ok(())
    }

    /// The owner of a directory can give itself the permissions that it lacks, and then reach what is in it. So the whole directory is denied.
    fn add_hidden(&mut self, directory: &Path, facts: &FileFacts) {
        if facts.is_own() && self.tree.at(directory) == Access::Write {
            self.tree.add(directory, node(Access::Deny, facts));
        }
    }

    /// The first missing directory of a path is made on the host, so that something can be mounted on it. Below it nothing exists, so
    /// it is enough that nothing can be written there.
    fn add_missing(&mut self, first_missing: &Path, access: Access) -> io::Result<()> {
        if self.tree.above(first_missing) != Access::Write {
            return Ok(());
        }
        let placeholder = match Placeholder::make(first_missing, self.notes.clone()) {
            Err(error) if self.nobody_can_make(first_missing, &error)? => return Ok(()),
            other => other?,
        };
        self.tree.add(first_missing, AccessNode { access, is_directory: true, id: placeholder.id() });
        self.placeholders.push(placeholder);
        Ok(())
    }

    /// Whether what the server may not make cannot be made by a command either. The owner of a directory can change its permissions.
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

    /// Whoever may write the directory of a link may replace the link.
    fn add_links(&mut self, entry: &FoundEntry) -> Result<(), PlanError> {
        let FoundEntry { found, access, origin, .. } = entry;
        let exists = matches!(found.end, PathEnd::Existing(_));
        let grants = exists && *origin == EntryOrigin::Named && *access > self.tree.above(&found.real_path);
        for FoundLink { path: link, target, id } in &found.links {
            let is_replaceable = link.parent().is_some_and(|parent| self.tree.at(parent) == Access::Write);
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
        let vanished = |path| PlanError::Host { path, source: io::ErrorKind::NotFound.into() };
        let mut left_links = links.iter().peekable();
        for (path, node) in tree.nodes() {
            while let Some((link, target)) = left_links.next_if(|(link, _)| link.as_path() < path) {
                steps.make_link(link, target);
            }
            let has_places = tree.grants_below(path) || has_link_below(path);
            steps.add_node(path, node, has_places).map_err(vanished)?;
        }
        left_links.for_each(|(link, target)| steps.make_link(link, target));
        for (link, id) in &self.pinned_links {
            steps.pin(link, MountKind::PinnedLink, *id).map_err(vanished)?;
        }
        for (file, id) in &self.pinned_files {
            steps.pin(file, MountKind::Writable, *id).map_err(vanished)?;
        }
        let base = match self.root {
            Access::Write => BaseTree::WritableHost,
            Access::Read => BaseTree::ReadOnlyHost,
            Access::Deny => BaseTree::Empty,
        };
        let plan = SandboxPlan { base, mounts: steps.finish(), network };
        Ok(PlannedSandbox { plan, placeholders: self.placeholders })
    }
}

fn find(path: &Path) -> Result<FollowedPath, PlanError> {
    FollowedPath::find(path).map_err(|source| PlanError::Host { path: path.to_owned(), source })
}

fn node(access: Access, facts: &FileFacts) -> AccessNode {
    AccessNode { access, is_directory: facts.is_directory(), id: facts.id }
}

/// A sandbox has its own `/dev` and `/proc`, so an entry that allows them has no effect.
fn is_replaced(path: &Path) -> bool {
    path == Path::new("/dev") || path.starts_with("/proc")
}

fn is_in_replaced(path: &Path) -> bool {
    path.starts_with("/dev") || path.starts_with("/proc")
}

#[cfg(test)]
mod tests;
