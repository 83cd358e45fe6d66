//! Resolves paths in a [`FileRoot`](super::FileRoot). On the host, the kernel resolves a path as always, in the system
//! call that uses it. In a sandbox, `openat2` resolves a path as if the sandbox's root directory were `/`, and the
//! operation then works with the opened file, or with a single name in the opened parent directory.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    Access, AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Statx, StatxAttributes, Timestamps,
    accessat, chmodat, linkat, openat, openat2, renameat, renameat_with, unlinkat, utimensat,
};
use rustix::io::{Errno, retry_on_intr};

use super::capabilities::DroppedCapabilities;
use super::entry_at::{EntryAt, stat_open, statx_at};
use super::kernel_paths::{
    WatchablePath, may_access_opened, set_mode_of_opened, set_times_of_opened, shown_path_of_opened,
};
use crate::Follow;
use crate::resolve::OPEN_TO_TRAVERSE;
use crate::stat::{FileIdentity, kind};

/// The kernel gives up a look-up with `..` with `EAGAIN` if any directory of the machine was renamed meanwhile. A
/// look-up takes microseconds, so even on a busy machine one of these tries succeeds.
const MAX_TRIES: usize = 128;

/// How paths are resolved in a sandbox. The links in `/proc/*/fd` and the like are refused with `ELOOP`, because the
/// kernel would follow them to any file.
const INSIDE: ResolveFlags = ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS);

/// Lets this thread resolve paths in a root. In a sandbox, the thread has no effective capabilities while this value
/// exists. Made by [`FileRoot::enter`](super::FileRoot::enter).
#[derive(Debug)]
pub(crate) struct EnteredRoot<'r> {
    /// The root directory of a sandbox, and the proof that this thread has no effective capabilities. `None` is the
    /// host.
    sandbox: Option<(BorrowedFd<'r>, DroppedCapabilities)>,
}

/// A name that an operation works on without following links, with its open parent directory. Made by
/// [`EnteredRoot::locate`].
#[derive(Debug)]
pub(crate) struct LocatedName<'p> {
    /// `None` on the host, where `name` is the whole path.
    directory: Option<OwnedFd>,
    name: &'p OsStr,
}

impl LocatedName<'_> {
    pub(crate) fn entry(&self) -> EntryAt<'_> {
        EntryAt { directory: self.directory.as_ref().map_or(CWD, AsFd::as_fd), name: self.name }
    }
}

/// The file that an operation opens.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OpenTarget<'a> {
    /// The file that a path leads to. Links are followed.
    Path(&'a Path),
    /// An entry that must not be a link.
    Entry(EntryAt<'a>),
}

impl OpenTarget<'_> {
    pub(crate) fn follow(self) -> Follow {
        match self {
            Self::Path(_) => Follow::Yes,
            Self::Entry(_) => Follow::No,
        }
    }
}

impl<'r> EnteredRoot<'r> {
    pub(super) fn host() -> Self {
        Self { sandbox: None }
    }

    pub(super) fn sandbox(root: BorrowedFd<'r>, capabilities: DroppedCapabilities) -> Self {
        Self { sandbox: Some((root, capabilities)) }
    }

