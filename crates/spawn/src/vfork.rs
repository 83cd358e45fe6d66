//! Makes a child process and lets it execute a program. As with `vfork` and `posix_spawn`, the child uses the memory
//! of the server until it executes, so that the cost does not grow with the size of the server, and [`spawn`] can
//! return the error of a step that fails in the child. Unlike with `posix_spawn`, the child can set its own limits,
//! and the server never has them.
//!
//! The child leads its own session (`setsid`). All its signals have their default action and none is blocked. This
//! module does not know what the program or the descriptors are for. Start with [`spawn`]; [`child`] is the code that
//! runs in the child.

use std::cell::RefCell;
use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;

use libc::{c_int, c_void};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions};

use crate::cancel_flag::CancelFlag;
use crate::descriptors::FIRST_AFTER_STDIO;
use crate::exec_args::CStringArray;
use crate::rlimit::{ChildLimits, ResourceLimit};
use crate::system_call::system_call;

/// The stack of a child until it executes. This is enough, because the child makes only a few system calls, and no
/// deep calls.
const STACK_BYTES: usize = 64 << 10;

/// The highest signal number. The lowest is 1. Signals whose numbers glibc reserves for itself are reset too.
const LAST_SIGNAL: c_int = 64;

/// The size of a signal set in the kernel. The signal set of glibc is larger.
const SIGNAL_SET_BYTES: usize = 8;

/// The exit code of a child that fails before it executes. No caller sees it, because [`spawn`] reaps the child and returns the error.
const FAILURE_EXIT_CODE: c_int = 127;

/// Changes of the working directory, the descriptors, the umask and the cgroup that the child makes before it executes, in the order in which they were
/// added. Then the child closes all descriptors but the standard streams and the targets of actions.
#[derive(Default)]
pub(crate) struct FileActions {
    list: Vec<FileAction>,
    /// The targets above the standard streams, which stay open. Sorted.
    above_stdio: Vec<c_int>,
    /// If this flag is set, the child ends instead of executing its program.
    cancel_flag: Option<Arc<CancelFlag>>,
}

enum FileAction {
    ChangeDirectory {
        to: c_int,
    },
    Open {
        target: c_int,
        path: CString,
        flags: c_int,
    },
    Duplicate {
        source: c_int,
        target: c_int,
    },
    SetUmask {
        mask: u32,
    },
    /// Moves the child into the cgroup whose file `cgroup.procs` is open for writing at this descriptor.
    EnterCgroup {
        procs: c_int,
    },
}

impl FileActions {
    pub(crate) fn change_directory(&mut self, directory: BorrowedFd<'_>) {
        self.list.push(FileAction::ChangeDirectory { to: directory.as_raw_fd() });
    }

    pub(crate) fn open(&mut self, target: c_int, path: &CStr, flags: c_int) {
        self.note_target(target);
        self.list.push(FileAction::Open { target, path: path.to_owned(), flags });
    }

    pub(crate) fn duplicate(&mut self, source: c_int, target: c_int) {
        self.note_target(target);
        self.list.push(FileAction::Duplicate { source, target });
    }

    pub(crate) fn set_umask(&mut self, mask: u32) {
        self.list.push(FileAction::SetUmask { mask });
    }

    /// Every action after this one is counted and limited by the cgroup. `procs` is its file `cgroup.procs`.
    pub(crate) fn enter_cgroup(&mut self, procs: BorrowedFd<'_>) {
        self.list.push(FileAction::EnterCgroup { procs: procs.as_raw_fd() });
    }

    /// If the flag is set when the child is about to execute its program, the child ends and [`spawn`] returns `ECANCELED`.
    pub(crate) fn end_if_cancelled(&mut self, flag: Arc<CancelFlag>) {
        self.cancel_flag = Some(flag);
    }

    fn note_target(&mut self, target: c_int) {
        if target >= FIRST_AFTER_STDIO && !self.above_stdio.contains(&target) {
            self.above_stdio.push(target);
            self.above_stdio.sort_unstable();
        }
    }
}

/// The input of the child, and the place where it writes its error number.
struct ChildPlan<'a> {
    path: &'a CStr,
    argv: &'a CStringArray,
    env: &'a CStringArray,
    actions: &'a FileActions,
    limits: &'a ChildLimits,
    /// 0 if the child has not failed.
    failure: c_int,
}

/// A child that has begun to execute its program.
#[derive(Debug)]
pub(crate) struct StartedChild {
    pub(crate) pid: Pid,
    /// None from a kernel before 5.2, and from the launcher, a thread whose descriptors are in another table.
    pub(crate) pidfd: Option<OwnedFd>,
}

