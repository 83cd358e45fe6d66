//! Walking the tree of a search: selects the entries of a directory that are searched or entered, by globs, ignore
//! files, depth and size. `rules` knows what the ignore files mean. This module opens only directories:
//! `ignore_files` and `run` open the files, in a way that does not wait, because a tree can contain FIFOs.

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ignore::Error;
use ignore::gitignore::Gitignore;
use ignore::overrides::{Override, OverrideBuilder};
use rustix::fs::{FileType, Mode, Statx};
use rustix::io::Errno;

use super::ignore_files::{self, UnreadableRules};
use super::rules::{DirectoryRules, EntryFilter, RuleFileNames, RulesOrigin};
use super::{PrepareSearchError, SearchQuery, SearchSummary, shortened};
use crate::listing::{OPEN_TO_LIST, buffer, each_entry};
use crate::root::{EnteredRoot, EntryAt};
use crate::stat::{FileIdentity, kind, stat_open};
use crate::{EntryKind, FileError};

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
    identity: FileIdentity,
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
    pub(super) fn prepare(
        inside: &EnteredRoot<'_>,
        query: &SearchQuery,
        summary: &mut SearchSummary,
    ) -> Result<Self, PrepareSearchError> {
        let root = &query.root;
        let globs = compile_globs(query)?;
        let (mut canonical_root, mut rules_above_root) = (root.clone(), None);
        let mut global_excludes = Gitignore::empty();
        if query.respect_ignore {
            canonical_root = inside.canonicalize(root).map_err(FileError::at(root))?;
            rules_above_root = rules_above(inside, &canonical_root, summary).map_err(|unreadable| {
                let text = format!("{}: {}", unreadable.path.display(), unreadable.why_directory_is_left_out());
                FileError::failed_check(ErrorKind::InvalidData, text, &unreadable.path)
            })?;
            global_excludes = ignore_files::global_excludes(inside, root, summary).unwrap_or_else(|unreadable| {
                summary.add_error(&unreadable.path, unreadable.why_global_excludes_are_unused());
                Gitignore::empty()
            });
        }
        let skips_hidden = !query.hidden;
        let filter = EntryFilter { root: root.clone(), canonical_root, globs, skips_hidden, global_excludes };
        Ok(Self { filter, rules_above_root })
    }

    /// The task for the root, which is never skipped. `None` if the root is neither a file nor a directory.
    pub(super) fn first_task(&self, inside: &EnteredRoot<'_>) -> Result<Option<Task>, Errno> {
        let path = self.filter.root.clone();
        Ok(match kind(&inside.stat(&path)?) {
            FileType::Directory => {
                let rules_above = self.rules_above_root.clone();
                Some(Task::Directory(DirectoryTask { path, depth: 0, rules_above, ancestors: None }))
            }
            FileType::RegularFile => Some(Task::File(path)),
            _ => None,
        })
    }

    /// Lists a directory and returns tasks for the entries that are not skipped. A directory or entry that cannot be
    /// read is added to the errors of `summary`. Stops early when `is_over` returns true.
    pub(super) fn tasks_in(
        &self,
        inside: &EnteredRoot<'_>,
        directory: &DirectoryTask,
        query: &SearchQuery,
        is_over: &dyn Fn() -> bool,
        summary: &mut SearchSummary,
    ) -> Vec<Task> {
        if query.max_depth.is_some_and(|limit| directory.depth >= limit) {
            return Vec::new();
        }
        let listed = match directory.list(inside, query, is_over, summary) {
            Ok(listed) => listed,
            Err(error) => {
                summary.add_error(error.path().unwrap_or(&directory.path), &error);
                return Vec::new();
            }
        };
        let mut tasks = Vec::new();
        for entry in listed.entries.iter().take_while(|_| !is_over()) {
            let path = directory.path.join(&entry.name);
            match self.task_for(inside, entry, &path, &listed, query) {
                Ok(Some(kind)) => tasks.push(listed.task(path, kind)),
                Ok(None) => {}
                Err(error) => summary.add_error(&path, &error),
            }
        }
        tasks
    }

    /// Whether an entry is searched as a file or as a directory. `None` if the entry is skipped.
    fn task_for(
        &self,
        inside: &EnteredRoot<'_>,
        entry: &TreeEntry,
        path: &Path,
        listed: &ListedDirectory,
        query: &SearchQuery,
    ) -> Result<Option<EntryKind>, Error> {
        let at = EntryAt::new(&listed.directory, &entry.name);
        let mut entry_kind = entry.listed_kind;
        if entry_kind == FileType::Unknown {
            entry_kind = kind(&at.stat().map_err(io::Error::from)?);
        }
        let mut followed = None;
        if entry_kind == FileType::Symlink {
            if !query.follow_symlinks {
                return Ok(None);
            }
            let target = inside.stat_following(at, path).map_err(io::Error::from)?;
            entry_kind = kind(&target);
            listed.check_loop(path, &target)?;
            followed = Some(target);
        }
        if self.filter.skips(path, entry_kind == FileType::Directory, listed.rules.as_deref()) {
            return Ok(None);
        }
        if entry_kind == FileType::RegularFile
            && let Some(limit) = query.max_file_size
            && followed.map_or_else(|| at.stat(), Ok).is_ok_and(|found| found.stx_size > limit)
        {
            return Ok(None);
        }
        Ok(match entry_kind {
            FileType::Directory => Some(EntryKind::Directory),
            FileType::RegularFile => Some(EntryKind::File),
            _ => None,
        })
    }
}