    /// The root directory of the sandbox. `None` on the host.
    fn root(&self) -> Option<BorrowedFd<'r>> {
        self.sandbox.as_ref().map(|(root, _)| *root)
    }

    /// Opens `/`, to reach its entries.
    pub(crate) fn open_root(&self) -> Result<OwnedFd, Errno> {
        self.open(Path::new("/"), OPEN_TO_TRAVERSE, Mode::empty())
    }

    /// Opens or creates the file that a path leads to. With `NOFOLLOW` a link at the end of the path is not followed.
    pub(crate) fn open(&self, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC;
        match self.root() {
            None => retry_on_intr(|| openat(CWD, path, flags, mode)),
            Some(root) => open_inside(root, path, flags, mode, ResolveFlags::empty()),
        }
    }

    /// As [`open`](Self::open), but fails if a component of the path is a link. With `PATH | NOFOLLOW` a link at the end
    /// of the path is allowed and is opened itself. May also fail if the kernel has no `openat2` or the path is too long
    /// for it.
    pub(crate) fn open_without_links(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC;
        match self.root() {
            None => retry_on_intr(|| openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)),
            Some(root) => open_inside(root, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS),
        }
    }

    /// As [`open`](Self::open), but fails instead of waiting for a disk or a server, with `EAGAIN` for example.
    pub(crate) fn open_cached(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let (directory, resolve) = match self.root() {
            None => (CWD, ResolveFlags::CACHED),
            Some(root) => (root, INSIDE | ResolveFlags::CACHED),
        };
        retry_on_intr(|| openat2(directory, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve))
    }

    /// Opens or creates what `target` names.
    pub(crate) fn open_target(&self, target: OpenTarget<'_>, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        match target {
            OpenTarget::Path(path) => self.open(path, flags, mode),
            OpenTarget::Entry(entry) => entry.open(flags, mode),
        }
    }

    /// Opens an entry of an open directory and follows it if it is a link. `path` is the path of the entry.
    pub(crate) fn open_following(&self, entry: EntryAt<'_>, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        match self.sandbox {
            None => retry_on_intr(|| openat(entry.directory, entry.name, flags | OFlags::CLOEXEC, Mode::empty())),
            // Only the whole path says where a relative link begins and where `/` is.
            Some(_) => self.open(path, flags, Mode::empty()),
        }
    }

    /// The metadata of the file that a path leads to.
    pub(crate) fn stat(&self, path: &Path) -> Result<Statx, Errno> {
        match self.sandbox {
            None => statx_at(CWD, path, AtFlags::empty()),
            Some(_) => stat_open(self.open(path, OFlags::PATH, Mode::empty())?),
        }
    }

    /// The metadata of the name at the end of a path, also if it is a link.
    pub(crate) fn stat_itself(&self, path: &Path) -> Result<Statx, Errno> {
        match self.sandbox {
            None => statx_at(CWD, path, AtFlags::SYMLINK_NOFOLLOW),
            Some(_) => stat_open(self.open(path, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty())?),
        }
    }

    /// The metadata of what `target` names.
    pub(crate) fn stat_target(&self, target: OpenTarget<'_>) -> Result<Statx, Errno> {
        match target {
            OpenTarget::Path(path) => self.stat(path),
            OpenTarget::Entry(entry) => entry.stat(),
        }
    }

    /// The metadata of the file to which an entry of an open directory leads. `path` is the path of the entry.
    pub(crate) fn stat_following(&self, entry: EntryAt<'_>, path: &Path) -> Result<Statx, Errno> {
        match self.sandbox {
            None => statx_at(entry.directory, entry.name, AtFlags::empty()),
            Some(_) => self.stat(path),
        }
    }

    /// Whether a path leads to a directory.
    pub(crate) fn is_directory(&self, path: &Path) -> bool {
        self.stat(path).is_ok_and(|found| kind(&found) == FileType::Directory)
    }

    /// The name at the end of a path, for an operation that does not follow it. On the host this makes no system call:
    /// the kernel resolves the whole path in the call that uses the entry.
    pub(crate) fn locate<'p>(&self, path: &'p Path) -> Result<LocatedName<'p>, Errno> {
        if self.sandbox.is_none() {
            return Ok(LocatedName { directory: None, name: path.as_os_str() });
        }
        let Some(Component::Normal(name)) = path.components().next_back() else {
            // The path ends in `..` or is `/`. The name `.` gives such a directory the kernel's own errors: it can be
            // neither removed nor renamed.
            let directory = self.open(path, OPEN_TO_TRAVERSE, Mode::empty())?;
            return Ok(LocatedName { directory: Some(directory), name: OsStr::new(".") });
        };
        let parent = path.parent().unwrap_or(Path::new("/"));
        let located = LocatedName { directory: Some(self.open(parent, OPEN_TO_TRAVERSE, Mode::empty())?), name };
        // The kernel would follow a link whose name ends in a slash, so the slash is not passed on.
        let asks_for_directory = [&b"/"[..], b"/."].iter().any(|end| path.as_os_str().as_bytes().ends_with(end));
        if asks_for_directory && located.entry().stat().is_ok_and(|found| kind(&found) != FileType::Directory) {
            return Err(Errno::NOTDIR);
        }
        Ok(located)
    }

    /// The same path without symbolic links, `.` and `..`. Every component must exist.
    pub(crate) fn canonicalize(&self, path: &Path) -> std::io::Result<PathBuf> {
        match self.root() {
            None => path.canonicalize(),
            Some(root) => Ok(self.canonicalize_inside(root, path)?),
        }
    }

    fn canonicalize_inside(&self, root: BorrowedFd<'_>, path: &Path) -> Result<PathBuf, Errno> {
        let opened = self.open(path, OFlags::PATH, Mode::empty())?;
        let (shown, shown_root) = (shown_path_of_opened(&opened)?, shown_path_of_opened(&root)?);
        let canonical = Path::new("/").join(shown.strip_prefix(&shown_root).map_err(|_| Errno::NOENT)?);
        // The kernel adds ` (deleted)` to the path of a removed file, and a mount can hide a file that is open.
        let found = stat_open(self.open_without_links(&canonical, OFlags::PATH | OFlags::NOFOLLOW)?)?;
        if FileIdentity::of(&found) == FileIdentity::of(&stat_open(&opened)?) {
            Ok(canonical)
        } else {
            Err(Errno::NOENT)
        }
    }

    /// Sets the permission bits of the file that a path leads to.
    pub(crate) fn set_mode(&self, path: &Path, mode: Mode) -> Result<(), Errno> {
        match self.sandbox {
            None => chmodat(CWD, path, mode, AtFlags::empty()),
            Some(_) => set_mode_of_opened(&self.open(path, OFlags::PATH, Mode::empty())?, mode),
        }
    }

    /// Sets the times of the file that a path leads to.
    pub(crate) fn set_times(&self, path: &Path, times: &Timestamps) -> Result<(), Errno> {
        match self.sandbox {
            None => utimensat(CWD, path, times, AtFlags::empty()),
            Some(_) => set_times_of_opened(&self.open(path, OFlags::PATH, Mode::empty())?, times),
        }
    }

    /// Whether this thread has the right `access` to the file that a path leads to.
    pub(super) fn may_access(&self, path: &Path, access: Access) -> Result<(), Errno> {
        match self.sandbox {
            None => accessat(CWD, path, access, AtFlags::EACCESS),
            Some(_) => may_access_opened(&self.open(path, OFlags::PATH, Mode::empty())?, access),
        }
    }

    /// Removes an entry.
    pub(crate) fn unlink(&self, entry: EntryAt<'_>, flags: AtFlags) -> Result<(), Errno> {
        self.check_no_mount_point(entry)?;
        unlinkat(entry.directory, entry.name, flags)
    }

    /// Renames an entry. With `NOREPLACE` an existing `to` fails with `EEXIST`.
    pub(crate) fn rename(&self, from: EntryAt<'_>, to: EntryAt<'_>, flags: RenameFlags) -> Result<(), Errno> {
        self.check_no_mount_point(from)?;
        self.check_no_mount_point(to)?;
        if flags.is_empty() {
            return renameat(from.directory, from.name, to.directory, to.name);
        }
        renameat_with(from.directory, from.name, to.directory, to.name, flags)
    }

    /// Gives a file a second name. A link is not followed.
    pub(crate) fn link(&self, from: EntryAt<'_>, to: EntryAt<'_>) -> Result<(), Errno> {
        linkat(from.directory, from.name, to.directory, to.name, AtFlags::empty())
    }

    /// Fails with `EBUSY` if the entry is a mount point of the sandbox. The kernel refuses to remove or rename only
    /// those mount points that are in the mount namespace of the calling thread. A mount point in another namespace is
    /// silently unmounted, and the file that the mount hid or protected could be reached. A process of the sandbox cannot put a mount point
    /// in the place of the entry after this check, because the kernel does not let that process rename mount points.
    /// This needs a sandbox that does not let its processes make further mount namespaces.
    fn check_no_mount_point(&self, entry: EntryAt<'_>) -> Result<(), Errno> {
        if self.sandbox.is_none() {
            return Ok(());
        }
        match entry.stat() {
            // Kernels that have sandboxes also report mount points. If one did not, nothing could be removed.
            Ok(found) if !found.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) => Err(Errno::BUSY),
            Ok(found) if found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) => Err(Errno::BUSY),
            // If the entry does not exist, the operation itself reports it.
            Ok(_) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The directory that a path leads to, to be added to inotify. A link at the end of the path is followed if
    /// `follow` says so.
    pub(crate) fn watchable<'p>(&self, path: &'p Path, follow: Follow) -> Result<WatchablePath<'p>, Errno> {
        let no_follow = if follow == Follow::No { OFlags::NOFOLLOW } else { OFlags::empty() };
        match self.sandbox {
            None => Ok(WatchablePath::OnHost(path)),
            Some(_) => Ok(WatchablePath::Opened(self.open(path, OPEN_TO_TRAVERSE | no_follow, Mode::empty())?)),
        }
    }
}

fn open_inside(
    root: BorrowedFd<'_>,
    path: &Path,
    flags: OFlags,
    mode: Mode,
    further: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    // `openat2` refuses permissions if it cannot create a file.
    let mode = if flags.contains(OFlags::CREATE) { mode } else { Mode::empty() };
    let mut tries = 1;
    loop {
        match retry_on_intr(|| openat2(root, path, flags, mode, INSIDE | further)) {
            Err(Errno::AGAIN) if tries < MAX_TRIES => tries += 1,
            opened => return opened,
        }
    }
}
