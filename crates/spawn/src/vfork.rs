//! Making a child: it borrows our memory until it executes, as with `vfork` and `posix_spawn`, so that the cost does not grow with
//! the size of the server, and a failed step is our return value. Unlike `posix_spawn` it can set limits of the child, which are
//! then never those of the server, not even for a moment.
//!
//! The child leads a session of its own, with every signal at its default and none blocked.

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
use crate::image::CStringArray;
use crate::rlimit::{ChildLimits, Limit};
use crate::system_call::system_call;

/// For the few system calls between the beginning of the child and its program. Nothing there calls deeply.
const STACK_BYTES: usize = 64 << 10;

/// Signals have the numbers from 1 to this one, including those that glibc keeps for itself.
const LAST_SIGNAL: c_int = 64;

/// As the kernel counts the bytes of a set of signals.
const SIGNAL_SET_BYTES: usize = 8;

/// What the program of a child never sees, because the child ends before it runs.
const EXIT_CODE_OF_FAILURE: c_int = 127;

/// What the child does to its directory, its descriptors and its umask before it executes, in this order. Then it closes every
/// descriptor but its standard streams and the one that an action has put above them.
#[derive(Default)]
pub(crate) struct FileActions {
    list: Vec<FileAction>,
    above_stdio: Option<c_int>,
    cancel_flag: Option<Arc<CancelFlag>>,
}

enum FileAction {
    ChangeDirectory { to: c_int },
    Open { target: c_int, path: CString, flags: c_int },
    Duplicate { source: c_int, target: c_int },
    SetUmask { mask: u32 },
}

impl FileActions {
    pub(crate) fn change_directory(&mut self, directory: BorrowedFd<'_>) {
        self.list.push(FileAction::ChangeDirectory { to: directory.as_raw_fd() });
    }

    pub(crate) fn open(&mut self, target: c_int, path: &CStr, flags: c_int) {
        self.note(target);
        self.list.push(FileAction::Open { target, path: path.to_owned(), flags });
    }

    pub(crate) fn duplicate(&mut self, source: c_int, target: c_int) {
        self.note(target);
        self.list.push(FileAction::Duplicate { source, target });
    }

    pub(crate) fn set_umask(&mut self, mask: u32) {
        self.list.push(FileAction::SetUmask { mask });
    }

    /// The child ends with `ECANCELED` instead of executing its program if the flag is set by then.
    pub(crate) fn end_if_cancelled(&mut self, flag: Arc<CancelFlag>) {
        self.cancel_flag = Some(flag);
    }

    fn note(&mut self, target: c_int) {
        if target >= FIRST_AFTER_STDIO {
            debug_assert!(self.above_stdio.is_none_or(|before| before == target), "only one descriptor is left open");
            self.above_stdio = Some(target);
        }
    }
}

/// All that the child needs, and where it writes why it has failed.
struct Plan<'a> {
    path: &'a CStr,
    argv: &'a CStringArray,
    env: &'a CStringArray,
    actions: &'a FileActions,
    limits: &'a ChildLimits,
    failure: c_int,
}

/// A child that executes its program.
#[derive(Debug)]
pub(crate) struct Executing {
    pub(crate) pid: Pid,
    /// None from a kernel before 5.2, and from a thread with a descriptor table of its own.
    pub(crate) pidfd: Option<OwnedFd>,
}

impl Executing {
    /// The descriptor by which the end of the child is seen.
    pub(crate) fn into_pidfd(self) -> io::Result<OwnedFd> {
        match self.pidfd {
            Some(pidfd) => Ok(pidfd),
            None => Ok(rustix::process::pidfd_open(self.pid, PidfdFlags::empty())?),
        }
    }
}

thread_local! {
    /// The stack of children that this thread makes, one at a time: the thread waits while a child is on it.
    static STACK: RefCell<Box<[MaybeUninit<u8>]>> = RefCell::new(Box::new_uninit_slice(STACK_BYTES));
}

/// Starts the program at `path`, meant from the directory the child changes to. Returns when the program is being executed.
pub(crate) fn spawn(
    path: &CStr,
    argv: &CStringArray,
    env: &CStringArray,
    actions: &FileActions,
    limits: &ChildLimits,
) -> Result<Executing, Errno> {
    let mut plan = Plan { path, argv, env, actions, limits, failure: 0 };
    let child = STACK.with_borrow_mut(|stack| make_child(&mut plan, stack))?;
    if plan.failure == 0 {
        return Ok(child);
    }
    // It has ended, or does so now.
    while matches!(rustix::process::waitid(WaitId::Pid(child.pid), WaitIdOptions::EXITED), Err(Errno::INTR)) {}
    Err(Errno::from_raw_os_error(plan.failure))
}

/// The pidfd is made together with the child: without a descriptor for it there is no child, and nothing is executed that nobody could watch.
fn make_child(plan: &mut Plan<'_>, stack: &mut [MaybeUninit<u8>]) -> Result<Executing, Errno> {
    let top: *mut c_void = stack.as_mut_ptr_range().end.cast();
    let argument: *mut c_void = ptr::from_mut(plan).cast();
    let all: u64 = !0;
    let mut before: u64 = 0;
    let mut pidfd: c_int = -1;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
    // SAFETY: the sets are as large as the kernel is told, and `before` is what was valid before. `clone` runs `child` on a stack
    // that nobody else uses; this thread waits until the child has executed or ended, so that `plan` and everything it refers to
    // outlive its use. All signals are blocked meanwhile, so that no handler of ours runs in the child. The kernel writes the pidfd to where
    // `clone` is told to; if there is a child and a number, nobody else owns the descriptor.
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
    Ok(Executing { pid: Pid::from_raw(pid).ok_or(Errno::SRCH)?, pidfd })
}