impl StartedChild {
    /// The pidfd, which is readable when the child has ended. Opens a pidfd if there is none yet; then the child must
    /// not have been reaped.
    pub(crate) fn into_pidfd(self) -> io::Result<OwnedFd> {
        match self.pidfd {
            Some(pidfd) => Ok(pidfd),
            None => Ok(rustix::process::pidfd_open(self.pid, PidfdFlags::empty())?),
        }
    }
}

thread_local! {
    /// The stack for the children of this thread. One is enough, because the thread waits until a child has executed or ended.
    static STACK: RefCell<Box<[MaybeUninit<u8>]>> = RefCell::new(Box::new_uninit_slice(STACK_BYTES));
}

/// Starts the program at `path`. A relative path is resolved against the directory that the child changes to. Returns when the kernel has
/// opened the program, or with the error of the step that has failed.
pub(crate) fn spawn(
    path: &CStr,
    argv: &CStringArray,
    env: &CStringArray,
    actions: &FileActions,
    limits: &ChildLimits,
) -> Result<StartedChild, Errno> {
    let mut plan = ChildPlan { path, argv, env, actions, limits, failure: 0 };
    let child = STACK.with_borrow_mut(|stack| make_child(&mut plan, stack))?;
    if plan.failure == 0 {
        return Ok(child);
    }
    // The child has failed and has ended, or is about to.
    while matches!(rustix::process::waitid(WaitId::Pid(child.pid), WaitIdOptions::EXITED), Err(Errno::INTR)) {}
    Err(Errno::from_raw_os_error(plan.failure))
}

/// Makes the child together with its pidfd. If there is no descriptor for the pidfd, no child is made, so no program runs that cannot be
/// watched.
fn make_child(plan: &mut ChildPlan<'_>, stack: &mut [MaybeUninit<u8>]) -> Result<StartedChild, Errno> {
    let top: *mut c_void = stack.as_mut_ptr_range().end.cast();
    let argument: *mut c_void = ptr::from_mut(plan).cast();
    let all: u64 = !0;
    let mut before: u64 = 0;
    let mut pidfd: c_int = -1;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
    // SAFETY: the signal sets have the size that is passed to the kernel, and the first call fills in `before`. `clone` runs `child` on a
    // stack that nothing else uses; this thread waits until the child has executed or ended, so that `plan` and everything it refers to
    // live long enough. All signals are blocked meanwhile, so that no handler of the server runs in the child. `clone` writes the number of
    // the pidfd to the given address, and this function is the only owner of that descriptor.
    let (pid, pidfd) = unsafe {
        set_signal_mask(&all, &mut before);
        let pid = libc::clone(child, top, flags, argument, &raw mut pidfd);
        let error = *libc::__errno_location();
        set_signal_mask(&before, ptr::null_mut());
        if pid < 0 {
            return Err(Errno::from_raw_os_error(error));
        }
        (pid, (pidfd >= 0).then(|| OwnedFd::from_raw_fd(pidfd)))
    };
    Ok(StartedChild { pid: Pid::from_raw(pid).ok_or(Errno::SRCH)?, pidfd })
}

/// # Safety
/// `new` must be valid for reads, and `old` must be valid for writes or null.
unsafe fn set_signal_mask(new: *const u64, old: *mut u64) {
    let arguments = [libc::SIG_SETMASK as usize, new.addr(), old.addr(), SIGNAL_SET_BYTES, 0];
    // SAFETY: as promised by the caller.
    let _cannot_fail = unsafe { system_call(libc::SYS_rt_sigprocmask, arguments) };
}

