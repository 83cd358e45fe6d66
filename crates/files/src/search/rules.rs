//! Decides which entries of a directory a search skips. The rules mean the same as in ripgrep. Their precedence,
//! highest first, is `.rgignore`, `.ignore`, `.gitignore`, `.git/info/exclude` and the global excludes of git. Of two
//! matching rules of the same kind, the one in the deeper directory decides. The walker of ripgrep itself is not
//! used, because it opens ignore files in a way that can block for ever.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ignore::Match;
use ignore::gitignore::Gitignore;
use ignore::overrides::Override;

use super::SearchSummary;
use super::ignore_files::{self, UnreadableRules};
use crate::root::EnteredRoot;

/// Names of the ignore files of a directory, in descending precedence.
const IGNORE_FILES: [&str; 3] = [".rgignore", ".ignore", ".gitignore"];
/// Number of kinds of rules. Each name in [`IGNORE_FILES`] is a kind, and the last kind is `.git/info/exclude`.
const RULE_KINDS: usize = IGNORE_FILES.len() + 1;
/// Index of the first kind of rules that belongs to git. Such rules apply only inside a repository, and only those in
/// its top directory and below apply.
const FIRST_GIT_KIND: usize = 2;
/// Most rules of a directory and all directories above it together. Each rule can take 10 KB, and a tree can be 2,000
/// levels deep.
pub const MAX_RULES_IN_EFFECT: usize = 20_000;

/// The rules of a directory and of the directories above it.
#[derive(Debug)]
pub(super) struct DirectoryRules {
    /// The rules of the nearest directory above that has any.
    above: Option<Arc<Self>>,
    origin: RulesOrigin,
    /// The rules of each kind: of the ignore files, in the order of [`IGNORE_FILES`], and of `.git/info/exclude`.
    by_kind: [Gitignore; RULE_KINDS],
    /// Number of rules of this directory and all directories above it.
    rules_in_effect: usize,
    /// Whether the directory is the top of a repository.
    is_repository: bool,
    /// Whether this directory or one above it is the top of a repository.
    is_in_repository: bool,
}

/// Whether rules come from a directory above the root of the search, or from the root or a directory below it. The
/// two need different forms of the path of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RulesOrigin {
    /// The path of the directory is canonical.
    AboveRoot,
    /// The path of the directory begins with the root as it is written in the query.
    InTree,
}

/// The ignore files and repository directories (`.git`, `.jj`) that a directory contains, by their names alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct RuleFileNames {
    ignore_files: [bool; IGNORE_FILES.len()],
    git: bool,
    jujutsu: bool,
}

impl RuleFileNames {
    pub(super) const NONE: Self = Self { ignore_files: [false; IGNORE_FILES.len()], git: false, jujutsu: false };
    /// For a directory that was not listed: any of the names may exist.
    pub(super) const ALL_POSSIBLE: Self = Self { ignore_files: [true; IGNORE_FILES.len()], git: true, jujutsu: true };

    /// Records a name that is in the directory.
    pub(super) fn note(&mut self, name: &OsStr) {
        if name.as_bytes().first() != Some(&b'.') {
            return;
        }
        for (is_present, ignore_file) in self.ignore_files.iter_mut().zip(IGNORE_FILES) {
            *is_present |= name == ignore_file;
        }
        self.git |= name == ".git";
        self.jujutsu |= name == ".jj";
    }
}

impl DirectoryRules {
    /// Reads the rules of a directory. Returns `above` itself if the directory has no rules and is not the top of a
    /// repository.
    pub(super) fn read(
        inside: &EnteredRoot<'_>,
        directory: &Path,
        names: RuleFileNames,
        above: Option<&Arc<Self>>,
        origin: RulesOrigin,
        summary: &mut SearchSummary,
    ) -> Result<Option<Arc<Self>>, UnreadableRules> {
        let mut by_kind = [const { None }; RULE_KINDS];
        for ((rules, name), is_present) in by_kind.iter_mut().zip(IGNORE_FILES).zip(names.ignore_files) {
            if is_present {
                *rules = Some(ignore_files::read_rules(inside, &directory.join(name), directory, summary)?);
            }
        }
        let exists = |name: &str| inside.stat(&directory.join(name)).is_ok();
        let has_git = names.git && exists(".git");
        if has_git && let Some(exclude) = ignore_files::exclude_file(inside, directory)? {
            by_kind[RULE_KINDS - 1] = Some(ignore_files::read_rules(inside, &exclude, directory, summary)?);
        }
        let is_repository = has_git || (names.jujutsu && exists(".jj"));
        let by_kind = by_kind.map(|rules| rules.unwrap_or_else(Gitignore::empty));
        if !is_repository && by_kind.iter().all(Gitignore::is_empty) {
            return Ok(above.cloned());
        }
        let rules_in_effect =
            above.map_or(0, |above| above.rules_in_effect) + by_kind.iter().map(Gitignore::len).sum::<usize>();
        if rules_in_effect > MAX_RULES_IN_EFFECT {
            return Err(UnreadableRules::too_many_rules(directory));
        }
        let is_in_repository = is_repository || above.is_some_and(|above| above.is_in_repository);
        Ok(Some(Arc::new(Self {
            above: above.cloned(),
            origin,
            by_kind,
            rules_in_effect,
            is_repository,
            is_in_repository,
        })))
    }

