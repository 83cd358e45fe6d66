//! Threads for work that blocks: operations on files, and starts of processes. The threads that tokio has for
//! blocking work are not used: if the system gives no more threads, tokio panics or waits for ever. A pool of this
//! module starts a few threads at the beginning and keeps them, so its work goes on, if slowly, when the system gives
//! no more threads.
//!
//! This module does not know what the work is. `work_queue` decides the order of jobs, the number of threads, and how
//! many threads may work for one session. The callers limit how many jobs of a session may wait.

mod work_queue;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::survive::survive_call;
pub(crate) use work_queue::{JobOwner, PoolGrowth};
use work_queue::{StartedJob, WorkQueue};

/// A thread without work ends after this time, unless it is one of those that a pool always keeps.
const IDLE_THREAD_TIMEOUT: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

/// A pool of threads. When the pool is dropped, its threads do the waiting work and end.
pub(crate) struct BlockingThreads {
    pool: Arc<Pool>,
}

struct Pool {
    name: &'static str,
    kept_threads: usize,
    hang_timeout: Duration,
    /// Number of the [`JobOwner`] that was made last.
    last_owner: AtomicU64,
    shared_queue: Mutex<SharedQueue>,
    /// Wakes idle threads, because a job is ready or the pool is closed.
    changed: Condvar,
}

struct SharedQueue {
    jobs: WorkQueue<Job>,
    /// The pool was dropped. A thread that finds no job ends.
    is_closed: bool,
}

impl BlockingThreads {
    /// Starts `kept_threads` threads, which live as long as the pool. `growth` says when threads are added, up to `most_threads` in total.
    pub(crate) fn start(
        name: &'static str,
        kept_threads: usize,
        most_threads: usize,
        growth: PoolGrowth,
    ) -> io::Result<Self> {
        let shared_queue =
            Mutex::new(SharedQueue { jobs: WorkQueue::new(kept_threads, most_threads, growth), is_closed: false });
        let (hang_timeout, last_owner, changed) =
            (growth.hang_timeout, AtomicU64::new(JobOwner::SERVER.0), Condvar::new());
        let pool = Arc::new(Pool { name, kept_threads, hang_timeout, last_owner, shared_queue, changed });
        for _ in 0..kept_threads {
            // `WorkQueue::new` has counted these threads already.
            pool.add_thread(|_| {})?;
        }
        Ok(Self { pool })
    }

    /// Makes another owner of jobs. All owners get equal shares of the threads.
    pub(crate) fn new_owner(&self) -> JobOwner {
        JobOwner(self.pool.last_owner.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Runs `work` on one of the threads. Returns None if `work` panicked. If the returned future is dropped, `work` still runs.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        owner: JobOwner,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (done, mut result) = oneshot::channel();
        let job = Box::new(move || {
            let _sent_unless_caller_is_gone = done.send(work());
        });
        self.pool.shared_queue.lock().jobs.push(owner, job);
        self.pool.ensure_progress();
        loop {
            match tokio::time::timeout(self.pool.hang_timeout, &mut result).await {
                Ok(result) => return result.ok(),
                Err(_) => self.pool.ensure_progress(),
            }
        }
    }
}

impl Drop for BlockingThreads {
    fn drop(&mut self) {
        self.pool.shared_queue.lock().is_closed = true;
        self.pool.changed.notify_all();
    }
}

impl Pool {
    /// Wakes or adds a thread if jobs wait.
    fn ensure_progress(self: &Arc<Self>) {
        let mut queue = self.shared_queue.lock();
        if queue.jobs.claim_thread(Instant::now()) {
            drop(queue);
            // If the system gives no thread, an existing thread will do the job later.
            if self.add_thread(WorkQueue::note_thread_started).is_err() {
                self.shared_queue.lock().jobs.note_thread_failed();
            }
        } else if queue.jobs.idle > 0 && queue.jobs.ready() > 0 {
            self.changed.notify_one();
        }
    }

    /// Starts a thread. The thread first calls `note`, which tells the queue that the thread runs.
    fn add_thread(self: &Arc<Self>, note: fn(&mut WorkQueue<Job>)) -> io::Result<()> {
        let pool = Arc::clone(self);
        std::thread::Builder::new().name(self.name.into()).spawn(move || pool.work(note))?;
        Ok(())
    }

