//! The leader: the process that becomes the command. It leads a Unix session (`setsid`). Until it executes the program, it
//! shares the memory of the launcher (or has a copy, see `command`), so it allocates nothing and makes only system calls. In
//! a sandbox of namespaces it starts in those of the command, with the capability of the launcher (`CAP_SYS_ADMIN`), and
//! gives up every privilege before it executes the program.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::fd::RawFd;
use std::ptr;

use super::confinement::{self, check, error_number};
use super::isolation::LeaderIsolation;
use super::landlock_rules;
use super::raw_call::close_all_but;
use super::signals::{DEFAULT_ACTION, SIGNAL_SET_BYTES};
use crate::message::{KEPT_DESCRIPTORS_MESSAGE, StartStage};

/// The waits before an executable that is open for writing is tried again, in milliseconds. The file `execute.rs` of the
/// crate `spawn` gives the reason.
const BUSY_RETRY_WAITS_MS: [i64; 5] = [1, 2, 4, 8, 16];

/// The exit code of a process that could not become the command. Nobody sees it.
const FAILURE_EXIT_CODE: c_int = 127;

/// Why a leader could not become the command: the step that failed, and its error number. None if it has become the command.
pub(super) type LeaderFailure = Option<(StartStage, i32)>;

/// What the leader has to do.
pub(super) struct LeaderPlan<'a> {
    pub(super) candidates: &'a [*const c_char],
    /// Whether the candidates come from a search along `PATH`, so that missing ones are skipped.
    pub(super) searched: bool,
    pub(super) argv: &'a [*const c_char],
    /// `argv` for a script without `#!` line: the shell, then an element for the path of the script, then the arguments.
    pub(super) script_argv: &'a mut [*const c_char],
    pub(super) env: &'a [*const c_char],
    pub(super) cwd: &'a CStr,
    pub(super) umask: Option<u32>,
    /// The resource limit that is the tag: number of the resource, soft limit, hard limit.
    pub(super) tag: Option<(u32, u64, u64)>,
    /// Further resource limits, in the same form.
    pub(super) limits: &'a [(u32, u64, u64)],
    /// Whether stdin is a terminal, which becomes the controlling terminal.
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
    /// Reports refused calls to the server.
    pub(super) reporting_filter: &'a [libc::sock_filter],
    /// Used if the kernel does not allow the reporting filter.
    pub(super) plain_filter: &'a [libc::sock_filter],
    /// Where the leader reports an error. The launcher can read this even if the leader has only a copy of the launcher's memory.
    pub(super) failure: &'a mut LeaderFailure,
}

