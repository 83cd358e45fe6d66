//! Threads for work that blocks: on files, or on starting processes. They are not those of the runtime: a few exist from the start and
//! stay, so that work goes on, one piece after the other, when the machine gives no more threads; the runtime would panic or wait for
//! ever. It knows nothing of what the work is, and who may have how much of it is decided by those who ask.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::survive::survive_call;

/// How long any other thread waits for more work before it ends.
const IDLE_THREAD: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

/// When a thread is added to those that stay.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Growth {
    /// As soon as no thread is free for a piece of work.
    AtOnce,
    /// When work waits and none has been begun for so long: all threads hang.
    WhenStuck {
        /// How long.
        patience: Duration,
    },
}

/// The threads. They end when this is dropped and all work is done.
pub(crate) struct BlockingThreads {
    pool: Arc<Pool>,
}

struct Pool {
    name: &'static str,
    kept_threads: usize,
    queue: Mutex<Queue<Job>>,
    changed: Condvar,
}

struct Queue<J> {
    jobs: VecDeque<J>,
    threads: usize,
    most_threads: usize,
    growth: Growth,
    /// Threads that wait for a job.
    idle: usize,
    /// When a job was last taken from the queue, or a thread was last added.
    last_progress: Option<Instant>,
    is_closed: bool,
}

impl BlockingThreads {
    /// Starts the threads that stay; later there are at most `most_threads`.
    pub(crate) fn start(
        name: &'static str,
        kept_threads: usize,
        most_threads: usize,
        growth: Growth,
    ) -> io::Result<Self> {
        let queue = Mutex::new(Queue::new(kept_threads, most_threads, growth));
        let pool = Arc::new(Pool { name, kept_threads, queue, changed: Condvar::new() });
        for _ in 0..kept_threads {
            pool.add_thread()?;
        }
        Ok(Self { pool })
    }

    /// Runs `work` on one of the threads, also if nobody waits for it any more. None if it panicked.
    pub(crate) async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (done, mut result) = oneshot::channel();
        let growth = self.pool.push(Box::new(move || {
            let _nobody_may_wait = done.send(work());
        }));
        if let Growth::WhenStuck { patience } = growth {
            loop {
                match tokio::time::timeout(patience, &mut result).await {
                    Ok(result) => return result.ok(),
                    Err(_) => self.pool.ensure_progress(),
                }
            }
        }
        result.await.ok()
    }
}

impl Drop for BlockingThreads {
    fn drop(&mut self) {
        self.pool.queue.lock().is_closed = true;
        self.pool.changed.notify_all();
    }
}

impl<J> Queue<J> {
    fn new(threads: usize, most_threads: usize, growth: Growth) -> Self {
        let (jobs, last_progress) = (VecDeque::new(), None);
        Self { jobs, threads, most_threads, growth, idle: 0, last_progress, is_closed: false }
    }

    /// Counts another thread if one is wanted. Until the new one runs, which can take a while on a busy machine, no further one is added
    /// to threads that hang.
    fn claim_thread(&mut self, now: Instant) -> bool {
        let lacks_thread = match self.growth {
            Growth::AtOnce => self.idle < self.jobs.len(),
            Growth::WhenStuck { patience } => {
                let since_progress = self.last_progress.map(|at| now.saturating_duration_since(at));
                !self.jobs.is_empty() && self.idle == 0 && since_progress.is_none_or(|since| since >= patience)
            }
        };
        let is_wanted = lacks_thread && self.threads < self.most_threads;
        if is_wanted {
            self.last_progress = Some(now);
            self.threads += 1;
        }
        is_wanted
    }
}

impl Pool {
    fn push(self: &Arc<Self>, job: Job) -> Growth {
        let growth = {
            let mut queue = self.queue.lock();
            queue.jobs.push_back(job);
            queue.growth
        };
        self.ensure_progress();
        growth
    }

    /// Wakes or adds a thread if jobs wait.
    fn ensure_progress(self: &Arc<Self>) {
        let mut queue = self.queue.lock();
        if queue.claim_thread(Instant::now()) {
            drop(queue);
            // Without another thread, one of those there are comes to it.
            if self.add_thread().is_err() {
                self.queue.lock().threads -= 1;
            }
        } else if queue.idle > 0 && !queue.jobs.is_empty() {
            self.changed.notify_one();
        }
    }

