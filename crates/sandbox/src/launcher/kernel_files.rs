//! Makes proc, sysfs and similar file systems read-only wherever they are mounted. Their files are settings of the whole
//! machine, and user 0 of the host may write many of them even without capabilities. A directory for `chroot`, for
//! example, has mounts of `/proc` and `/sys` too, and it can be inside a writable directory.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, StatxFlags, statx};
use rustix::io::Errno;

use super::mount_calls::{MountDepth, MountFlags, add_flags, open_path};
use crate::mount_table::{self, MountLine};

/// File systems whose files are settings of the kernel.
const KERNEL_FILE_SYSTEMS: [&[u8]; 14] = [
    b"binfmt_misc",
    b"bpf",
    b"cgroup",
    b"cgroup2",
    b"configfs",
    b"debugfs",
    b"efivarfs",
    b"fusectl",
    b"proc",
    b"pstore",
    b"securityfs",
    b"selinuxfs",
    b"sysfs",
    b"tracefs",
];

/// Makes each mount of [`KERNEL_FILE_SYSTEMS`] in the new file tree read-only. `tree_root` is the path at which the tree is built. Fails, with
/// the path, if a mount could not be reached although a command might reach it.
pub(super) fn make_read_only(table: &File, root: &OwnedFd, tree_root: &Path) -> Result<(), (Errno, PathBuf)> {
    let mut unreached = PathBuf::new();
    // A command of another sandbox may rename directories meanwhile, so that a path in the table is no longer true.
    for _ in 0..MAX_TABLE_READS {
        let mounts = MountTable::read(table).map_err(|error| (error, tree_root.to_owned()))?;
        match make_table_read_only(&mounts, root, tree_root)? {
            None => return Ok(()),
            Some(path) => unreached = path,
        }
    }
    Err((Errno::STALE, unreached))
}

/// How often the table is read before a mount that is not at its listed path counts as an error.
const MAX_TABLE_READS: usize = 10;

/// Makes the mounts in one reading of the table read-only. Returns the listed path of a mount that is not covered but is not at this path.
fn make_table_read_only(
    mounts: &MountTable,
    root: &OwnedFd,
    tree_root: &Path,
) -> Result<Option<PathBuf>, (Errno, PathBuf)> {
    let mut done = HashSet::new();
    for (id, mount) in mounts.of_the_kernel() {
        let Ok(inside) = mount.path.strip_prefix(tree_root) else { continue };
        if mounts.with_those_above(id).any(|(above, _)| done.contains(&above)) || mounts.is_covered(id) {
            continue;
        }
        let path = Path::new("/").join(inside);
        let failed = |error: Errno| (error, path.clone());
        let found = match open_path(root, &path) {
            Ok(found) => found,
            Err(Errno::ACCESS) if !is_behind_own_directory(root, &path).map_err(failed)? => continue,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(Some(path)),
            Err(error) => return Err(failed(error)),
        };
        if statx(&found, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).map_err(failed)?.stx_mnt_id != id {
            return Ok(Some(path));
        }
        // Also makes the mounts below it read-only, for example the tmpfs at `/sys/fs/cgroup`.
        add_flags(&found, MountFlags::READ_ONLY, MountDepth::Recursive).map_err(failed)?;
        done.insert(id);
    }
    Ok(None)
}

