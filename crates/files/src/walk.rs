//! Listing a directory tree level by level, within limits. Start reading at [`walk`]. Searches do not use this walk
//! but the one in `search/walk.rs`, which obeys ignore files.

use std::cell::Cell;
use std::collections::{HashSet, VecDeque};
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{FileType, Mode, OFlags, Statx};
use rustix::io::Errno;

use crate::listing::{OPEN_TO_LIST, buffer, each_entry};
use crate::names::SortableNames;
use crate::root::{EnteredRoot, EntryAt};
use crate::stat::{FileIdentity, kind};
use crate::{Cancel, FileError, FileRoot};

/// A walk with a larger [`TreeWalkOptions::max_depth`] is refused.
pub const MAX_DEPTH: usize = 64;
/// A walk with a larger [`TreeWalkOptions::max_directories`] is refused.
pub const MAX_DIRECTORIES: usize = 10_000;
/// A walk with a larger [`TreeWalkOptions::max_entries`] is refused.
pub const MAX_ENTRIES: usize = 50_000;
/// Most directories that stay open while some of their subdirectories are in the queue, so that the subdirectories can be opened relative
/// to them. When this many are open, further subdirectories are opened by their whole path.
const MAX_OPEN_DIRECTORIES: usize = 128;

/// The limits of a walk, and its choice of the directories that it enters. To *visit* an entry is to pass it to the
/// visitor, a callback. To *enter* a directory is to list its entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeWalkOptions {
    /// Directories deeper than this are visited but not entered. The root has depth 0. At most 64.
    pub max_depth: usize,
    /// Most directories that are entered, including the root. Between 1 and 10,000.
    pub max_directories: usize,
    /// Most names that are examined, including those that are not visited. Between 1 and 50,000.
    pub max_entries: usize,
    /// Whether symbolic links to directories are visited and entered as directories. A directory to which several
    /// links lead is entered once. Without this, symbolic links are not visited. Links to files are never visited.
    pub follow_directory_symlinks: bool,
    /// Whether directories whose name begins with a dot are visited but not entered.
    pub prune_hidden_directories: bool,
}

impl TreeWalkOptions {
    /// Fails if a limit is outside of its range. `root` is the path in the error.
    fn check(&self, root: &Path) -> Result<(), FileError> {
        if self.max_directories == 0 || self.max_entries == 0 {
            return Err(FileError::refused("filesystem walk limits must be greater than zero", root));
        }
        if self.max_depth > MAX_DEPTH || self.max_directories > MAX_DIRECTORIES || self.max_entries > MAX_ENTRIES {
            let text = format!(
                "filesystem walk limits exceed maximums: depth={MAX_DEPTH}, directories={MAX_DIRECTORIES}, \
                 entries={MAX_ENTRIES}"
            );
            return Err(FileError::refused(text, root));
        }
        Ok(())
    }
}

/// The kind of a visited entry. Entries of other kinds are not visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A directory, or a symbolic link to one if those are followed.
    Directory,
    /// A regular file.
    File,
}

/// The argument of the visitor, which a walk calls for each entry and each error.
#[derive(Debug)]
pub enum WalkItem<'a> {
    /// A directory or a regular file.
    Entry {
        /// The path, which begins with the root as it was given.
        path: &'a Path,
        /// Whether it is a directory or a file.
        kind: EntryKind,
    },
    /// An entry that could not be examined or a directory that could not be listed. The walk continues.
    Error {
        /// The path, which begins with the root as it was given.
        path: &'a Path,
        /// The error of the operating system.
        error: FileError,
    },
}

/// The result of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkSummary {
    /// Whether `max_directories` or `max_entries` was exceeded or the visitor returned `Break`, so that there may be
    /// more entries. `max_depth` does not count.
    pub truncated: bool,
}

