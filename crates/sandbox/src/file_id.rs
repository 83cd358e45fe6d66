//! How a plan recognises a file of the host: by device, inode and time of creation. Many file systems give the inode
//! number of a removed file to the next one, so the number alone would not tell that a file was replaced.

use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Statx, StatxFlags, makedev, statx};
use rustix::io::Errno;

use crate::codec::{MalformedMessage, MessageReader, MessageWriter};

/// Identifies a file on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    /// The number of the device that the file system is on.
    pub device: u64,
    /// The number of the file in its file system.
    pub inode: u64,
    /// When the file was made, in nanoseconds since the Unix epoch. 0 if the file system does not know.
    pub born: u64,
}

impl FileId {
    pub(crate) fn write(self, message: &mut MessageWriter) {
        message.number(self.device);
        message.number(self.inode);
        message.number(self.born);
    }

    pub(crate) fn read(message: &mut MessageReader<'_>) -> Result<Self, MalformedMessage> {
        Ok(Self { device: message.number()?, inode: message.number()?, born: message.number()? })
    }
}

/// What the kernel says about a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileFacts {
    pub(crate) id: FileId,
    pub(crate) kind: FileType,
    /// Permissions, with the set-user-ID, set-group-ID and sticky bits.
    pub(crate) mode: u32,
    pub(crate) owner: u32,
    /// 0 if the file was removed and is only open.
    pub(crate) link_count: u32,
}

impl FileFacts {
    /// Of the file at a path. A link at the end is not followed.
    pub(crate) fn of_path(path: &Path) -> Result<Self, Errno> {
        Self::of_entry(CWD, path)
    }

    /// Of the file with this name in a directory. A link is not followed.
    pub(crate) fn of_entry(directory: impl AsFd, name: &Path) -> Result<Self, Errno> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        Ok(Self::new(&statx(directory, name, flags, StatxFlags::BASIC_STATS | StatxFlags::BTIME)?))
    }

    /// Of an open file.
    pub(crate) fn of_open(file: impl AsFd) -> Result<Self, Errno> {
        Ok(Self::new(&statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS | StatxFlags::BTIME)?))
    }

    fn new(stat: &Statx) -> Self {
        let knows_birth = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
        let seconds = u64::try_from(stat.stx_btime.tv_sec).unwrap_or(0);
        let born = seconds.wrapping_mul(1_000_000_000).wrapping_add(stat.stx_btime.tv_nsec.into());
        Self {
            id: FileId {
                device: makedev(stat.stx_dev_major, stat.stx_dev_minor),
                inode: stat.stx_ino,
                born: if knows_birth { born } else { 0 },
            },
            kind: FileType::from_raw_mode(stat.stx_mode.into()),
            mode: u32::from(stat.stx_mode) & 0o7777,
            owner: stat.stx_uid,
            link_count: stat.stx_nlink,
        }
    }

    /// Whether the file belongs to the user of this process, who can change its permissions then.
    pub(crate) fn is_own(&self) -> bool {
        rustix::process::geteuid().as_raw() == self.owner
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.kind == FileType::Directory
    }
}
