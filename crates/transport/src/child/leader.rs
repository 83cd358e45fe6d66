//! The process that leads the group: signalled as long as it has not been reaped, and reaped once. One lock is around both,
//! so that no signal can reach a group that took over the number.

use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

/// How long a drop waits for a process that was killed. Only one that hangs in the kernel needs any time.
const PATIENCE_OF_DROP: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// A child that leads its own process group. Dropped before it was reaped, it is killed with its group.
#[derive(Debug)]
pub(super) struct Leader {
    pid: u32,
    /// Gone when it was reaped.
    child: Mutex<Option<Child>>,
}

impl Leader {
    pub(super) fn new(child: Child) -> Self {
        Self { pid: child.id(), child: Mutex::new(Some(child)) }
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Becomes readable when the leader has exited.
    pub(super) fn pidfd(&self) -> io::Result<OwnedFd> {
        let child = self.lock();
        let child = child.as_ref().ok_or_else(|| io::Error::other("it has ended"))?;
        Ok(pidfd_open(Pid::from_child(child), PidfdFlags::empty())?)
    }

    pub(super) fn signal_group(&self, signal: Signal) {
        if let Some(child) = &*self.lock() {
            signal_group_of(child, signal);
        }
    }

    /// Kills what is left of the group and reaps the leader. It waits for the leader, which should have exited or been killed.
    /// `None` if somebody else has reaped it.
    pub(super) fn kill_and_reap(&self) -> Option<ExitStatus> {
        let mut child = self.lock().take()?;
        signal_group_of(&child, Signal::KILL);
        child.wait().ok()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        let pidfd = self.pidfd();
        let Some(mut child) = self.lock().take() else { return };
        signal_group_of(&child, Signal::KILL);
        if let Ok(pidfd) = pidfd {
            // Whether it waited or not, what can be done is done.
            let _ = rustix::event::poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&PATIENCE_OF_DROP));
        }
        let _ = child.try_wait();
    }
}

/// Only for a child that has not been reaped.
fn signal_group_of(child: &Child, signal: Signal) {
    if let Err(error) = kill_process_group(Pid::from_child(child), signal) {
        tracing::debug!(pid = child.id(), ?signal, %error, "cannot signal the process group of a child");
    }
}
