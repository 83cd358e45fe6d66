//! Finds out, while a sandbox is made, whether this machine lets a command be confined. A filter of system calls around the
//! server may forbid a call that only a start makes (see `leader`). The server learns it before the first start, so it can
//! still choose another kind of sandbox or refuse the request.

use std::io;

use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions};

use super::isolation::LeaderIsolation;
use super::{failure, leader};
use crate::message::{BuildFailure, BuildStep};

/// Longer than every report: an error number and the name of a system call.
const MAX_REPORT_BYTES: usize = 64;

/// Confines a child of this process, which ends at once.
pub(super) fn try_confinement(
    isolation: LeaderIsolation<'_>,
    filter: &[libc::sock_filter],
) -> Result<(), BuildFailure> {
    let failed = |error: io::Error| failure(BuildStep::Confinement, error, "");
    let (reports, told) =
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
    // SAFETY: this process has only one thread, so the child may do everything that this process may.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Err(failed(io::Error::last_os_error()));
    }
    let Some(child) = Pid::from_raw(child) else {
        let (call, errno) = leader::try_confinement(isolation, filter).err().unwrap_or_default();
        let _parent_waits = rustix::io::write(&told, &[&errno.to_ne_bytes(), call.as_bytes()].concat());
        // SAFETY: ends this process only.
        unsafe { libc::_exit(0) }
    };
    drop(told);
    let mut report = [0; MAX_REPORT_BYTES];
    let length = rustix::io::retry_on_intr(|| rustix::io::read(&reports, &mut report)).unwrap_or_default();
    let _reaped = rustix::io::retry_on_intr(|| rustix::process::waitpid(Some(child), WaitOptions::empty()));
    match report[..length].split_first_chunk() {
        Some((errno, _)) if i32::from_ne_bytes(*errno) == 0 => Ok(()),
        Some((errno, call)) => {
            let error = io::Error::from_raw_os_error(i32::from_ne_bytes(*errno));
            Err(failure(BuildStep::Confinement, error, format!("with `{}`", String::from_utf8_lossy(call))))
        }
        // The kernel has killed the child: some filters do this instead of refusing a call.
        None => Err(failed(Errno::PERM.into())),
    }
}