/// Visits the directories and files below `root`, breadth first, and in each directory in byte order of the names. A
/// root that is not a directory, or is a symbolic link and links are not followed, has no entries. The walk ends when
/// `visit` returns `Break`.
pub fn walk(
    file_root: &FileRoot,
    root: &Path,
    options: &TreeWalkOptions,
    cancel: &Cancel,
    visit: &mut dyn FnMut(WalkItem<'_>) -> ControlFlow<()>,
) -> Result<WalkSummary, FileError> {
    options.check(root)?;
    cancel.check()?;
    file_root.run(&[root], |inside| walk_inside(inside, root, options, cancel, visit))
}

fn walk_inside(
    inside: &EnteredRoot<'_>,
    root: &Path,
    options: &TreeWalkOptions,
    cancel: &Cancel,
    visit: &mut dyn FnMut(WalkItem<'_>) -> ControlFlow<()>,
) -> Result<WalkSummary, FileError> {
    let mut found = inside.stat_itself(root).map_err(FileError::at(root))?;
    if kind(&found) == FileType::Symlink && options.follow_directory_symlinks {
        found = inside.stat(root).map_err(FileError::at(root))?;
    }
    if kind(&found) != FileType::Directory {
        return Ok(WalkSummary { truncated: false });
    }
    let mut walk = TreeWalk {
        inside,
        options,
        cancel,
        visit,
        queue: VecDeque::new(),
        seen: HashSet::from([FileIdentity::of(&found)]),
        open_count: Rc::default(),
        directories: 1,
        examined: 0,
        truncated: false,
        names: SortableNames::default(),
        buffer: buffer(),
    };
    walk.queue.push_back(QueuedDirectory { path: root.to_owned(), above: None, depth: 0 });
    while let Some(next) = walk.queue.pop_front() {
        cancel.check()?;
        if walk.list(&next)?.is_break() {
            walk.truncated = true;
            break;
        }
    }
    Ok(WalkSummary { truncated: walk.truncated })
}

struct TreeWalk<'a> {
    inside: &'a EnteredRoot<'a>,
    options: &'a TreeWalkOptions,
    cancel: &'a Cancel,
    visit: &'a mut dyn FnMut(WalkItem<'_>) -> ControlFlow<()>,
    queue: VecDeque<QueuedDirectory>,
    /// Directories that were entered or are in the queue. If links are not followed, no link can lead to a directory
    /// a second time, so only the root is added.
    seen: HashSet<FileIdentity>,
    /// Number of the [`OpenDirectory`]s of this walk.
    open_count: Rc<Cell<usize>>,
    /// Number of directories that were entered or are in the queue.
    directories: usize,
    /// Number of names that were examined.
    examined: usize,
    truncated: bool,
    names: SortableNames,
    buffer: Vec<u8>,
}

/// A directory that is not yet listed.
struct QueuedDirectory {
    path: PathBuf,
    /// The parent directory. `None` for the root, and if too many directories are open.
    above: Option<Rc<OpenDirectory>>,
    depth: usize,
}

/// A directory that stays open while subdirectories of it are in the queue. All such directories of a walk share
/// `count`, their number.
struct OpenDirectory {
    directory: OwnedFd,
    count: Rc<Cell<usize>>,
}

impl Drop for OpenDirectory {
    fn drop(&mut self) {
        self.count.set(self.count.get() - 1);
    }
}

