//! Walking the tree of a search: selects the entries of a directory that are searched or entered, by globs, ignore
//! files, depth and size. `rules` knows what the ignore files mean. This module opens only directories:
//! `ignore_files` and `run` open the files, in a way that does not wait, because a tree can contain FIFOs.

use std::fs::{self, DirEntry, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ignore::Error;
use ignore::gitignore::Gitignore;
use ignore::overrides::{Override, OverrideBuilder};

use super::ignore_files::{self, UnreadableRules};
use super::rules::{DirectoryRules, EntryFilter, RuleFileNames, RulesOrigin};
use super::{PrepareSearchError, SearchQuery, SearchSummary, shortened};
use crate::FileError;

/// A file to search or a directory to list.
#[derive(Debug)]
pub(super) enum Task {
    File(PathBuf),
    Directory(DirectoryTask),
}

/// A directory to list.
#[derive(Debug)]
pub(super) struct DirectoryTask {
    path: PathBuf,
    /// The root has depth 0.
    depth: usize,
    rules_above: Option<Arc<DirectoryRules>>,
    /// The directories above, up to the root. `None` for the root itself, and if links are not followed.
    ancestors: Option<Arc<Ancestor>>,
}

/// A directory on the path from the root, kept to detect a link that leads back to it.
#[derive(Debug)]
struct Ancestor {
    path: PathBuf,
    device_and_inode: (u64, u64),
    above: Option<Arc<Self>>,
}

/// The filter of a search and the rules above its root, read before the search begins.
#[derive(Debug)]
pub(super) struct SearchWalk {
    filter: EntryFilter,
    rules_above_root: Option<Arc<DirectoryRules>>,
}

impl SearchWalk {
    /// Compiles the globs, and reads the rules above the root and the global excludes. Fails if a glob is invalid, or
    /// if the rules above the root or those of the root cannot be read.
    pub(super) fn prepare(query: &SearchQuery, summary: &mut SearchSummary) -> Result<Self, PrepareSearchError> {
        let root = &query.root;
        let globs = compile_globs(query)?;
        let (mut canonical_root, mut rules_above_root) = (root.clone(), None);
        let mut global_excludes = Gitignore::empty();
        if query.respect_ignore {
            canonical_root = root.canonicalize().map_err(FileError::at(root))?;
            rules_above_root = rules_above(&canonical_root, summary).map_err(|unreadable| {
                let text = format!("{}: {}", unreadable.path.display(), unreadable.why_directory_is_left_out());
                FileError::failed_check(ErrorKind::InvalidData, text, &unreadable.path)
            })?;
            global_excludes = ignore_files::global_excludes(root, summary).unwrap_or_else(|unreadable| {
                summary.add_error(&unreadable.path, unreadable.why_global_excludes_are_unused());
                Gitignore::empty()
            });
        }
        let skips_hidden = !query.hidden;
        let filter = EntryFilter { root: root.clone(), canonical_root, globs, skips_hidden, global_excludes };
        Ok(Self { filter, rules_above_root })
    }

    /// The task for the root, which is never skipped. `None` if the root is neither a file nor a directory.
    pub(super) fn first_task(&self) -> io::Result<Option<Task>> {
        let path = self.filter.root.clone();
        let kind = fs::metadata(&path)?.file_type();
        if kind.is_dir() {
            let rules_above = self.rules_above_root.clone();
            return Ok(Some(Task::Directory(DirectoryTask { path, depth: 0, rules_above, ancestors: None })));
        }
        Ok(kind.is_file().then_some(Task::File(path)))
    }

    /// Lists a directory and returns tasks for the entries that are not skipped. A directory or entry that cannot be
    /// read is added to the errors of `summary`. Stops early when `is_over` returns true.
    pub(super) fn tasks_in(
        &self,
        directory: &DirectoryTask,
        query: &SearchQuery,
        is_over: &dyn Fn() -> bool,
        summary: &mut SearchSummary,
    ) -> Vec<Task> {
        if query.max_depth.is_some_and(|limit| directory.depth >= limit) {
            return Vec::new();
        }
        let listed = match directory.list(query, is_over, summary) {
            Ok(listed) => listed,
            Err(error) => {
                summary.add_error(error.path().unwrap_or(&directory.path), &error);
                return Vec::new();
            }
        };
        let mut tasks = Vec::new();
        for entry in listed.entries.iter().take_while(|_| !is_over()) {
            match self.task_for(entry, &listed, query) {
                Ok(task) => tasks.extend(task),
                Err(error) => summary.add_error(&entry.path(), &error),
            }
        }
        tasks
    }

    /// The task for an entry. `None` if the entry is skipped.
    fn task_for(
        &self,
        entry: &DirEntry,
        listed: &ListedDirectory,
        query: &SearchQuery,
    ) -> Result<Option<Task>, Error> {
        let mut kind = entry.file_type()?;
        let mut followed = None;
        if kind.is_symlink() {
            if !query.follow_symlinks {
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
            && let Some(limit) = query.max_file_size
            && followed.map_or_else(|| entry.metadata(), Ok).is_ok_and(|found| found.len() > limit)
        {
            return Ok(None);
        }
        if kind.is_dir() {
            let (rules_above, ancestors) = (listed.rules.clone(), listed.ancestors.clone());
            return Ok(Some(Task::Directory(DirectoryTask {
                path,
                depth: listed.depth + 1,
                rules_above,
                ancestors,
            })));
        }
        Ok(kind.is_file().then_some(Task::File(path)))
    }
}

/// The error of a directory that is not searched because of one of its ignore files.
fn skipped_directory_error(unreadable: UnreadableRules) -> FileError {
    FileError::failed_check(ErrorKind::InvalidData, unreadable.why_directory_is_left_out(), &unreadable.path)
}

/// The entries of a directory, with the rules and ancestors that apply to all of them.
struct ListedDirectory {
    entries: Vec<DirEntry>,
    depth: usize,
    rules: Option<Arc<DirectoryRules>>,
    ancestors: Option<Arc<Ancestor>>,
}

impl ListedDirectory {
    /// Fails if the target of a link is a directory above the link.
    fn check_loop(&self, link: &DirEntry, target: &Metadata) -> Result<(), Error> {
        let mut ancestors = std::iter::successors(self.ancestors.as_deref(), |ancestor| ancestor.above.as_deref());
        match ancestors.find(|ancestor| ancestor.device_and_inode == (target.dev(), target.ino())) {
            Some(ancestor) => Err(Error::Loop { ancestor: ancestor.path.clone(), child: link.path() }),
            None => Ok(()),
        }
    }
}

impl DirectoryTask {
    /// Reads the names in the directory and the ignore files among them.
    fn list(
        &self,
        query: &SearchQuery,
        is_over: &dyn Fn() -> bool,
        summary: &mut SearchSummary,
    ) -> Result<ListedDirectory, FileError> {
        let path = &self.path;
        let mut names = RuleFileNames::NONE;
        let mut entries = Vec::new();
        for entry in fs::read_dir(path).map_err(FileError::at(path))?.take_while(|_| !is_over()) {
            match entry {
                Ok(entry) => {
                    names.note(&entry.file_name());
                    entries.push(entry);
                }
                Err(error) => summary.add_error(path, &error),
            }
        }
        let mut rules = None;
        if query.respect_ignore {
            rules = DirectoryRules::read(path, names, self.rules_above.as_ref(), RulesOrigin::InTree, summary)
                .map_err(skipped_directory_error)?;
        }
        let mut ancestors = None;
        if query.follow_symlinks {
            ancestors = Some(self.self_and_ancestors().map_err(FileError::at(path))?);
        }
        Ok(ListedDirectory { entries, depth: self.depth, rules, ancestors })
    }

    fn self_and_ancestors(&self) -> io::Result<Arc<Ancestor>> {
        let found = fs::metadata(&self.path)?;
        let device_and_inode = (found.dev(), found.ino());
        Ok(Arc::new(Ancestor { path: self.path.clone(), device_and_inode, above: self.ancestors.clone() }))
    }
}

/// The rules of all directories above the root. The rules of the root itself are read too, only to fail early if they cannot be read; they
/// are read again when the root is listed.
fn rules_above(
    canonical_root: &Path,
    summary: &mut SearchSummary,
) -> Result<Option<Arc<DirectoryRules>>, UnreadableRules> {
    let above: Vec<&Path> = canonical_root.ancestors().skip(1).collect();
    let mut rules = None;
    for directory in above.into_iter().rev() {
        rules = DirectoryRules::read(
            directory,
            RuleFileNames::ALL_POSSIBLE,
            rules.as_ref(),
            RulesOrigin::AboveRoot,
            summary,
        )?;
    }
    let mut ignored_summary = SearchSummary::default();
    DirectoryRules::read(
        canonical_root,
        RuleFileNames::ALL_POSSIBLE,
        None,
        RulesOrigin::AboveRoot,
        &mut ignored_summary,
    )?;
    Ok(rules)
}

fn compile_globs(query: &SearchQuery) -> Result<Override, PrepareSearchError> {
    let invalid_glob = |glob: &str, error: &Error| PrepareSearchError::InvalidGlob {
        glob: shortened(glob),
        text: shortened(&reason(error).to_string()),
    };
    let mut builder = OverrideBuilder::new(&query.root);
    for glob in &query.globs {
        builder.add(glob).map_err(|error| invalid_glob(glob, &error))?;
    }
    builder.build().map_err(|error| invalid_glob(&query.globs.join(" "), &error))
}

/// The cause of an error, without the path and depth that the library adds.
fn reason(error: &Error) -> &Error {
    match error {
        Error::WithPath { err, .. } | Error::WithDepth { err, .. } => reason(err),
        Error::Partial(errors) if errors.len() == 1 => reason(&errors[0]),
        other => other,
    }
}
