//! Where operations on files run: on threads that may block, so many at once for a session and so many in all. One that
//! hangs, on a dead network mount for example, holds its own place and nobody else's, for as long as it hangs.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::blocking::{Asker, BlockingThreads};
use crate::limits::MAX_LARGE_FILE_OPERATIONS;

/// The places of a session.
pub(crate) struct Work {
    for_session: Arc<Semaphore>,
    all_own: u32,
    for_all: Arc<Semaphore>,
    threads: Arc<BlockingThreads>,
    /// The session, for whom the threads work.
    asker: Asker,
}

/// How much memory an operation may take.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Weight {
    /// A few megabytes.
    Ordinary,
    /// A whole message, or all the threads of a search.
    Large,
}

/// The place of an operation.
struct Place {
    own: OwnedSemaphorePermit,
    of_all: OwnedSemaphorePermit,
}

/// A place among those of a session: what is left of the place of an operation that is done, while its answer waits for room, and what an
/// operation has that waits for room before it begins. It holds none of the places of all sessions, so that a client that does not
/// read holds up nobody else.
pub(crate) struct AnswerSlot {
    own: OwnedSemaphorePermit,
}

impl Work {
    pub(crate) fn new(for_session: usize, for_all: Arc<Semaphore>, threads: Arc<BlockingThreads>) -> Self {
        let all_own = u32::try_from(for_session).unwrap_or(u32::MAX);
        let asker = threads.new_asker();
        Self { for_session: Arc::new(Semaphore::new(for_session)), all_own, for_all, threads, asker }
    }

    /// The session, for whom the threads work.
    pub(crate) fn asker(&self) -> Asker {
        self.asker
    }

    /// Runs `operation` when there is a place for it. None only if it panicked. Dropped before the operation has its place,
    /// it never begins; later, it runs to its end.
    pub(crate) async fn run<T: Send + 'static>(&self, operation: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        self.run_for_reply(Weight::Ordinary, operation).await.map(|(done, _place)| done)
    }

    /// The same, and a place of the session is kept with what was done: a client that has no room yet for the answer must not make
    /// the session hold more of them.
    pub(crate) async fn run_for_reply<T: Send + 'static>(
        &self,
        weight: Weight,
        operation: impl FnOnce() -> T + Send + 'static,
    ) -> Option<(T, AnswerSlot)> {
        self.run_in(self.place(weight).await?, operation).await
    }

    async fn place(&self, weight: Weight) -> Option<Place> {
        // First the session's own: whoever has many operations waits among them, not among those of others.
        let own = self.own_place(weight).await?;
        self.among_all(own).await
    }

    /// Waits for a place of the session only, for those who have to wait for room as well before they begin.
    pub(crate) async fn own_place(&self, weight: Weight) -> Option<AnswerSlot> {
        let own = match weight {
            Weight::Ordinary => 1,
            Weight::Large => self.all_own.div_ceil(MAX_LARGE_FILE_OPERATIONS),
        };
        Some(AnswerSlot { own: acquire(&self.for_session, own).await? })
    }

    async fn among_all(&self, slot: AnswerSlot) -> Option<Place> {
        Some(Place { own: slot.own, of_all: acquire(&self.for_all, 1).await? })
    }

    /// Runs `operation` in a place of the session that was waited for, when there is one among those of all.
    pub(crate) async fn run_with<T: Send + 'static>(
        &self,
        slot: AnswerSlot,
        operation: impl FnOnce() -> T + Send + 'static,
    ) -> Option<(T, AnswerSlot)> {
        self.run_in(self.among_all(slot).await?, operation).await
    }

    /// Runs `operation` in a place that was waited for.
    async fn run_in<T: Send + 'static>(
        &self,
        place: Place,
        operation: impl FnOnce() -> T + Send + 'static,
    ) -> Option<(T, AnswerSlot)> {
        let running = move || {
            let done = operation();
            drop(place.of_all);
            (done, AnswerSlot { own: place.own })
        };
        self.threads.run(self.asker, running).await
    }
}

