//! The list of mounts that the kernel gives to each process, `/proc/self/mountinfo`. An open list also tells whether the mounts
//! have changed, and keeps its mount namespace alive.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::makedev;
use rustix::io::Errno;

/// Opens the list of the mount namespace in which this process is now.
pub(crate) fn open() -> Result<File, Errno> {
    File::open("/proc/self/mountinfo").map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// The whole list as the kernel writes it, a line for each mount.
pub(crate) fn read(mut table: &File) -> Result<Vec<u8>, Errno> {
    let mut text = Vec::new();
    let read = table.seek(SeekFrom::Start(0)).and_then(|_| table.read_to_end(&mut text));
    read.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(text)
}

/// Whether a mount was added or removed since this was asked last, or since the list was opened. All processes that share the open list
/// count as one. An error counts as a change.
pub(crate) fn has_changed(table: impl AsFd) -> bool {
    let mut polled = [PollFd::new(&table, PollFlags::PRI)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    // The kernel also says that the list can be read, which was not asked for.
    rustix::event::poll(&mut polled, Some(&now)) != Ok(0)
}

/// A line of the list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MountLine<'a> {
    pub(crate) id: u64,
    /// The mount on which it is mounted.
    pub(crate) parent: u64,
    /// The number of its file system.
    pub(crate) device: u64,
    /// What of the file system is mounted, as the kernel writes it.
    pub(crate) root: &'a [u8],
    pub(crate) path: PathBuf,
    /// The type of the file system.
    pub(crate) kind: &'a [u8],
}

impl<'a> MountLine<'a> {
    /// Reads a line: number, number of the parent, device, root, path, options, any number of further fields, a hyphen, and the type.
    pub(crate) fn parse(line: &'a [u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ');
        let mut number = || std::str::from_utf8(fields.next()?).ok()?.parse().ok();
        let (id, parent) = (number()?, number()?);
        let (major, minor) = std::str::from_utf8(fields.next()?).ok()?.split_once(':')?;
        let device = makedev(major.parse().ok()?, minor.parse().ok()?);
        let (root, path) = (fields.next()?, fields.next()?);
        let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
        Some(Self { id, parent, device, root, path: PathBuf::from(OsStr::from_bytes(&unescaped(path))), kind })
    }
}

/// Undoes the kernel's escapes: it writes white space and backslashes in paths as a backslash and three octal digits.
fn unescaped(path: &[u8]) -> Vec<u8> {
    let mut result = Vec::with_capacity(path.len());
    let mut left = path;
    while let Some((&first, rest)) = left.split_first() {
        let digits =
            rest.get(..3).filter(|digits| first == b'\\' && digits.iter().all(|digit| (b'0'..b'8').contains(digit)));
        left = match digits {
            Some(digits) => {
                result.push(
                    digits.iter().fold(0_u8, |number, digit| number.wrapping_mul(8).wrapping_add(digit - b'0')),
                );
                &rest[3..]
            }
            None => {
                result.push(first);
                rest
            }
        };
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_the_kernel_are_understood() {
        let device = makedev(0, 22);
        let line =
            |id, path: &str, kind| Some(MountLine { id, parent: 35, device, root: b"/", path: path.into(), kind });
        for (text, expected) in [
            ("36 35 0:22 / /proc/sys rw,nosuid shared:7 - sysfs sysfs rw", line(36, "/proc/sys", &b"sysfs"[..])),
            ("37 35 0:22 / /a\\040b\\134c rw master:1 shared:7 - proc none rw", line(37, "/a b\\c", b"proc")),
            ("38 35 0:22 / /data rw - ext4 /dev/sda1 rw", line(38, "/data", b"ext4")),
            ("39 35 0:22 / /data rw", None),
            ("39 35 022 / /data rw - ext4 /dev/sda1 rw", None),
            ("", None),
        ] {
            assert_eq!(MountLine::parse(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn the_list_of_this_process_has_its_root_and_is_read_from_the_beginning() {
        let table = open().unwrap();
        let text = read(&table).unwrap();
        let mut lines = text.split(|byte| *byte == b'\n').filter_map(MountLine::parse);
        assert!(lines.any(|mount| mount.path.as_os_str() == "/"));
        assert_eq!(read(&table).unwrap(), text, "it is read from the beginning");
    }
}
