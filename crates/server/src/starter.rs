//! The threads on which processes are started: one for ordinary starts, a few for starts in sandboxes, and one for the guard.
//!
//! Normally one thread does all ordinary starts: under load it finds the next start waiting and does not sleep in between, which makes many
//! starts quick. This thread exists before the first start.
//!
//! A start can hang, for example on a dead network mount. Then another thread is added. It does the next start of the
//! session that has the fewest hanging starts. One session can occupy only some of the threads. The guard, the
//! process that kills all processes of the server if the server is killed, is started on a thread of its own.
//!
//! Starts in sandboxes have threads of their own: such a start looks at the files that the policy names, may have to make
//! the sandbox, and then waits for the sandbox's launcher, so several of them go on at the same time. A start without a sandbox
//! uses these threads only if placeholders are in its way (see `sandboxes/in_the_way.rs`), because it has to end sandboxes first.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use protocol::WireError;
use spawn::{CancelFlag, SpawnCommand, SpawnError, Spawned, Spawner, Tag};
use tokio::runtime::Handle;

use crate::blocking::{BlockingThreads, JobOwner, PoolGrowth};
use crate::limits::{MAX_HANGING_SANDBOX_STARTS_PER_SESSION, MAX_HANGING_STARTS, MAX_HANGING_STARTS_PER_SESSION};
use crate::sandboxes::{AllSandboxes, SandboxStart, SessionSandbox};
use crate::start_cancel::StartCancel;

/// A start that takes longer is taken to hang, and another thread is added.
pub(crate) const LONGEST_START: Duration = Duration::from_millis(250);

/// How many starts in sandboxes are done at once, if none hangs.
const SANDBOX_THREADS: usize = 2;

/// Where a process starts.
pub(crate) enum StartPlace {
    Host,
    Sandbox(Arc<SessionSandbox>),
    /// In the sandbox that this function finds or makes. It runs on the thread of the start, because it blocks.
    ToFind(SandboxSearch),
}

/// Finds or makes a sandbox. Blocks.
pub(crate) type SandboxSearch = Box<dyn FnOnce() -> Result<Arc<SessionSandbox>, WireError> + Send>;

/// A command that waits for a thread. None if it was taken by the thread, or if its start was cancelled.
type WaitingCommand = Arc<Mutex<Option<SpawnCommand>>>;

/// A process that was started.
#[derive(Debug)]
pub(crate) struct StartedProcess {
    pub(crate) spawned: Spawned,
    /// The descriptor through which the kernel reports the refused system calls of a process in a sandbox.
    pub(crate) filter: Option<OwnedFd>,
}

/// Why a process was not started.
#[derive(Debug)]
pub(crate) enum StartRefusal {
    /// No sandbox could be found or made for its policy.
    Sandbox(WireError),
    Spawn(SpawnError),
}

/// Starts processes, normally one after the other. Its threads end when the starter is dropped.
pub(crate) struct Starter {
    spawner: Arc<Spawner>,
    /// The tokio runtime that watches the descriptors of the processes.
    runtime: Handle,
    /// None if the server makes no sandboxes.
    sandboxes: Option<Arc<AllSandboxes>>,
    threads: BlockingThreads,
    sandbox_threads: BlockingThreads,
    /// One thread, which exists from the beginning, so that a guard can be started even if the system gives no more threads.
    guard_thread: BlockingThreads,
}

impl Starter {
    /// Must be called inside the tokio runtime that is to watch the descriptors of the processes.
    pub(crate) fn new(spawner: Arc<Spawner>, sandboxes: Option<Arc<AllSandboxes>>) -> io::Result<Self> {
        let growth = PoolGrowth {
            eager_threads: 1,
            hang_timeout: LONGEST_START,
            most_per_owner: MAX_HANGING_STARTS_PER_SESSION,
        };
        let threads = BlockingThreads::start("starter", 1, MAX_HANGING_STARTS, growth)?;
        let guard_thread = BlockingThreads::start("guard-starter", 1, 1, growth)?;
        let several = PoolGrowth {
            eager_threads: SANDBOX_THREADS,
            most_per_owner: MAX_HANGING_SANDBOX_STARTS_PER_SESSION,
            ..growth
        };
        // No thread is kept, because many servers never make a sandbox. If the system gives no thread, such a start waits until it does.
        let sandbox_threads = BlockingThreads::start("sandbox-starter", 0, MAX_HANGING_STARTS, several)?;
        Ok(Self { spawner, runtime: Handle::current(), sandboxes, threads, sandbox_threads, guard_thread })
    }

