//! Who is responsible for a child: the guard that the caller holds, and a task that sees the child's end, ends its group and
//! reaps it. When the runtime takes the task away, the last of the two kills at once.

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

use super::leader::Leader;
use super::stderr::LastWords;
use super::stdin::StdinCloser;

/// Between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);
/// For the last lines of stderr after the child's end: somebody outside of its group may hold the pipe open for ever.
const LAST_WORDS_PATIENCE: Duration = Duration::from_millis(200);

/// Ends a child. Dropped, it closes the child's stdin and sends SIGTERM to its process group; what is left after two seconds,
/// or when the runtime ends before, is killed.
#[derive(Debug)]
pub struct ChildGuard {
    program: String,
    leader: Arc<Leader>,
    stdin: StdinCloser,
    last_words: LastWords,
    /// Dropped with the guard, which wakes the keeper.
    _order_to_end: oneshot::Sender<()>,
    status: watch::Receiver<Outcome>,
}

/// How a child ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildExit {
    /// The program, for messages.
    pub program: String,
    /// Its status; `None` if somebody else has reaped it.
    pub status: Option<ExitStatus>,
    /// The last lines of its stderr, oldest first; at most eight.
    pub last_words: Vec<String>,
}

/// What the keeper knows.
#[derive(Clone, Copy, Debug)]
enum Outcome {
    Running,
    Ended(Option<ExitStatus>),
}

impl ChildGuard {
    pub(super) fn new(
        program: String,
        leader: Leader,
        stdin: StdinCloser,
        stderr: JoinHandle<()>,
        last_words: LastWords,
    ) -> io::Result<Self> {
        let leader = Arc::new(leader);
        #[expect(
            deprecated,
            reason = "its successor is unsafe for types that change their descriptor; OwnedFd never does"
        )]
        let exit = AsyncFd::with_interest(leader.pidfd()?, Interest::READABLE)?;
        let (order_to_end, ordered_to_end) = oneshot::channel();
        let (outcome, status) = watch::channel(Outcome::Running);
        let keeper = Keeper { leader: leader.clone(), exit, stderr };
        tokio::spawn(async move {
            let status = keeper.keep(ordered_to_end).await;
            outcome.send_replace(Outcome::Ended(status));
        });
        Ok(Self { program, leader, stdin, last_words, _order_to_end: order_to_end, status })
    }

    /// Waits until the child has exited of its own accord, its group has been killed and it has been reaped. Cancel safe.
    pub async fn wait_for_exit(&mut self) -> ChildExit {
        let outcome = self.status.wait_for(|outcome| matches!(outcome, Outcome::Ended(_))).await;
        let status = match outcome.as_deref() {
            Ok(Outcome::Ended(status)) => *status,
            // The runtime is ending and has dropped the keeper.
            Ok(Outcome::Running) | Err(_) => None,
        };
        ChildExit { program: self.program.clone(), status, last_words: self.last_words.lines() }
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        self.stdin.close();
        self.leader.signal_group(Signal::TERM);
    }
}

/// The task behind a guard.
struct Keeper {
    leader: Arc<Leader>,
    exit: AsyncFd<std::os::fd::OwnedFd>,
    stderr: JoinHandle<()>,
}

impl Keeper {
    async fn keep(mut self, ordered_to_end: oneshot::Receiver<()>) -> Option<ExitStatus> {
        let was_ordered = tokio::select! {
            _ = self.exit.readable() => false,
            _ = ordered_to_end => true,
        };
        if was_ordered && timeout(GRACE, self.exit.readable()).await.is_err() {
            self.leader.signal_group(Signal::KILL);
            let _ = self.exit.readable().await;
        }
        let status = self.leader.kill_and_reap();
        if timeout(LAST_WORDS_PATIENCE, &mut self.stderr).await.is_err() {
            self.stderr.abort();
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
        if !self.last_words.is_empty() {
            write!(f, ": {}", self.last_words.join("; "))?;
        }
        Ok(())
    }
}
