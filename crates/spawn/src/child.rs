//! A started process: its end is seen through a pidfd, so it costs no thread and no `SIGCHLD`, and its number can never be mistaken for
//! that of a later process.

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
use crate::streams::runtime_is_gone;
use crate::tag::Tag;
use crate::vfork::Executing;

/// What a shell adds to the number of the signal that ended a command.
const SIGNAL_EXIT_BASE: i32 = 128;
/// Stands for an exit status that was lost, because other code in this process reaped our child.
const UNKNOWN_EXIT_CODE: i32 = -1;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildExitStatus {
    /// By itself, with this code.
    Exited(i32),
    /// By this signal.
    Signaled(i32),
}

impl ChildExitStatus {
    /// The exit code a shell would show: 128 + N for signal N.
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

/// A started process, the leader of its own session and process group. Dropping it does not end the process.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    tag: Tag,
    pidfd: AsyncFd<OwnedFd>,
    /// Set when it is reaped, from when on its number may belong to somebody else.
    status: Mutex<Option<ChildExitStatus>>,
}

impl Child {
    /// Takes charge of a child that nobody has reaped.
    pub(crate) fn adopt(child: Executing, tag: Tag) -> io::Result<Self> {
        let pid = child.pid;
        let pidfd = watch(child.into_pidfd()?, Interest::READABLE)?;
        Ok(Self { pid, tag, pidfd, status: Mutex::new(None) })
    }

    /// The process id, which is also its process group and session.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Waits for its end and reaps it; its descendants may live on. Cancel safe, and may be called again.
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
                Err(_) => runtime_is_gone().await,
            }
        }
    }

    /// Signals its process group; fine if it has ended.
    pub fn signal_group(&self, signal: Signal) -> io::Result<()> {
        let status = lock(&self.status);
        if status.is_some() {
            return Ok(());
        }
        ignore_gone(rustix::process::kill_process_group(self.pid, signal))
    }

    /// Signals the process alone; fine if it has ended.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        ignore_gone(rustix::process::pidfd_send_signal(&self.pidfd, signal))
    }

    fn reap(&self) -> Option<ChildExitStatus> {
        let mut known = lock(&self.status);
        if known.is_none() {
            *known = match children().reap_leader(self.pid, self.pidfd.as_fd()) {
                Ok(status) => status.as_ref().map(ChildExitStatus::from_wait),
                Err(Errno::INTR) => None,
                Err(_) => Some(ChildExitStatus::Exited(UNKNOWN_EXIT_CODE)),
            };
        }
        *known
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        children().forget_leader(self.pid, self.tag);
    }
}

fn ignore_gone(result: Result<(), Errno>) -> io::Result<()> {
    match result {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
