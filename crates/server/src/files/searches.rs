//! How many searches run at once, and with how many threads: each thread of each search takes memory, and so does what it looks for. A
//! session has a part of the places, so that searches whose client does not read leave places to others.

use std::sync::Arc;

use crate::limits::MAX_FURTHER_SEARCH_THREADS;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A session has one of so many parts of all places.
const PARTS: usize = 4;
/// A pattern up to here takes a few megabytes while it is compiled.
const ORDINARY_PATTERN_BYTES: usize = 512;
/// Globs up to here take a few megabytes.
const ORDINARY_GLOB_BYTES: usize = 4 << 10;

/// The places of all sessions.
pub(crate) struct SearchPlaces {
    places: Arc<Semaphore>,
    further_threads: Arc<Semaphore>,
    for_session: usize,
}

/// The places of a session.
pub(crate) struct SessionSearches {
    own: Arc<Semaphore>,
    of_all: Arc<SearchPlaces>,
}

/// The place of a search that runs.
pub(crate) struct SearchPlace {
    /// With how many threads it may run.
    pub(crate) threads: usize,
    _own: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
    _further_threads: Option<OwnedSemaphorePermit>,
}

/// How much memory it takes to prepare a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    /// A few megabytes.
    Ordinary,
    /// As much as the limits of patterns and globs allow. Such a search takes all places of its session.
    Large,
}

impl Question {
    pub(crate) fn of(pattern: Option<&str>, globs: &[String]) -> Self {
        let glob_bytes: usize = globs.iter().map(String::len).sum();
        if pattern.map_or(0, str::len) <= ORDINARY_PATTERN_BYTES && glob_bytes <= ORDINARY_GLOB_BYTES {
            Self::Ordinary
        } else {
            Self::Large
        }
    }
}

impl SearchPlaces {
    pub(crate) fn new(places: usize) -> Arc<Self> {
        Arc::new(Self {
            places: Arc::new(Semaphore::new(places)),
            further_threads: Arc::new(Semaphore::new(MAX_FURTHER_SEARCH_THREADS)),
            for_session: places.div_ceil(PARTS),
        })
    }

    pub(crate) fn of_session(self: &Arc<Self>) -> SessionSearches {
        SessionSearches { own: Arc::new(Semaphore::new(self.for_session)), of_all: Arc::clone(self) }
    }
}

impl SessionSearches {
    /// Waits for a place for a search that would like to have so many threads. None only while the server ends.
    pub(crate) async fn place(&self, question: Question, threads: usize) -> Option<SearchPlace> {
        let count = match question {
            Question::Ordinary => 1,
            Question::Large => u32::try_from(self.of_all.for_session).unwrap_or(u32::MAX),
        };
        // First the session's own: a session with many searches waits among them, not among those of others.
        let own = Arc::clone(&self.own).acquire_many_owned(count).await.ok()?;
        let of_all = Arc::clone(&self.of_all.places).acquire_many_owned(count).await.ok()?;
        let further = &self.of_all.further_threads;
        // At most half of those that are free, so that the next search has some too.
        let wanted = threads.saturating_sub(1).min(further.available_permits() / 2);
        let further_threads =
            u32::try_from(wanted).ok().and_then(|wanted| Arc::clone(further).try_acquire_many_owned(wanted).ok());
        let threads = 1 + further_threads.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        Some(SearchPlace { threads, _own: own, _of_all: of_all, _further_threads: further_threads })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_session_has_a_quarter_of_the_places() {
        let all = SearchPlaces::new(8);
        let sessions: Vec<SessionSearches> = (0..5).map(|_| all.of_session()).collect();
        let mut held = Vec::new();
        for session in &sessions[..4] {
            held.push(session.place(Question::Ordinary, 1).await.unwrap());
            held.push(session.place(Question::Ordinary, 1).await.unwrap());
            let third = timeout(Duration::ZERO, session.place(Question::Ordinary, 1)).await;
            assert!(third.is_err(), "a third place of one session");
        }
        let mut waiting = Box::pin(sessions[4].place(Question::Ordinary, 1));
        assert!(timeout(Duration::ZERO, &mut waiting).await.is_err(), "a ninth place");
        held.pop();
        waiting.await.unwrap();
    }

    #[tokio::test]
    async fn a_large_question_takes_the_places_of_its_session() {
        let all = SearchPlaces::new(8);
        let (one, other) = (all.of_session(), all.of_session());
        let large = one.place(Question::Large, 1).await.unwrap();
        assert_eq!(all.places.available_permits(), 6);
        assert!(timeout(Duration::ZERO, one.place(Question::Ordinary, 1)).await.is_err());
        other.place(Question::Ordinary, 1).await.unwrap();
        drop(large);
        one.place(Question::Ordinary, 1).await.unwrap();
    }

    #[tokio::test]
    async fn every_search_has_a_thread_and_all_together_have_a_bound() {
        let all = SearchPlaces::new(64);
        let mut held = Vec::new();
        for _ in 0..64 {
            held.push(all.of_session().place(Question::Ordinary, 12).await.unwrap());
        }
        assert_eq!((held[0].threads, held[63].threads), (12, 1));
        let threads: usize = held.iter().map(|place| place.threads).sum();
        assert!(threads <= 64 + MAX_FURTHER_SEARCH_THREADS, "{threads} threads");
        drop(held);
        assert_eq!(all.further_threads.available_permits(), MAX_FURTHER_SEARCH_THREADS);
    }

    #[test]
    fn what_costs_much_to_prepare_is_a_large_question() {
        let of = |pattern: usize, globs: usize| Question::of(Some(&"a".repeat(pattern)), &["b".repeat(globs)]);
        assert_eq!(Question::of(None, &[]), Question::Ordinary);
        assert_eq!(of(ORDINARY_PATTERN_BYTES, ORDINARY_GLOB_BYTES), Question::Ordinary);
        assert_eq!(of(ORDINARY_PATTERN_BYTES + 1, 0), Question::Large);
        assert_eq!(of(0, ORDINARY_GLOB_BYTES + 1), Question::Large);
    }
}
