//! Metadata of files, through `statx`.

use std::path::Path;

use rustix::fs::{FileType, RawMode, Statx, StatxAttributes, StatxFlags, makedev};

use crate::local_devices;
use crate::resolve::NameInDirectory;
use crate::root::EnteredRoot;
pub(crate) use crate::root::{stat_open, stat_open_cached};
use crate::{FileError, FileRoot, Follow};

/// Metadata of a file. For a symbolic link that was followed, everything but `is_symlink` describes the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Whether the path names a directory or a link to one.
    pub is_directory: bool,
    /// Whether the path names a regular file or a link to one.
    pub is_file: bool,
    /// Whether the path itself names a symbolic link.
    pub is_symlink: bool,
    /// Size in bytes. For directories the number depends on the file system.
    pub size: u64,
    /// Creation time in milliseconds since 1970, or 0 if the file system does not store it. With [`Follow::Yes`],
    /// earlier times are 0.
    pub created_at_ms: i64,
    /// Modification time in milliseconds since 1970. With [`Follow::Yes`], earlier times are 0.
    pub modified_at_ms: i64,
    /// Permission bits including set-user-ID, set-group-ID and sticky (`0o7777`), without the file type.
    pub mode: u32,
    /// User id of the owner.
    pub uid: u32,
    /// Id of the group whose members have the group permissions of `mode`.
    pub gid: u32,
    /// Inode number, unique on its device.
    pub inode: u64,
    /// Number of the device that holds the file, as `st_dev`.
    pub device: u64,
    /// Number of hard links.
    pub links: u64,
    /// Modification time in whole seconds since 1970. Negative for earlier times, whatever `follow` is.
    pub modified_seconds: i64,
    /// Nanoseconds to add to `modified_seconds`.
    pub modified_nanos: u32,
}

/// The metadata of `path`. With [`Follow::Yes`] a symbolic link is described by its target, with [`Follow::No`] it is an error.
pub fn metadata(root: &FileRoot, path: &Path, follow: Follow) -> Result<Metadata, FileError> {
    root.run(&[path], |inside| metadata_inside(inside, path, follow))
}

fn metadata_inside(inside: &EnteredRoot<'_>, path: &Path, follow: Follow) -> Result<Metadata, FileError> {
    match follow {
        Follow::Yes => {
            let own = inside.stat_itself(path).map_err(FileError::at(path))?;
            if kind(&own) != FileType::Symlink {
                local_devices::remember_whether_local(inside, &own, path);
                return Ok(describe(&own, follow));
            }
            let target = inside.stat(path).map_err(FileError::at(path))?;
            Ok(Metadata { is_symlink: true, ..describe(&target, follow) })
        }
        Follow::No => {
            let own = match NameInDirectory::resolve(inside, path, follow)? {
                Some(target) => target.entry().stat(),
                None => inside.stat_itself(path),
            };
            let own = own.map_err(FileError::at(path))?;
            if kind(&own) == FileType::Symlink {
                return Err(FileError::symbolic_link(path));
            }
            Ok(describe(&own, follow))
        }
    }
}

/// Fails if nothing has the name at the end of `path`. A symbolic link without a target counts as something.
pub fn check_present(root: &FileRoot, path: &Path) -> Result<(), FileError> {
    root.run(&[path], |inside| inside.stat_itself(path).map(|_| ()).map_err(FileError::at(path)))
}

pub(crate) fn kind(stat: &Statx) -> FileType {
    FileType::from_raw_mode(RawMode::from(stat.stx_mode))
}

pub(crate) fn permissions(stat: &Statx) -> u32 {
    u32::from(stat.stx_mode) & 0o7777
}

/// Device and inode number. Two names with the same identity are the same file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileIdentity {
    device: u64,
    inode: u64,
}

impl FileIdentity {
    pub(crate) fn of(stat: &Statx) -> Self {
        Self { device: device(stat), inode: stat.stx_ino }
    }
}

/// Whether `stat` describes a mount point. On kernels that do not report this, a file counts as a mount point if its
/// device differs from `parent_device`, the device of its parent directory.
pub(crate) fn is_mount_point(stat: &Statx, parent_device: u64) -> bool {
    if stat.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) {
        return stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
    }
    device(stat) != parent_device
}

pub(crate) fn device(stat: &Statx) -> u64 {
    makedev(stat.stx_dev_major, stat.stx_dev_minor)
}

pub(crate) fn describe(stat: &Statx, follow: Follow) -> Metadata {
    let has_birth = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
    // The protocol reports times before 1970 only if links are not followed.
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
    fn a_mount_point_is_recognized_by_its_attribute_or_else_by_its_device() {
        let stat_of = |path: &str| FileRoot::host().enter().unwrap().stat(path.as_ref()).unwrap();
        let (root, mounted) = (stat_of("/"), stat_of("/proc"));
        let without_attribute = |mut stat: Statx| {
            stat.stx_attributes_mask.remove(StatxAttributes::MOUNT_ROOT);
            stat.stx_attributes.remove(StatxAttributes::MOUNT_ROOT);
            stat
        };
        assert!(is_mount_point(&mounted, device(&root)));
        assert!(is_mount_point(&without_attribute(mounted), device(&root)));
        assert!(!is_mount_point(&without_attribute(mounted), device(&mounted)));
        assert!(!is_mount_point(&stat_of("/proc/self/"), device(&mounted)));
    }
}
