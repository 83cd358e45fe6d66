//! Watching a directory tree, a directory or a file for changes.
//!
//! It is inotify with bookkeeping of our own, and no library, because three things must be certain: a directory that appears is
//! watched without a hole, an overflow of the kernel's queue is told and not papered over, and a rename arrives as one change.
//! [`tree`] has the rules by which events and listings become knowledge of the tree.
//! What is told is what has happened between two deliveries, not every step; see [`coalesce`] for the rules. All watches share one
//! inotify instance ([`hub`]), and each has a thread of its own for its bookkeeping, so that one that hangs or is busy delays no other.
//!
//! Symbolic links below the root are not followed. A directory that may not be read is not watched, until the attributes of a directory
//! change. A directory that a mount shows under two paths is watched under one of them. That something above the root's parent is moved
//! is not seen.

mod coalesce;
mod directories;
mod directory_count;
mod event_queue;
mod inotify_handle;
mod pending_renames;
mod shared_inotify;
mod single_file;
mod subscriptions;
mod tree;
mod watched_tree;
mod watcher;

use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use crate::FileError;
pub use directory_count::WatchedDirectoryCount;
use event_queue::EventQueue;
use watcher::Watcher;

/// How much a watch may take, and how long it may wait.
#[derive(Clone, Copy, Debug)]
pub struct WatchOptions {
    /// Of a tree with more directories than this, nothing is watched; one that grows beyond it is no longer watched.
    pub max_directories: usize,
    /// How long changes are collected, from the first one on.
    pub settle: Duration,
    /// More changes than this in one delivery are an overflow.
    pub max_pending: usize,
}

impl Default for WatchOptions {
    fn default() -> Self {
        Self { max_directories: 100_000, settle: Duration::from_millis(50), max_pending: 20_000 }
    }
}

/// One delivery.
#[derive(Debug, Default)]
pub struct ChangeBatch {
    /// In an order in which they can be applied one after the other.
    pub changes: Vec<PathChange>,
    /// More has happened than can be told: whoever needs to know must look at everything again. Whatever happens after this
    /// delivery is told as usual.
    pub overflow: bool,
    /// This is the last delivery, and why.
    pub end: Option<WatchEnd>,
}

/// Something is different.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathChange {
    /// What it is about. Begins with the root as it was given.
    pub path: PathBuf,
    /// What is different.
    pub kind: PathChangeKind,
    /// Whether it is, or was, a directory.
    pub is_directory: bool,
}

/// What is different.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathChangeKind {
    /// It is new; or it took the place of something else by being moved there, which cannot always be told apart.
    Created,
    /// Its content, mode, owner or times, or it was replaced by another file.
    Modified,
    /// It is gone, with everything below it. Now and then this is said of something that was there only in between.
    Removed,
    /// It was elsewhere below the root before, and has replaced what was here.
    Renamed {
        /// Where it was.
        from: PathBuf,
    },
}

/// Why nothing more will be told.
#[derive(Debug)]
pub enum WatchEnd {
    /// The root was removed, moved or unmounted; or, of a single file, the directory it is in.
    RootRemoved,
    /// The tree can no longer be watched as a whole.
    Failed(FileError),
}

/// A watch under way. Dropping it ends it: its thread is woken and ends by itself, and only a delivery that has begun is finished.
#[derive(Debug)]
pub struct PathWatch {
    queue: Arc<EventQueue>,
}

impl PathWatch {
    /// Begins to watch the absolute path `root`; when this returns, nothing that happens is missed. If it is not a directory, the
    /// name is watched: the file may be removed, replaced and made again.
    ///
    /// The sink is called on a thread of the watch. While it takes its time, changes are collected; when it breaks, the watch ends.
    /// The directories that are watched count for `share`.
    pub fn start(
        root: &Path,
        recursive: bool,
        options: WatchOptions,
        share: &WatchedDirectoryCount,
        sink: Box<dyn FnMut(ChangeBatch) -> ControlFlow<()> + Send>,
    ) -> Result<Self, FileError> {
        if !root.is_absolute() {
            return Err(FileError::refused("the root of a watch must be an absolute path", root));
        }
        let queue = Arc::new(EventQueue::default());
        let sink = Arc::new(Mutex::new(sink));
        let last_sink = Arc::clone(&sink);
        let deliver = Box::new(move |changes| (sink.lock())(changes));
        let watcher = Watcher::new(root, recursive, options, share, Arc::clone(&queue), deliver)?;
        let root_of_thread = root.to_owned();
        let watching = move || {
            if catch_unwind(AssertUnwindSafe(|| watcher.run())).is_err() {
                let _nothing_to_break = (last_sink.lock())(end_of_panic(&root_of_thread));
            }
        };
        thread::Builder::new().name("watch".into()).spawn(watching).map_err(FileError::at(root))?;
        Ok(Self { queue })
    }
}

/// The last delivery of a watch whose thread has panicked. What it had collected is lost.
fn end_of_panic(root: &Path) -> ChangeBatch {
    let error = FileError::check(ErrorKind::Other, "the watch has failed; begin a new one", root);
    ChangeBatch { changes: Vec::new(), overflow: true, end: Some(WatchEnd::Failed(error)) }
}

impl Drop for PathWatch {
    fn drop(&mut self) {
        self.queue.close();
    }
}
