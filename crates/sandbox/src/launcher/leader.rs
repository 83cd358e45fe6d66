//! The process that becomes the command. Until it executes the program, it shares the memory of the launcher, so it
//! allocates nothing and makes only system calls. It starts with the capability of the launcher, makes its own mount
//! namespace with its own `/proc`, and then gives up every privilege.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::fd::RawFd;
use std::ptr;

use super::confinement::{self, check, error_number};
use super::isolation::LeaderIsolation;
use super::landlock_rules;
use crate::message::{LISTENER_MESSAGE, StartStage};

/// The waits before an executable that is open for writing is tried again, in milliseconds. See `execute` in the crate
/// that starts processes without a sandbox.
const BUSY_RETRY_WAITS_MS: [i64; 5] = [1, 2, 4, 8, 16];

/// The exit code of a process that could not become the command. Nobody sees it.
const FAILURE_EXIT_CODE: c_int = 127;

/// The highest signal number.
const LAST_SIGNAL: c_int = 64;

/// The size of a signal set in the kernel.
const SIGNAL_SET_BYTES: usize = 8;

/// What the process has to do, and the place where it reports a failure.
pub(super) struct LeaderPlan<'a> {
    pub(super) candidates: &'a [*const c_char],
    pub(super) searched: bool,
    pub(super) argv: &'a [*const c_char],
    /// `argv` for a script without `#!` line: the shell, then a place for the script, then the arguments.
    pub(super) script_argv: &'a mut [*const c_char],
    pub(super) env: &'a [*const c_char],
    pub(super) cwd: &'a CStr,
    pub(super) umask: Option<u32>,
    pub(super) limits: &'a [(u32, u64, u64)],
    pub(super) terminal: bool,
    /// Stdin, stdout and stderr. All have numbers above 2.
    pub(super) standard_streams: [RawFd; 3],
    /// A further descriptor and the number that it gets.
    pub(super) extra: Option<(RawFd, RawFd)>,
    /// The file `cgroup.procs` of the cgroup to enter.
    pub(super) cgroup_procs: Option<RawFd>,
    /// The socket to the server. Its number is above that of the extra descriptor.
    pub(super) server: RawFd,
    pub(super) isolation: LeaderIsolation<'a>,
    pub(super) reporting_filter: &'a [libc::sock_filter],
    pub(super) plain_filter: &'a [libc::sock_filter],
    pub(super) failure: Option<(StartStage, i32)>,
}

