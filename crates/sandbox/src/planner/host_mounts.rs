//! The mounts of the host. A sandbox has a copy of the mounts that the host had when the sandbox was made. If something is
//! mounted or unmounted below a writable directory later, a command in the old sandbox would write to other files than the
//! host has at the same paths. So a plan names these mounts, and another plan leads to another sandbox.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::mount_table::{self, MountLine};

/// The list of mounts as it was read last, sorted.
struct KnownMounts {
    table: std::fs::File,
    paths: Arc<[PathBuf]>,
}

static KNOWN: Mutex<Option<KnownMounts>> = Mutex::new(None);

/// The paths at which something is mounted, below any of these directories. Empty if this machine does not tell (it has no `/proc`).
pub(super) fn below<'a>(directories: impl Iterator<Item = &'a Path>) -> Vec<PathBuf> {
    let Some(paths) = current() else { return Vec::new() };
    let below = |directory: &'a Path| {
        let first = paths.partition_point(|path| path.as_path() <= directory);
        paths[first..].iter().take_while(move |path| path.starts_with(directory)).cloned().collect::<Vec<_>>()
    };
    directories.flat_map(below).collect()
}

/// All paths at which something is mounted. Reads the list only if the mounts have changed.
fn current() -> Option<Arc<[PathBuf]>> {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = known.as_ref()
        && !mount_table::has_changed(&known.table)
    {
        return Some(Arc::clone(&known.paths));
    }
    // A change after this is seen the next time.
    let table = match known.take() {
        Some(known) => known.table,
        None => mount_table::open().ok()?,
    };
    let text = mount_table::read(&table).ok()?;
    let lines = text.split(|byte| *byte == b'\n').filter_map(MountLine::parse);
    let mut paths: Vec<PathBuf> = lines.map(|mount| mount.path).collect();
    paths.sort_unstable();
    paths.dedup();
    let paths: Arc<[PathBuf]> = paths.into();
    *known = Some(KnownMounts { table, paths: Arc::clone(&paths) });
    Some(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mounts_of_this_machine_are_found_below_their_directories() {
        let all = below([Path::new("/")].into_iter());
        assert!(all.contains(&PathBuf::from("/proc")), "{all:?}");
        assert!(!below([Path::new("/proc")].into_iter()).contains(&PathBuf::from("/proc")), "only what is below");
        assert!(below([Path::new("/pro")].into_iter()).is_empty(), "whole names are compared");
    }
}
