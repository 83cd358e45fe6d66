//! Placeholders: empty directories on the host on which something is mounted, because a protected path does not exist. Several
//! sandboxes, also of several servers, can use the same placeholder. Each server that uses it holds a shared lock on the directory,
//! and the last server removes it. A directory that is not empty is never removed.
//!
//! A placeholder is recognised by its unusual permissions. A placeholder is left behind if all processes of a server are killed
//! at once. The next sandbox that needs it uses it, and removes it at its end.
//!
//! Commands may be able to open a placeholder and to lock it, and to put links where its parent directories were. So
//! nothing here waits for a lock longer than [`MAX_ATTEMPTS`] times [`LOCKED_PAUSE`], and nothing is made or removed through a link.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, ResolveFlags, chmodat, fchmod, flock, mkdirat, openat, openat2,
    unlinkat,
};
use rustix::io::Errno;

use super::placeholder_paths::PlaceholderPaths;
use crate::file_id::{FileFacts, FileId};

/// Writable for nobody, with the sticky bit, which means nothing for a directory that nobody may write. Readable only for the user of the
/// server: whoever can read a directory can lock it, and a locked placeholder cannot be used.
const PLACEHOLDER_MODE: Mode = Mode::from_raw_mode(0o1500);

/// The bits by which a placeholder is recognised: the sticky bit, and no right to write. Other bits may be missing: a umask takes them away,
/// and a server may be killed before it sets them again.
const RECOGNISED_BITS: u32 = 0o7222;
const RECOGNISED_VALUE: u32 = 0o1000;

/// How often a placeholder is tried again, because another process removes it at the same time or has locked it.
const MAX_ATTEMPTS: u32 = 50;

/// The pause after an attempt that has found a lock. A process that removes a placeholder locks it for a moment.
const LOCKED_PAUSE: Duration = Duration::from_millis(1);

/// Is told of placeholders, so that they can be removed if this process is killed.
pub trait PlaceholderNotes: Send + Sync {
    /// A sandbox is about to use placeholders at these paths, and makes those that do not exist.
    fn add(&self, paths: &[PathBuf]);
    /// A sandbox does not use the placeholders at these paths any more. Other sandboxes of this process may still use them. For each path
    /// that `add` was told of, either this or `leave` is called once.
    fn remove(&self, paths: &[PathBuf]);
    /// A sandbox does not use the placeholders at these paths any more, and could not remove them. They may still exist when this process
    /// ends.
    fn leave(&self, paths: &[PathBuf]);
}

/// A user of placeholders that has its own limit for them, for example a session. Copies of this value are the same owner.
#[derive(Clone, Default)]
pub struct PlaceholderOwner {
    notes: Option<Arc<dyn PlaceholderNotes>>,
    /// How many placeholders the owner has locked. A placeholder that another owner of this process locked first counts for that owner only.
    count: Arc<AtomicUsize>,
}

impl PlaceholderOwner {
    /// An owner whose placeholders are reported to `notes`.
    pub fn new(notes: Arc<dyn PlaceholderNotes>) -> Self {
        Self { notes: Some(notes), count: Arc::default() }
    }

    /// Counts one more placeholder.
    pub(super) fn take_share(&self) -> Result<PlaceholderShare, PlaceholderError> {
        let most = MAX_PLACEHOLDERS_OF_OWNER.min(most_placeholders() / OWNER_DIVISOR);
        // Dropping the share takes it back.
        let share = PlaceholderShare { count: Arc::clone(&self.count) };
        if self.count.fetch_add(1, Ordering::Relaxed) >= most {
            return Err(PlaceholderError::OwnerHasTooMany);
        }
        if known_placeholders() >= most_placeholders() {
            return Err(PlaceholderError::ProcessHasTooMany);
        }
        Ok(share)
    }
}

/// Counts as one placeholder of an owner until it is dropped.
pub(super) struct PlaceholderShare {
    count: Arc<AtomicUsize>,
}

