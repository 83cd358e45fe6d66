//! Makes files of the kernel read-only wherever they are mounted. User 0 of the host may write many of them even without
//! capabilities, and they concern the whole machine. `/sys` is the usual place, but a directory for `chroot`, for example,
//! has mounts of `/proc` and `/sys` too, and it can be inside a writable directory.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, StatxFlags, statx};
use rustix::io::Errno;

use super::mount_calls::{MountDepth, MountFlags, add_flags, open_path};

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

/// The list of mounts of this process.
pub(super) fn open_mount_table() -> Result<File, Errno> {
    File::open("/proc/self/mountinfo").map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// Makes the mounts in the tree read-only that have files of the kernel. `site` is the path of the tree's root directory.
pub(super) fn make_read_only(mut mount_table: &File, root: &OwnedFd, site: &Path) -> Result<(), Errno> {
    let mut table = Vec::new();
    mount_table.read_to_end(&mut table).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    for (id, path) in table.split(|byte| *byte == b'\n').filter_map(kernel_mount) {
        let Ok(inside) = path.strip_prefix(site) else { continue };
        let mount = match open_path(root, &Path::new("/").join(inside)) {
            // Another mount covers it.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => continue,
            other => other?,
        };
        if statx(&mount, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?.stx_mnt_id == id {
            // With what is mounted below, such as a directory in memory for the mounts of control groups.
            add_flags(&mount, MountFlags::READ_ONLY, MountDepth::Recursive)?;
        }
    }
    Ok(())
}

/// The number and path of a mount, if it has files of the kernel. A line of the list is: number, number of the parent, device, root, path,
/// options, any number of further fields, a hyphen, and the type.
fn kernel_mount(line: &[u8]) -> Option<(u64, PathBuf)> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let path = fields.nth(3)?;
    let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
    KERNEL_FILE_SYSTEMS.contains(&kind).then(|| (id, PathBuf::from(OsStr::from_bytes(&unescaped(path)))))
}

/// The kernel writes blanks and backslashes in paths as three octal digits.
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
    fn only_mounts_of_the_kernel_are_found() {
        for (line, expected) in [
            ("36 35 0:22 / /proc/sys rw,nosuid shared:7 - sysfs sysfs rw", Some((36, "/proc/sys"))),
            ("37 35 0:22 / /a\\040b\\134c rw master:1 shared:7 - proc none rw", Some((37, "/a b\\c"))),
            ("38 35 0:22 / /data rw - ext4 /dev/sda1 rw", None),
            ("39 35 0:22 / /data rw", None),
            ("", None),
        ] {
            let found = kernel_mount(line.as_bytes());
            assert_eq!(found, expected.map(|(id, path)| (id, PathBuf::from(path))), "{line}");
        }
    }
}
