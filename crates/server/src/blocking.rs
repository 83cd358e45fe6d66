//! Threads for work that blocks, mostly on files. They are not those of the runtime: a few exist from the start and stay, so that
//! work goes on, one piece after the other, when the machine gives no more threads; the runtime would panic or wait for ever.
//! It knows nothing of what the work is, and who may have how much of it is decided by those who ask.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

/// Threads that exist before anything is asked of the server. More than one, so that one piece of work that hangs, for example on a
/// dead network mount, does not stop the rest.
const KEPT_THREADS: usize = 2;

/// How long any other thread waits for more work before it ends.
const IDLE_THREAD: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

/// The threads. They end when this is dropped and all work is done.
pub(crate) struct BlockingThreads {
    pool: Arc<Pool>,
}

struct Pool {
    queue: Mutex<Queue>,
    changed: Condvar,
    most_threads: usize,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    threads: usize,
    /// Threads that wait for a job.
    idle: usize,
    is_closed: bool,
}

impl BlockingThreads {
    /// Starts the threads that stay; later there are at most `most_threads`.
    pub(crate) fn start(most_threads: usize) -> io::Result<Self> {
        let pool = Arc::new(Pool { queue: Mutex::default(), changed: Condvar::new(), most_threads });
        for _ in 0..KEPT_THREADS {
            pool.queue.lock().threads += 1;
            pool.add_thread()?;
        }
        Ok(Self { pool })
    }

    /// Runs `work` on one of the threads, also if nobody waits for it any more. None if it panicked.
    pub(crate) async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (done, result) = oneshot::channel();
        self.pool.push(Box::new(move || {
            let _nobody_may_wait = done.send(work());
        }));
        result.await.ok()
    }
}

impl Drop for BlockingThreads {
    fn drop(&mut self) {
        self.pool.queue.lock().is_closed = true;
        self.pool.changed.notify_all();
    }
}

impl Pool {
    fn push(self: &Arc<Self>, job: Job) {
        let mut queue = self.queue.lock();
        queue.jobs.push_back(job);
        if queue.idle >= queue.jobs.len() {
            self.changed.notify_one();
        } else if queue.threads < self.most_threads {
            queue.threads += 1;
            drop(queue);
            // Without another thread, one of those there are comes to it.
            if self.add_thread().is_err() {
                self.queue.lock().threads -= 1;
            }
        }
    }

    fn add_thread(self: &Arc<Self>) -> io::Result<()> {
        let pool = Arc::clone(self);
        std::thread::Builder::new().name("blocking".into()).spawn(move || pool.work())?;
        Ok(())
    }

    fn work(&self) {
        let mut queue = self.queue.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                drop(queue);
                // The panic is in the log, and whoever waits for the result learns that there is none.
                let _panicked = catch_unwind(AssertUnwindSafe(job));
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
            if timed_out && queue.jobs.is_empty() && queue.threads > KEPT_THREADS {
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

    #[tokio::test]
    async fn work_beyond_the_threads_waits_for_one_of_them() {
        let threads = BlockingThreads::start(KEPT_THREADS).unwrap();
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
        let threads = BlockingThreads::start(KEPT_THREADS).unwrap();
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