/// The error of a directory that is not searched because of one of its ignore files.
fn skipped_directory_error(unreadable: UnreadableRules) -> FileError {
    FileError::failed_check(ErrorKind::InvalidData, unreadable.why_directory_is_left_out(), &unreadable.path)
}

/// An entry of a directory, as the directory lists it.
struct TreeEntry {
    name: OsString,
    /// `Unknown` where the file system does not store the kind in the directory.
    listed_kind: FileType,
}

/// The entries of a directory, with the rules and ancestors that apply to all of them.
struct ListedDirectory {
    directory: OwnedFd,
    entries: Vec<TreeEntry>,
    depth: usize,
    rules: Option<Arc<DirectoryRules>>,
    ancestors: Option<Arc<Ancestor>>,
}

impl ListedDirectory {
    /// Fails if the target of a link is a directory above the link.
    fn check_loop(&self, link: &Path, target: &Statx) -> Result<(), Error> {
        let mut ancestors = std::iter::successors(self.ancestors.as_deref(), |ancestor| ancestor.above.as_deref());
        match ancestors.find(|ancestor| ancestor.identity == FileIdentity::of(target)) {
            Some(ancestor) => Err(Error::Loop { ancestor: ancestor.path.clone(), child: link.to_owned() }),
            None => Ok(()),
        }
    }

    /// The task for an entry of this directory.
    fn task(&self, path: PathBuf, kind: EntryKind) -> Task {
        let (rules_above, ancestors) = (self.rules.clone(), self.ancestors.clone());
        match kind {
            EntryKind::File => Task::File(path),
            EntryKind::Directory => {
                Task::Directory(DirectoryTask { path, depth: self.depth + 1, rules_above, ancestors })
            }
        }
    }
}

impl DirectoryTask {
    /// Reads the names in the directory and the ignore files among them.
    fn list(
        &self,
        inside: &EnteredRoot<'_>,
        query: &SearchQuery,
        is_over: &dyn Fn() -> bool,
        summary: &mut SearchSummary,
    ) -> Result<ListedDirectory, FileError> {
        let path = &self.path;
        let directory = inside.open(path, OPEN_TO_LIST, Mode::empty()).map_err(FileError::at(path))?;
        let mut names = RuleFileNames::NONE;
        let mut entries = Vec::new();
        let listed = each_entry(&directory, &mut buffer(), |name, listed_kind| {
            let name = OsStr::from_bytes(name.to_bytes());
            names.note(name);
            entries.push(TreeEntry { name: name.to_owned(), listed_kind });
            if is_over() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if let Err(error) = listed {
            summary.add_error(path, io::Error::from(error));
        }
        let mut rules = None;
        if query.respect_ignore {
            let above = self.rules_above.as_ref();
            rules = DirectoryRules::read(inside, path, names, above, RulesOrigin::InTree, summary)
                .map_err(skipped_directory_error)?;
        }
        let mut ancestors = None;
        if query.follow_symlinks {
            let identity = FileIdentity::of(&stat_open(&directory).map_err(FileError::at(path))?);
            let above = self.ancestors.clone();
            ancestors = Some(Arc::new(Ancestor { path: path.clone(), identity, above }));
        }
        Ok(ListedDirectory { directory, entries, depth: self.depth, rules, ancestors })
    }
}

/// The rules of all directories above the root. The rules of the root itself are read too, only to fail early if they cannot be read; they
/// are read again when the root is listed.
fn rules_above(
    inside: &EnteredRoot<'_>,
    canonical_root: &Path,
    summary: &mut SearchSummary,
) -> Result<Option<Arc<DirectoryRules>>, UnreadableRules> {
    let above: Vec<&Path> = canonical_root.ancestors().skip(1).collect();
    let mut rules = None;
    for directory in above.into_iter().rev() {
        rules = DirectoryRules::read(
            inside,
            directory,
            RuleFileNames::ALL_POSSIBLE,
            rules.as_ref(),
            RulesOrigin::AboveRoot,
            summary,
        )?;
    }
    let mut ignored_summary = SearchSummary::default();
    DirectoryRules::read(
        inside,
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
