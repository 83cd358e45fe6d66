//! The mounts of the host. A sandbox has a copy of the mounts that the host had when the sandbox was made. If something is
//! mounted or unmounted below a writable directory later, a command in the old sandbox would write to other files than the
//! host has at the same paths. So a plan names these mounts, and another plan leads to another sandbox.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::file_id::FileId;
use crate::mount_table::{self, MountLine};

/// Where something is mounted, and what it is. Taken from the list of mounts alone, because looking at a file system hangs if it is dead. A
/// sandbox keeps its file systems alive, so the number of the device of one of them never belongs to another one meanwhile.
type HostMount = (PathBuf, FileId);

/// The list of mounts as it was read last, sorted.
struct KnownMounts {
    table: std::fs::File,
    mounts: Arc<[HostMount]>,
}

static KNOWN: Mutex<Option<KnownMounts>> = Mutex::new(None);

/// What is mounted below any of these directories, sorted. Empty if this machine does not tell (it has no `/proc`).
pub(super) fn below<'a>(directories: impl Iterator<Item = &'a Path>) -> Vec<HostMount> {
    let Some(mounts) = current() else { return Vec::new() };
    let below = |directory: &'a Path| {
        let first = mounts.partition_point(|(path, _)| path.as_path() <= directory);
        mounts[first..].iter().take_while(move |(path, _)| path.starts_with(directory)).cloned().collect::<Vec<_>>()
    };
    let mut found: Vec<HostMount> = directories.flat_map(below).collect();
    // One of the directories may be below another one.
    found.sort_unstable_by(compare);
    found.dedup();
    found
}

fn compare((path, id): &HostMount, (other_path, other_id): &HostMount) -> std::cmp::Ordering {
    let numbers = |id: &FileId| (id.device, id.inode, id.born);
    path.cmp(other_path).then_with(|| numbers(id).cmp(&numbers(other_id)))
}

fn host_mount(mount: MountLine<'_>) -> HostMount {
    let mut root = DefaultHasher::new();
    mount.root.hash(&mut root);
    (mount.path, FileId { device: mount.device, inode: mount.id, born: root.finish() })
}

/// All mounts. Reads the list only if the mounts have changed.
fn current() -> Option<Arc<[HostMount]>> {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = known.as_ref()
        && !mount_table::has_changed(&known.table)
    {
        return Some(Arc::clone(&known.mounts));
    }
    // A change after this is seen the next time.
    let table = match known.take() {
        Some(known) => known.table,
        None => mount_table::open().ok()?,
    };
    let text = mount_table::read(&table).ok()?;
    let lines = text.split(|byte| *byte == b'\n').filter_map(MountLine::parse);
    let mut mounts: Vec<HostMount> = lines.map(host_mount).collect();
    mounts.sort_unstable_by(compare);
    let mounts: Arc<[HostMount]> = mounts.into();
    *known = Some(KnownMounts { table, mounts: Arc::clone(&mounts) });
    Some(mounts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mounts_of_this_machine_are_found_below_their_directories() {
        let paths = |directories: &[&str]| -> Vec<PathBuf> {
            below(directories.iter().map(Path::new)).into_iter().map(|(path, _)| path).collect()
        };
        let all = paths(&["/"]);
        assert!(all.contains(&PathBuf::from("/proc")), "{all:?}");
        assert_eq!(paths(&["/", "/dev", "/proc"]), all, "each mount is named once");
        assert!(!paths(&["/proc"]).contains(&PathBuf::from("/proc")), "only what is below");
        assert!(paths(&["/pro"]).is_empty(), "whole names are compared");
    }
}