/// The function that `clone` calls in the new process.
pub(super) extern "C" fn main(argument: *mut c_void) -> c_int {
    // SAFETY: the launcher's thread has passed a pointer to its plan, and waits until this process has executed the program or ended.
    let plan = unsafe { &mut *argument.cast::<LeaderPlan<'_>>() };
    plan.failure = run(plan).err();
    // SAFETY: ends this process only, without running handlers of the launcher.
    unsafe { libc::syscall(libc::SYS_exit_group, FAILURE_EXIT_CODE) };
    FAILURE_EXIT_CODE
}

fn run(plan: &mut LeaderPlan<'_>) -> Result<(), (StartStage, i32)> {
    let at = |stage: StartStage| move |error: i32| (stage, error);
    // A process that hangs in one of the next steps must not keep the commands alive when the launcher is killed.
    if let LeaderIsolation::Namespaces { kept_alive, .. } = plan.isolation {
        // SAFETY: a descriptor of this process's own table, which it does not use.
        unsafe { libc::syscall(libc::SYS_close, kept_alive) };
    }
    // The tag comes first: by it the server finds this process even if the rest hangs.
    let (tag, limits) = plan.limits.split_at(usize::from(!plan.limits.is_empty()));
    tag.iter().try_for_each(set_limit).map_err(at(StartStage::Prepare))?;
    isolate(plan).map_err(at(StartStage::Isolate))?;
    prepare(plan).map_err(at(StartStage::Prepare))?;
    // SAFETY: the path is a C string.
    check(unsafe { libc::chdir(plan.cwd.as_ptr()) }).map_err(at(StartStage::WorkingDirectory))?;
    confine(plan.isolation, limits)?;
    install_filter(plan).map_err(at(StartStage::Confine))?;
    if was_cancelled(plan.server) {
        return Err((StartStage::Cancelled, libc::ECANCELED));
    }
    close_others(plan.extra.map(|(_, number)| number));
    execute(plan).map_err(at(StartStage::Execute))
}

/// A session of its own, and, in a sandbox of namespaces, a copy of the mount namespace with a `/proc` that shows only the processes of this
/// command.
fn isolate(plan: &LeaderPlan<'_>) -> Result<(), i32> {
    // SAFETY: the strings are C strings, and a null pointer means no options.
    unsafe {
        check(libc::setsid())?;
        if let LeaderIsolation::Namespaces { proc_flags, .. } = plan.isolation {
            check(libc::unshare(libc::CLONE_NEWNS))?;
            if let Some(flags) = proc_flags {
                check(libc::mount(c"proc".as_ptr(), c"/proc".as_ptr(), c"proc".as_ptr(), flags, ptr::null()))?;
            }
        }
    }
    Ok(())
}

/// Gives up what the command must not have, and sets its limits.
fn confine(isolation: LeaderIsolation<'_>, limits: &[(u32, u64, u64)]) -> Result<(), (StartStage, i32)> {
    let confined = |result: Result<(), i32>| result.map_err(|error| (StartStage::Confine, error));
    if let LeaderIsolation::Namespaces { users, .. } = isolation {
        // SAFETY: takes numbers.
        confined(check(unsafe { libc::setns(users, libc::CLONE_NEWUSER) }))?;
        confined(confinement::drop_everything())?;
    }
    limits.iter().try_for_each(set_limit).map_err(|error| (StartStage::Prepare, error))?;
    if let LeaderIsolation::Landlock { ruleset, filter } = isolation {
        confined(landlock_rules::restrict_self(ruleset))?;
        confined(set_filter(filter, 0).map(drop))?;
    }
    Ok(())
}

fn prepare(plan: &LeaderPlan<'_>) -> Result<(), i32> {
    // All zeros mean the default action, with every layout of the kernel's structure.
    let default = [0_u64; 4];
    // SAFETY: the pointers are to values of the given size, and descriptors are numbers of this process's own table.
    unsafe {
        if let Some(procs) = plan.cgroup_procs {
            // 0 stands for the process that writes.
            check(libc::write(procs, c"0".as_ptr().cast(), 1) as c_int)?;
        }
        for signal in 1..=LAST_SIGNAL {
            // Refused for SIGKILL and SIGSTOP.
            libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), ptr::null_mut::<u64>(), SIGNAL_SET_BYTES);
        }
        let none = 0_u64;
        let mask = libc::SIG_SETMASK;
        libc::syscall(libc::SYS_rt_sigprocmask, mask, &raw const none, ptr::null_mut::<u64>(), SIGNAL_SET_BYTES);
        for (number, stream) in (0..).zip(plan.standard_streams) {
            check(libc::dup3(stream, number, 0))?;
        }
        if plan.terminal {
            check(libc::ioctl(0, libc::TIOCSCTTY, 0))?;
        }
        if let Some((descriptor, number)) = plan.extra {
            if descriptor == number {
                check(libc::fcntl(descriptor, libc::F_SETFD, 0))?;
            } else {
                check(libc::dup3(descriptor, number, 0))?;
            }
        }
        if let Some(mask) = plan.umask {
            libc::umask(mask as libc::mode_t);
        }
    }
    Ok(())
}

/// Sets a resource limit of this process.
pub(super) fn set_limit((resource, soft, hard): &(u32, u64, u64)) -> Result<(), i32> {
    let values = libc::rlimit64 { rlim_cur: *soft, rlim_max: *hard };
    // SAFETY: the pointer to the new limit is valid for reads, and a null old limit means that it is not wanted.
    check(unsafe { libc::prlimit64(0, *resource as libc::__rlimit_resource_t, &values, ptr::null_mut()) })
}

/// Installs the filter whose descriptor the server gets. If the kernel refuses that, installs the other one.
fn install_filter(plan: &LeaderPlan<'_>) -> Result<(), i32> {
    let reporting = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    // With the second flag, only a deadly signal interrupts a call that waits for the server. Kernels before 5.19 do not know it.
    let listener = [reporting | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, reporting]
        .into_iter()
        .find_map(|flags| set_filter(plan.reporting_filter, flags).ok());
    match listener {
        Some(listener) => send_listener(plan.server, listener),
        None => set_filter(plan.plain_filter, 0).map(drop),
    }
}

const SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV: libc::c_ulong = 1 << 5;

fn set_filter(filter: &[libc::sock_filter], flags: libc::c_ulong) -> Result<RawFd, i32> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: the program has the given length, and the kernel copies it.
    let returned =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) }
            as c_int;
    check(returned)?;
    Ok(returned)
}