/// # Safety
/// Both pointers must be valid for the access that their kind says; `old` may be null.
unsafe fn set_signal_mask(new: *const u64, old: *mut u64) {
    let arguments = [libc::SIG_SETMASK as usize, new.addr(), old.addr(), SIGNAL_SET_BYTES, 0];
    // SAFETY: as promised by the caller.
    let _cannot_fail = unsafe { system_call(libc::SYS_rt_sigprocmask, arguments) };
}

/// The child, from its first instruction. It shares the memory of the server, other threads of which go on meanwhile: it allocates
/// nothing, takes no lock, and calls nothing but the kernel, and that not by functions of the C library, which may be others than they seem.
extern "C" fn child(argument: *mut c_void) -> c_int {
    // SAFETY: the thread that made us has passed a pointer to its plan and waits, so that nobody else uses it.
    let plan = unsafe { &mut *argument.cast::<Plan<'_>>() };
    plan.failure = follow(plan).err().unwrap_or(0);
    // SAFETY: ends this process only and runs no handlers, which are those of the server.
    let _never_returns = unsafe { system_call(libc::SYS_exit_group, [EXIT_CODE_OF_FAILURE as usize, 0, 0, 0, 0]) };
    EXIT_CODE_OF_FAILURE
}

/// Returns only if a step has failed, with its error number.
fn follow(plan: &Plan<'_>) -> Result<(), c_int> {
    // First of all, so that it is found by its tag, also if it hangs later or is cancelled.
    set_limit(plan.limits.tag.as_ref())?;
    // What is ignored would stay ignored, and what is handled would run code of the server when signals are let through again.
    // The action of the kernel has no more than these words on any machine; all zero is the default.
    let default = [0_u64; 4];
    for signal in 1..=LAST_SIGNAL {
        let arguments = [signal as usize, default.as_ptr().addr(), 0, SIGNAL_SET_BYTES, 0];
        // SAFETY: the new action is valid for reads and runs no code, and a null old action means that it is not wanted.
        let _refused_for_two_signals = unsafe { system_call(libc::SYS_rt_sigaction, arguments) };
    }
    // SAFETY: takes no argument.
    let _cannot_fail_in_a_new_process = unsafe { system_call(libc::SYS_setsid, [0; 5]) };
    plan.actions.list.iter().try_for_each(perform)?;
    close_others(plan.actions.above_stdio);
    // After the actions: they need numbers for a moment that lie above those of the server.
    set_limit(plan.limits.open_files.as_ref())?;
    if plan.actions.cancel_flag.as_ref().is_some_and(|flag| flag.is_cancelled()) {
        return Err(libc::ECANCELED);
    }
    let none: u64 = 0;
    let image = [plan.path.as_ptr().addr(), plan.argv.as_ptr().addr(), plan.env.as_ptr().addr(), 0, 0];
    // SAFETY: the set is valid for reads. The path is a C string, and argv and env are null-terminated arrays of C strings; all of
    // them outlive the call.
    unsafe {
        set_signal_mask(&none, ptr::null_mut());
        system_call(libc::SYS_execve, image).map(drop)
    }
}

fn set_limit(limit: Option<&Limit>) -> Result<(), c_int> {
    let Some(limit) = limit else { return Ok(()) };
    let arguments = [0, limit.resource as usize, ptr::from_ref(&limit.values).addr(), 0, 0];
    // SAFETY: the pointer to the new limit is valid for reads, and a null old limit means that it is not wanted.
    unsafe { system_call(libc::SYS_prlimit64, arguments) }.map(drop)
}

/// Closes what the server has open, in the child's own table. Executing does that too, but it can hang for as long as the file system of
/// the program does, and until then a copy of the pipe to another process would keep that process from seeing the end of its input.
fn close_others(kept: Option<c_int>) {
    let close = |first: c_int, last: c_int| {
        // SAFETY: the child has a table of its own and uses none of these descriptors any more.
        let _else_executing_closes =
            unsafe { system_call(libc::SYS_close_range, [first as usize, last as usize, 0, 0, 0]) };
    };
    match kept {
        Some(kept) => {
            // An empty range is refused, which is as good.
            close(FIRST_AFTER_STDIO, kept - 1);
            close(kept + 1, c_int::MAX);
        }
        None => close(FIRST_AFTER_STDIO, c_int::MAX),
    }
}

fn perform(action: &FileAction) -> Result<(), c_int> {
    // SAFETY: the descriptors are numbers in the child's own table, which nobody else uses, and the path is a C string.
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
        // Duplicating a descriptor to itself is refused.
        FileAction::Duplicate { source, target } if source == target => {
            call(libc::SYS_fcntl, [*source as usize, libc::F_SETFD as usize, 0, 0, 0]).map(drop)
        }
        FileAction::Duplicate { source, target } => {
            call(libc::SYS_dup3, [*source as usize, *target as usize, 0, 0, 0]).map(drop)
        }
        // It returns the old mask and cannot fail. The child has a mask of its own, because it was not made with CLONE_FS.
        FileAction::SetUmask { mask } => call(libc::SYS_umask, [*mask as usize, 0, 0, 0, 0]).map(drop),
    }
}
