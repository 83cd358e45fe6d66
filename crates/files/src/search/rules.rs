//! Which entries of a directory a search leaves out, with the meaning and the precedence of ripgrep: `.rgignore` before `.ignore` before
//! `.gitignore` before `.git/info/exclude` before the global excludes of git; of one kind, the file of the deeper directory decides.
//! The walker of ripgrep has the same rules, but opens their files in a way that can block for ever.

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

/// Ignore files of a directory, those that decide first before the others.
const IGNORE_FILES: [&str; 3] = [".rgignore", ".ignore", ".gitignore"];
/// From this place on, the kinds of rules count only inside a repository, and only up to its top.
const FIRST_OF_GIT: usize = 2;
const KINDS: usize = IGNORE_FILES.len() + 1;
/// Rules of a directory and all directories above it. Each can take 10 KB, and a tree can be 2,000 levels deep.
const MOST_RULES_IN_FORCE: usize = 20_000;

/// The rules of a directory and of the directories above it.
#[derive(Debug)]
pub(super) struct DirectoryRules {
    /// Of the nearest directory above that has any.
    above: Option<Arc<Self>>,
    place: RulesPlace,
    /// Of each ignore file, and at the end those of `.git/info/exclude`.
    kinds: [Gitignore; KINDS],
    /// How many rules this directory and those above it have.
    in_force: usize,
    /// Whether the directory is the top of a repository.
    is_repository: bool,
    /// Whether this directory or one above it is the top of a repository.
    is_in_repository: bool,
}

/// Where a directory with rules is. The paths that its rules are asked about are written differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RulesPlace {
    /// Its path is canonical.
    AboveRoot,
    /// Its path begins with the root as the client wrote it.
    InTree,
}

/// Which names in a directory matter for its rules.
#[derive(Clone, Copy, Debug)]
pub(super) struct RuleNames {
    ignore_files: [bool; IGNORE_FILES.len()],
    git: bool,
    jujutsu: bool,
}

impl RuleNames {
    pub(super) const NONE: Self = Self { ignore_files: [false; IGNORE_FILES.len()], git: false, jujutsu: false };
    /// For a directory whose names are not known.
    pub(super) const PERHAPS_ALL: Self = Self { ignore_files: [true; IGNORE_FILES.len()], git: true, jujutsu: true };

    /// Notes a name that is in the directory.
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
    /// Reads the rules of a directory. The result is `above` itself if the directory adds nothing.
    pub(super) fn read(
        directory: &Path,
        names: RuleNames,
        above: Option<&Arc<Self>>,
        place: RulesPlace,
        notes: &mut SearchSummary,
    ) -> Result<Option<Arc<Self>>, UnreadableRules> {
        let mut kinds = [const { None }; KINDS];
        for ((rules, name), is_present) in kinds.iter_mut().zip(IGNORE_FILES).zip(names.ignore_files) {
            if is_present {
                *rules = Some(ignore_files::rules(&directory.join(name), directory, notes)?);
            }
        }
        let has_git = names.git && directory.join(".git").exists();
        if has_git && let Some(exclude) = ignore_files::exclude_file(directory)? {
            kinds[KINDS - 1] = Some(ignore_files::rules(&exclude, directory, notes)?);
        }
        let is_repository = has_git || (names.jujutsu && directory.join(".jj").exists());
        let kinds = kinds.map(|rules| rules.unwrap_or_else(Gitignore::empty));
        if !is_repository && kinds.iter().all(Gitignore::is_empty) {
            return Ok(above.cloned());
        }
        let in_force = above.map_or(0, |above| above.in_force) + kinds.iter().map(Gitignore::len).sum::<usize>();
        if in_force > MOST_RULES_IN_FORCE {
            return Err(UnreadableRules::beyond_limit(directory));
        }
        let is_in_repository = is_repository || above.is_some_and(|above| above.is_in_repository);
        Ok(Some(Arc::new(Self { above: above.cloned(), place, kinds, in_force, is_repository, is_in_repository })))
    }

    /// This directory and those above it.
    fn upward(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |rules| rules.above.as_deref())
    }
}

/// What decides besides the rules of directories.
#[derive(Debug)]
pub(super) struct EntryFilter {
    /// As the client wrote it.
    pub(super) root: PathBuf,
    pub(super) canonical_root: PathBuf,
    /// The globs of the search, which decide before everything else.
    pub(super) globs: Override,
    /// Whether entries that begin with a dot are left out, if nothing else names them.
    pub(super) skips_hidden: bool,
    /// Relative to the root.
    pub(super) global_excludes: Gitignore,
}

impl EntryFilter {
    /// Whether an entry below the root is left out. `rules` are those of the directory that holds it.
    pub(super) fn skips(&self, path: &Path, is_directory: bool, rules: Option<&DirectoryRules>) -> bool {
        let verdict = without_rule(&self.globs.matched(path, is_directory))
            .or_else(|| rules.and_then(|rules| self.verdict(path, is_directory, rules)));
        match verdict {
            Some(Verdict::Skip) => true,
            Some(Verdict::Keep) => false,
            None => self.skips_hidden && is_hidden(path),
        }
    }

    fn verdict(&self, path: &Path, is_directory: bool, rules: &DirectoryRules) -> Option<Verdict> {
        let mut verdicts = [None; KINDS];
        let mut canonical = None;
        let mut has_left_repository = !rules.is_in_repository;
        for level in rules.upward() {
            for (kind, (verdict, rules)) in verdicts.iter_mut().zip(&level.kinds).enumerate() {
                let counts = kind < FIRST_OF_GIT || !has_left_repository;
                if verdict.is_some() || !counts || rules.is_empty() {
                    continue;
                }
                let path = match level.place {
                    RulesPlace::InTree => path,
                    RulesPlace::AboveRoot => canonical.get_or_insert_with(|| self.canonical(path)),
                };
                *verdict = without_rule(&rules.matched(path, is_directory));
            }
            // Nothing comes before the first kind.
            if verdicts[0].is_some() {
                break;
            }
            has_left_repository |= level.is_repository;
        }
        let global = || {
            let counts = rules.is_in_repository && !self.global_excludes.is_empty();
            counts.then(|| self.global_excludes.matched(path, is_directory)).and_then(|found| without_rule(&found))
        };
        verdicts.into_iter().flatten().next().or_else(global)
    }

    /// The path of an entry below the canonical root.
    fn canonical<'p>(&self, path: &'p Path) -> Cow<'p, Path> {
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

fn without_rule<T>(found: &Match<T>) -> Option<Verdict> {
    match found {
        Match::None => None,
        Match::Ignore(_) => Some(Verdict::Skip),
        Match::Whitelist(_) => Some(Verdict::Keep),
    }
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_bytes().first() == Some(&b'.'))
}
