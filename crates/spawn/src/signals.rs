//! The few signal dispositions of our own process that matter here. Those of children are set when they are spawned.

use std::mem::MaybeUninit;
use std::ptr;

use rustix::process::Signal;

/// With `SIGCHLD` ignored, which can be inherited, the kernel reaps children itself and their exit status is lost.
pub(crate) fn keep_exit_statuses() {
    if is_ignored(Signal::CHILD) {
        // SAFETY: SIG_DFL runs no code of ours.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    }
}

/// Whether this process ignores a signal. Until it installs a handler, that is what its parent wanted: `nohup` ignores `SIGHUP`, and a shell
/// ignores `SIGINT` and `SIGQUIT` for what a script starts in the background.
pub fn is_ignored(signal: Signal) -> bool {
    let mut current = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: sigaction without a new action only fills in the current one, which is read if it succeeded.
    unsafe {
        libc::sigaction(signal.as_raw(), ptr::null(), current.as_mut_ptr()) == 0
            && current.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// A write beyond the limit of file sizes is then an error, and not the end of this process.
pub(crate) fn survive_large_writes() {
    // SAFETY: SIG_IGN runs no code of ours.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Lets every signal through to this thread and those that it starts later. A parent that blocks signals passes that on, and a server that
/// began so could not be told to end.
pub fn unblock_signals() {
    let mut none = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset fills in the set before it is read, and a null old set means that it is not wanted.
    unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());
    }
}

/// For the guard, which must outlive whatever ends the server.
pub(crate) fn ignore_requests_to_end() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE] {
        // SAFETY: SIG_IGN runs no code of ours.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}
