//! Which devices answer from memory once something is cached. A network file system can wait for its server in the midst of an
//! open although the path was cached, and asking it what it is can wait as well. So callers that may block find that out, and
//! those that may not only look it up.

use std::path::Path;

use parking_lot::RwLock;
use rustix::fs::{Statx, statfs};

use crate::stat::device;

/// File systems that keep their data on this machine, by the number that `statfs` gives.
const LOCAL: &[i64] = &[
    0xEF53,      // ext2, ext3, ext4
    0x5846_5342, // xfs
    0x9123_683E, // btrfs
    0xF2F5_2010, // f2fs
    0x2FC1_2FC1, // zfs
    0x0102_1994, // tmpfs
    0x8584_58F6, // ramfs
    0x794C_7630, // overlayfs
];
/// Devices come and go with mounts; with so many the oldest is forgotten.
const REMEMBERED: usize = 64;

static SEEN: RwLock<Vec<(u64, bool)>> = RwLock::new(Vec::new());

/// Finds out about the device of a file, once. May block.
pub(crate) fn learn(stat: &Statx, path: &Path) {
    let device = device(stat);
    if SEEN.read().iter().any(|(seen, _)| *seen == device) {
        return;
    }
    let Ok(system) = statfs(path) else { return };
    // Some architectures have fewer bits for it.
    let number = i64::from(system.f_type as u32);
    let mut seen = SEEN.write();
    if seen.len() == REMEMBERED {
        seen.remove(0);
    }
    seen.push((device, LOCAL.contains(&number)));
}

/// Whether it was found out that this device is local.
pub(crate) fn is_local(stat: &Statx) -> bool {
    let device = device(stat);
    SEEN.read().iter().any(|(seen, local)| *seen == device && *local)
}
