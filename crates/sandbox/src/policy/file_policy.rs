//! A policy whose entries are concrete. [`FilePolicy::access`] says what the rules mean for a path as it is written. When a sandbox
//! is made, the planner applies the same rules to the paths to which links lead; the test `random_trees` compares both.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use super::{Access, GlobPattern, lexical};

/// What is allowed for which paths.
#[derive(Clone, Debug)]
pub struct FilePolicy {
    /// Sorted by target, one entry for each target, paths before globs.
    entries: Vec<PolicyEntry>,
    /// How many of the entries are for paths.
    path_count: usize,
    glob_scan_max_depth: Option<NonZeroUsize>,
}

/// One rule: what is allowed for a path and everything below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyEntry {
    /// The paths that the rule applies to.
    pub target: EntryTarget,
    /// What the rule allows. Always [`Access::Deny`] for a glob.
    pub access: Access,
    /// Where the rule comes from.
    pub source: EntrySource,
}

/// The paths that a rule applies to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EntryTarget {
    /// An absolute path without `.`, `..` and trailing slash, and everything below it.
    Path(PathBuf),
    /// Every path that matches, and everything below these paths.
    Glob(GlobPattern),
}

/// Where a rule comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntrySource {
    /// The client asked for unrestricted files.
    Unrestricted,
    /// The client sent the entry that has this index in its request.
    Request(usize),
    /// The entry protects one of [`PROTECTED_NAMES`](super::PROTECTED_NAMES) in this writable directory.
    ProtectedName {
        /// The path of the writable entry.
        writable: PathBuf,
    },
    /// The entry protects a git directory outside its working tree.
    GitDirectory {
        /// The `.git` file that names the directory.
        git_file: PathBuf,
    },
}

/// What a policy says about a path, and why.
#[derive(Clone, Debug)]
pub struct AccessDecision<'a> {
    /// What is allowed.
    pub access: Access,
    /// The entry that decides. None: no entry is for this path, so it is denied.
    pub entry: Option<&'a PolicyEntry>,
    /// The prefix of the path that the deciding entry names or matches. Empty without an entry.
    pub matched: PathBuf,
}

impl FilePolicy {
    /// Sorts the entries and keeps for each target the one that decides.
    pub(super) fn new(mut entries: Vec<PolicyEntry>, glob_scan_max_depth: Option<NonZeroUsize>) -> Self {
        // The sort is stable: of several equal entries the first in the request is kept.
        entries.sort_by(|one, other| {
            let targets = match (&one.target, &other.target) {
                (EntryTarget::Path(one), EntryTarget::Path(other)) => lexical::path_order(one, other),
                (one, other) => one.cmp(other),
            };
            targets.then_with(|| one.access.precedence().cmp(&other.access.precedence()))
        });
        entries.dedup_by(|later, kept| later.target == kept.target);
        let path_count = entries.partition_point(|entry| matches!(entry.target, EntryTarget::Path(_)));
        Self { entries, path_count, glob_scan_max_depth }
    }

    /// What is allowed for a path, and which entry decides. A path that is not absolute is denied. `..` is removed
    /// lexically, and links are not followed: the caller asks about the path that the kernel would reach.
    pub fn access(&self, path: &Path) -> AccessDecision<'_> {
        let nothing = AccessDecision { access: Access::Deny, entry: None, matched: PathBuf::new() };
        let Some(path) = lexical::normalised(path) else { return nothing };
        let by_path = path
            .ancestors()
            .find_map(|ancestor| self.path_entry(ancestor).map(|entry| (lexical::depth(ancestor), entry)));
        // If several globs match the same prefix, the first in sorted order is reported.
        let mut deciding = None;
        for entry in self.globs() {
            let EntryTarget::Glob(glob) = &entry.target else { continue };
            if let Some(depth) = glob.longest_match(&path)
                && deciding.is_none_or(|(deepest, _)| depth > deepest)
            {
                deciding = Some((depth, entry));
            }
        }
        if let Some((depth, entry)) = by_path
            && deciding.is_none_or(|(glob_depth, _)| depth > glob_depth)
        {
            deciding = Some((depth, entry));
        }
        match deciding {
            Some((depth, entry)) => AccessDecision {
                access: entry.access,
                entry: Some(entry),
                matched: lexical::prefix_of_depth(&path, depth).to_path_buf(),
            },
            None => nothing,
        }
    }

    /// Those of the sorted paths that may be written. A path below two writable entries comes twice. An entry is compared only with the
    /// paths below it.
    pub fn writable_among<'a>(&self, paths: &'a [PathBuf]) -> impl Iterator<Item = &'a Path> {
        let writable = self.entries[..self.path_count].iter().filter(|entry| entry.access == Access::Write);
        let below = writable.flat_map(|entry| match &entry.target {
            EntryTarget::Path(directory) => {
                let first = paths.partition_point(|path| lexical::path_order(path, directory).is_lt());
                let end = paths[first..].partition_point(|path| path.starts_with(directory));
                &paths[first..first + end]
            }
            EntryTarget::Glob(_) => &[],
        });
        below.map(PathBuf::as_path).filter(|path| self.access(path).access == Access::Write)
    }

    /// Whether every path may be written: the root may be written, and no entry allows less.
    pub fn writes_everything(&self) -> bool {
        self.path_entry(Path::new("/")).is_some() && self.entries.iter().all(|entry| entry.access == Access::Write)
    }

    /// All entries, protections included. Sorted by path, a directory before what is below it, and globs last. No two
    /// entries have the same target.
    pub fn entries(&self) -> &[PolicyEntry] {
        &self.entries
    }

    /// The entries whose targets are globs.
    pub fn globs(&self) -> &[PolicyEntry] {
        &self.entries[self.path_count..]
    }

    /// How many levels of directories, counted from [`GlobPattern::directory`], are searched for matches of globs when a
    /// sandbox is made. None: all. [`access`](Self::access) ignores this depth, so it may deny a path that the
    /// sandbox does not cover.
    pub fn glob_scan_max_depth(&self) -> Option<NonZeroUsize> {
        self.glob_scan_max_depth
    }

    fn path_entry(&self, path: &Path) -> Option<&PolicyEntry> {
        let paths = &self.entries[..self.path_count];
        let index = paths
            .binary_search_by(|entry| match &entry.target {
                EntryTarget::Path(target) => lexical::path_order(target, path),
                EntryTarget::Glob(_) => std::cmp::Ordering::Greater,
            })
            .ok()?;
        paths.get(index)
    }
}