impl Drop for PlaceholderShare {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The most placeholders of an owner. Enough for two policies with a thousand writable directories each.
pub const MAX_PLACEHOLDERS_OF_OWNER: usize = 8192;

/// If the server may have only few descriptors, an owner gets at most the placeholders of the whole process divided by this number.
const OWNER_DIVISOR: usize = 2;

/// Why a placeholder cannot be used.
#[derive(Debug)]
pub(super) enum PlaceholderError {
    /// The owner has as many placeholders as it may have.
    OwnerHasTooMany,
    /// All owners together have as many placeholders as this process may have.
    ProcessHasTooMany,
    /// Another process, which may be a command, holds an exclusive lock on the directory.
    Locked,
    /// The directory could not be made, opened or locked.
    Host(io::Error),
}

/// The placeholders of a plan. Dropping this removes the directories that no other sandbox uses.
#[derive(Default)]
pub struct Placeholders {
    /// The paths that the notes were told of. Shared, so that they can be looked at while the sandbox ends.
    noted: Arc<PlaceholderPaths>,
    used: Vec<Arc<LockedPlaceholder>>,
    owner: PlaceholderOwner,
}

/// A directory with the shared lock of this process. All sandboxes of this process that use the same directory share this value,
/// because each lock takes a descriptor and a policy can name a thousand directories.
struct LockedPlaceholder {
    path: PathBuf,
    id: FileId,
    directory: OwnedFd,
    /// Whether the lock was released, so that dropping this value has nothing left to do.
    is_given_up: bool,
    _share: PlaceholderShare,
}

/// A placeholder that a sandbox of this process uses, or has used.
struct KnownPlaceholder {
    id: FileId,
    lock: Weak<LockedPlaceholder>,
}

/// The placeholders of this process.
static KNOWN: Mutex<Option<HashMap<PathBuf, KnownPlaceholder>>> = Mutex::new(None);

impl std::fmt::Debug for Placeholders {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(self.used.iter().map(|locked| &locked.path)).finish()
    }
}

impl Placeholders {
    /// No placeholders yet. Those at `paths` are about to be added.
    pub(super) fn new(paths: Vec<PathBuf>, owner: PlaceholderOwner) -> Self {
        if let Some(notes) = owner.notes.as_ref().filter(|_| !paths.is_empty()) {
            notes.add(&paths);
        }
        Self { noted: Arc::new(PlaceholderPaths::new(paths)), used: Vec::new(), owner }
    }

    /// Makes a directory, or uses the one that another sandbox has made. The parent directory must exist, and its path must have no link.
    /// `seen` is the placeholder that was just found at the path. `parents` has the parent directory that was opened last.
    pub(super) fn add(
        &mut self,
        path: &Path,
        seen: Option<FileId>,
        parents: &mut LastParent,
    ) -> Result<FileId, PlaceholderError> {
        for _ in 0..MAX_ATTEMPTS {
            let known = LockedPlaceholder::known(path, seen);
            let locked = match known {
                Some(known) => Ok(known),
                None => {
                    let share = self.owner.take_share()?;
                    LockedPlaceholder::take(path, share, parents)
                }
            };
            match locked {
                Ok(locked) => {
                    let id = locked.id;
                    self.used.push(locked);
                    return Ok(id);
                }
                Err(Errno::WOULDBLOCK) => std::thread::sleep(LOCKED_PAUSE),
                // Somebody has put something else at the path, or a link above it. Another plan may succeed.
                Err(Errno::LOOP | Errno::NOTDIR) => {
                    return Err(PlaceholderError::Host(io::ErrorKind::NotFound.into()));
                }
                Err(error) => return Err(PlaceholderError::Host(error.into())),
            }
        }
        Err(PlaceholderError::Locked)
    }

    /// The paths of the directories. Also has paths at which neither the server nor a command can make anything.
    pub fn paths(&self) -> &Arc<PlaceholderPaths> {
        &self.noted
    }
}

impl Drop for Placeholders {
    fn drop(&mut self) {
        let mut parents = LastParent::default();
        let mut left = HashSet::new();
        for locked in self.used.drain(..) {
            // None if another sandbox of this process uses the directory too.
            if let Some(mut locked) = Arc::into_inner(locked)
                && !locked.give_up(&mut parents)
            {
                left.insert(locked.path.clone());
            }
        }
        if let Some(all) = KNOWN.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            for path in self.noted.as_slice() {
                if all.get(path).is_some_and(|known| known.lock.strong_count() == 0) {
                    all.remove(path);
                }
            }
        }
        let Some(notes) = self.owner.notes.as_ref().filter(|_| !self.noted.is_empty()) else { return };
        // The notes keep the directories that could not be removed, so that the guard tries again when the server has ended.
        let (left, removed): (Vec<_>, Vec<_>) =
            self.noted.as_slice().iter().cloned().partition(|path| left.contains(path));
        notes.leave(&left);
        notes.remove(&removed);
    }
}

impl LockedPlaceholder {
    /// The lock that this process has already on the placeholder that was seen at the path.
    fn known(path: &Path, seen: Option<FileId>) -> Option<Arc<Self>> {
        let all = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.as_ref()?.get(path)?.lock.upgrade()?;
        (Some(known.id) == seen).then_some(known)
    }