/// The first function of the child. The child shares the memory of the server, whose other threads keep running. So it allocates nothing,
/// takes no lock, and makes only system calls. It makes them without the C library, whose functions a preloaded library may have replaced.
extern "C" fn child(argument: *mut c_void) -> c_int {
    // SAFETY: the thread that made this child has passed a pointer to its plan and waits, so that nothing else uses the plan.
    let plan = unsafe { &mut *argument.cast::<ChildPlan<'_>>() };
    plan.failure = run(plan).err().unwrap_or(0);
    // SAFETY: ends this process only and runs no handlers, which are those of the server.
    let _never_returns = unsafe { system_call(libc::SYS_exit_group, [FAILURE_EXIT_CODE as usize, 0, 0, 0, 0]) };
    FAILURE_EXIT_CODE
}

/// Prepares the child and executes the program. Returns only if a step has failed, with its error number.
fn run(plan: &ChildPlan<'_>) -> Result<(), c_int> {
    // The tag, a resource limit by which a kill finds the child and its descendants, comes first. So the child is
    // found even if it hangs later or its start is cancelled.
    plan.limits.tag.iter().try_for_each(set_limit)?;
    // Otherwise an ignored signal would stay ignored in the program, and a handler of the server would run in the child when signals are
    // unblocked. An action in the kernel has at most four words on every architecture, and all zeros mean the default action.
    let default = [0_u64; 4];
    for signal in 1..=LAST_SIGNAL {
        let arguments = [signal as usize, default.as_ptr().addr(), 0, SIGNAL_SET_BYTES, 0];
        // SAFETY: the new action is valid for reads and runs no code, and a null old action means that it is not wanted.
        let _refused_for_kill_and_stop = unsafe { system_call(libc::SYS_rt_sigaction, arguments) };
    }
    // SAFETY: takes no argument.
    let _cannot_fail_in_a_new_process = unsafe { system_call(libc::SYS_setsid, [0; 5]) };
    plan.actions.list.iter().try_for_each(apply)?;
    close_others(&plan.actions.above_stdio);
    plan.limits.others.iter().try_for_each(set_limit)?;
    if plan.actions.cancel_flag.as_ref().is_some_and(|flag| flag.is_cancelled()) {
        return Err(libc::ECANCELED);
    }
    let none: u64 = 0;
    let arguments = [plan.path.as_ptr().addr(), plan.argv.as_ptr().addr(), plan.env.as_ptr().addr(), 0, 0];
    // SAFETY: the set is valid for reads. The path is a C string, and argv and env are null-terminated arrays of C strings; all of
    // them outlive the call.
    unsafe {
        set_signal_mask(&none, ptr::null_mut());
        system_call(libc::SYS_execve, arguments).map(drop)
    }
}

fn set_limit(limit: &ResourceLimit) -> Result<(), c_int> {
    let arguments = [0, limit.resource as usize, ptr::from_ref(&limit.values).addr(), 0, 0];
    // SAFETY: the pointer to the new limit is valid for reads, and a null old limit means that it is not wanted.
    unsafe { system_call(libc::SYS_prlimit64, arguments) }.map(drop)
}

/// Closes the child's copies of the server's descriptors. `execve` does that too, but it can hang, for example on a
/// dead network mount. While it hangs, a copy of the pipe to another process would keep that process from reading the
/// end of its input.
fn close_others(kept: &[c_int]) {
    let close = |first: c_int, last: c_int| {
        // SAFETY: the child has a table of its own and uses none of these descriptors any more.
        let _execve_closes_the_rest =
            unsafe { system_call(libc::SYS_close_range, [first as usize, last as usize, 0, 0, 0]) };
    };
    let mut first = FIRST_AFTER_STDIO;
    for number in kept {
        // The kernel refuses an empty range, and then there is nothing to close.
        close(first, number - 1);
        first = number + 1;
    }
    close(first, c_int::MAX);
}

fn apply(action: &FileAction) -> Result<(), c_int> {
    // SAFETY: the descriptors are numbers in the child's own table, which no other process uses, and the path is a C string.
    let call = |number, arguments| unsafe { system_call(number, arguments) };
    match action {
        FileAction::ChangeDirectory { to } => call(libc::SYS_fchdir, [*to as usize, 0, 0, 0, 0]).map(drop),
        FileAction::Open { target, path, flags } => {
            let arguments = [libc::AT_FDCWD as usize, path.as_ptr().addr(), *flags as usize, 0, 0];
            let opened = call(libc::SYS_openat, arguments)?;
            if opened != *target as usize {
                call(libc::SYS_dup3, [opened, *target as usize, 0, 0, 0])?;
                call(libc::SYS_close, [opened, 0, 0, 0, 0])?;
            }
            Ok(())
        }
        // dup3 refuses to duplicate a descriptor to itself. Clearing the flag close-on-exec keeps it open in the
        // program.
        FileAction::Duplicate { source, target } if source == target => {
            call(libc::SYS_fcntl, [*source as usize, libc::F_SETFD as usize, 0, 0, 0]).map(drop)
        }
        FileAction::Duplicate { source, target } => {
            call(libc::SYS_dup3, [*source as usize, *target as usize, 0, 0, 0]).map(drop)
        }
        // umask returns the old mask and cannot fail. The mask of the server does not change, because the child was made without CLONE_FS.
        FileAction::SetUmask { mask } => call(libc::SYS_umask, [*mask as usize, 0, 0, 0, 0]).map(drop),
        // 0 stands for the process that writes.
        FileAction::EnterCgroup { procs } => {
            call(libc::SYS_write, [*procs as usize, c"0".as_ptr().addr(), 1, 0, 0]).map(drop)
        }
    }
}