    /// Starts a process for a session. Returns None if the start panicked. A start that is cancelled returns at once,
    /// even if the kernel is still opening the program; the caller of [`StartCancel::cancel`] then has to kill the
    /// child, which it finds by `tag`. If processes get no tags ([`Spawner::tags_work`]), this function waits for the
    /// end of the start.
    pub(crate) async fn start(
        &self,
        owner: JobOwner,
        command: SpawnCommand,
        tag: Tag,
        cancel: &StartCancel,
        place: StartPlace,
    ) -> Option<Result<StartedProcess, StartRefusal>> {
        let flag = cancel.flag();
        // The thread takes the command out of the mutex. If the start is cancelled while it waits for a thread, the
        // command is dropped here at once, because its environment may be large.
        let cwd = command.cwd.clone();
        let shared_command = Arc::new(Mutex::new(Some(command)));
        let command = Arc::clone(&shared_command);
        let start = async {
            let find: SandboxSearch = match place {
                StartPlace::Host => return self.start_on_host(owner, command, cwd, tag, flag).await,
                StartPlace::Sandbox(sandbox) => Box::new(move || Ok(sandbox)),
                StartPlace::ToFind(find) => find,
            };
            self.run(&self.sandbox_threads, owner, sandboxed_start(command, tag, flag, find)).await
        };
        tokio::select! {
            // If the process was started and cancelled at the same time, the process is returned, so that it is not lost.
            biased;
            started = start => started,
            () = cancel.cancelled(), if self.spawner.tags_work() => {
                drop(shared_command.lock().take());
                Some(Err(StartRefusal::Spawn(SpawnError::Cancelled)))
            }
        }
    }

    /// Starts a process without a sandbox in the directory `cwd`, after placeholders that are in its way were removed.
    async fn start_on_host(
        &self,
        owner: JobOwner,
        command: WaitingCommand,
        cwd: PathBuf,
        tag: Tag,
        flag: Arc<CancelFlag>,
    ) -> Option<Result<StartedProcess, StartRefusal>> {
        let sandboxes = self.sandboxes.as_ref().filter(|sandboxes| !sandboxes.have_no_placeholders());
        let Some(sandboxes) = sandboxes.cloned() else {
            return self.run(&self.threads, owner, host_start(command, tag, flag)).await;
        };
        let start = host_start(Arc::clone(&command), tag, Arc::clone(&flag));
        let (looked_at, around) = (Arc::clone(&sandboxes), cwd.clone());
        let attempt = move |spawner: &Spawner| (!looked_at.are_in_the_way_around(&around)).then(|| start(spawner));
        if let Some(started) = self.run(&self.threads, owner, attempt).await? {
            return Some(started);
        }
        // Ending sandboxes can take long, so it has other threads.
        let start = host_start(command, tag, flag);
        let work = move |spawner: &Spawner| {
            sandboxes.end_unused_around(&cwd);
            start(spawner)
        };
        self.run(&self.sandbox_threads, owner, work).await
    }

    /// Starts another guard if the old one has ended. Returns None if the start panicked.
    pub(crate) async fn ensure_guard(&self) -> Option<io::Result<()>> {
        self.run(&self.guard_thread, JobOwner::SERVER, Spawner::ensure_guard).await
    }

    /// Runs `start` on one of the threads. If the returned future is dropped, the handle of a process that `start`
    /// still creates is dropped too; the server later finds and kills such processes by their tags.
    async fn run<T: Send + 'static>(
        &self,
        threads: &BlockingThreads,
        owner: JobOwner,
        start: impl FnOnce(&Spawner) -> T + Send + 'static,
    ) -> Option<T> {
        let (spawner, runtime) = (Arc::clone(&self.spawner), self.runtime.clone());
        let work = move || {
            let _inside_runtime = runtime.enter();
            start(&spawner)
        };
        threads.run(owner, work).await
    }
}

/// The work of a start without a sandbox.
fn host_start(
    command: WaitingCommand,
    tag: Tag,
    flag: Arc<CancelFlag>,
) -> impl FnOnce(&Spawner) -> Result<StartedProcess, StartRefusal> + Send + 'static {
    move |spawner| {
        let command = take(&command, &flag)?;
        let spawned = spawner.spawn(&command, tag, &flag).map_err(StartRefusal::Spawn)?;
        Ok(StartedProcess { spawned, filter: None })
    }
}

/// The work of a start in the sandbox that `find` returns.
fn sandboxed_start(
    command: WaitingCommand,
    tag: Tag,
    flag: Arc<CancelFlag>,
    find: SandboxSearch,
) -> impl FnOnce(&Spawner) -> Result<StartedProcess, StartRefusal> + Send + 'static {
    move |spawner| {
        if flag.is_cancelled() {
            return Err(StartRefusal::Spawn(SpawnError::Cancelled));
        }
        let maker = SandboxStart::new(find().map_err(StartRefusal::Sandbox)?);
        let command = take(&command, &flag)?;
        let spawned = spawner.spawn_in_sandbox(&maker, &command, tag, &flag).map_err(StartRefusal::Spawn)?;
        Ok(StartedProcess { spawned, filter: maker.take_filter() })
    }
}

/// Takes the command out, unless its start was cancelled.
fn take(command: &WaitingCommand, flag: &CancelFlag) -> Result<SpawnCommand, StartRefusal> {
    command.lock().take().filter(|_| !flag.is_cancelled()).ok_or(StartRefusal::Spawn(SpawnError::Cancelled))
}
