//! The threads on which processes are started. A thread that finds the next start waiting when it is done with the last never
//! sleeps in between, which is what makes many starts quick. So one thread does the work, and it exists before the first
//! start.
//!
//! A start can hang, for example on a dead network mount. Then another thread takes over the queue.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use spawn::{Command, SpawnError, Spawned, Spawner, Tag};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::survive::survive_call;

/// A start that takes longer hangs.
const LONGEST_START: Duration = Duration::from_millis(250);

/// Starts that may hang before later ones have to wait for one of them.
const MOST_THREADS: usize = 64;

/// How long a thread waits for the next start before it ends, unless it is the last.
const IDLE_THREAD: Duration = Duration::from_secs(10);

/// Starts processes one after the other. Its threads end when it is dropped.
pub(crate) struct Starter {
    desk: Arc<Desk>,
}

struct Desk {
    spawner: Arc<Spawner>,
    runtime: Handle,
    queue: Mutex<Queue<Job>>,
    changed: Condvar,
}

struct Queue<J> {
    jobs: VecDeque<J>,
    threads: usize,
    /// Threads that wait for a job.
    idle: usize,
    /// When a job was last taken from the queue, or a thread was last added.
    last_progress: Option<Instant>,
    is_closed: bool,
}

type Job = Box<dyn FnOnce(&Spawner) + Send>;

impl Starter {
    /// Must be called inside a runtime, which will watch the descriptors of the processes.
    pub(crate) fn new(spawner: Arc<Spawner>) -> io::Result<Self> {
        let (queue, changed) = (Mutex::new(Queue::with_threads(1)), Condvar::new());
        let desk = Arc::new(Desk { spawner, runtime: Handle::current(), queue, changed });
        desk.add_thread()?;
        Ok(Self { desk })
    }

    /// Starts a process. None if the server is ending.
    pub(crate) async fn start(&self, command: Command, tag: Tag) -> Option<Result<Spawned, SpawnError>> {
        self.run(move |spawner| spawner.spawn(&command, tag)).await
    }

    /// Starts another guard if the old one was killed. None if the server is ending.
    pub(crate) async fn ensure_guard(&self) -> Option<io::Result<()>> {
        self.run(Spawner::ensure_guard).await
    }

    async fn run<T: Send + 'static>(&self, start: impl FnOnce(&Spawner) -> T + Send + 'static) -> Option<T> {
        let (result, mut started) = oneshot::channel();
        self.desk.queue.lock().jobs.push_back(Box::new(move |spawner| {
            // Nobody may be waiting any more; whatever was started is then dropped and found by its tag.
            let _nobody_may_wait = result.send(start(spawner));
        }));
        loop {
            self.desk.ensure_progress(Instant::now());
            match tokio::time::timeout(LONGEST_START, &mut started).await {
                Ok(result) => return result.ok(),
                Err(_) => continue,
            }
        }
    }
}

impl Drop for Starter {
    fn drop(&mut self) {
        self.desk.queue.lock().is_closed = true;
        self.desk.changed.notify_all();
    }
}

impl<J> Queue<J> {
    fn with_threads(threads: usize) -> Self {
        Self { jobs: VecDeque::new(), threads, idle: 0, last_progress: None, is_closed: false }
    }

    /// Counts another thread if all there are hang: each has a start that takes too long. Until the new one runs, which can take a
    /// while on a busy machine, no further one is wanted.
    fn claim_thread(&mut self, now: Instant) -> bool {
        let since_progress = self.last_progress.map(|at| now.saturating_duration_since(at));
        let hangs = since_progress.is_none_or(|since| since >= LONGEST_START);
        let is_wanted = !self.jobs.is_empty() && self.idle == 0 && hangs && self.threads < MOST_THREADS;
        if is_wanted {
            self.last_progress = Some(now);
            self.threads += 1;
        }
        is_wanted
    }
}

impl Desk {
    /// Wakes or adds a thread if jobs wait and nobody works on them.
    fn ensure_progress(self: &Arc<Self>, now: Instant) {
        let mut queue = self.queue.lock();
        if queue.idle > 0 && !queue.jobs.is_empty() {
            self.changed.notify_one();
        } else if queue.claim_thread(now) {
            drop(queue);
            if self.add_thread().is_err() {
                self.queue.lock().threads -= 1;
            }
        }
    }

    fn add_thread(self: &Arc<Self>) -> io::Result<()> {
        let desk = Arc::clone(self);
        std::thread::Builder::new().name("starter".into()).spawn(move || desk.work())?;
        Ok(())
    }

    fn work(&self) {
        let _watched = self.runtime.enter();
        let mut queue = self.queue.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                queue.last_progress = Some(Instant::now());
                drop(queue);
                // A panic is in the log, and the thread must stay for the next start.
                let _panicked = survive_call(|| job(&self.spawner));
                queue = self.queue.lock();
                continue;
            }
            if queue.is_closed {
                return;
            }
            queue.idle += 1;
            let timed_out = self.changed.wait_for(&mut queue, IDLE_THREAD).timed_out();
            queue.idle -= 1;
            if timed_out && queue.jobs.is_empty() && queue.threads > 1 {
                queue.threads -= 1;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_adds_one_thread_at_a_time() {
        let now = Instant::now();
        let mut queue = Queue::with_threads(1);
        queue.jobs.extend(0..1000);
        queue.last_progress = Some(now);
        assert!(!queue.claim_thread(now), "the thread has just begun with a start");
        let later = now + LONGEST_START;
        let claimed = (0..1000).filter(|_| queue.claim_thread(later)).count();
        assert_eq!((claimed, queue.threads), (1, 2), "that start hangs, and the new thread has not run yet");
        let much_later = later + LONGEST_START;
        assert!(queue.claim_thread(much_later), "the second start hangs as well");
        queue.threads = MOST_THREADS;
        assert!(!queue.claim_thread(much_later + LONGEST_START));
    }

    #[test]
    fn no_thread_is_added_for_nothing() {
        let now = Instant::now();
        let mut queue = Queue::with_threads(1);
        assert!(!queue.claim_thread(now), "nothing waits");
        queue.jobs.push_back(0);
        queue.idle = 1;
        assert!(!queue.claim_thread(now), "a thread waits for it");
    }
}
