//! Finds the directory of this process's own cgroup: where the cgroup2 file system is mounted, and which cgroup in it is ours.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The cgroup of this process, as directories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CgroupLocation {
    /// Where the cgroup2 file system is mounted.
    pub(crate) mount_point: PathBuf,
    /// The directory of our cgroup, below the mount point or equal to it.
    pub(crate) own: PathBuf,
}

impl CgroupLocation {
    /// Reads `/proc`. The error says why there is no such directory.
    pub(crate) fn find() -> Result<Self, String> {
        let read = |path| fs::read(path).map_err(|error| format!("cannot read {path}: {error}"));
        Self::parse(&read("/proc/self/mountinfo")?, &read("/proc/self/cgroup")?)
    }

    fn parse(mounts: &[u8], cgroups: &[u8]) -> Result<Self, String> {
        let lines = |text| <[u8]>::split(text, |byte| *byte == b'\n');
        // Version 1 hierarchies have other numbers, and the names of their controllers between the colons.
        let own = lines(cgroups).find_map(|line| line.strip_prefix(b"0::")).ok_or(
            "this kernel or container has no cgroup v2; boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1)",
        )?;
        let own = PathBuf::from(OsString::from_vec(own.to_vec()));
        let mut is_mounted = false;
        let mounts: Vec<_> = lines(mounts).filter_map(Mount::parse).collect();
        for mount in mounts.iter().filter(|mount| mount.is_cgroup2) {
            // Another file system is mounted over it, so its path leads there.
            if mounts.iter().any(|other| other.parent == mount.id && other.mount_point == mount.mount_point) {
                continue;
            }
            is_mounted = true;
            // A container may see only a part of the hierarchy: the part below `root`.
            if let Ok(below) = own.strip_prefix(&mount.root)
                && !below.components().any(|component| component.as_os_str() == "..")
            {
                return Ok(Self { own: mount.mount_point.join(below), mount_point: mount.mount_point.clone() });
            }
        }
        Err(if is_mounted {
            "the cgroup of the server is not visible in this container; start the container with a cgroup namespace of its own"
        } else {
            "cgroup v2 is not mounted; mount it with `mount -t cgroup2 none /sys/fs/cgroup`"
        }
        .to_owned())
    }

    /// The parent of our cgroup. None at the mount point.
    pub(crate) fn parent(&self) -> Option<&Path> {
        self.own.parent().filter(|parent| parent.starts_with(&self.mount_point))
    }
}

/// A line of `/proc/self/mountinfo`.
struct Mount<'a> {
    id: &'a [u8],
    /// The mount in which the mount point is.
    parent: &'a [u8],
    /// The directory of the file system that is mounted.
    root: PathBuf,
    mount_point: PathBuf,
    is_cgroup2: bool,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a [u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ');
        let (id, parent) = (fields.next()?, fields.next()?);
        let root = unescape(fields.nth(1)?);
        let mount_point = unescape(fields.next()?);
        // The number of optional fields varies, and a single dash ends them.
        fields.find(|field| *field == b"-")?;
        Some(Self { id, parent, root, mount_point, is_cgroup2: fields.next()? == b"cgroup2" })
    }
}

/// The kernel writes a space as `\040`, and other special bytes in the same way.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        let octal = tail.get(..3).and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        (rest, _) = match (first, octal) {
            (b'\\', Some(byte)) => (&tail[3..], bytes.push(byte)),
            _ => (tail, bytes.push(*first)),
        };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIFIED: &str =
        "24 1 0:22 / /sys rw - sysfs sysfs rw\n30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";

    fn parse(mounts: &str, cgroups: &str) -> Result<CgroupLocation, String> {
        CgroupLocation::parse(mounts.as_bytes(), cgroups.as_bytes())
    }

    #[test]
    fn the_own_cgroup_is_below_the_mount_point() {
        let location = parse(UNIFIED, "0::/user.slice/a b.scope\n").unwrap();
        assert_eq!(location.own, Path::new("/sys/fs/cgroup/user.slice/a b.scope"));
        assert_eq!(location.parent(), Some(Path::new("/sys/fs/cgroup/user.slice")));
        assert_eq!(parse(UNIFIED, "0::/\n").unwrap().parent(), None);
    }

    #[test]
    fn version_1_hierarchies_and_odd_mount_points_are_told_apart() {
        let mounts = "31 24 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      39 24 0:35 / /mnt/my\\040groups rw - cgroup2 cgroup2 rw\n";
        let location = parse(mounts, "4:memory:/x\n0::/y\n").unwrap();
        assert_eq!(location.own, Path::new("/mnt/my groups/y"));
    }

    #[test]
    fn a_part_of_the_hierarchy_is_enough_if_it_has_the_own_cgroup() {
        let mounts = "30 24 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        assert_eq!(parse(mounts, "0::/docker/abc/x\n").unwrap().own, Path::new("/sys/fs/cgroup/x"));
        for elsewhere in ["0::/docker/other\n", "0::/docker/abc/../other\n"] {
            assert!(parse(mounts, elsewhere).unwrap_err().contains("not visible in this container"), "{elsewhere}");
        }
    }

    #[test]
    fn a_mount_under_another_one_is_not_used() {
        let line = |id, parent, root, kind| format!("{id} {parent} 0:26 {root} /sys/fs/cgroup rw - {kind} x rw\n");
        let (first, part) = (line(30, 24, "/", "cgroup2"), line(41, 30, "/x", "cgroup2"));
        // The kernel does not always list the upper mount last.
        for mounts in [format!("{first}{part}"), format!("{part}{first}")] {
            assert_eq!(parse(&mounts, "0::/x/y\n").unwrap().own, Path::new("/sys/fs/cgroup/y"));
            assert!(parse(&mounts, "0::/y\n").unwrap_err().contains("not visible in this container"), "{mounts}");
        }
        let hidden = format!("{first}{}", line(41, 30, "/", "tmpfs"));
        assert!(parse(&hidden, "0::/x\n").unwrap_err().contains("not mounted"));
    }

    #[test]
    fn what_is_missing_is_named() {
        assert!(parse(UNIFIED, "4:memory:/\n").unwrap_err().contains("has no cgroup v2"));
        assert!(parse("24 1 0:22 / /sys rw - sysfs sysfs rw\n", "0::/\n").unwrap_err().contains("not mounted"));
        assert!(parse("", "").is_err());
    }
}
