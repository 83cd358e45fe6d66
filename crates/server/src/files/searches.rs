//! Permits for searches (`--max-searches`) and for their threads. They limit memory: each thread of a search takes
//! some, and so do the compiled patterns. A session can have only a quarter of the permits for searches, so that a
//! client that does not read its results leaves permits to other sessions.

use std::sync::Arc;

use crate::limits::MAX_FURTHER_SEARCH_THREADS;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A session can have the number of all permits for searches divided by this number, rounded up.
const SESSION_DIVISOR: usize = 4;
/// A pattern of at most this many bytes takes at most a few megabytes when it is compiled.
const ORDINARY_PATTERN_BYTES: usize = 512;
/// Globs of together at most this many bytes take at most a few megabytes when they are compiled.
const ORDINARY_GLOB_BYTES: usize = 4 << 10;

/// The permits of all sessions.
pub(crate) struct SearchPermits {
    /// As many permits as `--max-searches`.
    searches: Arc<Semaphore>,
    /// Permits for threads beyond the first thread of each search.
    further_threads: Arc<Semaphore>,
    /// How many permits for searches a session can have.
    per_session: usize,
}

/// The permits that one session can have.
pub(crate) struct SessionSearches {
    own: Arc<Semaphore>,
    /// The permits that all sessions share. A search needs both an own and a shared permit.
    of_all: Arc<SearchPermits>,
}

/// The permit of a search that runs.
pub(crate) struct SearchPermit {
    /// How many threads the search may use.
    pub(crate) threads: usize,
    _own: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
    _further_threads: Option<OwnedSemaphorePermit>,
}

/// How much memory the compiled pattern and globs of a search take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SearchCost {
    /// A few megabytes.
    Ordinary,
    /// Up to what the limits of patterns and globs allow. Such a search takes all permits of its session.
    Large,
}

impl SearchCost {
    pub(crate) fn of(pattern: Option<&str>, globs: &[String]) -> Self {
        let glob_bytes: usize = globs.iter().map(String::len).sum();
        if pattern.map_or(0, str::len) <= ORDINARY_PATTERN_BYTES && glob_bytes <= ORDINARY_GLOB_BYTES {
            Self::Ordinary
        } else {
            Self::Large
        }
    }
}

impl SearchPermits {
    pub(crate) fn new(max_searches: usize) -> Arc<Self> {
        Arc::new(Self {
            searches: Arc::new(Semaphore::new(max_searches)),
            further_threads: Arc::new(Semaphore::new(MAX_FURTHER_SEARCH_THREADS)),
            per_session: max_searches.div_ceil(SESSION_DIVISOR),
        })
    }

    pub(crate) fn for_session(self: &Arc<Self>) -> SessionSearches {
        SessionSearches { own: Arc::new(Semaphore::new(self.per_session)), of_all: Arc::clone(self) }
    }
}

impl SessionSearches {
    /// Waits for a permit for a search that wants to use `threads` threads. The search may get fewer threads, but at
    /// least one. None if a semaphore was closed.
    pub(crate) async fn permit(&self, cost: SearchCost, threads: usize) -> Option<SearchPermit> {
        let count = match cost {
            SearchCost::Ordinary => 1,
            SearchCost::Large => u32::try_from(self.of_all.per_session).unwrap_or(u32::MAX),
        };
        // The permit of the session comes first, so that the searches of a busy session do not queue for the shared
        // permits ahead of the searches of other sessions.
        let own = Arc::clone(&self.own).acquire_many_owned(count).await.ok()?;
        let of_all = Arc::clone(&self.of_all.searches).acquire_many_owned(count).await.ok()?;
        let further = &self.of_all.further_threads;
        // A search takes at most half of the free permits for further threads, so that the next search gets some too.
        let wanted = threads.saturating_sub(1).min(further.available_permits() / 2);
        let further_threads =
            u32::try_from(wanted).ok().and_then(|wanted| Arc::clone(further).try_acquire_many_owned(wanted).ok());
        let threads = 1 + further_threads.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        Some(SearchPermit { threads, _own: own, _of_all: of_all, _further_threads: further_threads })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_session_can_have_only_a_quarter_of_the_permits() {
        let all = SearchPermits::new(8);
        let sessions: Vec<SessionSearches> = (0..5).map(|_| all.for_session()).collect();
        let mut held = Vec::new();
        for session in &sessions[..4] {
            held.push(session.permit(SearchCost::Ordinary, 1).await.unwrap());
            held.push(session.permit(SearchCost::Ordinary, 1).await.unwrap());
            let third = timeout(Duration::ZERO, session.permit(SearchCost::Ordinary, 1)).await;
            assert!(third.is_err(), "a session has two permits of eight");
        }
        let mut waiting = Box::pin(sessions[4].permit(SearchCost::Ordinary, 1));
        assert!(timeout(Duration::ZERO, &mut waiting).await.is_err(), "all eight permits are taken");
        held.pop();
        waiting.await.unwrap();
    }

    #[tokio::test]
    async fn a_large_search_takes_all_permits_of_its_session() {
        let all = SearchPermits::new(8);
        let (one, other) = (all.for_session(), all.for_session());
        let large = one.permit(SearchCost::Large, 1).await.unwrap();
        assert_eq!(all.searches.available_permits(), 6);
        assert!(timeout(Duration::ZERO, one.permit(SearchCost::Ordinary, 1)).await.is_err());
        other.permit(SearchCost::Ordinary, 1).await.unwrap();
        drop(large);
        one.permit(SearchCost::Ordinary, 1).await.unwrap();
    }

    #[tokio::test]
    async fn every_search_has_a_thread_and_the_number_of_further_threads_is_limited() {
        let all = SearchPermits::new(64);
        let mut held = Vec::new();
        for _ in 0..64 {
            held.push(all.for_session().permit(SearchCost::Ordinary, 12).await.unwrap());
        }
        assert_eq!((held[0].threads, held[63].threads), (12, 1));
        let threads: usize = held.iter().map(|permit| permit.threads).sum();
        assert!(threads <= 64 + MAX_FURTHER_SEARCH_THREADS, "{threads} threads");
        drop(held);
        assert_eq!(all.further_threads.available_permits(), MAX_FURTHER_SEARCH_THREADS);
    }

    #[test]
    fn a_search_with_a_long_pattern_or_long_globs_is_large() {
        let cost = |pattern: usize, globs: usize| SearchCost::of(Some(&"a".repeat(pattern)), &["b".repeat(globs)]);
        assert_eq!(SearchCost::of(None, &[]), SearchCost::Ordinary);
        assert_eq!(cost(ORDINARY_PATTERN_BYTES, ORDINARY_GLOB_BYTES), SearchCost::Ordinary);
        assert_eq!(cost(ORDINARY_PATTERN_BYTES + 1, 0), SearchCost::Large);
        assert_eq!(cost(0, ORDINARY_GLOB_BYTES + 1), SearchCost::Large);
    }
}
