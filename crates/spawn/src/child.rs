//! A started process: waits for its exit, reaps it and signals it. A pidfd tells when the process has exited. So no thread per process and
//! no `SIGCHLD` handler is needed, and a signal never reaches a later process with the same process id. This module does not know the
//! descendants of the process; the module `hunt` finds them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use rustix::net::Shutdown;
use rustix::process::{Pid, Signal};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::cgroup::{CgroupCounts, TreeCgroup};
use crate::children::children;
use crate::descriptors::watch;
use crate::limits::{CpuTimeAtEnd, ExitAccount, WatchedLimits};
use crate::lock::lock;
use crate::streams::wait_for_runtime_shutdown;
use crate::tag::Tag;
use crate::usage::{AfterWait, Reaped, ResourceUsage, wait_without_blocking};
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
}

/// A started process. It leads its own session and process group. Dropping this value does not end the process; the process is then reaped
/// by [`Spawner::reap_orphans`](crate::Spawner::reap_orphans).
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    /// The number that the process and its descendants are found by; see `tag`.
    tag: Tag,
    pidfd: AsyncFd<OwnedFd>,
    /// None if the process was started without limits.
    accounting: Option<Accounting>,
    /// Set when the process is reaped. From then on another process may have the process id.
    exit: Mutex<Option<ReapedChild>>,
    /// Shut down when the process is reaped, which tells the sandbox that the process was started in; see `maker`.
    lifeline: Mutex<Option<Arc<OwnedFd>>>,
}

/// What is needed to say what a process has used and which limit it has reached.
#[derive(Debug)]
pub(crate) struct Accounting {
    pub(crate) watched: WatchedLimits,
    /// The cgroup of the process and its descendants, if one of its limits needs a cgroup.
    pub(crate) cgroup: Option<TreeCgroup>,
}

#[derive(Clone, Copy, Debug)]
struct ReapedChild {
    status: ChildExitStatus,
    account: Option<ExitAccount>,
}

impl Child {
    /// The child must not have been reaped.
    pub(crate) fn new(
        child: StartedChild,
        tag: Tag,
        accounting: Option<Accounting>,
        lifeline: Option<Arc<OwnedFd>>,
    ) -> io::Result<Self> {
        let pid = child.pid;
        let pidfd = watch(child.into_pidfd()?, Interest::READABLE)?;
        Ok(Self { pid, tag, pidfd, accounting, exit: Mutex::new(None), lifeline: Mutex::new(lifeline) })
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

    /// What the process and its descendants have used until the process was reaped by [`Self::wait`]. None before that, if the
    /// process was started without limits, or if other code has reaped it.
    pub fn account(&self) -> Option<ExitAccount> {
        lock(&self.exit).and_then(|exit| exit.account)
    }

    /// Signals the process group that the process leads. Does nothing if the process has been reaped.
    pub fn signal_group(&self, signal: Signal) -> io::Result<()> {
        let exit = lock(&self.exit);
        if exit.is_some() {
            return Ok(());
        }
        ignore_no_such_process(rustix::process::kill_process_group(self.pid, signal))
    }

    /// Signals the process, but not its group. Does nothing if the process has ended.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        ignore_no_such_process(rustix::process::pidfd_send_signal(&self.pidfd, signal))
    }

    fn reap(&self) -> Option<ChildExitStatus> {
        let mut known = lock(&self.exit);
        if known.is_none() {
            // After the process was reaped, `/proc` does not know it any more.
            let cpu_time = self.accounting.as_ref().and_then(|accounting| self.cpu_time_if_needed(accounting));
            *known = match children().reap_leader(self.pid, self.pidfd.as_fd()) {
                Ok(reaped) => reaped.map(|Reaped { status, usage }| ReapedChild {
                    status,
                    account: self.accounting.as_ref().map(|accounting| accounting.account(status, usage, cpu_time)),
                }),
                Err(Errno::INTR) => None,
                Err(_) => Some(ReapedChild { status: ChildExitStatus::Exited(UNKNOWN_EXIT_CODE), account: None }),
            };
            if known.is_some() {
                self.tell_sandbox();
            }
        }
        known.map(|exit| exit.status)
    }

    /// Tells the sandbox of the process that the process is gone.
    fn tell_sandbox(&self) {
        if let Some(lifeline) = lock(&self.lifeline).take() {
            let _sandbox_may_be_gone = rustix::net::shutdown(&*lifeline, Shutdown::Write);
        }
    }

    fn cpu_time_if_needed(&self, accounting: &Accounting) -> Option<CpuTimeAtEnd> {
        let ended = wait_without_blocking(self.pidfd.as_fd(), AfterWait::KeepZombie).ok().flatten()?;
        accounting.watched.needs_cpu_time(ended.status).then(|| CpuTimeAtEnd::of(self.pid)).flatten()
    }
}

impl Accounting {
    fn account(&self, status: ChildExitStatus, usage: ResourceUsage, cpu_time: Option<CpuTimeAtEnd>) -> ExitAccount {
        let counts = self.cgroup.as_ref().map_or_else(CgroupCounts::default, TreeCgroup::counts);
        let usage = ResourceUsage {
            peak_tree_bytes: counts.peak_memory_bytes,
            peak_tree_pids: counts.peak_pids,
            ..usage.without_memory_of_server()
        };
        ExitAccount { usage, reached: self.watched.reached(status, cpu_time, counts) }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.tell_sandbox();
        children().remove_leader(self.pid, self.tag);
    }
}

fn ignore_no_such_process(result: Result<(), Errno>) -> io::Result<()> {
    match result {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
