//! Runs operations on files on threads that may block. Permits limit how many run at once: for one session
//! (`--max-file-operations`) and for all sessions together (`--max-file-operations-total`). An operation that hangs,
//! for example on a dead network mount, keeps its permits and its thread as long as it hangs. Other operations do not
//! wait for it while permits are left.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::blocking::{BlockingThreads, JobOwner};
use crate::limits::MAX_LARGE_FILE_OPERATIONS;

/// The permits of one session, the permits that all sessions share, and the threads.
pub(crate) struct FileOperations {
    of_session: Arc<Semaphore>,
    /// The number of permits in `of_session`, taken ones included.
    max_of_session: u32,
    /// The permits that all sessions share.
    of_all: Arc<Semaphore>,
    threads: Arc<BlockingThreads>,
    /// Identifies the session to the threads.
    owner: JobOwner,
}

/// How much memory an operation may take.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MemoryNeed {
    /// A few megabytes.
    Ordinary,
    /// As much as the largest message, or as all the threads of a search together. Such an operation takes so many
    /// permits of its session that at most [`MAX_LARGE_FILE_OPERATIONS`] such operations run at once.
    Large,
}

/// The permits of an operation that runs.
struct OperationPermit {
    of_session: OwnedSemaphorePermit,
    of_all: OwnedSemaphorePermit,
}

/// The permits that an operation has of its session, without a permit that all sessions share. An operation holds
/// only these after its end until its answer can be sent, or before its beginning while it waits for memory for its
/// answer. So a client that does not read delays only its own session.
pub(crate) struct SessionPermit {
    of_session: OwnedSemaphorePermit,
}

impl FileOperations {
    /// `max_of_session` is `--max-file-operations`. `of_all` has `--max-file-operations-total` permits.
    pub(crate) fn new(max_of_session: usize, of_all: Arc<Semaphore>, threads: Arc<BlockingThreads>) -> Self {
        let owner = threads.new_owner();
        let of_session = Arc::new(Semaphore::new(max_of_session));
        Self { of_session, max_of_session: u32::try_from(max_of_session).unwrap_or(u32::MAX), of_all, threads, owner }
    }

    /// Identifies the session to pools of threads.
    pub(crate) fn job_owner(&self) -> JobOwner {
        self.owner
    }

    /// Runs `operation` when it has its permits. Returns None if the operation panicked. If the future is dropped
    /// before the operation has its permits, the operation never begins; if the future is dropped later, the
    /// operation runs to its end.
    pub(crate) async fn run<T: Send + 'static>(&self, operation: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        self.run_for_reply(MemoryNeed::Ordinary, operation).await.map(|(done, _permit)| done)
    }

    /// As [`Self::run`], but also returns the permits of the session. The caller keeps them until the answer can be
    /// sent, which limits the number of unsent answers of a session.
    pub(crate) async fn run_for_reply<T: Send + 'static>(
        &self,
        need: MemoryNeed,
        operation: impl FnOnce() -> T + Send + 'static,
    ) -> Option<(T, SessionPermit)> {
        // The permit of the session comes first, so that the operations of a busy session do not queue for the shared
        // permits ahead of the operations of other sessions.
        let permit = self.session_permit(need).await?;
        self.run_with_session_permit(permit, operation).await
    }

    /// Waits for the permits of the session that an operation with this `need` takes. For operations that, before
    /// they begin, must also wait for memory for their answer. None if the semaphore was closed.
    pub(crate) async fn session_permit(&self, need: MemoryNeed) -> Option<SessionPermit> {
        let count = match need {
            MemoryNeed::Ordinary => 1,
            MemoryNeed::Large => self.max_of_session.div_ceil(MAX_LARGE_FILE_OPERATIONS),
        };
        Some(SessionPermit { of_session: acquire(&self.of_session, count).await? })
    }

    /// Runs `operation`, which has its permits of the session already, when it also has a permit that all sessions
    /// share.
    pub(crate) async fn run_with_session_permit<T: Send + 'static>(
        &self,
        permit: SessionPermit,
        operation: impl FnOnce() -> T + Send + 'static,
    ) -> Option<(T, SessionPermit)> {
        let SessionPermit { of_session } = permit;
        let permit = OperationPermit { of_session, of_all: acquire(&self.of_all, 1).await? };
        let running = move || {
            let done = operation();
            drop(permit.of_all);
            (done, SessionPermit { of_session: permit.of_session })
        };
        self.threads.run(self.owner, running).await
    }
}

