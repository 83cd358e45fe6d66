//! Makes the plan of a sandbox from a policy and from the files that the host has now. Policies speak of paths and mounts
//! are about files, so this is where links are resolved, globs are searched for, and paths that do not exist yet are
//! protected. Start with [`plan_sandbox`].
//!
//! The plan must hold against commands of other sandboxes that change files meanwhile. So the launcher resolves each
//! path again without following links, and compares the file with the one that the plan means.

mod glob_scan;
mod host_path;
mod placeholder;
mod without_namespaces;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use placeholder::{Placeholder, PlaceholderNotes, remove_unused_placeholder};
pub use without_namespaces::{LandlockUnfit, plan_landlock};

use self::host_path::{FoundKind, HostPath};
use crate::plan::{BaseTree, FileId, MountKind, PlannedMount, SandboxNetwork, SandboxPlan};
use crate::policy::{Access, EntryTarget, FilePolicy};

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
        source: std::io::Error,
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
    let mut planner = Planner::new(policy, notes);
    for entry in policy.entries() {
        match &entry.target {
            EntryTarget::Path(path) => planner.add_entry(path, entry.access)?,
            EntryTarget::Glob(glob) => {
                for matched in glob_scan::matches(glob, policy.glob_scan_max_depth(), &mut planner.scan_budget)? {
                    planner.add_entry(&matched, Access::Deny)?;
                }
            }
        }
    }
    planner.finish(network)
}

/// A place in the file tree where the access changes.
#[derive(Clone, Debug)]
struct AccessNode {
    access: Access,
    kind: FoundKind,
    id: Option<FileId>,
}

struct Planner<'a> {
    policy: &'a FilePolicy,
    base: BaseTree,
    /// By the real path, without links. A directory comes before what is below it.
    nodes: BTreeMap<PathBuf, AccessNode>,
    /// Links that must not be replaced, because a protected path leads through them.
    pinned_links: BTreeMap<PathBuf, FileId>,
    /// Links that lead to granted paths, with their targets. They are made anew where the host's files are not visible.
    links: BTreeMap<PathBuf, PathBuf>,
    placeholders: Vec<Placeholder>,
    notes: Option<Arc<dyn PlaceholderNotes>>,
    scan_budget: glob_scan::ScanBudget,
}

impl<'a> Planner<'a> {
    fn new(policy: &'a FilePolicy, notes: Option<Arc<dyn PlaceholderNotes>>) -> Self {
        let base = match root_access(policy) {
            Access::Write => BaseTree::WritableHost,
            Access::Read => BaseTree::ReadOnlyHost,
            Access::Deny => BaseTree::Empty,
        };
        Self {
            policy,
            base,
            nodes: BTreeMap::new(),
            pinned_links: BTreeMap::new(),
            links: BTreeMap::new(),
            placeholders: Vec::new(),
            notes,
            scan_budget: glob_scan::ScanBudget::default(),
        }
    }

    fn add_entry(&mut self, path: &Path, access: Access) -> Result<(), PlanError> {
        if path == Path::new("/") || (is_special(path) && access != Access::Deny) {
            return Ok(());
        }
        if path.starts_with("/proc") {
            return Err(PlanError::DeniedProc { path: path.to_owned() });
        }
        let found = HostPath::find(path).map_err(|source| PlanError::Host { path: path.to_owned(), source })?;
        let grants = access > self.access_around(path);
        for (link, target, id) in &found.links {
            // Whoever may write the directory of a link may replace the link.
            let replaceable = link.parent().is_some_and(|parent| self.policy.access(parent).access == Access::Write);
            if replaceable && grants {
                return Err(PlanError::WritableLink { path: path.to_owned(), link: link.clone() });
            }
            if replaceable {
                self.pinned_links.insert(link.clone(), *id);
            }
            self.links.insert(link.clone(), target.clone());
        }
        if let FoundKind::Missing { first_missing } = &found.kind {
            return self.add_missing(path, first_missing, &found.real_path, access);
        }
        if found.is_placeholder {
            // Another sandbox has made it, or it was left behind.
            return self.add_missing(path, &found.real_path, &found.real_path, access);
        }
        self.add_node(found.real_path, AccessNode { access, kind: found.kind, id: found.id });
        Ok(())
    }

    /// What a path would be allowed without its own entry.
    fn access_around(&self, path: &Path) -> Access {
        match path.parent() {
            Some(parent) => self.policy.access(parent).access,
            None => Access::Deny,
        }
    }

    /// If several entries lead to the same file, the strictest one applies.
    fn add_node(&mut self, real_path: PathBuf, node: AccessNode) {
        let known = self.nodes.entry(real_path).or_insert_with(|| node.clone());
        known.access = known.access.min(node.access);
    }

    /// A path that does not exist needs protection only where a command could make it. Then the first missing directory of it is made on the
    /// host, so that something can be mounted on it.
    fn add_missing(
        &mut self,
        path: &Path,
        first_missing: &Path,
        real_path: &Path,
        access: Access,
    ) -> Result<(), PlanError> {
        let parent = first_missing.parent().unwrap_or(Path::new("/"));
        if access == Access::Write || self.policy.access(parent).access != Access::Write {
            return Ok(());
        }
        let host = |source| PlanError::Host { path: path.to_owned(), source };
        let placeholder = Placeholder::make(first_missing, self.notes.clone()).map_err(host)?;
        let node = AccessNode {
            // Below a placeholder nothing exists, so denying to write is enough.
            access: if first_missing == real_path { access } else { Access::Read },
            kind: FoundKind::Directory,
            id: Some(placeholder.id()),
        };
        self.placeholders.push(placeholder);
        self.add_node(first_missing.to_owned(), node);
        Ok(())
    }

