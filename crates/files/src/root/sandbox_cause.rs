//! Finds out whether the sandbox has caused an error: whether the operation would have succeeded, or failed differently,
//! outside of the sandbox. An errno says only that an operation was refused, so this looks at the paths of the operation in the
//! sandbox and on the host. It opens nothing for reading or writing, and changes nothing.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Access, FileType, Mode, OFlags, StatVfsMountFlags, Statx, StatxAttributes, StatxFlags, fstatvfs};
use rustix::io::Errno;

use super::capabilities::has_effective_capabilities;
use super::{EnteredRoot, FileRoot};
use crate::FileError;
use crate::stat::kind;

/// The rights that a sandbox can take away, each asked for alone.
const RIGHTS: [Access; 3] = [Access::READ_OK, Access::WRITE_OK, Access::EXEC_OK];

/// The kernel follows no more links in one path.
const MAX_LINKS: usize = 40;

/// A path of 4096 bytes, the longest that the kernel takes, has no more names. With its links a path may have more names, and is
/// not followed to its end, because each name costs a look-up of the whole path so far.
const MAX_NAMES: usize = 2048;

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
            let on_host = |place: &Path| is_read_only(FileRoot::host(), place);
            let read_only = |path: &Path| -> Vec<PathBuf> {
                places(root, path).into_iter().filter(|place| is_read_only(root, place)).collect()
            };
            let is_denied = |places: Vec<PathBuf>| places.iter().any(|place| !on_host(place));
            match error.path().map(read_only) {
                // The path of the error could not be written. The other paths may only have been read.
                Some(failed) if !failed.is_empty() => is_denied(failed),
                _ => paths.iter().any(|path| is_denied(read_only(path))),
            }
        }
        Errno::ACCESS => all.iter().any(|path| loses_right(root, path)),
        // No mount causes this error, but the lack of capabilities does.
        Errno::PERM => has_effective_capabilities() && !all.iter().any(|path| is_immutable(root, path)),
        Errno::BUSY => all.iter().any(|path| is_mount_point(root, path) && !is_mount_point(FileRoot::host(), path)),
        Errno::XDEV => is_one_mount_on_host(paths),
        _ => false,
    }
}

/// The places that an operation on a path can be about: the directory that contains the name at its end, and what the path
/// leads to if links are followed. Each is a path without links. If a path leads to nothing, this is the directory that
/// lacks the next name.
fn places(root: &FileRoot, path: &Path) -> Vec<PathBuf> {
    let parent = path.parent().unwrap_or(path);
    [parent, path].map(|path| resolved(root, path)).into_iter().flatten().map(|found| found.place).collect()
}

/// Whether the mount of a place is read-only. Unlike the right to write, this does not depend on permissions. If the place
/// does not exist, this looks at the nearest directory above it that exists.
fn is_read_only(root: &FileRoot, place: &Path) -> bool {
    let Ok(inside) = root.enter() else { return false };
    let opened = place.ancestors().find_map(|path| inside.open(path, OFlags::PATH, Mode::empty()).ok());
    opened
        .and_then(|opened| fstatvfs(opened).ok())
        .is_some_and(|mount| mount.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// Whether one of the rights to a path, or to its directory, is refused in the sandbox and not on the host. If the path
/// does not exist, this looks at the directory that lacks it. If a directory on the way must not be entered, this looks at
/// that directory only: the answer must not reveal what the host has below it.
fn loses_right(root: &FileRoot, path: &Path) -> bool {
    let own_directory = resolved(root, path.parent().unwrap_or(path));
    let target = resolved(root, path);
    let above_target = target.as_ref().filter(|found| found.stopped_by.is_none_or(|errno| errno != Errno::ACCESS));
    let above_target = above_target.and_then(|found| found.place.parent());
    [&own_directory, &target].into_iter().flatten().any(|found| match found.stopped_by {
        Some(Errno::ACCESS) => loses_one_of(root, &found.place, &[Access::EXEC_OK]),
        _ => loses_one_of(root, &found.place, &RIGHTS),
    }) || above_target.is_some_and(|directory| loses_one_of(root, directory, &RIGHTS))
}

/// Whether one of these rights to a place is refused with `EACCES` in the sandbox, but not on the host.
fn loses_one_of(root: &FileRoot, place: &Path, rights: &[Access]) -> bool {
    let is_refused = |root: &FileRoot, right| {
        root.enter().is_ok_and(|inside| inside.may_access(place, right) == Err(Errno::ACCESS))
    };
    rights.iter().any(|&right| is_refused(root, right) && !is_refused(FileRoot::host(), right))
}

/// How far a path leads in a root.
struct Resolved {
    /// The last place on the way that exists, as a path without links.
    place: PathBuf,
    /// Why the way ends there. `None` if the whole path exists.
    stopped_by: Option<Errno>,
}

/// Follows a path name by name, as the kernel does, but also to the directory to which a link without a target leads.
/// `None` if there are too many names or links.
fn resolved(root: &FileRoot, path: &Path) -> Option<Resolved> {
    let inside = root.enter().ok()?;
    let mut place = PathBuf::from("/");
    // The names that are still to be followed, the next one last.
    let mut names = Vec::new();
    push_names(&mut names, path);
    let (mut links, mut followed) = (0, 0);
    while let Some(name) = names.pop() {
        followed += 1;
        if followed > MAX_NAMES {
            return None;
        }
        let next = place.join(&name);
        let found = match inside.stat_itself(&next) {
            Ok(found) => found,
            Err(errno) => return Some(Resolved { place, stopped_by: Some(errno) }),
        };
        if name == ".." {
            place.pop();
            continue;
        }
        if kind(&found) != FileType::Symlink {
            place = next;
            continue;
        }
        links += 1;
        if links > MAX_LINKS {
            return None;
        }
        let target = match inside.locate(&next).and_then(|located| located.entry().link_target()) {
            Ok(target) => PathBuf::from(target),
            Err(errno) => return Some(Resolved { place, stopped_by: Some(errno) }),
        };
        if target.is_absolute() {
            place = PathBuf::from("/");
        }
        push_names(&mut names, &target);
    }
    Some(Resolved { place, stopped_by: None })
}

/// Adds the names of a path so that the first one is popped first.
fn push_names(names: &mut Vec<OsString>, path: &Path) {
    let normal = path.components().rev().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    names.extend(normal);
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
