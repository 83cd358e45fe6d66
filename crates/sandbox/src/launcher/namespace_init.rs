//! The first process of a command's PID namespace. When it ends, the kernel kills every process of the namespace, so
//! no descendant of a command can outlive it. It reaps orphans, and ends when the server has reaped the command and no
//! orphan is left, or when the launcher has ended. It holds nothing that a command could use: no capability, and no
//! descriptor but two ends of pipes.
//!
//! The process is a copy of a launcher with several threads, so it makes only system calls.

use std::os::fd::RawFd;
use std::ptr;

use super::confinement;
use super::leader::set_limit;

/// What the process needs to know.
pub(super) struct InitPlan<'a> {
    /// The server shuts down the other end when it has reaped the command.
    pub(super) server: RawFd,
    /// The launcher holds the other end.
    pub(super) launcher: RawFd,
    /// The limits of the command. The first one is the tag by which the server finds this process too.
    pub(super) limits: &'a [(u32, u64, u64)],
}

/// Lets the kernel reap the processes that the launcher makes, because nobody waits for them. Called once, in the launcher.
pub(super) fn let_the_kernel_reap() {
    // SAFETY: ignoring a signal runs no code.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
}

/// Serves until the namespace may end, and then ends this process. Never returns.
pub(super) fn run(plan: &InitPlan<'_>) -> ! {
    // If this fails, the process ends, and the command cannot be started in its namespace.
    let code = serve(plan).err().unwrap_or(0);
    // SAFETY: ends this process only, without running handlers of the launcher.
    unsafe { libc::_exit(code) }
}

fn serve(plan: &InitPlan<'_>) -> Result<(), i32> {
    if let Some(tag) = plan.limits.first() {
        set_limit(tag)?;
    }
    // SAFETY: the calls take numbers, and pointers to values that live during the call.
    let children = unsafe {
        confinement::check(libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0))?;
        confinement::check(libc::setsid())?;
        // The launcher ignores the signal, and this process would get none then.
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        let (low, high) = (plan.server.min(plan.launcher), plan.server.max(plan.launcher));
        close(0, low - 1);
        close(low + 1, high - 1);
        close(high + 1, RawFd::MAX);
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigprocmask(libc::SIG_BLOCK, &all, ptr::null_mut());
        let mut child_ended: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut child_ended);
        libc::sigaddset(&mut child_ended, libc::SIGCHLD);
        let children = libc::signalfd(-1, &child_ended, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        confinement::check(children)?;
        children
    };
    confinement::drop_held()?;
    let mut command_runs = true;
    loop {
        let wanted = |descriptor, events| libc::pollfd { fd: descriptor, events, revents: 0 };
        // A negative descriptor is left out. The kernel reports that the launcher's end was closed even if nothing is asked for.
        let server = if command_runs { plan.server } else { -1 };
        let mut polled = [wanted(server, libc::POLLRDHUP), wanted(plan.launcher, 0), wanted(children, libc::POLLIN)];
        // SAFETY: the array has the given length and lives during the call.
        if unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, -1) } < 0 {
            continue;
        }
        if polled[1].revents != 0 {
            return Ok(());
        }
        command_runs &= polled[0].revents == 0;
        if polled[2].revents != 0 {
            let mut signals = [0_u8; 512];
            // SAFETY: the buffer is valid for writes of its length.
            unsafe { libc::read(children, signals.as_mut_ptr().cast(), signals.len()) };
        }
        if !reap() && !command_runs {
            return Ok(());
        }
    }
}

/// Reaps the orphans that have ended. Returns whether any are left.
fn reap() -> bool {
    loop {
        // SAFETY: a null status means that it is not wanted.
        match unsafe { libc::waitpid(-1, ptr::null_mut(), libc::WNOHANG | libc::__WALL) } {
            0 => return true,
            pid if pid > 0 => {}
            _ => return confinement::error_number() != libc::ECHILD,
        }
    }
}

fn close(first: RawFd, last: RawFd) {
    if first <= last {
        // SAFETY: takes numbers, and this process uses none of these descriptors.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    }
}
