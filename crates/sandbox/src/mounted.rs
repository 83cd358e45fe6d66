//! Checks whether the mounts of a plan are in their places. The kernel detaches a mount if the file under it is removed or
//! replaced, and moves the mount along if the file is renamed. In both cases the same file can be back at the path later, with
//! nothing over it.

use std::os::fd::AsFd;

use rustix::fs::{AtFlags, StatxAttributes, StatxFlags, makedev, statx};
use rustix::io::Errno;

use crate::plan::{MountKind, PlannedMount, SandboxPlan};

/// The first mount of the plan that is not in the tree below `root`. Looks at each path once, so it blocks.
pub(crate) fn first_missing(root: impl AsFd, plan: &SandboxPlan) -> Option<&PlannedMount> {
    plan.mounts.iter().find(|mount| mount.kind.is_mounted() && !is_mounted(root.as_fd(), mount))
}

fn is_mounted(root: impl AsFd, mount: &PlannedMount) -> bool {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let inside = mount.path.strip_prefix("/").unwrap_or(&mount.path);
    let found = match statx(root, inside, flags, StatxFlags::INO) {
        Ok(found) => found,
        // A device that the sandbox does not have, or a path that the user of the command cannot reach either.
        Err(Errno::NOENT) => return mount.path.starts_with("/dev"),
        Err(Errno::ACCESS) => return true,
        Err(_) => return false,
    };
    let is_source = mount.source.is_some_and(|source| {
        source.inode == found.stx_ino && source.device == makedev(found.stx_dev_major, found.stx_dev_minor)
    });
    let shows_source = matches!(mount.kind, MountKind::Writable | MountKind::ReadOnly | MountKind::PinnedLink);
    found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) && is_source == shows_source
}
