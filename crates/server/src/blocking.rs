//! Threads for work that blocks: on files, or on starting processes. They are not those of the runtime: a few exist from the start and
//! stay, so that work goes on, one piece after the other, when the machine gives no more threads; the runtime would panic or wait for
//! ever. It knows nothing of what the work is, and who may have how much of it is decided by those who ask.

mod work_queue;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::survive::survive_call;
pub(crate) use work_queue::{Asker, Growth};
use work_queue::{Begun, WorkQueue};

/// How long any other thread waits for more work before it ends.
const IDLE_THREAD: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

/// The threads. They end when this is dropped and all work is done.
pub(crate) struct BlockingThreads {
    pool: Arc<Pool>,
}

struct Pool {
    name: &'static str,
    kept_threads: usize,
    patience: Duration,
    last_asker: AtomicU64,
    shared_queue: Mutex<SharedQueue>,
    changed: Condvar,
}

struct SharedQueue {
    jobs: WorkQueue<Job>,
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
        let shared_queue =
            Mutex::new(SharedQueue { jobs: WorkQueue::new(kept_threads, most_threads, growth), is_closed: false });
        let (patience, last_asker, changed) = (growth.patience, AtomicU64::new(Asker::SERVER.0), Condvar::new());
        let pool = Arc::new(Pool { name, kept_threads, patience, last_asker, shared_queue, changed });
        for _ in 0..kept_threads {
            // They are counted already.
            pool.add_thread(|_| {})?;
        }
        Ok(Self { pool })
    }

    /// Somebody who gets an equal share of the threads from now on.
    pub(crate) fn new_asker(&self) -> Asker {
        Asker(self.pool.last_asker.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Runs `work` on one of the threads, also if nobody waits for it any more. None if it panicked.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        asker: Asker,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (done, mut result) = oneshot::channel();
        let job = Box::new(move || {
            let _nobody_may_wait = done.send(work());
        });
        self.pool.shared_queue.lock().jobs.push(asker, job);
        self.pool.ensure_progress();
        loop {
            match tokio::time::timeout(self.pool.patience, &mut result).await {
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
            // Without another thread, one of those there are comes to it.
            if self.add_thread(WorkQueue::note_thread).is_err() {
                self.shared_queue.lock().jobs.note_no_thread();
            }
        } else if queue.jobs.idle > 0 && queue.jobs.ready() > 0 {
            self.changed.notify_one();
        }
    }

    /// The thread first tells the queue that it runs.
    fn add_thread(self: &Arc<Self>, note: fn(&mut WorkQueue<Job>)) -> io::Result<()> {
        let pool = Arc::clone(self);
        std::thread::Builder::new().name(self.name.into()).spawn(move || pool.work(note))?;
        Ok(())
    }

    fn work(&self, note: fn(&mut WorkQueue<Job>)) {
        let mut queue = self.shared_queue.lock();
        note(&mut queue.jobs);
        loop {
            if let Some(Begun { job, stub }) = queue.jobs.begin(Instant::now()) {
                drop(queue);
                // The panic is in the log, and whoever waits for the result learns that there is none.
                let _panicked = survive_call(job);
                queue = self.shared_queue.lock();
                queue.jobs.end(stub, Instant::now());
                if queue.jobs.spares_thread(stub) {
                    return;
                }
                continue;
            }
            if queue.is_closed {
                return queue.jobs.forget_thread();
            }
            queue.jobs.idle += 1;
            let timed_out = self.changed.wait_for(&mut queue, IDLE_THREAD).timed_out();
            queue.jobs.idle -= 1;
            if timed_out && queue.jobs.spares_idle_thread(self.kept_threads) {
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
    const GROWTH: Growth =
        Growth { at_once: KEPT_THREADS, patience: Duration::from_millis(10), most_per_asker: KEPT_THREADS + 1 };

    fn two_threads() -> BlockingThreads {
        BlockingThreads::start("test", KEPT_THREADS, KEPT_THREADS, GROWTH).unwrap()
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
            (Box::pin(threads.run(Asker::SERVER, work)), end)
        };
        let mut hanging: Vec<_> = (0..KEPT_THREADS).map(|_| hang(begun.clone())).collect();
        let mut waiting = Box::pin(threads.run(Asker::SERVER, || 7));
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
            assert_eq!(threads.run(Asker::SERVER, || -> u32 { panic!("on purpose") }).await, None);
        }
        assert_eq!(threads.run(Asker::SERVER, || 7).await, Some(7));
    }

    #[tokio::test]
    async fn work_that_hangs_leaves_a_thread_for_the_rest() {
        let threads = BlockingThreads::start("test", KEPT_THREADS, KEPT_THREADS + 1, GROWTH).unwrap();
        let (end, ended) = mpsc::channel::<()>();
        let ended = Arc::new(Mutex::new(ended));
        let mut hanging = Vec::new();
        for _ in 0..KEPT_THREADS {
            let ended = Arc::clone(&ended);
            let mut work = Box::pin(threads.run(Asker::SERVER, move || ended.lock().recv().unwrap_or_default()));
            assert!(futures_poll(&mut work).await.is_none());
            hanging.push(work);
        }
        for number in 0..10 {
            assert_eq!(threads.run(Asker::SERVER, move || number).await, Some(number));
        }
        drop(end);
        for work in hanging {
            assert_eq!(work.await, Some(()));
        }
    }

    /// Polls once.
    async fn futures_poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
        tokio::time::timeout(Duration::ZERO, future).await.ok()
    }
}
