//! Going through a tree: which entries of a directory are searched or entered, by globs, ignore files, depth and size. Everything is
//! opened without waiting, because any tree can hold a FIFO, also one that takes the place of a file at the wrong moment.

use std::fs::{self, DirEntry, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ignore::Error;
use ignore::gitignore::Gitignore;
use ignore::overrides::{Override, OverrideBuilder};

use super::ignore_files::{self, UnreadableRules};
use super::rules::{DirectoryRules, EntryFilter, RuleNames, RulesPlace};
use super::{PrepareSearchError, SearchQuery, SearchSummary, shortened};
use crate::FileError;

/// What a thread of a search looks at next.
#[derive(Debug)]
pub(super) enum Task {
    File(PathBuf),
    Directory(Directory),
}

/// A directory whose entries are to be looked at.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    /// The root has 0.
    depth: usize,
    rules_above: Option<Arc<DirectoryRules>>,
    /// Kept only if links are followed.
    ancestors: Option<Arc<Ancestor>>,
}

/// A directory from the root on, to find out whether a link leads back to it.
#[derive(Debug)]
struct Ancestor {
    path: PathBuf,
    device_and_inode: (u64, u64),
    above: Option<Arc<Self>>,
}

/// Everything that decides where a search goes, read before it begins.
#[derive(Debug)]
pub(super) struct Walk {
    filter: EntryFilter,
    rules_above_root: Option<Arc<DirectoryRules>>,
}

impl Walk {
    /// Reads the rules above the root and those of the root. If that is impossible, the search cannot begin.
    pub(super) fn prepare(search: &SearchQuery, notes: &mut SearchSummary) -> Result<Self, PrepareSearchError> {
        let root = &search.root;
        let globs = globs(search)?;
        let (mut canonical_root, mut rules_above_root) = (root.clone(), None);
        let mut global_excludes = Gitignore::empty();
        if search.respect_ignore {
            canonical_root = root.canonicalize().map_err(FileError::at(root))?;
            rules_above_root = rules_above(&canonical_root, notes).map_err(|found| {
                let text = format!("{}: {}", found.path.display(), found.why_directory_is_left_out());
                FileError::check(ErrorKind::InvalidData, text, &found.path)
            })?;
            global_excludes = ignore_files::global_excludes(root, notes).unwrap_or_else(|found| {
                notes.note_error(&found.path, found.why_global_excludes_are_unused());
                Gitignore::empty()
            });
        }
        let skips_hidden = !search.hidden;
        let filter = EntryFilter { root: root.clone(), canonical_root, globs, skips_hidden, global_excludes };
        Ok(Self { filter, rules_above_root })
    }

    /// What a search begins with. The root itself is never left out. `None` if it is neither a file nor a directory.
    pub(super) fn first_task(&self) -> io::Result<Option<Task>> {
        let path = self.filter.root.clone();
        let kind = fs::metadata(&path)?.file_type();
        if kind.is_dir() {
            let rules_above = self.rules_above_root.clone();
            return Ok(Some(Task::Directory(Directory { path, depth: 0, rules_above, ancestors: None })));
        }
        Ok(kind.is_file().then_some(Task::File(path)))
    }

    /// The entries of a directory that are searched or entered. What cannot be read is noted.
    pub(super) fn tasks_in(
        &self,
        directory: &Directory,
        search: &SearchQuery,
        is_over: &dyn Fn() -> bool,
        notes: &mut SearchSummary,
    ) -> Vec<Task> {
        if search.max_depth.is_some_and(|most| directory.depth >= most) {
            return Vec::new();
        }
        let listed = match directory.list(search, is_over, notes) {
            Ok(listed) => listed,
            Err(error) => {
                notes.note_error(error.path().unwrap_or(&directory.path), &error);
                return Vec::new();
            }
        };
        let mut tasks = Vec::new();
        for entry in listed.entries.iter().take_while(|_| !is_over()) {
            match self.task_of(entry, &listed, search) {
                Ok(task) => tasks.extend(task),
                Err(error) => notes.note_error(&entry.path(), &error),
            }
        }
        tasks
    }

    /// What is to be done with an entry. `None` if it is left out.
    fn task_of(
        &self,
        entry: &DirEntry,
        listed: &ListedDirectory,
        search: &SearchQuery,
    ) -> Result<Option<Task>, Error> {
        let mut kind = entry.file_type()?;
        let mut followed = None;
        if kind.is_symlink() {
            if !search.follow_symlinks {
                return Ok(None);
            }
            let target = fs::metadata(entry.path())?;
            kind = target.file_type();
            listed.check_loop(entry, &target)?;
            followed = Some(target);
        }
        let path = entry.path();
        if self.filter.skips(&path, kind.is_dir(), listed.rules.as_deref()) {
            return Ok(None);
        }
        if kind.is_file()
            && let Some(most) = search.max_file_size
            && followed.map_or_else(|| entry.metadata(), Ok).is_ok_and(|found| found.len() > most)
        {
            return Ok(None);
        }
        if kind.is_dir() {
            let (rules_above, ancestors) = (listed.rules.clone(), listed.ancestors.clone());
            return Ok(Some(Task::Directory(Directory { path, depth: listed.depth + 1, rules_above, ancestors })));
        }
        Ok(kind.is_file().then_some(Task::File(path)))
    }
}

