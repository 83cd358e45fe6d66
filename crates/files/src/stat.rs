//! What is known of a file without opening it.

use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, RawMode, Statx, StatxAttributes, StatxFlags, makedev};
use rustix::io::Errno;
use rustix::path::Arg;

use crate::local_devices;
use crate::place::Place;
use crate::{FileError, Follow};

/// What the operating system says about a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// It is a directory, or a link to one.
    pub is_directory: bool,
    /// It is a regular file, or a link to one.
    pub is_file: bool,
    /// The path names a symbolic link; everything else here is about what the link leads to.
    pub is_symlink: bool,
    /// In bytes; for directories what the file system makes of it.
    pub size: u64,
    /// Milliseconds since 1970, 0 if unknown.
    pub created_at_ms: i64,
    /// Milliseconds since 1970.
    pub modified_at_ms: i64,
    /// Permission bits, with set-user-ID, set-group-ID and sticky.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Its number on the device.
    pub inode: u64,
    /// The device it is on.
    pub device: u64,
    /// How many names it has.
    pub links: u64,
    /// When it was last written, in whole seconds since 1970.
    pub modified_seconds: i64,
    /// The nanoseconds to be added to that.
    pub modified_nanos: u32,
}

/// Looks at `path`. A link that is followed is described by what it leads to; one that must not be is refused.
pub fn metadata(path: &Path, follow: Follow) -> Result<Metadata, FileError> {
    match follow {
        Follow::Yes => {
            let own = stat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).map_err(FileError::at(path))?;
            if kind(&own) != FileType::Symlink {
                local_devices::learn(&own, path);
                return Ok(describe(&own, follow));
            }
            let target = stat(CWD, path, AtFlags::empty()).map_err(FileError::at(path))?;
            Ok(Metadata { is_symlink: true, ..describe(&target, follow) })
        }
        Follow::No => {
            let own = match Place::find(path, follow)? {
                Some(place) => stat(&place.directory, &place.name, AtFlags::SYMLINK_NOFOLLOW),
                None => stat(CWD, path, AtFlags::SYMLINK_NOFOLLOW),
            };
            let own = own.map_err(FileError::at(path))?;
            if kind(&own) == FileType::Symlink {
                return Err(FileError::symbolic_link(path));
            }
            Ok(describe(&own, follow))
        }
    }
}

pub(crate) fn stat<F: AsFd, P: Arg>(directory: F, path: P, flags: AtFlags) -> Result<Statx, Errno> {
    rustix::fs::statx(directory, path, flags, StatxFlags::BASIC_STATS | StatxFlags::BTIME)
}

/// The same of something that is open.
pub(crate) fn stat_open<F: AsFd>(opened: F) -> Result<Statx, Errno> {
    stat(opened, c"", AtFlags::EMPTY_PATH)
}

pub(crate) fn kind(stat: &Statx) -> FileType {
    FileType::from_raw_mode(RawMode::from(stat.stx_mode))
}

pub(crate) fn permissions(stat: &Statx) -> u32 {
    u32::from(stat.stx_mode) & 0o7777
}

/// What makes two names the same file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    pub(crate) fn of(stat: &Statx) -> Self {
        Self { device: device(stat), inode: stat.stx_ino }
    }
}

/// Whether something is mounted right there. Kernels that do not say so leave the change of the device as a sign.
pub(crate) fn is_mount_point(stat: &Statx, device_above: u64) -> bool {
    if stat.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) {
        return stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
    }
    device(stat) != device_above
}

pub(crate) fn device(stat: &Statx) -> u64 {
    makedev(stat.stx_dev_major, stat.stx_dev_minor)
}

pub(crate) fn describe(stat: &Statx, follow: Follow) -> Metadata {
    let has_birth = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
    // Only the strict mode of the protocol knows times before 1970.
    let milliseconds = |seconds: i64, nanos: u32| {
        let whole = seconds.saturating_mul(1000).saturating_add(i64::from(nanos / 1_000_000));
        if follow == Follow::Yes { whole.max(0) } else { whole }
    };
    Metadata {
        is_directory: kind(stat) == FileType::Directory,
        is_file: kind(stat) == FileType::RegularFile,
        is_symlink: false,
        size: stat.stx_size,
        created_at_ms: if has_birth { milliseconds(stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec) } else { 0 },
        modified_at_ms: milliseconds(stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
        mode: permissions(stat),
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        inode: stat.stx_ino,
        device: device(stat),
        links: u64::from(stat.stx_nlink),
        modified_seconds: stat.stx_mtime.tv_sec,
        modified_nanos: stat.stx_mtime.tv_nsec,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_known_by_their_device_where_the_kernel_says_no_more() {
        let looked_at = |path: &str| stat(CWD, path, AtFlags::empty()).unwrap();
        let (root, mounted) = (looked_at("/"), looked_at("/proc"));
        let silent = |mut stat: Statx| {
            stat.stx_attributes_mask.remove(StatxAttributes::MOUNT_ROOT);
            stat.stx_attributes.remove(StatxAttributes::MOUNT_ROOT);
            stat
        };
        assert!(is_mount_point(&mounted, device(&root)));
        assert!(is_mount_point(&silent(mounted), device(&root)));
        assert!(!is_mount_point(&silent(mounted), device(&mounted)));
        assert!(!is_mount_point(&looked_at("/proc/self/"), device(&mounted)));
    }
}
