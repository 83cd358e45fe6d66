//! Capabilities of the launcher and of commands.

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

use super::raw_call::raw_call;

/// The launcher keeps only the capability that making namespaces and mounts needs, and can never get another one by
/// executing a program, because it gets no new privileges.
pub(super) fn keep_only_the_launchers_capability() -> Result<(), Errno> {
    rustix::thread::set_no_new_privs(true)?;
    let kept = CapabilitySet::SYS_ADMIN;
    set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() })
}

/// The header of the system call `capset`, with the version for 64 capabilities.
#[repr(C)]
struct CapabilityHeader {
    version: u32,
    process: i32,
}

const CAPABILITY_VERSION: u32 = 0x2008_0522;

/// The highest capability of any kernel so far is 40. The kernel refuses numbers that it does not know.
const CAPABILITY_NUMBERS: std::ops::Range<libc::c_ulong> = 0..64;

/// Keeps a program of user 0 from getting capabilities when it is executed, and locks that setting. In the words of
/// the kernel: NOROOT, NO_SETUID_FIXUP and NO_CAP_AMBIENT_RAISE, each with its lock.
const SECURE_BITS: libc::c_ulong = 0b1100_1111;

/// Gives up all capabilities of this process for good. Only a privileged process may lock this with [`SECURE_BITS`]. Any other
/// process needs no lock: with `no_new_privs` it gets no capability by executing a program.
pub(super) fn give_up_privileges() -> Result<(), Errno> {
    rustix::thread::set_no_new_privs(true)?;
    drop_everything().or_else(|_not_privileged| drop_held()).map_err(Errno::from_raw_os_error)
}

/// Gives up all capabilities of this process for good. For a process that shares the memory of its parent: makes only system calls.
pub(super) fn drop_everything() -> Result<(), i32> {
    // SAFETY: the calls take numbers only.
    unsafe {
        check(libc::prctl(libc::PR_SET_SECUREBITS, SECURE_BITS, 0, 0, 0))?;
        for capability in CAPABILITY_NUMBERS {
            if libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) != 0 {
                break;
            }
        }
    }
    drop_held()
}

/// Gives up the capabilities that this process has now. For a process that shares the memory of the launcher.
pub(super) fn drop_held() -> Result<(), i32> {
    let header = CapabilityHeader { version: CAPABILITY_VERSION, process: 0 };
    let none = [0_u32; 6];
    // SAFETY: the header and the two sets of three numbers live during the call.
    unsafe { raw_call(libc::SYS_capset, [&raw const header as usize, none.as_ptr() as usize, 0, 0, 0]) }.map(drop)
}

/// The error number of a call of the C library that has failed.
pub(super) fn check(returned: i32) -> Result<(), i32> {
    if returned >= 0 { Ok(()) } else { Err(error_number()) }
}

/// The error number of the last call.
pub(super) fn error_number() -> i32 {
    // SAFETY: the address of this thread's error number is always valid.
    unsafe { *libc::__errno_location() }
}
