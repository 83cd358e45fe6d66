//! Listing a tree, level by level, within limits.

use std::cell::Cell;
use std::collections::{HashSet, VecDeque};
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, openat};
use rustix::io::Errno;

use crate::listing::{READABLE, buffer, each_entry};
use crate::names::Names;
use crate::stat::{Identity, kind, stat};
use crate::{Cancel, FileError};

const MOST_DEPTH: usize = 64;
const MOST_DIRECTORIES: usize = 10_000;
const MOST_ENTRIES: usize = 50_000;
/// Directories held open for those below them that wait; beyond that, those are opened by their whole path.
const HELD_OPEN: usize = 128;

/// How far a walk goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeWalkOptions {
    /// Directories deeper than this below the root are listed but not opened.
    pub max_depth: usize,
    /// So many directories are opened, with the root.
    pub max_directories: usize,
    /// So many names are looked at.
    pub max_entries: usize,
    /// Whether links to directories are listed and entered.
    pub follow_directory_symlinks: bool,
    /// Directories whose name begins with a dot are listed but not opened.
    pub prune_hidden_directories: bool,
}

impl TreeWalkOptions {
    /// Refuses limits that are zero or more than anybody may ask for.
    pub fn check(&self, root: &Path) -> Result<(), FileError> {
        if self.max_directories == 0 || self.max_entries == 0 {
            return Err(FileError::refused("filesystem walk limits must be greater than zero", root));
        }
        if self.max_depth > MOST_DEPTH || self.max_directories > MOST_DIRECTORIES || self.max_entries > MOST_ENTRIES {
            let text = format!(
                "filesystem walk limits exceed maximums: depth={MOST_DEPTH}, directories={MOST_DIRECTORIES}, \
                 entries={MOST_ENTRIES}"
            );
            return Err(FileError::refused(text, root));
        }
        Ok(())
    }
}

/// What a name in a tree is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A directory, or a link to one that is followed.
    Directory,
    /// A regular file.
    File,
}

/// What a walk comes by.
#[derive(Debug)]
pub enum WalkItem<'a> {
    /// A directory or a file.
    Entry {
        /// Where it is.
        path: &'a Path,
        /// What it is.
        kind: EntryKind,
    },
    /// Something that could not be looked at; the walk goes on.
    Error {
        /// Where it is.
        path: &'a Path,
        /// Why not.
        error: FileError,
    },
}

/// How a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkSummary {
    /// A limit was reached or the visitor had enough: there is more.
    pub truncated: bool,
}

/// Visits what is below `root`, breadth first and in each directory in the order of the bytes of the names. A root that is no
/// directory has nothing below it.
pub fn walk(
    root: &Path,
    options: &TreeWalkOptions,
    cancel: &Cancel,
    visit: &mut dyn FnMut(WalkItem<'_>) -> ControlFlow<()>,
) -> Result<WalkSummary, FileError> {
    options.check(root)?;
    cancel.check()?;
    let mut found = stat(CWD, root, AtFlags::SYMLINK_NOFOLLOW).map_err(FileError::at(root))?;
    if kind(&found) == FileType::Symlink && options.follow_directory_symlinks {
        found = stat(CWD, root, AtFlags::empty()).map_err(FileError::at(root))?;
    }
    if kind(&found) != FileType::Directory {
        return Ok(WalkSummary { truncated: false });
    }
    let mut walk = Walk {
        options,
        cancel,
        visit,
        waiting: VecDeque::new(),
        met: HashSet::from([Identity::of(&found)]),
        held: Rc::default(),
        directories: 1,
        examined: 0,
        truncated: false,
        names: Names::default(),
        buffer: buffer(),
    };
    walk.waiting.push_back(Waiting { path: root.to_owned(), above: None, depth: 0 });
    while let Some(next) = walk.waiting.pop_front() {
        cancel.check()?;
        if walk.list(&next)?.is_break() {
            walk.truncated = true;
            break;
        }
    }
    Ok(WalkSummary { truncated: walk.truncated })
}

struct Walk<'a> {
    options: &'a TreeWalkOptions,
    cancel: &'a Cancel,
    visit: &'a mut dyn FnMut(WalkItem<'_>) -> ControlFlow<()>,
    waiting: VecDeque<Waiting>,
    /// What was entered or waits to be; needed only where links can lead back.
    met: HashSet<Identity>,
    held: Rc<Cell<usize>>,
    directories: usize,
    examined: usize,
    truncated: bool,
    names: Names,
    buffer: Vec<u8>,
}

