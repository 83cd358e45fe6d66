//! The threads on which processes are started. A thread that finds the next start waiting when it is done with the last never
//! sleeps in between, which is what makes many starts quick. So one thread does the work, and it exists before the first
//! start.
//!
//! A start can hang, for example on a dead network mount. Then another thread takes over the queue, and begins with the session for which
//! the fewest starts hang. One session can keep only some of the threads busy. Guards are started on a thread of their own.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use spawn::{SpawnCommand, SpawnError, Spawned, Spawner, Tag};
use tokio::runtime::Handle;

use crate::blocking::{Asker, BlockingThreads, Growth};
use crate::limits::{MAX_HANGING_STARTS, MAX_HANGING_STARTS_PER_SESSION};
use crate::start_cancel::StartCancel;

/// A start that takes longer hangs.
pub(crate) const LONGEST_START: Duration = Duration::from_millis(250);

/// Starts processes one after the other. Its threads end when it is dropped.
pub(crate) struct Starter {
    spawner: Arc<Spawner>,
    /// Watches the descriptors of the processes.
    runtime: Handle,
    threads: BlockingThreads,
    /// One, which exists from the start: a server that is killed without a guard leaves its processes behind.
    guard_thread: BlockingThreads,
}

impl Starter {
    /// Must be called inside a runtime, which will watch the descriptors of the processes.
    pub(crate) fn new(spawner: Arc<Spawner>) -> io::Result<Self> {
        let growth = Growth { at_once: 1, patience: LONGEST_START, most_per_asker: MAX_HANGING_STARTS_PER_SESSION };
        let threads = BlockingThreads::start("starter", 1, MAX_HANGING_STARTS, growth)?;
        let guard_thread = BlockingThreads::start("guard-starter", 1, 1, growth)?;
        Ok(Self { spawner, runtime: Handle::current(), threads, guard_thread })
    }

    /// Starts a process for a session. None if the start has panicked, of which the log tells. A start that is cancelled is over at once; a
    /// child whose program is being opened then is left to whoever cancels, if it can be found by its tag.
    pub(crate) async fn start(
        &self,
        asker: Asker,
        command: SpawnCommand,
        tag: Tag,
        cancel: &StartCancel,
    ) -> Option<Result<Spawned, SpawnError>> {
        let flag = cancel.flag();
        // Taken by the thread, or when the start is cancelled: one that waits for its turn must not hold a large environment for nothing.
        let wanted = Arc::new(Mutex::new(Some(command)));
        let command = Arc::clone(&wanted);
        let start = self.run(&self.threads, asker, move |spawner| {
            let command = command.lock().take().ok_or(SpawnError::Cancelled)?;
            spawner.spawn(&command, tag, &flag)
        });
        tokio::select! {
            // A process that exists is not lost sight of.
            biased;
            started = start => started,
            () = cancel.cancelled(), if self.spawner.tags_work() => {
                drop(wanted.lock().take());
                Some(Err(SpawnError::Cancelled))
            }
        }
    }

    /// Starts another guard if the old one was killed. None if the start has panicked.
    pub(crate) async fn ensure_guard(&self) -> Option<io::Result<()>> {
        self.run(&self.guard_thread, Asker::SERVER, Spawner::ensure_guard).await
    }

    /// If nobody waits for it any more, whatever was started is dropped and found by its tag.
    async fn run<T: Send + 'static>(
        &self,
        threads: &BlockingThreads,
        asker: Asker,
        start: impl FnOnce(&Spawner) -> T + Send + 'static,
    ) -> Option<T> {
        let (spawner, runtime) = (Arc::clone(&self.spawner), self.runtime.clone());
        let work = move || {
            let _watched = runtime.enter();
            start(&spawner)
        };
        threads.run(asker, work).await
    }
}
