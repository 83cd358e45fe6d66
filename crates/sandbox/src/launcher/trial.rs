//! Finds out, while a sandbox is made, whether this machine lets a command be confined. A filter of system calls around the
//! server may forbid a call that only a start makes (see `leader`). The server learns it before the first start, so it can
//! still choose another kind of sandbox or refuse the request.

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::ptr;

use rustix::process::{Pid, WaitOptions};

use super::command::LEADER_STACK_BYTES;
use super::failure;
use super::isolation::LeaderIsolation;
use super::leader::{self, RefusedConfinement};
use crate::message::{BuildFailure, BuildStep};

/// What the process of a trial does, and where it reports.
struct Trial<'a> {
    isolation: LeaderIsolation<'a>,
    filter: &'a [libc::sock_filter],
    result: Result<(), RefusedConfinement>,
}

/// Confines a child of this process, which ends at once. Like a command before it executes its program, the child shares the memory of this
/// process, because copying the memory would take longer than the trial.
pub(super) fn try_confinement(
    isolation: LeaderIsolation<'_>,
    filter: &[libc::sock_filter],
) -> Result<(), BuildFailure> {
    // Some filters kill a process instead of refusing its call. Then this result stays.
    let killed = Err(("a system call", libc::EPERM));
    let mut trial = Trial { isolation, filter, result: killed };
    let mut stack: Box<[MaybeUninit<u8>]> = Box::new_uninit_slice(LEADER_STACK_BYTES);
    let top: *mut c_void = stack.as_mut_ptr_range().end.cast();
    let flags: c_int = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the new process uses a stack that nothing else uses, and this thread waits until it has ended, so that everything that it uses
    // lives long enough.
    let child = unsafe { libc::clone(trial_main, top, flags, ptr::from_mut(&mut trial).cast()) };
    if child < 0 {
        return Err(failure(BuildStep::Confinement, io::Error::last_os_error(), ""));
    }
    let child = Pid::from_raw(child);
    let _reaped = rustix::io::retry_on_intr(|| rustix::process::waitpid(child, WaitOptions::empty()));
    trial.result.map_err(|(call, errno)| {
        failure(BuildStep::Confinement, io::Error::from_raw_os_error(errno), format!("with `{call}`"))
    })
}

/// The function that `clone` calls in the new process. Makes only system calls.
extern "C" fn trial_main(argument: *mut c_void) -> c_int {
    // SAFETY: the parent has passed a pointer to its trial, and waits until this process has ended.
    let trial = unsafe { &mut *argument.cast::<Trial<'_>>() };
    trial.result = leader::try_confinement(trial.isolation, trial.filter);
    // SAFETY: ends this process only, without running handlers of the launcher.
    unsafe { libc::syscall(libc::SYS_exit_group, 0) };
    0
}
