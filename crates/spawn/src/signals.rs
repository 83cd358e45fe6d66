//! The few signal dispositions of our own process that matter here. Those of children are set when they are spawned.

use std::mem::MaybeUninit;
use std::ptr;

/// With `SIGCHLD` ignored, which can be inherited, the kernel reaps children itself and their exit status is lost.
pub(crate) fn keep_exit_statuses() {
    let mut current = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: sigaction without a new action only fills in the current one, which is read if it succeeded; SIG_DFL runs no code.
    unsafe {
        if libc::sigaction(libc::SIGCHLD, ptr::null(), current.as_mut_ptr()) == 0
            && current.assume_init().sa_sigaction == libc::SIG_IGN
        {
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        }
    }
}

/// For the guard, which must outlive whatever ends the server.
pub(crate) fn ignore_requests_to_end() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE] {
        // SAFETY: SIG_IGN runs no code of ours.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}