/// For `map_err`: the directory of the file is not searched.
fn left_out(found: UnreadableRules) -> FileError {
    FileError::check(ErrorKind::InvalidData, found.why_directory_is_left_out(), &found.path)
}

/// The entries of a directory, and what decides about all of them.
struct ListedDirectory {
    entries: Vec<DirEntry>,
    depth: usize,
    rules: Option<Arc<DirectoryRules>>,
    ancestors: Option<Arc<Ancestor>>,
}

impl ListedDirectory {
    /// Fails for a link that leads to a directory which holds the link.
    fn check_loop(&self, link: &DirEntry, target: &Metadata) -> Result<(), Error> {
        let mut ancestors = std::iter::successors(self.ancestors.as_deref(), |one| one.above.as_deref());
        match ancestors.find(|one| one.device_and_inode == (target.dev(), target.ino())) {
            Some(ancestor) => Err(Error::Loop { ancestor: ancestor.path.clone(), child: link.path() }),
            None => Ok(()),
        }
    }
}

impl Directory {
    /// Reads the names in the directory and the ignore files among them.
    fn list(
        &self,
        search: &SearchQuery,
        is_over: &dyn Fn() -> bool,
        notes: &mut SearchSummary,
    ) -> Result<ListedDirectory, FileError> {
        let path = &self.path;
        let mut names = RuleNames::NONE;
        let mut entries = Vec::new();
        for entry in fs::read_dir(path).map_err(FileError::at(path))?.take_while(|_| !is_over()) {
            match entry {
                Ok(entry) => {
                    names.note(&entry.file_name());
                    entries.push(entry);
                }
                Err(error) => notes.note_error(path, &error),
            }
        }
        let mut rules = None;
        if search.respect_ignore {
            rules = DirectoryRules::read(path, names, self.rules_above.as_ref(), RulesPlace::InTree, notes)
                .map_err(left_out)?;
        }
        let mut ancestors = None;
        if search.follow_symlinks {
            ancestors = Some(self.and_ancestors().map_err(FileError::at(path))?);
        }
        Ok(ListedDirectory { entries, depth: self.depth, rules, ancestors })
    }

    fn and_ancestors(&self) -> io::Result<Arc<Ancestor>> {
        let found = fs::metadata(&self.path)?;
        let device_and_inode = (found.dev(), found.ino());
        Ok(Arc::new(Ancestor { path: self.path.clone(), device_and_inode, above: self.ancestors.clone() }))
    }
}

/// The rules of all directories above the root. Those of the root are read too, and again when it is listed: if they cannot be read, there
/// is nothing to search.
fn rules_above(
    canonical_root: &Path,
    notes: &mut SearchSummary,
) -> Result<Option<Arc<DirectoryRules>>, UnreadableRules> {
    let above: Vec<&Path> = canonical_root.ancestors().skip(1).collect();
    let mut rules = None;
    for directory in above.into_iter().rev() {
        rules =
            DirectoryRules::read(directory, RuleNames::PERHAPS_ALL, rules.as_ref(), RulesPlace::AboveRoot, notes)?;
    }
    let mut noted_again = SearchSummary::default();
    DirectoryRules::read(canonical_root, RuleNames::PERHAPS_ALL, None, RulesPlace::AboveRoot, &mut noted_again)?;
    Ok(rules)
}

fn globs(search: &SearchQuery) -> Result<Override, PrepareSearchError> {
    let refused = |glob: &str, error: &Error| PrepareSearchError::Glob {
        glob: shortened(glob),
        text: shortened(&reason(error).to_string()),
    };
    let mut builder = OverrideBuilder::new(&search.root);
    for glob in &search.globs {
        builder.add(glob).map_err(|error| refused(glob, &error))?;
    }
    builder.build().map_err(|error| refused(&search.globs.join(" "), &error))
}

/// The error without what is told beside it.
fn reason(error: &Error) -> &Error {
    match error {
        Error::WithPath { err, .. } | Error::WithDepth { err, .. } => reason(err),
        Error::Partial(errors) if errors.len() == 1 => reason(&errors[0]),
        other => other,
    }
}
