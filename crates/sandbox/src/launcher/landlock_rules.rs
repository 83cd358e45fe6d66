//! The rules of Landlock for the commands of a sandbox without namespaces. The launcher opens the readable paths once. Each
//! command gets its own set of rules, because one rule allows its terminal.
//!
//! A process with rules can reach only processes of its own command, which have the same rules or have added others to them.
//! It can neither trace any other process nor read its memory, environment and descriptors in `/proc`, nor send it signals.

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, openat};
use rustix::io::Errno;

use super::confinement::check;
use super::device_files::DEVICES;
use super::failure;
use super::mount_calls::open_path;
use crate::file_id::FileFacts;
use crate::landlock_plan::{LandlockFiles, ReadablePath};
use crate::message::{BuildFailure, BuildStep};

/// The argument of `landlock_create_ruleset`.
#[repr(C)]
struct RulesetAttributes {
    handled_files: u64,
    handled_network: u64,
    scopes: u64,
}

/// The argument of `landlock_add_rule`, which has no gap at its end.
#[repr(C, packed)]
struct PathRule {
    allowed: u64,
    path: RawFd,
}

const RULE_PATH_BENEATH: c_int = 1;

const EXECUTE: u64 = 1;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIRECTORY: u64 = 1 << 3;
const DEVICE_REQUESTS: u64 = 1 << 15;
/// Everything that version 6 of Landlock knows about files: also making, removing, moving and truncating them.
const ALL_FILE_RIGHTS: u64 = (1 << 16) - 1;

const READ: u64 = EXECUTE | READ_FILE | READ_DIRECTORY;
/// Reading, writing and `ioctl`. Rights of directories are left out, because the kernel refuses them for a file.
const USE_DEVICE: u64 = READ_FILE | WRITE_FILE | DEVICE_REQUESTS;

/// No signals to processes of the host and of other commands, and no connections to their abstract Unix sockets.
const ALL_SCOPES: u64 = 0b11;

/// What commands may do with files, as open paths.
pub(super) struct LandlockRules {
    handled_files: u64,
    allowed: Vec<(OwnedFd, u64)>,
}

impl LandlockRules {
    pub(super) fn new(files: &LandlockFiles) -> Result<Self, BuildFailure> {
        let rules = Self::open(files)?;
        // The kernel checks the rules here, and not at the start of the first command.
        rules.ruleset(None).map_err(|error| failure(BuildStep::Landlock, error.into(), ""))?;
        Ok(rules)
    }

    fn open(files: &LandlockFiles) -> Result<Self, BuildFailure> {
        if *files == LandlockFiles::Unrestricted {
            return Ok(Self { handled_files: 0, allowed: Vec::new() });
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let host = openat(CWD, "/", flags, Mode::empty())
            .map_err(|error| failure(BuildStep::Landlock, error.into(), "/"))?;
        let mut allowed = Vec::new();
        for name in DEVICES {
            let path = Path::new("/dev").join(name);
            let device = open_device(&host, &path)
                .map_err(|error| failure(BuildStep::Landlock, error.into(), path.display().to_string()))?;
            allowed.extend(device.map(|device| (device, USE_DEVICE)));
        }
        if let LandlockFiles::ReadSome(paths) = files {
            for readable in paths {
                let opened = open_readable(&host, readable).map_err(|error| {
                    failure(BuildStep::Landlock, error.into(), readable.path.display().to_string())
                })?;
                allowed.push(opened);
            }
        } else {
            allowed.push((host, READ));
        }
        Ok(Self { handled_files: ALL_FILE_RIGHTS, allowed })
    }

    /// Makes the rules of one command. `terminal` is its terminal, which it may open again by its path.
    pub(super) fn ruleset(&self, terminal: Option<&OwnedFd>) -> Result<OwnedFd, Errno> {
        let attributes =
            RulesetAttributes { handled_files: self.handled_files, handled_network: 0, scopes: ALL_SCOPES };
        // SAFETY: the size is that of the attributes, which live during the call.
        let made = unsafe {
            libc::syscall(
                libc::SYS_landlock_create_ruleset,
                &raw const attributes,
                size_of::<RulesetAttributes>(),
                0_u32,
            )
        };
        check(made as c_int).map_err(Errno::from_raw_os_error)?;
        // SAFETY: the kernel has just made this descriptor, and nothing else has it.
        let ruleset = unsafe { OwnedFd::from_raw_fd(made as RawFd) };
        for (path, allowed) in &self.allowed {
            add_rule(&ruleset, path, *allowed)?;
        }
        if let Some(terminal) = terminal.filter(|_| self.handled_files != 0) {
            add_rule(&ruleset, terminal, USE_DEVICE)?;
        }
        Ok(ruleset)
    }
}

/// Applies rules to this process, which must have set `no_new_privs`. Only makes a system call.
pub(super) fn restrict_self(ruleset: RawFd) -> Result<(), i32> {
    // SAFETY: takes numbers.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset, 0_u32) } as c_int)
}

fn add_rule(ruleset: &OwnedFd, path: &OwnedFd, allowed: u64) -> Result<(), Errno> {
    let rule = PathRule { allowed, path: path.as_raw_fd() };
    // SAFETY: the rule is of the given kind and lives during the call.
    let added = unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            ruleset.as_fd().as_raw_fd(),
            RULE_PATH_BENEATH,
            &raw const rule,
            0_u32,
        )
    };
    check(added as c_int).map_err(Errno::from_raw_os_error)
}

/// Opens a device. None if this machine does not have it.
fn open_device(host: &OwnedFd, path: &Path) -> Result<Option<OwnedFd>, Errno> {
    let device = match open_path(host, path) {
        Err(Errno::NOENT) => return Ok(None),
        opened => opened?,
    };
    let is_device = FileFacts::of_open(&device)?.kind == FileType::CharacterDevice;
    Ok(is_device.then_some(device))
}

/// Opens a path, and fails with `ESTALE` if it is not the file that the plan means.
fn open_readable(host: &OwnedFd, readable: &ReadablePath) -> Result<(OwnedFd, u64), Errno> {
    let opened = open_path(host, &readable.path)?;
    let facts = FileFacts::of_open(&opened)?;
    if facts.id != readable.source {
        return Err(Errno::STALE);
    }
    Ok((opened, if facts.is_directory() { READ } else { READ & !READ_DIRECTORY }))
}
