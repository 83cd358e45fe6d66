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
use crate::limits::MAX_DISCOVERIES;

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
            discoveries: Semaphore::new(MAX_DISCOVERIES),
            work: Work::new(config.max_file_operations, Arc::clone(operations), Arc::clone(threads)),
            handles: Handles::new(config.max_file_handles),
            watches: Watches::new(config.max_watches, config.max_watch_changes),
        }
    }

    /// Whether nothing is open.
    pub(crate) fn is_empty(&self) -> bool {
        self.handles.is_empty() && self.watches.is_empty()
    }
}
