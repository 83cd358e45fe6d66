//! A started process: waits for its exit, reaps it and signals it. A pidfd tells when the process has exited. So no thread per process and
//! no `SIGCHLD` handler is needed, and a signal never reaches a later process with the same process id. This module does not know the
//! descendants of the process; the module `hunt` finds them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitIdStatus};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::children::children;
use crate::descriptors::watch;
use crate::lock::lock;
use crate::streams::wait_for_runtime_shutdown;
use crate::tag::Tag;
use crate::vfork::StartedChild;

/// A shell reports a command that signal N has killed with the exit code 128 + N.
const SIGNAL_EXIT_BASE: i32 = 128;
/// The exit code that is reported if the exit status was lost because other code in this process has reaped the child.
const UNKNOWN_EXIT_CODE: i32 = -1;

/// How a child has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildExitStatus {
    /// The process has exited with this code. The code is -1 if the exit status was lost.
    Exited(i32),
    /// The signal with this number has killed the process.
    Signaled(i32),
}

impl ChildExitStatus {
    /// The exit code that a shell would show: 128 + N if signal N has killed the process.
    pub fn code(&self) -> i32 {
        match self {
            Self::Exited(code) => *code,
            Self::Signaled(signal) => SIGNAL_EXIT_BASE + signal,
        }
    }

    fn from_wait(status: &WaitIdStatus) -> Self {
        match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Self::Exited(code),
            (None, Some(signal)) => Self::Signaled(signal),
            (None, None) => Self::Exited(UNKNOWN_EXIT_CODE),
        }
    }
}

/// A started process. It leads its own session and process group. Dropping this value does not end the process; the process is then reaped
/// by [`Spawner::reap_orphans`](crate::Spawner::reap_orphans).
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    /// The number that the process and its descendants are found by; see `tag`.
    tag: Tag,
    pidfd: AsyncFd<OwnedFd>,
    /// Set when the process is reaped. From then on another process may have the process id.
    status: Mutex<Option<ChildExitStatus>>,
    /// Closed when the process is reaped, which tells the process that made the child in a sandbox; see `maker`.
    lifeline: Mutex<Option<OwnedFd>>,
}

impl Child {
    /// The child must not have been reaped.
    pub(crate) fn new(child: StartedChild, tag: Tag, lifeline: Option<OwnedFd>) -> io::Result<Self> {
        let pid = child.pid;
        let pidfd = watch(child.into_pidfd()?, Interest::READABLE)?;
        Ok(Self { pid, tag, pidfd, status: Mutex::new(None), lifeline: Mutex::new(lifeline) })
    }

    /// The process id, which is also the number of the process group and of the session that the process leads.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Waits until the process has exited and reaps it. Its descendants may still run. Cancel safe. Later calls return the same status.
    pub async fn wait(&self) -> ChildExitStatus {
        loop {
            if let Some(status) = self.reap() {
                return status;
            }
            match self.pidfd.readable().await {
                Ok(mut readiness) => match self.reap() {
                    Some(status) => return status,
                    None => readiness.clear_ready(),
                },
                // Does not return.
                Err(_) => wait_for_runtime_shutdown().await,
            }
        }
    }

    /// Signals the process group that the process leads. Does nothing if the process has been reaped.
    pub fn signal_group(&self, signal: Signal) -> io::Result<()> {
        let status = lock(&self.status);
        if status.is_some() {
            return Ok(());
        }
        ignore_no_such_process(rustix::process::kill_process_group(self.pid, signal))
    }

    /// Signals the process, but not its group. Does nothing if the process has ended.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        ignore_no_such_process(rustix::process::pidfd_send_signal(&self.pidfd, signal))
    }

    fn reap(&self) -> Option<ChildExitStatus> {
        let mut known = lock(&self.status);
        if known.is_none() {
            *known = match children().reap_leader(self.pid, self.pidfd.as_fd()) {
                Ok(status) => status.as_ref().map(ChildExitStatus::from_wait),
                Err(Errno::INTR) => None,
                Err(_) => Some(ChildExitStatus::Exited(UNKNOWN_EXIT_CODE)),
            };
            if known.is_some() {
                lock(&self.lifeline).take();
            }
        }
        *known
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        children().remove_leader(self.pid, self.tag);
    }
}

fn ignore_no_such_process(result: Result<(), Errno>) -> io::Result<()> {
    match result {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
