//! Ends a child process. The caller holds a guard. A watcher task waits until the child exits or the guard is
//! dropped. Then it kills the rest of the process group and reaps the child. If the runtime shuts down and drops the
//! task, the child is killed as soon as the guard is dropped too.

use std::fmt;
use std::io;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::leader::GroupLeader;
use super::stderr::StderrTail;
use super::stdin::StdinCloser;

/// Time between SIGTERM and SIGKILL.
const GRACE_PERIOD: Duration = Duration::from_secs(2);
/// How long the watcher waits for the end of stderr after the child has exited. A process outside of the child's group may keep the pipe
/// open for ever.
const STDERR_DRAIN_TIMEOUT: Duration = Duration::from_millis(200);

/// Terminates a child when this value is dropped: closes the child's stdin and sends SIGTERM to its process group. Processes of the group
/// that still run are killed when the child has exited, after two seconds, or when the runtime shuts down, whichever comes first.
#[derive(Debug)]
pub struct ChildGuard {
    program: String,
    leader: Arc<GroupLeader>,
    stdin: StdinCloser,
    stderr_tail: StderrTail,
    /// Nothing is ever sent. Dropping this sender together with the guard wakes the watcher.
    _drop_notice: oneshot::Sender<()>,
    state: watch::Receiver<ChildState>,
}

/// How a child ended. Its `Display` is a sentence with the program, the exit status and the last lines of stderr.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildExit {
    /// The program as the caller of [`crate::spawn_child`] named it.
    pub program: String,
    /// The exit status. `None` if it is not known: other code in this process has reaped the child, or the runtime is shutting down.
    pub status: Option<ExitStatus>,
    /// The last lines of the child's stderr, oldest first; at most eight.
    pub stderr_tail: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
enum ChildState {
    Running,
    /// The child was reaped. Holds the exit status if it is known.
    Exited(Option<ExitStatus>),
}

impl ChildGuard {
    pub(super) fn new(
        program: String,
        leader: GroupLeader,
        stdin: StdinCloser,
        stderr_task: JoinHandle<()>,
        stderr_tail: StderrTail,
    ) -> io::Result<Self> {
        let leader = Arc::new(leader);
        #[expect(
            deprecated,
            reason = "its replacement is an unsafe fn, because a type may change its descriptor; OwnedFd never does"
        )]
        let exit = AsyncFd::with_interest(leader.pidfd()?, Interest::READABLE)?;
        let (drop_notice, guard_dropped) = oneshot::channel();
        let (set_state, state) = watch::channel(ChildState::Running);
        let watcher = ChildWatcher { leader: leader.clone(), exit, stderr_task };
        tokio::spawn(async move {
            let status = watcher.run(guard_dropped).await;
            set_state.send_replace(ChildState::Exited(status));
        });
        Ok(Self { program, leader, stdin, stderr_tail, _drop_notice: drop_notice, state })
    }

    /// Waits until the child has exited by itself, the rest of its group has been killed, the child has been reaped
    /// and its stderr has been read. Cancel safe. Further calls return the same value at once.
    pub async fn wait_for_exit(&mut self) -> ChildExit {
        let exited = self.state.wait_for(|state| matches!(state, ChildState::Exited(_))).await;
        let status = match exited.as_deref() {
            Ok(ChildState::Exited(status)) => *status,
            // The runtime is shutting down and has dropped the watcher.
            Ok(ChildState::Running) | Err(_) => None,
        };
        ChildExit { program: self.program.clone(), status, stderr_tail: self.stderr_tail.lines() }
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        self.stdin.close();
        self.leader.signal_group(Signal::TERM);
    }
}

/// The values that the watcher task of a guard owns.
struct ChildWatcher {
    leader: Arc<GroupLeader>,
    /// Readable when the child has exited.
    exit: AsyncFd<std::os::fd::OwnedFd>,
    /// The task that reads the child's stderr.
    stderr_task: JoinHandle<()>,
}

impl ChildWatcher {
    async fn run(mut self, guard_dropped: oneshot::Receiver<()>) -> Option<ExitStatus> {
        // The guard sends SIGTERM when it is dropped.
        let must_terminate = tokio::select! {
            _ = self.exit.readable() => false,
            _ = guard_dropped => true,
        };
        if must_terminate && timeout(GRACE_PERIOD, self.exit.readable()).await.is_err() {
            self.leader.signal_group(Signal::KILL);
            let _ = self.exit.readable().await;
        }
        let status = self.leader.kill_and_reap();
        if timeout(STDERR_DRAIN_TIMEOUT, &mut self.stderr_task).await.is_err() {
            self.stderr_task.abort();
        }
        status
    }
}

impl fmt::Display for ChildExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            Some(status) => write!(f, "`{}` ended with {status}", self.program)?,
            None => write!(f, "`{}` has ended", self.program)?,
        }
        if !self.stderr_tail.is_empty() {
            write!(f, ": {}", self.stderr_tail.join("; "))?;
        }
        Ok(())
    }
}
