//! The signal dispositions and the signal mask of this process. Those of children are reset in `vfork`.

use std::mem::MaybeUninit;
use std::ptr;

use rustix::process::Signal;

/// Gives `SIGCHLD` its default action if this process ignores it, which it may have inherited from its parent. While
/// `SIGCHLD` is ignored, the kernel reaps children itself and their exit statuses are lost.
pub(crate) fn keep_exit_statuses() {
    if is_ignored(Signal::CHILD) {
        // SAFETY: SIG_DFL runs no code of ours.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    }
}

/// Whether this process ignores a signal. Before the process installs a handler, this tells what its parent has chosen: `nohup` ignores
/// `SIGHUP`, and a shell ignores `SIGINT` and `SIGQUIT` for background commands of a script.
pub fn is_ignored(signal: Signal) -> bool {
    let mut current = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: sigaction without a new action only fills in the current action, which is read only if the call
    // succeeded.
    unsafe {
        libc::sigaction(signal.as_raw(), ptr::null(), current.as_mut_ptr()) == 0
            && current.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// Ignores `SIGXFSZ`, so that a write beyond the limit of file sizes (`RLIMIT_FSIZE`) fails with an error and does
/// not end this process.
pub(crate) fn ignore_file_size_signal() {
    // SAFETY: SIG_IGN runs no code of ours.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Unblocks all signals for this thread and the threads that it starts later. Blocked signals are inherited from the parent, and a server
/// that blocks `SIGTERM` could not be asked to end.
pub fn unblock_signals() {
    let mut none = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset fills in the set before it is read, and a null old set means that the old mask is not
    // wanted.
    unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());
    }
}

/// Ignores the signals that ask a process to end, and `SIGPIPE`, which would end it too. The guard calls this: it is
/// a process that outlives the server and then kills what the server has left behind, and a signal that ends the
/// server is often sent to both.
pub(crate) fn ignore_termination_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE] {
        // SAFETY: SIG_IGN runs no code of ours.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}
