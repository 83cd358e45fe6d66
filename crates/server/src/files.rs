//! What a session has of files: room for its work on them, and what it has open.

mod handles;
mod searches;
mod watches;
mod work;

use std::sync::Arc;

use tokio::sync::Semaphore;

pub(crate) use handles::{HandleRefusal, Handles, Opened, Slot};
pub(crate) use searches::{Question, SearchPlaces, SessionSearches};
pub(crate) use watches::{WatchRefusal, Watched, Watches};
pub(crate) use work::{Weight, Work};

use crate::blocking::BlockingThreads;
use crate::config::Config;

/// Operations on files that all sessions together may have under way, each of which holds memory and, once it has begun, a thread.
pub(crate) const OPERATIONS_IN_ALL: usize = 384;

/// The places for file operations that sessions share.
pub(crate) fn places_for_all() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(OPERATIONS_IN_ALL))
}

/// Discoveries of plugins and skills that a session may have under way, each of which can hold the texts of a whole message.
const DISCOVERIES_AT_ONCE: usize = 2;

/// The files of a session.
pub(crate) struct SessionFiles {
    pub(crate) discoveries: Semaphore,
    pub(crate) searches: SessionSearches,
    pub(crate) work: Work,
    pub(crate) handles: Handles,
    pub(crate) watches: Watches,
}

impl SessionFiles {
    /// `searches`, `operations` and `threads` are those of all sessions.
    pub(crate) fn new(
        config: &Config,
        searches: &Arc<SearchPlaces>,
        operations: &Arc<Semaphore>,
        threads: &Arc<BlockingThreads>,
    ) -> Self {
        Self {
            searches: searches.of_session(),
            discoveries: Semaphore::new(DISCOVERIES_AT_ONCE),
            work: Work::new(config.max_file_operations, Arc::clone(operations), Arc::clone(threads)),
            handles: Handles::new(config.max_file_handles),
            watches: Watches::new(config.max_watches),
        }
    }

    /// Whether nothing is open.
    pub(crate) fn is_empty(&self) -> bool {
        self.handles.is_empty() && self.watches.is_empty()
    }
}