async fn acquire(places: &Arc<Semaphore>, count: u32) -> Option<OwnedSemaphorePermit> {
    Arc::clone(places).acquire_many_owned(count).await.ok()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;
    use crate::blocking::Growth;

    /// Work that hangs until its end is sent to it, as on a dead network mount.
    fn hang(work: &Arc<Work>) -> (tokio::task::JoinHandle<Option<()>>, mpsc::Sender<()>) {
        let (end, ended) = mpsc::channel::<()>();
        let work = Arc::clone(work);
        let hanging = tokio::spawn(async move { work.run(move || ended.recv().unwrap_or_default()).await });
        (hanging, end)
    }

    fn session(places: usize, for_all: &Arc<Semaphore>) -> Arc<Work> {
        let places_in_all = for_all.available_permits();
        let growth =
            Growth { at_once: places_in_all, patience: Duration::from_secs(1), most_per_asker: places_in_all };
        let threads = Arc::new(BlockingThreads::start("test", 1, places_in_all, growth).unwrap());
        Arc::new(Work::new(places, Arc::clone(for_all), threads))
    }

    #[tokio::test]
    async fn what_hangs_holds_its_own_place_only() {
        let for_all = Arc::new(Semaphore::new(3));
        let (one, other) = (session(2, &for_all), session(2, &for_all));
        let (first, end_first) = hang(&one);
        while for_all.available_permits() > 2 {
            tokio::task::yield_now().await;
        }
        assert_eq!(one.run(|| 7).await, Some(7), "the session has another place");

        let (second, end_second) = hang(&one);
        while for_all.available_permits() > 1 {
            tokio::task::yield_now().await;
        }
        let mut waiting = Box::pin(one.run(|| 8));
        for _ in 0..100 {
            assert_eq!(other.run(|| 9).await, Some(9), "another session has places of its own");
            assert!(timeout(Duration::ZERO, &mut waiting).await.is_err(), "all places of the session hang");
        }
        end_first.send(()).unwrap();
        assert_eq!(waiting.await, Some(8));
        end_second.send(()).unwrap();
        assert_eq!((first.await.unwrap(), second.await.unwrap()), (Some(()), Some(())));
        assert_eq!(for_all.available_permits(), 3);
    }

    #[tokio::test]
    async fn an_answer_that_waits_holds_a_place_of_its_session_only() {
        let for_all = Arc::new(Semaphore::new(1));
        let (one, other) = (session(1, &for_all), session(1, &for_all));
        let (done, slot) = one.run_for_reply(Weight::Ordinary, || 7).await.unwrap();
        assert_eq!((done, for_all.available_permits()), (7, 1));
        assert_eq!(other.run(|| 8).await, Some(8));
        let mut waiting = Box::pin(one.run(|| 9));
        assert!(timeout(Duration::ZERO, &mut waiting).await.is_err(), "the answer is not sent yet");
        drop(slot);
        assert_eq!(waiting.await, Some(9));
    }

    #[tokio::test]
    async fn what_is_given_up_before_it_has_begun_never_begins() {
        let for_all = Arc::new(Semaphore::new(1));
        let work = session(1, &for_all);
        let (hanging, end) = hang(&work);
        while for_all.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let (begun, begins) = mpsc::channel();
        let mut waiting = Box::pin(work.run(move || begun.send(()).unwrap_or_default()));
        assert!(timeout(Duration::ZERO, &mut waiting).await.is_err());
        drop(waiting);
        end.send(()).unwrap();
        hanging.await.unwrap();
        assert!(begins.recv().is_err(), "its channel was dropped unused");
        assert_eq!(for_all.available_permits(), 1);
    }

    #[tokio::test]
    async fn what_is_given_up_later_keeps_its_place_until_it_ends() {
        let for_all = Arc::new(Semaphore::new(1));
        let work = session(1, &for_all);
        let (hanging, end) = hang(&work);
        while for_all.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        hanging.abort();
        assert!(hanging.await.unwrap_err().is_cancelled());
        assert_eq!(for_all.available_permits(), 0, "the thread still hangs");
        end.send(()).unwrap();
        assert_eq!(work.run(|| 1).await, Some(1));
    }
}