/// The function that `clone` calls in the new process.
pub(super) extern "C" fn main(argument: *mut c_void) -> c_int {
    // SAFETY: the launcher's thread has passed a pointer to its plan, and waits until this process has executed the program or ended.
    let plan = unsafe { &mut *argument.cast::<LeaderPlan<'_>>() };
    *plan.failure = run(plan).err();
    // SAFETY: ends this process only, without running handlers of the launcher.
    unsafe { libc::syscall(libc::SYS_exit_group, FAILURE_EXIT_CODE) };
    FAILURE_EXIT_CODE
}

fn run(plan: &mut LeaderPlan<'_>) -> Result<(), (StartStage, i32)> {
    let at = |stage: StartStage| move |error: i32| (stage, error);
    // The tag comes first: by it the server finds this process even if the rest hangs.
    plan.tag.iter().try_for_each(set_limit).map_err(at(StartStage::Prepare))?;
    // SAFETY: takes nothing.
    check(unsafe { libc::setsid() }).map_err(at(StartStage::Isolate))?;
    prepare(plan).map_err(at(StartStage::Prepare))?;
    close_others(plan);
    // SAFETY: the path is a C string.
    check(unsafe { libc::chdir(plan.cwd.as_ptr()) }).map_err(at(StartStage::WorkingDirectory))?;
    confine(plan)?;
    let listener = install_filter(plan).map_err(at(StartStage::Confine))?;
    send_kept_descriptors(plan, listener).map_err(at(StartStage::Confine))?;
    // A process may send descriptors only while its limit of open files is high enough, so the limits come after that.
    plan.limits.iter().try_for_each(set_limit).map_err(at(StartStage::Prepare))?;
    if was_cancelled(plan.server) {
        return Err((StartStage::Cancelled, libc::ECANCELED));
    }
    execute(plan).map_err(at(StartStage::Execute))
}

/// The next steps can hang, for example on a dead network mount. Meanwhile this process must not hold descriptors of the launcher and of
/// commands that start at the same time. What stays open above stderr is closed when the program is executed, except the extra descriptor.
fn close_others(plan: &LeaderPlan<'_>) {
    let extra = plan.extra.map_or(plan.server, |(_, number)| number);
    let mut kept = match plan.isolation {
        LeaderIsolation::Namespaces { users, lifeline } => [extra, plan.server, users, lifeline],
        LeaderIsolation::Landlock { ruleset, .. } => [extra, plan.server, ruleset, ruleset],
    };
    close_all_but(3, &mut kept);
}

/// Gives up what the command must not have.
fn confine(plan: &LeaderPlan<'_>) -> Result<(), (StartStage, i32)> {
    let confined = |result: Result<(), RefusedConfinement>| result.map_err(|(_, error)| (StartStage::Confine, error));
    confined(give_up_privileges(plan.isolation))?;
    confined(apply_landlock(plan.isolation))
}

/// The system call that the kernel has refused to a leader, and the error number.
pub(super) type RefusedConfinement = (&'static str, i32);

/// Confines this process as a leader confines itself. `filter` is the plain filter of system calls.
pub(super) fn try_confinement(
    isolation: LeaderIsolation<'_>,
    filter: &[libc::sock_filter],
) -> Result<(), RefusedConfinement> {
    give_up_privileges(isolation)?;
    apply_landlock(isolation)?;
    set_filter(filter, 0).map(drop).map_err(|error| ("seccomp", error))
}

fn give_up_privileges(isolation: LeaderIsolation<'_>) -> Result<(), RefusedConfinement> {
    let LeaderIsolation::Namespaces { users, .. } = isolation else { return Ok(()) };
    // SAFETY: takes numbers.
    check(unsafe { libc::setns(users, libc::CLONE_NEWUSER) }).map_err(|error| ("setns", error))?;
    confinement::drop_everything().map_err(|error| ("capset", error))
}

fn apply_landlock(isolation: LeaderIsolation<'_>) -> Result<(), RefusedConfinement> {
    let LeaderIsolation::Landlock { ruleset, filter } = isolation else { return Ok(()) };
    landlock_rules::restrict_self(ruleset).map_err(|error| ("landlock_restrict_self", error))?;
    set_filter(filter, 0).map(drop).map_err(|error| ("seccomp", error))
}

fn prepare(plan: &LeaderPlan<'_>) -> Result<(), i32> {
    // SAFETY: the pointers are to values of the given size, and descriptors are numbers of this process's own table.
    unsafe {
        if let Some(procs) = plan.cgroup_procs {
            // 0 stands for the process that writes.
            check(libc::write(procs, c"0".as_ptr().cast(), 1) as c_int)?;
        }
        // The launcher ignores only this signal.
        let (signal, previous) = (libc::SIGCHLD, ptr::null_mut::<u64>());
        libc::syscall(libc::SYS_rt_sigaction, signal, DEFAULT_ACTION.as_ptr(), previous, SIGNAL_SET_BYTES);
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
fn set_limit((resource, soft, hard): &(u32, u64, u64)) -> Result<(), i32> {
    let values = libc::rlimit64 { rlim_cur: *soft, rlim_max: *hard };
    // SAFETY: the pointer to the new limit is valid for reads, and a null old limit means that it is not wanted.
    check(unsafe { libc::prlimit64(0, *resource as libc::__rlimit_resource_t, &values, ptr::null_mut()) })
}

/// Installs the reporting filter, and returns the descriptor through which the server gets its reports. If the kernel refuses this filter,
/// installs the plain filter and returns None.
fn install_filter(plan: &LeaderPlan<'_>) -> Result<Option<RawFd>, i32> {
    let reporting = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    // With the flag `WAIT_KILLABLE_RECV`, only a fatal signal interrupts a call that the server is answering. Linux knows it since 5.19.
    let listener = [reporting | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, reporting]
        .into_iter()
        .find_map(|flags| set_filter(plan.reporting_filter, flags).ok());
    match listener {
        Some(listener) => Ok(Some(listener)),
        None => set_filter(plan.plain_filter, 0).map(|_| None),
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

/// Sends the server the descriptors that it keeps while the command runs, with the message [`KEPT_DESCRIPTORS_MESSAGE`].
fn send_kept_descriptors(plan: &LeaderPlan<'_>, listener: Option<RawFd>) -> Result<(), i32> {
    let lifeline = match plan.isolation {
        LeaderIsolation::Namespaces { lifeline, .. } => Some(lifeline),
        LeaderIsolation::Landlock { .. } => None,
    };
    let (descriptors, count) = match (lifeline, listener) {
        (Some(lifeline), Some(listener)) => ([lifeline, listener], 2),
        (Some(only), None) | (None, Some(only)) => ([only, -1], 1),
        (None, None) => return Ok(()),
    };
    #[repr(C, align(8))]
    struct Control([u8; 32]);
    let mut control = Control([0; 32]);
    let bytes = count * size_of::<RawFd>() as u32;
    let message = KEPT_DESCRIPTORS_MESSAGE;
    let mut part = libc::iovec { iov_base: message.as_ptr().cast_mut().cast(), iov_len: message.len() };
    // SAFETY: all zeros are a valid message header. The buffer for the control message is larger than two descriptors need, and everything
    // lives during the call.
    unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = libc::CMSG_SPACE(bytes) as usize;
        let rights = libc::CMSG_FIRSTHDR(&raw const header);
        (*rights).cmsg_level = libc::SOL_SOCKET;
        (*rights).cmsg_type = libc::SCM_RIGHTS;
        (*rights).cmsg_len = libc::CMSG_LEN(bytes) as usize;
        ptr::copy_nonoverlapping(descriptors.as_ptr().cast(), libc::CMSG_DATA(rights), bytes as usize);
        check(libc::sendmsg(plan.server, &raw const header, libc::MSG_NOSIGNAL) as c_int)
    }
}

/// Whether the server has cancelled the start by shutting down or closing its end of the socket. This is checked last: a
/// server that cancels later finds this process by its tag.
fn was_cancelled(server: RawFd) -> bool {
    let mut polled = libc::pollfd { fd: server, events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: one structure, which lives during the call.
    unsafe { libc::poll(&raw mut polled, 1, 0) != 0 }
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
