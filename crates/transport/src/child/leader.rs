//! The child process, which leads a process group. After the leader has been reaped, another group may get the id of
//! its group, and no signal must reach that other group. So the leader is taken out of a lock before it is reaped,
//! and the group is signalled only by code that finds the leader in the lock or has taken it out and not reaped it
//! yet.

use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

/// How long a drop waits for the killed leader to exit. Only a process that hangs in the kernel needs noticeable time.
const DROP_TIMEOUT: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// A child that leads its own process group. If this value is dropped before the child was reaped, the whole group is
/// killed.
#[derive(Debug)]
pub(super) struct GroupLeader {
    pid: u32,
    /// `None` after the child was taken out to be reaped.
    child: Mutex<Option<Child>>,
}

impl GroupLeader {
    pub(super) fn new(child: Child) -> Self {
        Self { pid: child.id(), child: Mutex::new(Some(child)) }
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Opens a descriptor that becomes readable when the leader has exited.
    pub(super) fn pidfd(&self) -> io::Result<OwnedFd> {
        let child = self.lock();
        let child = child.as_ref().ok_or_else(|| io::Error::other("it has exited already"))?;
        Ok(pidfd_open(Pid::from_child(child), PidfdFlags::empty())?)
    }

    /// Sends a signal to all processes of the group. Does nothing if the leader was taken out to be reaped.
    pub(super) fn signal_group(&self, signal: Signal) {
        if let Some(child) = &*self.lock() {
            signal_group_of(child, signal);
        }
    }

    /// Kills all processes of the group that still run, and reaps the leader. Blocks until the leader has exited, so
    /// the caller must first wait for that. Returns `None` if the leader was reaped before.
    pub(super) fn kill_and_reap(&self) -> Option<ExitStatus> {
        let mut child = self.lock().take()?;
        signal_group_of(&child, Signal::KILL);
        child.wait().ok()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for GroupLeader {
    fn drop(&mut self) {
        let pidfd = self.pidfd();
        let Some(mut child) = self.lock().take() else { return };
        signal_group_of(&child, Signal::KILL);
        if let Ok(pidfd) = pidfd {
            // Failure and timeout are ignored: the leader has been killed, and a drop must not block for longer.
            let _ = rustix::event::poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&DROP_TIMEOUT));
        }
        let _ = child.try_wait();
    }
}

/// Sends a signal to the process group that `child` leads. `child` must not have been reaped.
fn signal_group_of(child: &Child, signal: Signal) {
    if let Err(error) = kill_process_group(Pid::from_child(child), signal) {
        tracing::debug!(pid = child.id(), ?signal, %error, "cannot signal the process group of a child");
    }
}
