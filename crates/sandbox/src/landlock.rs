//! Landlock is the part of the kernel with which a process gives up rights for good, mostly access to files. This module finds out which
//! version of Landlock the machine has, and what is missing if sandboxes cannot use it.

use std::io;
use std::ptr;

/// Sandboxes need this version of Landlock, which Linux 6.12 has: without PID namespaces, only Landlock keeps a command from
/// sending signals to processes of the host and of other commands, and older versions do not.
pub const NEEDED_LANDLOCK_VERSION: u32 = 6;

/// The flag with which `landlock_create_ruleset` tells its version.
const CREATE_RULESET_VERSION: u32 = 1;

/// Why Landlock cannot be used on this machine, and what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MissingLandlock {
    /// The kernel does not know the system call, or a filter around this process hides it.
    #[error(
        "the kernel of this machine has no Landlock, or a seccomp filter around this process hides it; use Linux 6.12 or newer with CONFIG_SECURITY_LANDLOCK, or allow the system call landlock_create_ruleset"
    )]
    Absent,
    /// The kernel has Landlock, but it was not enabled at boot.
    #[error("Landlock is disabled on this machine; add `landlock` to the kernel parameter `lsm=` and boot again")]
    Disabled,
    /// The kernel has an old version of Landlock.
    #[error(
        "the kernel has version {0} of Landlock, and sandboxes need version {NEEDED_LANDLOCK_VERSION}; use Linux 6.12 or newer"
    )]
    Old(u32),
    /// The kernel refuses the system call, with this error number.
    #[error("Landlock cannot be used on this machine: {}", io::Error::from_raw_os_error(*.0))]
    Refused(i32),
}

/// The version of Landlock that the kernel has, if sandboxes can use it.
pub fn landlock_version() -> Result<u32, MissingLandlock> {
    // SAFETY: with this flag the kernel reads no memory of this process.
    let returned = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, ptr::null::<u8>(), 0_usize, CREATE_RULESET_VERSION)
    };
    let error = io::Error::last_os_error().raw_os_error().unwrap_or_default();
    version_from_answer(u32::try_from(returned).map_err(|_negative| error))
}

/// Checks the answer of the kernel, which is a version or an error number.
fn version_from_answer(answer: Result<u32, i32>) -> Result<u32, MissingLandlock> {
    match answer {
        Ok(version) if version >= NEEDED_LANDLOCK_VERSION => Ok(version),
        Ok(version) => Err(MissingLandlock::Old(version)),
        // Old filters of containers answer with EPERM to every call that they do not know.
        Err(libc::ENOSYS | libc::EPERM) => Err(MissingLandlock::Absent),
        Err(libc::EOPNOTSUPP) => Err(MissingLandlock::Disabled),
        Err(errno) => Err(MissingLandlock::Refused(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_answer_of_the_kernel_has_its_advice() {
        assert_eq!(version_from_answer(Ok(6)), Ok(6));
        for (answer, words) in [
            (Ok(5), "version 5 of Landlock, and sandboxes need version 6; use Linux 6.12"),
            (Err(libc::ENOSYS), "CONFIG_SECURITY_LANDLOCK"),
            (Err(libc::EPERM), "allow the system call landlock_create_ruleset"),
            (Err(libc::EOPNOTSUPP), "`lsm=`"),
            (Err(libc::EIO), "Input/output error"),
        ] {
            let text = version_from_answer(answer).unwrap_err().to_string();
            assert!(text.contains(words), "{text}");
        }
    }
}
