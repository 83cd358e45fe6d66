//! The signals of the launcher and of the processes that it makes.

use std::ffi::c_int;
use std::ptr;

/// The size of a signal set in the kernel.
pub(super) const SIGNAL_SET_BYTES: usize = 8;

/// The highest signal number.
const LAST_SIGNAL: c_int = 64;

/// All zeros mean the default action, with every layout of the kernel's structure.
pub(super) const DEFAULT_ACTION: [u64; 4] = [0; 4];

/// Gives every signal its default action, except SIGCHLD. This signal is ignored, so the kernel reaps the processes that the launcher makes and
/// that nobody waits for. A command would inherit that a signal is ignored, so its process gives SIGCHLD the default action again.
pub(super) fn reset() {
    // SAFETY: the action is valid for reads, and the previous one is not wanted. No code runs for these actions.
    unsafe {
        for signal in 1..=LAST_SIGNAL {
            let previous = ptr::null_mut::<u64>();
            // Refused for SIGKILL and SIGSTOP.
            libc::syscall(libc::SYS_rt_sigaction, signal, DEFAULT_ACTION.as_ptr(), previous, SIGNAL_SET_BYTES);
        }
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
    }
}

/// Blocks all signals in this thread, and so in the processes that it makes, until they unblock them. This includes the signals that the C library
/// uses itself, because their handlers must not run in such a process.
pub(super) fn block() {
    let (all, previous) = (u64::MAX, ptr::null_mut::<u64>());
    // SAFETY: the set is valid for reads, and the previous one is not wanted.
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const all, previous, SIGNAL_SET_BYTES);
    }
}
