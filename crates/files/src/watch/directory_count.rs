//! How many directories the watches of one session have together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the directories that some watches have together, those of one session for example. The kernel allows a user so many in all
/// (`fs.inotify.max_user_watches`). A session may have as many as it leaves free for others, so that none can take all of them.
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
