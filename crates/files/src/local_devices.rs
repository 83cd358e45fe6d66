//! Remembers which devices are local. The functions of `cached` must not block, so they may use only files on local
//! devices: a network file system can wait for its server even for a cached path. `statfs`, which returns the kind of
//! a file system, can wait too. So operations that may block call [`remember_whether_local`], and operations that
//! must not block call only [`is_local`].

use std::path::Path;

use parking_lot::RwLock;
use rustix::fs::{Mode, OFlags, Statx, fstatfs};

use crate::root::EnteredRoot;
use crate::stat::{device, stat_open};

/// File systems that count as local, by their magic number in `statfs`.
const LOCAL_FILE_SYSTEMS: &[i64] = &[
    0xEF53,      // ext2, ext3, ext4
    0x5846_5342, // xfs
    0x9123_683E, // btrfs
    0xF2F5_2010, // f2fs
    0x2FC1_2FC1, // zfs
    0x0102_1994, // tmpfs
    0x8584_58F6, // ramfs
    0x794C_7630, // overlayfs
];
/// With more devices than this, the one that was learned first is forgotten. Devices come and go with mounts.
const MAX_KNOWN_DEVICES: usize = 64;

/// Device numbers, each with whether the device is local. The device that was learned first comes first.
static KNOWN_DEVICES: RwLock<Vec<(u64, bool)>> = RwLock::new(Vec::new());

/// Finds out whether the device of a file is local, unless that is known already. `stat` and `path` are those of the
/// file. May block.
pub(crate) fn remember_whether_local(inside: &EnteredRoot<'_>, stat: &Statx, path: &Path) {
    let device = device(stat);
    if KNOWN_DEVICES.read().iter().any(|(known, _)| *known == device) {
        return;
    }
    let Ok(opened) = inside.open(path, OFlags::PATH, Mode::empty()) else { return };
    // The path may lead to another file system by now.
    if !stat_open(&opened).is_ok_and(|found| self::device(&found) == device) {
        return;
    }
    let Ok(system) = fstatfs(&opened) else { return };
    // `f_type` has 32 bits on some architectures.
    let magic_number = i64::from(system.f_type as u32);
    let mut known = KNOWN_DEVICES.write();
    if known.len() == MAX_KNOWN_DEVICES {
        known.remove(0);
    }
    known.push((device, LOCAL_FILE_SYSTEMS.contains(&magic_number)));
}

/// Whether [`remember_whether_local`] has found that the device of this file is local. `false` for an unknown device.
pub(crate) fn is_local(stat: &Statx) -> bool {
    let device = device(stat);
    KNOWN_DEVICES.read().iter().any(|(known, local)| *known == device && *local)
}
