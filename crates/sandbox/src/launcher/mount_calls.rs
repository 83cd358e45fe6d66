//! The system calls that make mounts, by descriptors instead of paths. A path that an earlier command may control is
//! resolved exactly once, without following a symbolic link, so it cannot be exchanged between two steps.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create, fsconfig_set_string,
    fsmount, fsopen, move_mount, open_tree,
};

/// Flags of mounts, with the numbers of `mount_setattr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MountFlags(u64);

impl MountFlags {
    pub(super) const READ_ONLY: Self = Self(1);
    pub(super) const NO_SETUID: Self = Self(2);
    pub(super) const NO_DEVICES: Self = Self(4);

    pub(super) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The argument of `mount_setattr`.
#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// Whether a change concerns only the mount itself or also all mounts below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MountDepth {
    Single,
    Recursive,
}

/// Opens a path below `root` that contains no symbolic link. The last component may be a link itself, which is opened
/// and not followed.
pub(super) fn open_path(root: impl AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
    for _ in 0..MAX_RENAME_RETRIES {
        match openat2(&root, path, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN) => {}
            other => return other,
        }
    }
    Err(Errno::AGAIN)
}

/// The kernel asks to try again when a directory was renamed while a path was resolved.
const MAX_RENAME_RETRIES: usize = 100;

/// A copy of the mount at `source`, not attached anywhere yet.
pub(super) fn clone_mount(source: impl AsFd, depth: MountDepth) -> Result<OwnedFd, Errno> {
    let recursive = if depth == MountDepth::Recursive { OpenTreeFlags::AT_RECURSIVE } else { OpenTreeFlags::empty() };
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    open_tree(source, c"", flags | recursive)
}

/// Adds flags to a mount.
pub(super) fn add_flags(mount: impl AsFd, flags: MountFlags, depth: MountDepth) -> Result<(), Errno> {
    let attributes = MountAttributes { set: flags.0, clear: 0, propagation: 0, user_namespace: 0 };
    let recursive = if depth == MountDepth::Recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is an empty C string, and the size is that of the attributes, which live during the call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_fd().as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | recursive,
            &raw const attributes,
            size_of::<MountAttributes>(),
        )
    };
    if done == 0 { Ok(()) } else { Err(last_error()) }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}

/// Attaches a mount at `target`.
pub(super) fn attach(mount: impl AsFd, target: impl AsFd) -> Result<(), Errno> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(mount, c"", target, c"", flags)
}

/// A new file system that is not attached anywhere yet.
pub(super) fn new_file_system(
    kind: &CStr,
    options: &[(&CStr, &str)],
    flags: MountAttrFlags,
) -> Result<OwnedFd, Errno> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        fsconfig_set_string(&context, *key, *value)?;
    }
    fsconfig_create(&context)?;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, flags)
}