/// Whether a command could give itself the permission that is missing on the way to `path`, because its user owns the closed directory.
pub(super) fn is_behind_own_directory(root: &OwnedFd, path: &Path) -> Result<bool, Errno> {
    for above in path.ancestors().skip(1) {
        match open_path(root, above) {
            Ok(directory) => {
                return Ok(rustix::fs::fstat(&directory)?.st_uid == rustix::process::geteuid().as_raw());
            }
            Err(Errno::ACCESS) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// The mounts of this process, as the kernel lists them.
struct MountTable {
    mounts: HashMap<u64, ListedMount>,
}

#[derive(Debug, PartialEq, Eq)]
struct ListedMount {
    parent: u64,
    path: PathBuf,
    is_of_the_kernel: bool,
}

impl MountTable {
    fn read(table: &File) -> Result<Self, Errno> {
        Ok(Self::parse(&mount_table::read(table)?))
    }

    fn parse(text: &[u8]) -> Self {
        Self { mounts: text.split(|byte| *byte == b'\n').filter_map(listed_mount).collect() }
    }

    /// The mounts of [`KERNEL_FILE_SYSTEMS`]. A mount comes before those below its path.
    fn of_the_kernel(&self) -> Vec<(u64, &ListedMount)> {
        let kernel = self.mounts.iter().filter(|(_, mount)| mount.is_of_the_kernel);
        let mut kernel: Vec<_> = kernel.map(|(id, mount)| (*id, mount)).collect();
        kernel.sort_by(|(_, one), (_, other)| one.path.cmp(&other.path));
        kernel
    }

    /// A mount, the mount on which it is mounted, and so on up to the root.
    fn with_those_above(&self, id: u64) -> impl Iterator<Item = (u64, &ListedMount)> {
        let find = |id: u64| self.mounts.get_key_value(&id).map(|(id, mount)| (*id, mount));
        // The number of steps is limited in case the list contradicts itself.
        std::iter::successors(find(id), move |(_, mount)| find(mount.parent)).take(self.mounts.len())
    }

    /// Whether another mount lies over this one, or over a directory on the way to it. Then no path leads to this mount.
    fn is_covered(&self, id: u64) -> bool {
        let chain: Vec<(u64, &ListedMount)> = self.with_those_above(id).collect();
        let covers = |(other_id, other): (&u64, &ListedMount)| {
            let Some(place) = chain.iter().position(|(above, _)| *above == other.parent) else { return false };
            // On a mount above, `other` hides the next mount of the chain if that mount is at or below the path of `other`. On the mount `id`
            // itself, `other` hides it only at its root.
            let (_, reached) = chain[place.saturating_sub(1)];
            let is_in_chain = chain.iter().any(|(above, _)| above == other_id);
            let is_on_the_mount = place == 0;
            !is_in_chain
                && if is_on_the_mount { other.path == reached.path } else { reached.path.starts_with(&other.path) }
        };
        self.mounts.iter().any(covers)
    }
}

fn listed_mount(line: &[u8]) -> Option<(u64, ListedMount)> {
    let MountLine { id, parent, path, kind, .. } = MountLine::parse(line)?;
    Some((id, ListedMount { parent, path, is_of_the_kernel: KERNEL_FILE_SYSTEMS.contains(&kind) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_covered_by_a_mount_on_it_or_on_the_way_to_it_and_by_no_other() {
        let lines = [
            "1 0 0:1 / / rw - ext4 a rw",
            // A proc that nothing covers, and mounts in and beside it.
            "2 1 0:2 / /ws/proc rw - proc p rw",
            "3 2 0:3 / /ws/proc/inside rw - tmpfs t rw",
            "4 1 0:4 / /ws/proc2 rw - tmpfs t rw",
            // Covered at its root.
            "5 1 0:5 / /over rw - proc p rw",
            "6 5 0:6 / /over rw - tmpfs t rw",
            // Covered at a directory above it, on the same mount.
            "7 1 0:7 / /hidden/deep/proc rw - proc p rw",
            "8 1 0:8 / /hidden rw - tmpfs t rw",
            // Below a mount that is covered as a whole.
            "9 5 0:9 / /over/sys rw - sysfs s rw",
            // Mounts in each other, with nothing over them.
            "10 1 0:10 / /a rw - tmpfs t rw",
            "11 10 0:11 / /a/b rw - sysfs s rw",
        ];
        let table = MountTable::parse(lines.join("\n").as_bytes());
        let covered: Vec<u64> = (1..=11).filter(|id| table.is_covered(*id)).collect();
        assert_eq!(covered, [5, 7, 9]);
        let kernel: Vec<u64> = table.of_the_kernel().into_iter().map(|(id, _)| id).collect();
        assert_eq!(kernel, [11, 7, 5, 9, 2]);
    }
}
