//! The threads on which processes are started. A thread that finds the next start waiting when it is done with the last never
//! sleeps in between, which is what makes many starts quick. So one thread does the work, and it exists before the first
//! start.
//!
//! A start can hang, for example on a dead network mount. Then another thread takes over the queue.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use spawn::{Command, SpawnError, Spawned, Spawner, Tag};
use tokio::runtime::Handle;

use crate::blocking::{Asker, BlockingThreads, Growth};

/// A start that takes longer hangs.
const LONGEST_START: Duration = Duration::from_millis(250);

/// Starts that may hang before later ones have to wait for one of them.
const MOST_THREADS: usize = 64;

/// Starts processes one after the other. Its threads end when it is dropped.
pub(crate) struct Starter {
    spawner: Arc<Spawner>,
    /// Watches the descriptors of the processes.
    runtime: Handle,
    threads: BlockingThreads,
}

impl Starter {
    /// Must be called inside a runtime, which will watch the descriptors of the processes.
    pub(crate) fn new(spawner: Arc<Spawner>) -> io::Result<Self> {
        let growth = Growth { at_once: 1, patience: LONGEST_START };
        let threads = BlockingThreads::start("starter", 1, MOST_THREADS, growth)?;
        Ok(Self { spawner, runtime: Handle::current(), threads })
    }

    /// Starts a process. None if the start has panicked, of which the log tells.
    pub(crate) async fn start(&self, command: Command, tag: Tag) -> Option<Result<Spawned, SpawnError>> {
        self.run(move |spawner| spawner.spawn(&command, tag)).await
    }

    /// Starts another guard if the old one was killed. None if the start has panicked.
    pub(crate) async fn ensure_guard(&self) -> Option<io::Result<()>> {
        self.run(Spawner::ensure_guard).await
    }

    /// If nobody waits for it any more, whatever was started is dropped and found by its tag.
    async fn run<T: Send + 'static>(&self, start: impl FnOnce(&Spawner) -> T + Send + 'static) -> Option<T> {
        let (spawner, runtime) = (Arc::clone(&self.spawner), self.runtime.clone());
        let work = move || {
            let _watched = runtime.enter();
            start(&spawner)
        };
        self.threads.run(Asker::SERVER, work).await
    }
}