async fn acquire(permits: &Arc<Semaphore>, count: u32) -> Option<OwnedSemaphorePermit> {
    Arc::clone(permits).acquire_many_owned(count).await.ok()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;
    use crate::blocking::PoolGrowth;

    /// Starts an operation that hangs, as on a dead network mount, until a value is sent over the returned channel.
    fn hang(operations: &Arc<FileOperations>) -> (tokio::task::JoinHandle<Option<()>>, mpsc::Sender<()>) {
        let (end, ended) = mpsc::channel::<()>();
        let operations = Arc::clone(operations);
        let hanging = tokio::spawn(async move { operations.run(move || ended.recv().unwrap_or_default()).await });
        (hanging, end)
    }

    fn operations_of_session(permits: usize, for_all: &Arc<Semaphore>) -> Arc<FileOperations> {
        let threads = for_all.available_permits();
        let growth =
            PoolGrowth { eager_threads: threads, hang_timeout: Duration::from_secs(1), most_per_owner: threads };
        let threads = Arc::new(BlockingThreads::start("test", 1, threads, growth).unwrap());
        Arc::new(FileOperations::new(permits, Arc::clone(for_all), threads))
    }

    #[tokio::test]
    async fn a_hanging_operation_holds_only_its_own_permit() {
        let for_all = Arc::new(Semaphore::new(3));
        let (one, other) = (operations_of_session(2, &for_all), operations_of_session(2, &for_all));
        let (first, end_first) = hang(&one);
        while for_all.available_permits() > 2 {
            tokio::task::yield_now().await;
        }
        assert_eq!(one.run(|| 7).await, Some(7), "the session has another permit");

        let (second, end_second) = hang(&one);
        while for_all.available_permits() > 1 {
            tokio::task::yield_now().await;
        }
        let mut waiting = Box::pin(one.run(|| 8));
        for _ in 0..100 {
            assert_eq!(other.run(|| 9).await, Some(9), "another session has permits of its own");
            assert!(
                timeout(Duration::ZERO, &mut waiting).await.is_err(),
                "both operations that the session may run hang"
            );
        }
        end_first.send(()).unwrap();
        assert_eq!(waiting.await, Some(8));
        end_second.send(()).unwrap();
        assert_eq!((first.await.unwrap(), second.await.unwrap()), (Some(()), Some(())));
        assert_eq!(for_all.available_permits(), 3);
    }

    #[tokio::test]
    async fn an_answer_that_waits_to_be_sent_holds_only_a_permit_of_its_session() {
        let for_all = Arc::new(Semaphore::new(1));
        let (one, other) = (operations_of_session(1, &for_all), operations_of_session(1, &for_all));
        let (done, permit) = one.run_for_reply(MemoryNeed::Ordinary, || 7).await.unwrap();
        assert_eq!((done, for_all.available_permits()), (7, 1));
        assert_eq!(other.run(|| 8).await, Some(8));
        let mut waiting = Box::pin(one.run(|| 9));
        assert!(timeout(Duration::ZERO, &mut waiting).await.is_err(), "the answer is not sent yet");
        drop(permit);
        assert_eq!(waiting.await, Some(9));
    }

    #[tokio::test]
    async fn an_operation_whose_future_is_dropped_while_it_waits_never_begins() {
        let for_all = Arc::new(Semaphore::new(1));
        let operations = operations_of_session(1, &for_all);
        let (hanging, end) = hang(&operations);
        while for_all.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let (begun, begins) = mpsc::channel();
        let mut waiting = Box::pin(operations.run(move || begun.send(()).unwrap_or_default()));
        assert!(timeout(Duration::ZERO, &mut waiting).await.is_err());
        drop(waiting);
        end.send(()).unwrap();
        hanging.await.unwrap();
        assert!(begins.recv().is_err(), "the operation was dropped with its channel and never ran");
        assert_eq!(for_all.available_permits(), 1);
    }

    #[tokio::test]
    async fn an_operation_whose_future_is_dropped_while_it_runs_keeps_its_permit_until_it_ends() {
        let for_all = Arc::new(Semaphore::new(1));
        let operations = operations_of_session(1, &for_all);
        let (hanging, end) = hang(&operations);
        while for_all.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        hanging.abort();
        assert!(hanging.await.unwrap_err().is_cancelled());
        assert_eq!(for_all.available_permits(), 0, "the thread still hangs");
        end.send(()).unwrap();
        assert_eq!(operations.run(|| 1).await, Some(1));
    }
}
