//! Makes `/dev` and `/proc` of a sandbox. `/dev` has the few devices that programs expect and a set of terminals of its own,
//! so that a command reaches neither disks nor the terminals of others. `/proc` is that of a PID namespace without
//! processes: files such as `/proc/cpuinfo` can be read by file operations, and every command covers it with its own.

use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, mkdirat, openat, symlinkat};
use rustix::io::Errno;
use rustix::mount::MountAttrFlags;
use rustix::process::{Pid, WaitOptions};

use super::mount_calls::{
    MountDepth, MountFlags, add_flags, attach as attach_mount, clone_mount, new_file_system, open_path,
};
use crate::plan::BaseTree;

/// Devices of the host that commands may use.
pub(super) const DEVICES: [&str; 6] = ["full", "null", "random", "tty", "urandom", "zero"];

/// Links that programs expect in `/dev`, each with its target.
const LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("ptmx", "pts/ptmx"),
    ("stderr", "/proc/self/fd/2"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
];

/// How much shared memory (`/dev/shm`) the commands of a sandbox may use together.
pub const MAX_SHARED_MEMORY_BYTES: u64 = 64 << 20;

/// How many files `/dev/shm` may have. An empty file needs memory too, which [`MAX_SHARED_MEMORY_BYTES`] does not count.
pub const MAX_SHARED_MEMORY_FILES: u32 = 16_384;

/// How many terminals the commands of a sandbox may have. The machine has a limit for the terminals of all its processes together.
pub const MAX_TERMINALS: u32 = 256;

const DENIED_FILE: &str = "file";
const DENIED_DIRECTORY: &str = "directory";

const NO_PERMISSIONS: Mode = Mode::empty();

/// What [`attach`] has made and later steps need.
pub(super) struct Devices {
    /// The root directory of `/dev`.
    pub(super) dev: OwnedFd,
    /// An empty file without permissions, which is mounted over denied files.
    pub(super) denied_file: OwnedFd,
    /// The same for denied directories.
    pub(super) denied_directory: OwnedFd,
    /// Whether this mount namespace may have further mounts of `/proc`.
    pub(super) has_proc: bool,
}

/// Mounts `/dev` and `/proc` in the tree.
pub(super) fn attach(host: &OwnedFd, root: &OwnedFd, base: BaseTree) -> Result<Devices, Errno> {
    if base == BaseTree::Empty {
        let mode = Mode::from_raw_mode(0o755);
        mkdirat(root, "dev", mode)?;
        mkdirat(root, "proc", mode)?;
    }
    let quiet = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let dev = new_file_system(c"tmpfs", &[(c"mode", "755"), (c"size", "1m")], quiet)?;
    attach_mount(&dev, open_path(root, Path::new("/dev"))?)?;
    for name in DEVICES {
        let device = match open_path(host, &Path::new("/dev").join(name)) {
            Err(Errno::NOENT) => continue,
            other => other?,
        };
        let is_device = FileType::from_raw_mode(rustix::fs::fstat(&device)?.st_mode) == FileType::CharacterDevice;
        if is_device {
            make_file(&dev, name, Mode::from_raw_mode(0o644))?;
            let bind = clone_mount(device, MountDepth::Single)?;
            // A device can be written all the same, but its permissions, owner and times cannot be changed.
            add_flags(&bind, MountFlags::NO_SETUID.and(MountFlags::READ_ONLY), MountDepth::Single)?;
            attach_mount(bind, open_path(root, &Path::new("/dev").join(name))?)?;
        }
    }
    for (name, target) in LINKS {
        symlinkat(target, &dev, name)?;
    }
    let attach_at = |name: &str, kind: &CStr, options: &[(&CStr, &str)]| {
        let new = new_file_system(kind, options, quiet)?;
        attach_mount(&new, open_path(root, &Path::new("/dev").join(name))?).map(|()| new)
    };
    for name in ["pts", "shm"] {
        mkdirat(&dev, name, Mode::from_raw_mode(0o755))?;
    }
    let terminals = MAX_TERMINALS.to_string();
    attach_at("pts", c"devpts", &[(c"mode", "0620"), (c"ptmxmode", "0666"), (c"max", terminals.as_str())])?;
    // The file and the directory that are mounted over denied paths must be in a mount of this namespace. `/dev/shm` is later mounted over
    // that mount, so no path leads to it. The two must not be removed instead: the kernel would call the denied paths "deleted".
    let denied = attach_at("shm", c"tmpfs", &[(c"mode", "0"), (c"size", "4k")])?;
    make_file(&denied, DENIED_FILE, NO_PERMISSIONS)?;
    mkdirat(&denied, DENIED_DIRECTORY, NO_PERMISSIONS)?;
    let open_denied = |name: &str| open_path(&denied, Path::new(name));
    let (denied_file, denied_directory) = (open_denied(DENIED_FILE)?, open_denied(DENIED_DIRECTORY)?);
    let (bytes, files) = (MAX_SHARED_MEMORY_BYTES.to_string(), MAX_SHARED_MEMORY_FILES.to_string());
    attach_at("shm", c"tmpfs", &[(c"mode", "1777"), (c"size", &bytes), (c"nr_inodes", &files)])?;
    Ok(Devices { dev, denied_file, denied_directory, has_proc: attach_proc(root)? })
}

/// Makes `/dev` read-only. The plan may have mounted something over `/dev`, so the path is not looked up again.
pub(super) fn finish(dev: &OwnedFd) -> Result<(), Errno> {
    add_flags(dev, MountFlags::READ_ONLY, MountDepth::Single)
}

fn make_file(directory: &OwnedFd, name: &str, mode: Mode) -> Result<(), Errno> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    openat(directory, name, flags, mode).map(drop)
}

/// Mounts the `/proc` of a PID namespace whose only process ends at once. In a container that hides parts of `/proc`
/// the kernel refuses this, and then `/proc` is an empty directory.
fn attach_proc(root: &OwnedFd) -> Result<bool, Errno> {
    // SAFETY: like `fork`; this process has only one thread, so the child may do everything that this process may.
    let child = unsafe { libc::syscall(libc::SYS_clone, libc::CLONE_NEWPID | libc::SIGCHLD, 0, 0, 0, 0) };
    if child == 0 {
        let code = match mount_proc(root, MountAttrFlags::MOUNT_ATTR_RDONLY) {
            Ok(()) => 0,
            Err(error) => error.raw_os_error(),
        };
        // SAFETY: ends this process only.
        unsafe { libc::_exit(code) }
    }
    if child < 0 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::AGAIN));
    }
    let child = i32::try_from(child).ok().and_then(Pid::from_raw).ok_or(Errno::AGAIN)?;
    let ended = loop {
        match rustix::process::waitpid(Some(child), WaitOptions::empty()) {
            Err(Errno::INTR) => {}
            other => break other?,
        }
    };
    match ended.and_then(|(_, status)| status.exit_status()) {
        Some(0) => Ok(true),
        Some(libc::EPERM) => {
            let empty = new_file_system(
                c"tmpfs",
                &[(c"mode", "555"), (c"size", "4k")],
                MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOSUID,
            )?;
            attach_mount(empty, open_path(root, Path::new("/proc"))?)?;
            Ok(false)
        }
        Some(errno) => Err(Errno::from_raw_os_error(errno)),
        None => Err(Errno::AGAIN),
    }
}

fn mount_proc(root: &OwnedFd, flags: MountAttrFlags) -> Result<(), Errno> {
    let quiet =
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    attach_mount(new_file_system(c"proc", &[], flags | quiet)?, open_path(root, Path::new("/proc"))?)
}
