//! The thread on which processes are started. One that finds the next start waiting when it is done with the last never
//! sleeps in between, which is what makes many starts quick; starts could not run at once anyway, because each child
//! inherits its tag from the whole server.
//!
//! A start can hang, for example on a dead network mount. Then another thread takes over the queue.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use spawn::{Command, SpawnError, Spawned, Spawner, Tag};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// A start that takes longer hangs.
const LONGEST_START: Duration = Duration::from_millis(250);

/// Starts that may hang before later ones have to wait for one of them.
const MOST_THREADS: usize = 64;

/// How long a thread waits for the next start before it ends.
const IDLE_THREAD: Duration = Duration::from_secs(10);

/// Starts processes one after the other.
pub(crate) struct Starter {
    spawner: Arc<Spawner>,
    runtime: Handle,
    queue: Mutex<Queue>,
    added: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    threads: usize,
    /// Threads that wait for a job.
    idle: usize,
    /// When the latest start began that is not done.
    busy_since: Option<Instant>,
}

struct Job {
    command: Command,
    tag: Tag,
    result: oneshot::Sender<Result<Spawned, SpawnError>>,
}

impl Starter {
    /// Must be called inside a runtime, which will watch the descriptors of the processes.
    pub(crate) fn new(spawner: Arc<Spawner>) -> Arc<Self> {
        Arc::new(Self { spawner, runtime: Handle::current(), queue: Mutex::default(), added: Condvar::new() })
    }

    /// Starts a process. None if the server is ending.
    pub(crate) async fn start(self: &Arc<Self>, command: Command, tag: Tag) -> Option<Result<Spawned, SpawnError>> {
        let (result, mut started) = oneshot::channel();
        self.queue.lock().jobs.push_back(Job { command, tag, result });
        loop {
            self.ensure_progress();
            match tokio::time::timeout(LONGEST_START, &mut started).await {
                Ok(result) => return result.ok(),
                Err(_) => continue,
            }
        }
    }

    /// Wakes or adds a thread if jobs wait and nobody works on them.
    fn ensure_progress(self: &Arc<Self>) {
        let mut queue = self.queue.lock();
        if queue.jobs.is_empty() {
            return;
        }
        if queue.idle > 0 {
            self.added.notify_one();
            return;
        }
        let hangs = queue.busy_since.is_none_or(|since| since.elapsed() >= LONGEST_START);
        if queue.threads < MOST_THREADS && (queue.threads == 0 || hangs) {
            let starter = Arc::clone(self);
            let thread = std::thread::Builder::new().name("starter".into());
            if thread.spawn(move || starter.work()).is_ok() {
                queue.threads += 1;
            }
        }
    }

    fn work(&self) {
        let _watched = self.runtime.enter();
        let mut queue = self.queue.lock();
        loop {
            if let Some(Job { command, tag, result }) = queue.jobs.pop_front() {
                let since = Instant::now();
                queue.busy_since = Some(since);
                drop(queue);
                // Nobody may be waiting any more; whatever was started is then dropped and found by its tag.
                let _ = result.send(self.spawner.spawn(&command, tag));
                queue = self.queue.lock();
                if queue.busy_since == Some(since) {
                    queue.busy_since = None;
                }
                continue;
            }
            queue.idle += 1;
            let timed_out = self.added.wait_for(&mut queue, IDLE_THREAD).timed_out();
            queue.idle -= 1;
            if timed_out && queue.jobs.is_empty() {
                queue.threads -= 1;
                return;
            }
        }
    }
}
