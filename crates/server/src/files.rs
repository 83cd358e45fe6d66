//! The part of a session that is about files: its open files and uploads (`handles`), its watches, and the permits
//! for its searches and other file operations. The requests are handled in `handlers/fs`.

mod handles;
mod operations;
mod searches;
mod watches;

use std::sync::Arc;

use tokio::sync::Semaphore;

pub(crate) use handles::{FileHandle, HandleRefusal, HandleState, Handles};
pub(crate) use operations::{FileOperations, MemoryNeed};
pub(crate) use searches::{SearchCost, SearchPermits, SessionSearches};
pub(crate) use watches::{SessionWatch, WatchRefusal, Watches};

use crate::blocking::BlockingThreads;
use crate::config::Config;
use crate::limits::MAX_DISCOVERIES;

/// The open files, uploads and watches of a session, and its permits for operations on files.
pub(crate) struct SessionFiles {
    /// Permits for `capabilityRoots/discoverV1` requests.
    pub(crate) discoveries: Semaphore,
    pub(crate) searches: SessionSearches,
    pub(crate) operations: FileOperations,
    pub(crate) handles: Handles,
    pub(crate) watches: Watches,
}

impl SessionFiles {
    /// All sessions share `searches`, `operations` (the permits of `--max-file-operations-total`) and `threads`.
    pub(crate) fn new(
        config: &Config,
        searches: &Arc<SearchPermits>,
        operations: &Arc<Semaphore>,
        threads: &Arc<BlockingThreads>,
    ) -> Self {
        Self {
            searches: searches.for_session(),
            discoveries: Semaphore::new(MAX_DISCOVERIES),
            operations: FileOperations::new(config.max_file_operations, Arc::clone(operations), Arc::clone(threads)),
            handles: Handles::new(config.max_file_handles),
            watches: Watches::new(config.max_watches, config.max_watch_changes),
        }
    }

    /// Whether the session has no open file, no upload and no watch. An upload counts until its handle is closed,
    /// also after it was committed, and a watch counts also after it has ended.
    pub(crate) fn is_empty(&self) -> bool {
        self.handles.is_empty() && self.watches.is_empty()
    }
}