    fn add_thread(self: &Arc<Self>) -> io::Result<()> {
        let pool = Arc::clone(self);
        std::thread::Builder::new().name(self.name.into()).spawn(move || pool.work())?;
        Ok(())
    }

    fn work(&self) {
        let mut queue = self.queue.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                queue.last_progress = Some(Instant::now());
                drop(queue);
                // The panic is in the log, and whoever waits for the result learns that there is none.
                let _panicked = survive_call(job);
                queue = self.queue.lock();
                continue;
            }
            if queue.is_closed {
                queue.threads -= 1;
                return;
            }
            queue.idle += 1;
            let timed_out = self.changed.wait_for(&mut queue, IDLE_THREAD).timed_out();
            queue.idle -= 1;
            if timed_out && queue.jobs.is_empty() && queue.threads > self.kept_threads {
                queue.threads -= 1;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const KEPT_THREADS: usize = 2;
    const MOST_THREADS: usize = 64;
    const PATIENCE: Duration = Duration::from_millis(250);

    fn two_threads() -> BlockingThreads {
        BlockingThreads::start("test", KEPT_THREADS, KEPT_THREADS, Growth::AtOnce).unwrap()
    }

    #[test]
    fn a_burst_adds_one_thread_at_a_time_to_those_that_hang() {
        let now = Instant::now();
        let mut queue = Queue::new(1, MOST_THREADS, Growth::WhenStuck { patience: PATIENCE });
        queue.jobs.extend(0..1000);
        queue.last_progress = Some(now);
        assert!(!queue.claim_thread(now), "the thread has just begun with a job");
        let later = now + PATIENCE;
        let claimed = (0..1000).filter(|_| queue.claim_thread(later)).count();
        assert_eq!((claimed, queue.threads), (1, 2), "that job hangs, and the new thread has not run yet");
        let much_later = later + PATIENCE;
        assert!(queue.claim_thread(much_later), "the second job hangs as well");
        queue.threads = MOST_THREADS;
        assert!(!queue.claim_thread(much_later + PATIENCE));
    }

    #[test]
    fn no_thread_is_added_for_nothing() {
        for growth in [Growth::AtOnce, Growth::WhenStuck { patience: PATIENCE }] {
            let now = Instant::now();
            let mut queue = Queue::new(1, MOST_THREADS, growth);
            assert!(!queue.claim_thread(now), "nothing waits");
            queue.jobs.push_back(0);
            queue.idle = 1;
            assert!(!queue.claim_thread(now), "a thread waits for it");
        }
    }

    #[tokio::test]
    async fn work_beyond_the_threads_waits_for_one_of_them() {
        let threads = two_threads();
        let (begun, has_begun) = mpsc::channel();
        let hang = |begun: mpsc::Sender<()>| {
            let (end, ended) = mpsc::channel::<()>();
            let work = move || {
                begun.send(()).unwrap();
                ended.recv().unwrap_or_default();
            };
            (Box::pin(threads.run(work)), end)
        };
        let mut hanging: Vec<_> = (0..KEPT_THREADS).map(|_| hang(begun.clone())).collect();
        let mut waiting = Box::pin(threads.run(|| 7));
        for (work, _) in &mut hanging {
            assert!(futures_poll(work).await.is_none());
        }
        assert!(futures_poll(&mut waiting).await.is_none());
        for _ in 0..KEPT_THREADS {
            has_begun.recv().unwrap();
        }
        assert!(futures_poll(&mut waiting).await.is_none(), "all threads hang");
        let (first, end) = hanging.pop().unwrap();
        drop(end);
        assert_eq!(first.await, Some(()));
        assert_eq!(waiting.await, Some(7));
    }

    #[tokio::test]
    async fn a_panic_ends_neither_the_thread_nor_the_wait() {
        let threads = two_threads();
        for _ in 0..KEPT_THREADS * 2 {
            assert_eq!(threads.run(|| -> u32 { panic!("on purpose") }).await, None);
        }
        assert_eq!(threads.run(|| 7).await, Some(7));
    }

    /// Polls once.
    async fn futures_poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
        tokio::time::timeout(Duration::ZERO, future).await.ok()
    }
}