/// A directory that has yet to be listed.
struct Waiting {
    path: PathBuf,
    above: Option<Rc<Held>>,
    depth: usize,
}

/// A directory that is open while something below it waits.
struct Held {
    directory: OwnedFd,
    count: Rc<Cell<usize>>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.count.set(self.count.get() - 1);
    }
}

impl Walk<'_> {
    fn list(&mut self, waiting: &Waiting) -> Result<ControlFlow<()>, FileError> {
        let directory = match self.open(waiting) {
            Ok(directory) => Rc::new(directory),
            Err(error) => return Ok(self.report(&waiting.path, error)),
        };
        let mut names = std::mem::take(&mut self.names);
        names.clear();
        // One more than may be examined, to know that there is one.
        let wanted = self.options.max_entries - self.examined + 1;
        let listed = each_entry(&directory.directory, &mut self.buffer, |name, kind| {
            names.push(name, kind, wanted);
            if self.cancel.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        self.cancel.check()?;
        names.sort();
        let mut flow = listed.map_or_else(|error| self.report(&waiting.path, error), ControlFlow::Continue);
        if flow.is_continue() {
            flow = self.examine(waiting, &directory, &names);
        }
        self.names = names;
        Ok(flow)
    }

    fn open(&self, waiting: &Waiting) -> Result<Held, Errno> {
        let follows = self.options.follow_directory_symlinks;
        let flags = if follows { READABLE } else { READABLE | OFlags::NOFOLLOW };
        let directory = match (&waiting.above, waiting.path.file_name()) {
            (Some(above), Some(name)) => openat(&above.directory, name, flags, Mode::empty()),
            _ => openat(CWD, &waiting.path, flags, Mode::empty()),
        }?;
        self.held.set(self.held.get() + 1);
        Ok(Held { directory, count: Rc::clone(&self.held) })
    }

    fn examine(&mut self, waiting: &Waiting, directory: &Rc<Held>, names: &Names) -> ControlFlow<()> {
        let mut path = waiting.path.as_os_str().as_bytes().to_vec();
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
            let here = Path::new(OsStr::from_bytes(&path));
            match self.entry_kind(directory, name, listed_kind) {
                Ok(Some(kind)) => {
                    (self.visit)(WalkItem::Entry { path: here, kind })?;
                    if kind == EntryKind::Directory
                        && let Err(error) = self.enqueue(waiting, directory, name, here)
                    {
                        self.report(here, error)?;
                    }
                }
                Ok(None) => {}
                Err(error) => self.report(here, error)?,
            }
        }
        ControlFlow::Continue(())
    }

    /// What a name is listed as, if at all.
    fn entry_kind(&self, directory: &Held, name: &OsStr, listed: FileType) -> Result<Option<EntryKind>, Errno> {
        let look = |flags| match stat(&directory.directory, name, flags) {
            Ok(stat) => Ok(kind(&stat)),
            // It is gone, or it is a link that leads nowhere.
            Err(Errno::NOENT) => Ok(FileType::Unknown),
            Err(error) => Err(error),
        };
        let own = if listed == FileType::Unknown { look(AtFlags::SYMLINK_NOFOLLOW)? } else { listed };
        Ok(match own {
            FileType::Directory => Some(EntryKind::Directory),
            FileType::RegularFile => Some(EntryKind::File),
            FileType::Symlink if self.options.follow_directory_symlinks => {
                (look(AtFlags::empty())? == FileType::Directory).then_some(EntryKind::Directory)
            }
            _ => None,
        })
    }

    /// Lets a directory wait to be listed, if it is to be.
    fn enqueue(&mut self, parent: &Waiting, directory: &Rc<Held>, name: &OsStr, path: &Path) -> Result<(), Errno> {
        let is_hidden = name.as_bytes().starts_with(b".");
        if parent.depth >= self.options.max_depth || self.options.prune_hidden_directories && is_hidden {
            return Ok(());
        }
        let identity = if self.options.follow_directory_symlinks {
            let identity = Identity::of(&stat(&directory.directory, name, AtFlags::empty())?);
            if self.met.contains(&identity) {
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
        self.met.extend(identity);
        let above = (self.held.get() <= HELD_OPEN).then(|| Rc::clone(directory));
        self.waiting.push_back(Waiting { path: path.to_owned(), above, depth: parent.depth + 1 });
        Ok(())
    }

    fn report(&mut self, path: &Path, error: Errno) -> ControlFlow<()> {
        (self.visit)(WalkItem::Error { path, error: FileError::os(error, path) })
    }
}