impl TreeWalk<'_> {
    /// Lists a directory and visits its entries. Errors go to the visitor; this fails only after a cancellation.
    fn list(&mut self, queued: &QueuedDirectory) -> Result<ControlFlow<()>, FileError> {
        let directory = match self.open(queued) {
            Ok(directory) => Rc::new(directory),
            Err(error) => return Ok(self.report(&queued.path, error)),
        };
        let mut names = std::mem::take(&mut self.names);
        names.clear();
        // One more than may be examined, to learn whether the limit cuts the listing off.
        let wanted = self.options.max_entries - self.examined + 1;
        let listed = each_entry(&directory.directory, &mut self.buffer, |name, kind| {
            names.push(name, kind, wanted);
            if self.cancel.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        self.cancel.check()?;
        names.sort();
        let mut flow = listed.map_or_else(|error| self.report(&queued.path, error), ControlFlow::Continue);
        if flow.is_continue() {
            flow = self.examine(queued, &directory, &names);
        }
        self.names = names;
        Ok(flow)
    }

    fn open(&self, queued: &QueuedDirectory) -> Result<OpenDirectory, Errno> {
        let follows = self.options.follow_directory_symlinks;
        let directory = match (&queued.above, queued.path.file_name()) {
            (Some(above), Some(name)) => {
                let entry = EntryAt::new(&above.directory, name);
                if follows {
                    self.inside.open_following(entry, &queued.path, OPEN_TO_LIST)
                } else {
                    entry.open(OPEN_TO_LIST, Mode::empty())
                }
            }
            _ => {
                let flags = if follows { OPEN_TO_LIST } else { OPEN_TO_LIST | OFlags::NOFOLLOW };
                self.inside.open(&queued.path, flags, Mode::empty())
            }
        }?;
        self.open_count.set(self.open_count.get() + 1);
        Ok(OpenDirectory { directory, count: Rc::clone(&self.open_count) })
    }

    /// Visits the entries with these names, and adds the directories among them to the queue.
    fn examine(
        &mut self,
        queued: &QueuedDirectory,
        directory: &Rc<OpenDirectory>,
        names: &SortableNames,
    ) -> ControlFlow<()> {
        let mut path = queued.path.as_os_str().as_bytes().to_vec();
        if path.last() != Some(&b'/') {
            path.push(b'/');
        }
        let length = path.len();
        for (name, listed_kind) in names.iter() {
            if self.examined == self.options.max_entries {
                return ControlFlow::Break(());
            }
            self.examined += 1;
            path.truncate(length);
            path.extend_from_slice(name.as_bytes());
            let entry_path = Path::new(OsStr::from_bytes(&path));
            match self.entry_kind(EntryAt::new(&directory.directory, name), entry_path, listed_kind) {
                Ok(Some(kind)) => {
                    (self.visit)(WalkItem::Entry { path: entry_path, kind })?;
                    if kind == EntryKind::Directory
                        && let Err(error) = self.enqueue(queued, directory, name, entry_path)
                    {
                        self.report(entry_path, error)?;
                    }
                }
                Ok(None) => {}
                Err(error) => self.report(entry_path, error)?,
            }
        }
        ControlFlow::Continue(())
    }

    /// The kind of an entry, or `None` if it is not visited.
    fn entry_kind(&self, entry: EntryAt<'_>, path: &Path, listed: FileType) -> Result<Option<EntryKind>, Errno> {
        let kind_of = |found: Result<Statx, Errno>| match found {
            Ok(stat) => Ok(kind(&stat)),
            // The entry was removed meanwhile, or it is a link without a target.
            Err(Errno::NOENT) => Ok(FileType::Unknown),
            Err(error) => Err(error),
        };
        let own = if listed == FileType::Unknown { kind_of(entry.stat())? } else { listed };
        Ok(match own {
            FileType::Directory => Some(EntryKind::Directory),
            FileType::RegularFile => Some(EntryKind::File),
            FileType::Symlink if self.options.follow_directory_symlinks => {
                let target = kind_of(self.inside.stat_following(entry, path))?;
                (target == FileType::Directory).then_some(EntryKind::Directory)
            }
            _ => None,
        })
    }

    /// Adds a directory to the queue, unless the options or the limits forbid it.
    fn enqueue(
        &mut self,
        parent: &QueuedDirectory,
        directory: &Rc<OpenDirectory>,
        name: &OsStr,
        path: &Path,
    ) -> Result<(), Errno> {
        let is_hidden = name.as_bytes().starts_with(b".");
        if parent.depth >= self.options.max_depth || self.options.prune_hidden_directories && is_hidden {
            return Ok(());
        }
        let identity = if self.options.follow_directory_symlinks {
            let entry = EntryAt::new(&directory.directory, name);
            let identity = FileIdentity::of(&self.inside.stat_following(entry, path)?);
            if self.seen.contains(&identity) {
                return Ok(());
            }
            Some(identity)
        } else {
            None
        };
        if self.directories == self.options.max_directories {
            self.truncated = true;
            return Ok(());
        }
        self.directories += 1;
        self.seen.extend(identity);
        let above = (self.open_count.get() <= MAX_OPEN_DIRECTORIES).then(|| Rc::clone(directory));
        self.queue.push_back(QueuedDirectory { path: path.to_owned(), above, depth: parent.depth + 1 });
        Ok(())
    }

    fn report(&mut self, path: &Path, error: Errno) -> ControlFlow<()> {
        (self.visit)(WalkItem::Error { path, error: FileError::os(error, path) })
    }
}