    fn finish(self, network: SandboxNetwork) -> Result<PlannedSandbox, PlanError> {
        let mut steps = StepList { mounts: Vec::new(), mounted: BTreeSet::new(), made: BTreeSet::new() };
        if self.base == BaseTree::Empty {
            self.links.iter().for_each(|(link, target)| steps.make_link(link, target, &self.nodes));
        }
        for (path, node) in &self.nodes {
            let around = self.enclosing(path);
            if node.access == around {
                continue;
            }
            if node.access > Access::Deny && (around == Access::Deny || path.starts_with("/dev")) {
                steps.make_place(path, &node.kind, &self.nodes);
            }
            if around == Access::Write {
                self.pin_ancestors(path, &mut steps)?;
            }
            let kind = match (node.access, &node.kind) {
                (Access::Write, _) => MountKind::Writable,
                (Access::Read, _) => MountKind::ReadOnly,
                (Access::Deny, FoundKind::Directory) if self.grants_below(path) => MountKind::PassableDirectory,
                (Access::Deny, FoundKind::Directory) => MountKind::DeniedDirectory,
                (Access::Deny, _) => MountKind::DeniedFile,
            };
            let source = node.id.filter(|_| node.access != Access::Deny);
            steps.mount(path.clone(), kind, source);
        }
        for (link, id) in &self.pinned_links {
            self.pin_ancestors(link, &mut steps)?;
            steps.mount(link.clone(), MountKind::PinnedLink, Some(*id));
        }
        let plan = SandboxPlan { base: self.base, mounts: steps.mounts, network };
        Ok(PlannedSandbox { plan, placeholders: self.placeholders })
    }

    /// The access of the nearest node above a path.
    fn enclosing(&self, path: &Path) -> Access {
        let above = path.ancestors().skip(1).find_map(|ancestor| self.nodes.get(ancestor));
        above.map_or_else(|| root_access(self.policy), |node| node.access)
    }

    fn grants_below(&self, path: &Path) -> bool {
        self.nodes.iter().any(|(other, node)| other != path && other.starts_with(path) && node.access > Access::Deny)
    }

    /// A command could rename a writable directory above a protected path and make a new one in its place. A directory on which something is
    /// mounted cannot be renamed, so each of them is mounted on itself.
    fn pin_ancestors(&self, path: &Path, steps: &mut StepList) -> Result<(), PlanError> {
        let mut pinned: Vec<&Path> =
            path.ancestors().skip(1).take_while(|above| self.is_plain_directory(above)).collect();
        pinned.reverse();
        for above in pinned {
            if steps.mounted.contains(above) {
                continue;
            }
            let host = |source| PlanError::Host { path: above.to_owned(), source };
            let id = host_path::id_of(above).map_err(host)?;
            steps.mount(above.to_owned(), MountKind::Writable, Some(id));
        }
        Ok(())
    }

    /// Whether a directory is inside a writable tree and not itself a place where the access changes.
    fn is_plain_directory(&self, path: &Path) -> bool {
        path != Path::new("/") && !self.nodes.contains_key(path) && self.enclosing(path) == Access::Write
    }
}

/// The steps of a plan while they are collected.
struct StepList {
    mounts: Vec<PlannedMount>,
    /// Paths at which something is mounted.
    mounted: BTreeSet<PathBuf>,
    /// Directories and links that were made in memory.
    made: BTreeSet<PathBuf>,
}

impl StepList {
    fn mount(&mut self, path: PathBuf, kind: MountKind, source: Option<FileId>) {
        self.mounted.insert(path.clone());
        self.mounts.push(PlannedMount { path, kind, source });
    }

    fn make(&mut self, path: &Path, kind: MountKind) {
        if self.made.insert(path.to_owned()) {
            self.mounts.push(PlannedMount { path: path.to_owned(), kind, source: None });
        }
    }

    /// Makes the directories above a path and the path itself, where the host's files are not visible.
    fn make_place(&mut self, path: &Path, kind: &FoundKind, nodes: &BTreeMap<PathBuf, AccessNode>) {
        self.make_directories_above(path, nodes);
        let place = if *kind == FoundKind::Directory { MountKind::MadeDirectory } else { MountKind::MadeFile };
        self.make(path, place);
    }

    fn make_link(&mut self, link: &Path, target: &Path, nodes: &BTreeMap<PathBuf, AccessNode>) {
        let visible =
            link.ancestors().skip(1).any(|above| nodes.get(above).is_some_and(|node| node.access > Access::Deny));
        if !visible {
            self.make_directories_above(link, nodes);
            self.make(link, MountKind::MadeLink(target.to_owned()));
        }
    }

    fn make_directories_above(&mut self, path: &Path, nodes: &BTreeMap<PathBuf, AccessNode>) {
        // Down from the nearest node: it is a mount in memory itself, or the root.
        let mut above: Vec<&Path> = path
            .ancestors()
            .skip(1)
            .take_while(|ancestor| {
                *ancestor != Path::new("/") && *ancestor != Path::new("/dev") && !nodes.contains_key(*ancestor)
            })
            .collect();
        above.reverse();
        for directory in above {
            self.make(directory, MountKind::MadeDirectory);
        }
    }
}

fn root_access(policy: &FilePolicy) -> Access {
    policy.access(Path::new("/")).access
}

/// A sandbox has its own `/dev` and `/proc`, so an entry that allows them has no effect.
fn is_special(path: &Path) -> bool {
    path == Path::new("/dev") || path.starts_with("/proc")
}