    /// Makes the directory if it does not exist, and locks it. [`KNOWN`] is not locked meanwhile, because a file system can hang.
    fn take(path: &Path, share: PlaceholderShare, parents: &mut LastParent) -> Result<Arc<Self>, Errno> {
        let (parent, name) = parents.split(path)?;
        let (id, directory) = take(parent, name)?;
        let locked = Arc::new(Self { path: path.to_owned(), id, directory, is_given_up: false, _share: share });
        let mut all = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let all_paths = all.get_or_insert_default();
        // Another thread may have locked the same directory meanwhile.
        if let Some(known) = all_paths.get(path).and_then(|known| known.lock.upgrade()).filter(|known| known.id == id)
        {
            // Dropping the second lock, `locked`, accesses files, which can hang. So `KNOWN` is unlocked first.
            drop(all);
            return Ok(known);
        }
        all_paths.insert(path.to_owned(), KnownPlaceholder { id, lock: Arc::downgrade(&locked) });
        Ok(locked)
    }

    /// Ends the use of the directory, and removes it, unless another process uses it or it is not empty. Returns whether there is nothing
    /// left to do.
    fn give_up(&mut self, parents: &mut LastParent) -> bool {
        self.is_given_up = true;
        // Fails if another process has a lock. Then that process removes the directory, or a command has locked it.
        let is_only_user = flock(&self.directory, FlockOperation::NonBlockingLockExclusive).is_ok();
        let is_done = is_only_user
            && (self.remove_at(&self.path, parents)
                || self.moved_to().is_some_and(|now| self.remove_at(&now, parents)));
        // Closing would not be enough: a process that is being started has copies of all descriptors until it executes its program, and
        // with a copy the lock would stay.
        let _cannot_fail_for_an_open_directory = flock(&self.directory, FlockOperation::Unlock);
        is_done
    }

    fn remove_at(&self, path: &Path, parents: &mut LastParent) -> bool {
        let Ok((parent, name)) = parents.split(path) else { return false };
        let Ok(facts) = FileFacts::of_entry(parent, name) else { return false };
        if facts.id != self.id {
            return false;
        }
        // A directory that somebody has filled is no placeholder any more.
        matches!(unlinkat(parent, name, AtFlags::REMOVEDIR), Ok(()) | Err(Errno::NOTEMPTY | Errno::EXIST))
    }

    /// Where the directory is now, if somebody has moved a directory above it.
    fn moved_to(&self) -> Option<PathBuf> {
        std::fs::read_link(format!("/proc/self/fd/{}", self.directory.as_raw_fd())).ok()
    }
}

impl Drop for LockedPlaceholder {
    fn drop(&mut self) {
        if !self.is_given_up {
            self.give_up(&mut LastParent::default());
        }
    }
}

/// Makes the directory if it does not exist, and locks it.
fn take(parent: BorrowedFd<'_>, name: &Path) -> Result<(FileId, OwnedFd), Errno> {
    for _ in 0..MAX_ATTEMPTS {
        let is_new = match mkdirat(parent, name, PLACEHOLDER_MODE) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(error),
        };
        match lock(parent, name, is_new) {
            Ok(Some(locked)) => return Ok(locked),
            Ok(None) => {}
            Err(error) => {
                // Otherwise nobody would remove the directory.
                if is_new {
                    let _may_be_gone = unlinkat(parent, name, AtFlags::REMOVEDIR);
                }
                return Err(error);
            }
        }
    }
    // Another process makes and removes it all the time.
    Err(Errno::LOOP)
}

/// Locks a directory that exists. None if another process has removed it meanwhile.
fn lock(parent: BorrowedFd<'_>, name: &Path, is_new: bool) -> Result<Option<(FileId, OwnedFd)>, Errno> {
    let directory = match open_placeholder(parent, name) {
        Err(Errno::NOENT) => return Ok(None),
        other => other?,
    };
    flock(&directory, FlockOperation::NonBlockingLockShared)?;
    let facts = FileFacts::of_open(&directory)?;
    // Somebody has made a directory of another kind after the plan has looked. The plan is made again.
    if !is_new && !has_permissions(&facts) {
        return Err(Errno::LOOP);
    }
    // The umask may have taken permissions away. The mode is set through the descriptor: a command that may write
    // the parent directory could put something else at the path meanwhile.
    let needs_mode = facts.mode != PLACEHOLDER_MODE.as_raw_mode();
    if needs_mode && facts.mode & !PLACEHOLDER_MODE.as_raw_mode() == 0 {
        fchmod(&directory, PLACEHOLDER_MODE)?;
    }
    // Another process may have removed the directory before it was locked here.
    Ok((facts.link_count > 0).then_some((facts.id, directory)))
}