    fn work(&self, note: fn(&mut WorkQueue<Job>)) {
        let mut queue = self.shared_queue.lock();
        note(&mut queue.jobs);
        loop {
            if let Some(StartedJob { job, running_job }) = queue.jobs.begin(Instant::now()) {
                drop(queue);
                // The panic is logged already. The caller of `run` gets None, because the channel for the result was dropped.
                let _none_if_panicked = survive_call(job);
                queue = self.shared_queue.lock();
                queue.jobs.end(running_job, Instant::now());
                if queue.jobs.retire_thread_after(running_job) {
                    return;
                }
                continue;
            }
            if queue.is_closed {
                return queue.jobs.note_thread_ended();
            }
            queue.jobs.idle += 1;
            let timed_out = self.changed.wait_for(&mut queue, IDLE_THREAD_TIMEOUT).timed_out();
            queue.jobs.idle -= 1;
            if timed_out && queue.jobs.retire_idle_thread(self.kept_threads) {
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
    const GROWTH: PoolGrowth = PoolGrowth {
        eager_threads: KEPT_THREADS,
        hang_timeout: Duration::from_millis(10),
        most_per_owner: KEPT_THREADS + 1,
    };

    fn pool_of_two_threads() -> BlockingThreads {
        BlockingThreads::start("test", KEPT_THREADS, KEPT_THREADS, GROWTH).unwrap()
    }

    #[tokio::test]
    async fn work_waits_while_all_threads_are_busy() {
        let threads = pool_of_two_threads();
        let (begun, begun_receiver) = mpsc::channel();
        let hang = |begun: mpsc::Sender<()>| {
            let (end, ended) = mpsc::channel::<()>();
            let work = move || {
                begun.send(()).unwrap();
                ended.recv().unwrap_or_default();
            };
            (Box::pin(threads.run(JobOwner::SERVER, work)), end)
        };
        let mut hanging: Vec<_> = (0..KEPT_THREADS).map(|_| hang(begun.clone())).collect();
        let mut waiting = Box::pin(threads.run(JobOwner::SERVER, || 7));
        for (work, _) in &mut hanging {
            assert!(poll_briefly(work).await.is_none());
        }
        assert!(poll_briefly(&mut waiting).await.is_none());
        for _ in 0..KEPT_THREADS {
            begun_receiver.recv().unwrap();
        }
        assert!(poll_briefly(&mut waiting).await.is_none(), "all threads hang");
        let (first, end) = hanging.pop().unwrap();
        drop(end);
        assert_eq!(first.await, Some(()));
        assert_eq!(waiting.await, Some(7));
    }

    #[tokio::test]
    async fn a_panic_of_the_work_ends_no_thread_and_returns_none() {
        let threads = pool_of_two_threads();
        for _ in 0..KEPT_THREADS * 2 {
            assert_eq!(threads.run(JobOwner::SERVER, || -> u32 { panic!("on purpose") }).await, None);
        }
        assert_eq!(threads.run(JobOwner::SERVER, || 7).await, Some(7));
    }

    #[tokio::test]
    async fn a_thread_is_added_for_other_work_while_work_hangs() {
        let threads = BlockingThreads::start("test", KEPT_THREADS, KEPT_THREADS + 1, GROWTH).unwrap();
        let (end, ended) = mpsc::channel::<()>();
        let ended = Arc::new(Mutex::new(ended));
        let mut hanging = Vec::new();
        for _ in 0..KEPT_THREADS {
            let ended = Arc::clone(&ended);
            let mut work = Box::pin(threads.run(JobOwner::SERVER, move || ended.lock().recv().unwrap_or_default()));
            assert!(poll_briefly(&mut work).await.is_none());
            hanging.push(work);
        }
        for number in 0..10 {
            assert_eq!(threads.run(JobOwner::SERVER, move || number).await, Some(number));
        }
        drop(end);
        for work in hanging {
            assert_eq!(work.await, Some(()));
        }
    }

    /// Polls a future for about a millisecond at most. Returns its output if the future is ready.
    async fn poll_briefly<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
        tokio::time::timeout(Duration::ZERO, future).await.ok()
    }
}
