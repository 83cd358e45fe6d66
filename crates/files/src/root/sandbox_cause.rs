//! Finds out whether the sandbox has caused an error: whether the operation would have succeeded, or failed differently,
//! outside of the sandbox. An errno says only that an operation was refused, so this looks at the paths of the operation in the
//! sandbox and on the host. It opens nothing for reading or writing, and changes nothing.

use std::io::ErrorKind;
use std::path::Path;

use rustix::fs::{Access, Mode, OFlags, StatVfsMountFlags, Statx, StatxAttributes, StatxFlags, fstatvfs};
use rustix::io::Errno;

use super::capabilities::has_effective_capabilities;
use super::{EnteredRoot, FileRoot};
use crate::FileError;

/// The rights that a sandbox can take away, each asked for alone.
const RIGHTS: [Access; 3] = [Access::READ_OK, Access::WRITE_OK, Access::EXEC_OK];

/// Whether an operation on `paths` in the sandbox `root` failed because of the sandbox. To be called while the thread
/// has all its capabilities. The error of a file that does not exist never counts.
pub(super) fn is_caused_by_sandbox(error: &FileError, root: &FileRoot, paths: &[&Path]) -> bool {
    let errno = match Errno::from_io_error(error.io()) {
        Some(errno) => errno,
        // The refusal of this crate to remove a mount point.
        None if error.kind() == ErrorKind::ResourceBusy => Errno::BUSY,
        None => return false,
    };
    let mut all = paths.to_vec();
    all.extend(error.path());
    match errno {
        Errno::ROFS => {
            let on_host = |path: &Path| is_read_only(FileRoot::host(), path);
            match error.path() {
                // The path of the error could not be written. The other paths may only have been read.
                Some(failed) if is_read_only(root, failed) => !on_host(failed),
                _ => paths.iter().any(|path| is_read_only(root, path) && !on_host(path)),
            }
        }
        Errno::ACCESS => all.iter().any(|path| loses_right(root, path, &RIGHTS, errno)),
        // No mount causes this error, but the lack of capabilities does.
        Errno::PERM => has_effective_capabilities() && !all.iter().any(|path| is_immutable(root, path)),
        Errno::BUSY => all.iter().any(|path| is_mount_point(root, path) && !is_mount_point(FileRoot::host(), path)),
        Errno::XDEV => is_one_mount_on_host(paths),
        _ => false,
    }
}

/// Whether a path, or the nearest directory above it that exists, is on a read-only mount. Unlike the right to write, this does not depend on
/// permissions.
fn is_read_only(root: &FileRoot, path: &Path) -> bool {
    let Ok(inside) = root.enter() else { return false };
    let opened = path.ancestors().find_map(|path| inside.open(path, OFlags::PATH, Mode::empty()).ok());
    opened
        .and_then(|opened| fstatvfs(opened).ok())
        .is_some_and(|mount| mount.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// Whether one of the rights to a path, or to its directory, is refused with `errno` in the sandbox, but not with the
/// same errno on the host. If the path does not exist, this looks at the nearest directory above it that exists.
fn loses_right(root: &FileRoot, path: &Path, rights: &[Access], errno: Errno) -> bool {
    let is_refused = |root: &FileRoot, path: &Path, right| {
        root.enter().is_ok_and(|inside| inside.may_access(path, right) == Err(errno))
    };
    let is_missing =
        |path: &&Path| root.enter().is_ok_and(|inside| inside.may_access(path, Access::EXISTS) == Err(Errno::NOENT));
    let existing = path.ancestors().skip_while(is_missing).take(2);
    existing.into_iter().any(|path| {
        rights.iter().any(|&right| is_refused(root, path, right) && !is_refused(FileRoot::host(), path, right))
    })
}

fn is_immutable(root: &FileRoot, path: &Path) -> bool {
    let fixed = StatxAttributes::IMMUTABLE | StatxAttributes::APPEND;
    path.ancestors().take(2).any(|path| has_attribute(root, path, fixed))
}

fn is_mount_point(root: &FileRoot, path: &Path) -> bool {
    has_attribute(root, path, StatxAttributes::MOUNT_ROOT)
}

fn has_attribute(root: &FileRoot, path: &Path, any: StatxAttributes) -> bool {
    stat_itself(root, path).is_some_and(|found| found.stx_attributes.intersects(any))
}

fn stat_itself(root: &FileRoot, path: &Path) -> Option<Statx> {
    let inside: EnteredRoot<'_> = root.enter().ok()?;
    inside.stat_itself(path).ok()
}

/// Whether the directories that contain these paths are in one mount on the host.
fn is_one_mount_on_host(paths: &[&Path]) -> bool {
    let mount_of = |path: &Path| {
        let parent = path.parent().unwrap_or(path);
        let found = FileRoot::host().enter().ok()?.stat(parent).ok()?;
        // Kernels before 5.8 do not say it.
        StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::MNT_ID).then_some(found.stx_mnt_id)
    };
    let mut mounts = paths.iter().map(|path| mount_of(path));
    let Some(Some(first)) = mounts.next() else { return false };
    paths.len() > 1 && mounts.all(|mount| mount == Some(first))
}