/// Opens a placeholder, also if a umask has taken away the right to read it.
fn open_placeholder(parent: BorrowedFd<'_>, name: &Path) -> Result<OwnedFd, Errno> {
    match open_directory(parent, name) {
        Err(Errno::ACCESS) => {}
        other => return other,
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let unreadable = openat(parent, name, flags, Mode::empty())?;
    if !has_permissions(&FileFacts::of_open(&unreadable)?) {
        return Err(Errno::ACCESS);
    }
    chmodat(CWD, format!("/proc/self/fd/{}", unreadable.as_raw_fd()), PLACEHOLDER_MODE, AtFlags::empty())?;
    open_directory(parent, name)
}

/// The number of placeholders of this process.
fn known_placeholders() -> usize {
    let mut all = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(all) = all.as_mut() else { return 0 };
    if all.len() >= most_placeholders() {
        all.retain(|_, known| known.lock.strong_count() > 0);
    }
    all.len()
}

/// The most placeholders of this process: half of its descriptors. Each placeholder needs one, and the server needs others too.
fn most_placeholders() -> usize {
    static MOST: OnceLock<usize> = OnceLock::new();
    *MOST.get_or_init(|| {
        crate::open_files_limit().map_or(usize::MAX, |limit| usize::try_from(limit / 2).unwrap_or(usize::MAX))
    })
}

/// The parent directory that was opened last. Most placeholders have the same parent as the one before.
#[derive(Default)]
pub(super) struct LastParent {
    opened: Option<(PathBuf, OwnedFd)>,
}

impl LastParent {
    /// The parent directory, and the name in it. Fails with `LOOP` if there is a link in the path of the parent.
    fn split<'a>(&'a mut self, path: &'a Path) -> Result<(BorrowedFd<'a>, &'a Path), Errno> {
        let (parent, name) = path.parent().zip(path.file_name()).ok_or(Errno::INVAL)?;
        let name = Path::new(name);
        if self.opened.as_ref().is_none_or(|(opened, _)| opened != parent) {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let descriptor = openat2(CWD, parent, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
            self.opened = Some((parent.to_owned(), descriptor));
        }
        let (_, descriptor) = self.opened.as_ref().ok_or(Errno::INVAL)?;
        Ok((descriptor.as_fd(), name))
    }
}

/// Removes the placeholder at a path, if it is one, is empty and no sandbox uses it. Errors are ignored: the directory is then removed by a
/// later sandbox that uses it.
pub fn remove_unused_placeholder(path: &Path) {
    let mut parents = LastParent::default();
    let Ok((parent, name)) = parents.split(path) else { return };
    let Ok(directory) = open_placeholder(parent, name) else { return };
    let looks_like_one = FileFacts::of_open(&directory).is_ok_and(|facts| has_permissions(&facts));
    if looks_like_one && flock(directory.as_fd(), FlockOperation::NonBlockingLockExclusive).is_ok() {
        let _not_empty_or_replaced = unlinkat(parent, name, AtFlags::REMOVEDIR);
    }
}

/// Whether the file at `path`, which has these `facts`, is a placeholder. A directory that somebody has put files into is none any more.
/// Reading the directory is saved if the path ends there (`is_end`) and this process uses the directory as a placeholder. It is not tried if
/// the path ends there and a umask has made the directory unreadable.
pub(super) fn is_placeholder(path: &Path, facts: &FileFacts, is_end: bool) -> bool {
    let is_empty = || std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
    let is_unreadable = facts.mode & Mode::RUSR.as_raw_mode() == 0;
    has_permissions(facts) && ((is_end && (is_unreadable || is_used(path, facts.id))) || is_empty())
}

/// Whether a sandbox of this process uses the placeholder with this path and id.
pub(super) fn is_used(path: &Path, id: FileId) -> bool {
    let all = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = all.as_ref().and_then(|all| all.get(path));
    known.is_some_and(|known| known.id == id && known.lock.strong_count() > 0)
}

/// Whether a directory has the permissions of a placeholder, and belongs to a user whose placeholders this process can lock: to its own
/// user, or to any user if this process is root. A placeholder that is not locked here may be removed, with the mount on it, by its server.
fn has_permissions(facts: &FileFacts) -> bool {
    let can_lock = facts.is_own() || rustix::process::geteuid().is_root();
    facts.is_directory() && facts.mode & RECOGNISED_BITS == RECOGNISED_VALUE && can_lock
}

fn open_directory(parent: BorrowedFd<'_>, name: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}
