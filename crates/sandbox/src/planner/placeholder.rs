//! Empty directories on the host on which something is mounted, because a protected path does not exist. Several
//! sandboxes, also of several servers, can use the same one. Each user holds a shared lock on the directory, and the
//! last one removes it. A directory that is not empty is never removed.
//!
//! A placeholder is recognised by its unusual permissions. So one that was left behind, because all processes of a server
//! were killed at once, is removed by the next sandbox that needs it.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, fchmod, flock, fstat, mkdirat, openat, unlinkat};
use rustix::io::Errno;

use crate::file_id::{FileFacts, FileId};

/// Readable for all, writable for nobody, with the sticky bit, which means nothing for a directory that nobody may write.
const PLACEHOLDER_MODE: Mode = Mode::from_raw_mode(0o1555);

/// How often a placeholder is made again because another process has removed it meanwhile.
const MAX_ATTEMPTS: usize = 100;

/// Is told of placeholders, so that they can be removed if this process is killed.
pub trait PlaceholderNotes: Send + Sync {
    /// The placeholder at this path is about to be made.
    fn add(&self, path: &Path);
    /// This process does not use the placeholder at this path any more.
    fn remove(&self, path: &Path);
}

/// A use of a placeholder. Dropping it removes the directory, unless another sandbox uses it.
pub struct Placeholder {
    path: PathBuf,
    /// None only while the value is dropped.
    lock: Option<Arc<PlaceholderLock>>,
    id: FileId,
    notes: Option<Arc<dyn PlaceholderNotes>>,
}

/// The shared lock on a placeholder. All sandboxes of this process that use the same directory share one, because each takes a descriptor and
/// a policy can name a thousand directories.
struct PlaceholderLock {
    path: PathBuf,
    id: FileId,
    directory: OwnedFd,
}

/// The locks that exist in this process.
static LOCKS: Mutex<BTreeMap<PathBuf, Weak<PlaceholderLock>>> = Mutex::new(BTreeMap::new());

impl fmt::Debug for Placeholder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Placeholder({})", self.path.display())
    }
}

impl Placeholder {
    /// Makes the directory, or uses the one that another sandbox has made. The parent directory must exist.
    pub(super) fn make(path: &Path, notes: Option<Arc<dyn PlaceholderNotes>>) -> io::Result<Self> {
        if let Some(notes) = &notes {
            notes.add(path);
        }
        match PlaceholderLock::shared(path) {
            Ok(lock) => Ok(Self { path: path.to_owned(), id: lock.id, lock: Some(lock), notes }),
            Err(error) => {
                if let Some(notes) = notes {
                    notes.remove(path);
                }
                Err(error)
            }
        }
    }

    pub(super) fn id(&self) -> FileId {
        self.id
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl PlaceholderLock {
    /// The lock that this process has already, or a new one.
    fn shared(path: &Path) -> io::Result<Arc<Self>> {
        let mut locks = LOCKS.lock().unwrap_or_else(PoisonError::into_inner);
        let known = locks.get(path).and_then(Weak::upgrade);
        if let Some(known) = &known
            && FileFacts::of_path(path).is_ok_and(|facts| facts.id == known.id)
        {
            return Ok(Arc::clone(known));
        }
        // Somebody has removed the directory, and may have made another one in its place.
        let lock = Self::take(path).map(|(id, directory)| Arc::new(Self { path: path.to_owned(), id, directory }));
        if let Ok(lock) = &lock {
            locks.insert(path.to_owned(), Arc::downgrade(lock));
        }
        // Before the old lock is dropped, which needs the list of locks.
        drop(locks);
        lock
    }

    fn take(path: &Path) -> io::Result<(FileId, OwnedFd)> {
        for _ in 0..MAX_ATTEMPTS {
            let is_new = match mkdirat(CWD, path, PLACEHOLDER_MODE) {
                Ok(()) => true,
                Err(Errno::EXIST) => false,
                Err(error) => return Err(error.into()),
            };
            let directory = match open_directory(path) {
                Err(Errno::NOENT) => continue,
                other => other?,
            };
            flock(&directory, FlockOperation::LockShared)?;
            let facts = FileFacts::of_open(&directory)?;
            // The umask may have taken permissions away. The mode is set through the descriptor: a command that may write
            // the parent directory could put something else at the path meanwhile.
            if is_new && facts.mode & !PLACEHOLDER_MODE.as_raw_mode() == 0 && facts.is_own() {
                fchmod(&directory, PLACEHOLDER_MODE)?;
            }
            // Another process may have removed the directory before the lock was there.
            if fstat(&directory)?.st_nlink > 0 {
                return Ok((facts.id, directory));
            }
        }
        Err(io::Error::other("another process removes it again and again"))
    }
}

impl Drop for PlaceholderLock {
    fn drop(&mut self) {
        let mut locks = LOCKS.lock().unwrap_or_else(PoisonError::into_inner);
        if locks.get(&self.path).is_some_and(|known| known.strong_count() == 0) {
            locks.remove(&self.path);
        }
        drop(locks);
        // Closing would not be enough: a process that is being started has copies of all descriptors until it executes its program, and
        // with a copy the lock would stay.
        let _not_possible_for_an_open_directory = flock(&self.directory, FlockOperation::Unlock);
        remove_unused_placeholder(&self.path);
    }
}

impl Drop for Placeholder {
    fn drop(&mut self) {
        // The notes must keep the path until the directory is removed, so this use of the lock ends first.
        drop(self.lock.take());
        if let Some(notes) = &self.notes {
            notes.remove(&self.path);
        }
    }
}

/// Removes the placeholder at a path, if it is one, is empty and no sandbox uses it. Errors are ignored: the directory is then removed by a
/// later user.
pub fn remove_unused_placeholder(path: &Path) {
    let Ok(directory) = open_directory(path) else { return };
    let looks_like_one = FileFacts::of_open(&directory).is_ok_and(|facts| has_permissions(&facts));
    if looks_like_one && flock(directory.as_fd(), FlockOperation::NonBlockingLockExclusive).is_ok() {
        let _not_empty_or_replaced = unlinkat(CWD, path, AtFlags::REMOVEDIR);
    }
}

/// Whether the file at a path, about which the kernel says this, is a placeholder. Somebody else may have filled it; then it is a directory
/// like any other.
pub(super) fn is_placeholder(path: &Path, facts: &FileFacts) -> bool {
    has_permissions(facts) && std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

/// Whether a directory has the permissions of a placeholder and belongs to this user.
fn has_permissions(facts: &FileFacts) -> bool {
    facts.is_directory() && facts.mode == PLACEHOLDER_MODE.as_raw_mode() && facts.is_own()
}

fn open_directory(path: &Path) -> Result<OwnedFd, Errno> {
    openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}
