//! Counts the watched directories of one session. A session is a group of watches that share a limit; the caller
//! decides which watches belong to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of directories that the watches of one session watch together. A directory of two watches counts twice.
/// Clones share the number. The kernel limits how many directories a user may watch (`fs.inotify.max_user_watches`).
/// A session may watch at most as many directories as are left free for other sessions, so that no session can take
/// all.
#[derive(Clone, Debug, Default)]
pub struct WatchedDirectoryCount(Arc<AtomicUsize>);

impl WatchedDirectoryCount {
    pub(super) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn increment(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn decrement(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