    /// The rules of this directory, and then those of the directories above it.
    fn self_and_ancestors(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |rules| rules.above.as_deref())
    }
}

/// Decides which entries are skipped, by the globs of the query, the rules of directories and the global excludes.
#[derive(Debug)]
pub(super) struct EntryFilter {
    /// The root as it is written in the query.
    pub(super) root: PathBuf,
    pub(super) canonical_root: PathBuf,
    /// The globs of the query. They take precedence over all other rules.
    pub(super) globs: Override,
    /// Whether entries that begin with a dot are skipped if no glob and no rule matches them.
    pub(super) skips_hidden: bool,
    /// The global excludes of git, relative to the root.
    pub(super) global_excludes: Gitignore,
}

impl EntryFilter {
    /// Whether an entry below the root is skipped. `rules` are those of the directory that contains the entry.
    pub(super) fn skips(&self, path: &Path, is_directory: bool, rules: Option<&DirectoryRules>) -> bool {
        let verdict = verdict_of(&self.globs.matched(path, is_directory))
            .or_else(|| rules.and_then(|rules| self.verdict(path, is_directory, rules)));
        match verdict {
            Some(Verdict::Skip) => true,
            Some(Verdict::Keep) => false,
            None => self.skips_hidden && is_hidden(path),
        }
    }

    /// The verdict of the ignore rules alone, without the globs. `None` if no rule matches.
    fn verdict(&self, path: &Path, is_directory: bool, rules: &DirectoryRules) -> Option<Verdict> {
        let mut verdicts = [None; RULE_KINDS];
        let mut canonical = None;
        let mut has_left_repository = !rules.is_in_repository;
        for level in rules.self_and_ancestors() {
            for (kind, (verdict, rules)) in verdicts.iter_mut().zip(&level.by_kind).enumerate() {
                let applies = kind < FIRST_GIT_KIND || !has_left_repository;
                if verdict.is_some() || !applies || rules.is_empty() {
                    continue;
                }
                let path = match level.origin {
                    RulesOrigin::InTree => path,
                    RulesOrigin::AboveRoot => canonical.get_or_insert_with(|| self.canonical_path(path)),
                };
                *verdict = verdict_of(&rules.matched(path, is_directory));
            }
            // The first kind has the highest precedence, so further directories cannot change the result.
            if verdicts[0].is_some() {
                break;
            }
            has_left_repository |= level.is_repository;
        }
        let global = || {
            let applies = rules.is_in_repository && !self.global_excludes.is_empty();
            applies.then(|| self.global_excludes.matched(path, is_directory)).and_then(|found| verdict_of(&found))
        };
        verdicts.into_iter().flatten().next().or_else(global)
    }

    /// The path of an entry with the canonical root instead of the root as written.
    fn canonical_path<'p>(&self, path: &'p Path) -> Cow<'p, Path> {
        let (root, canonical) = (self.root.as_os_str().as_bytes(), &self.canonical_root);
        if root == canonical.as_os_str().as_bytes() {
            return Cow::Borrowed(path);
        }
        let below = path.as_os_str().as_bytes();
        let below = below.strip_prefix(root).unwrap_or(below);
        let below = below.strip_prefix(b"/").unwrap_or(below);
        Cow::Owned(canonical.join(OsStr::from_bytes(below)))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Skip,
    Keep,
}

fn verdict_of<T>(found: &Match<T>) -> Option<Verdict> {
    match found {
        Match::None => None,
        Match::Ignore(_) => Some(Verdict::Skip),
        Match::Whitelist(_) => Some(Verdict::Keep),
    }
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_bytes().first() == Some(&b'.'))
}