/// Sends the descriptor of the filter to the server, with the message [`LISTENER_MESSAGE`].
fn send_listener(server: RawFd, listener: RawFd) -> Result<(), i32> {
    #[repr(C, align(8))]
    struct Control([u8; 32]);
    let mut control = Control([0; 32]);
    let mut part =
        libc::iovec { iov_base: LISTENER_MESSAGE.as_ptr().cast_mut().cast(), iov_len: LISTENER_MESSAGE.len() };
    // SAFETY: all zeros are a valid message header. The buffer for the control message is larger than one descriptor needs, and everything
    // lives during the call.
    unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as usize;
        let rights = libc::CMSG_FIRSTHDR(&raw const header);
        (*rights).cmsg_level = libc::SOL_SOCKET;
        (*rights).cmsg_type = libc::SCM_RIGHTS;
        (*rights).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as usize;
        libc::CMSG_DATA(rights).cast::<RawFd>().write_unaligned(listener);
        check(libc::sendmsg(server, &raw const header, libc::MSG_NOSIGNAL) as c_int)
    }
}

/// Whether the server has closed its end of the socket. This is checked last: if the server closes its end later, it then
/// finds this process by its tag.
fn was_cancelled(server: RawFd) -> bool {
    let mut polled = libc::pollfd { fd: server, events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: one structure, which lives during the call.
    unsafe { libc::poll(&raw mut polled, 1, 0) != 0 }
}

fn close_others(kept: Option<RawFd>) {
    // SAFETY: takes numbers; this process uses none of these descriptors any more. An empty range is refused.
    unsafe {
        match kept {
            Some(kept) => {
                libc::syscall(libc::SYS_close_range, 3, kept - 1, 0);
                libc::syscall(libc::SYS_close_range, kept + 1, c_int::MAX, 0);
            }
            None => {
                libc::syscall(libc::SYS_close_range, 3, c_int::MAX, 0);
            }
        }
    }
}

/// Tries the candidates as `execvp` does. Returns only if none could be executed, with the same error as `execvp`.
fn execute(plan: &mut LeaderPlan<'_>) -> Result<(), i32> {
    let mut refused = false;
    for candidate in plan.candidates {
        let error = match if plan.searched { check_runnable(*candidate) } else { Ok(()) } {
            Ok(()) => execute_one(*candidate, plan.argv, plan.script_argv, plan.env),
            Err(error) => error,
        };
        match error {
            error if !plan.searched => return Err(error),
            libc::EACCES => refused = true,
            libc::ENOENT | libc::ENOTDIR | libc::ESTALE | libc::ENODEV | libc::ETIMEDOUT | libc::ENAMETOOLONG => {}
            error => return Err(error),
        }
    }
    Err(if refused { libc::EACCES } else { libc::ENOENT })
}

fn check_runnable(path: *const c_char) -> Result<(), i32> {
    // SAFETY: the path is a C string and the structure is valid for writes.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        check(libc::stat(path, &mut stat))?;
        if stat.st_mode & libc::S_IFMT != libc::S_IFREG {
            return Err(libc::EACCES);
        }
        check(libc::access(path, libc::X_OK))
    }
}

/// Executes a file; a file that the kernel does not recognise is executed by the shell. Returns the error number.
fn execute_one(
    path: *const c_char,
    argv: &[*const c_char],
    script_argv: &mut [*const c_char],
    env: &[*const c_char],
) -> i32 {
    for wait in BUSY_RETRY_WAITS_MS.into_iter().map(Some).chain([None]) {
        // SAFETY: the arrays end with a null pointer and consist of C strings that outlive the call.
        let error = unsafe {
            libc::execve(path, argv.as_ptr(), env.as_ptr());
            error_number()
        };
        match (error, wait) {
            (libc::ETXTBSY, Some(milliseconds)) => {
                let time = libc::timespec { tv_sec: 0, tv_nsec: milliseconds * 1_000_000 };
                // SAFETY: the time is valid for reads, and the rest is not wanted.
                unsafe { libc::nanosleep(&time, ptr::null_mut()) };
            }
            (libc::ENOEXEC, _) => {
                if let [shell, script, ..] = script_argv {
                    *script = path;
                    let shell = *shell;
                    // SAFETY: as above.
                    unsafe { libc::execve(shell, script_argv.as_ptr(), env.as_ptr()) };
                }
                return error_number();
            }
            _ => return error,
        }
    }
    libc::ETXTBSY
}
