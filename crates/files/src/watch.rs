//! Watching a directory tree, a directory or a file for changes.
//!
//! This uses inotify directly and no library, because a watch promises three things: no change in a new directory is missed, an overflow of
//! the kernel's queue is reported, and a rename is one change. Clients and the wire format are the concern of the caller.
//!
//! The parts, in the order of an event from the kernel to the sink:
//!
//! - [`shared_inotify`] reads the one inotify instance of the process. [`subscriptions`] decides which watches get an event, and each watch
//!   has an [`event_queue`]. [`inotify_handle`] gives one watch access to these three.
//! - [`watcher`] is the thread of a watch. Each watch has its own thread, so that a watch that hangs or is busy delays no other.
//! - [`tree`] keeps the state of a watched tree and decides what an event means; [`watched_tree`] makes the system calls for it.
//!   [`directories`], [`scan_queue`], [`pending_renames`] and [`exchanges`] are parts of that state. [`single_file`] is the simpler case of
//!   a file.
//! - [`coalesce`] combines all events since the last delivery into few changes.
//!
//! [`directory_count`] counts the directories of all watches that belong to one session.
//!
//! Symbolic links below the root are not followed. A directory that may not be read is not watched; the watch tries
//! it again when the attributes of any directory in the tree change. A directory that has two paths because of a
//! mount is watched under one of them. A watch of a directory does not notice when a directory above the root is
//! moved. A watch of a single file notices this only for the directory that contains the file.

mod coalesce;
mod directories;
mod directory_count;
mod event_queue;
mod exchanges;
mod inotify_handle;
mod pending_renames;
mod scan_queue;
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

use crate::{FileError, FileRoot};
pub use directory_count::WatchedDirectoryCount;
use event_queue::EventQueue;
pub use event_queue::MAX_EVENTS;
use inotify_handle::InotifyHandle;
use watcher::Watcher;

/// The limits of a watch, and the time for which it collects changes.
#[derive(Clone, Copy, Debug)]
pub struct WatchOptions {
    /// Most directories of the tree. Watching a larger tree fails, and a tree that grows beyond this ends its watch. Default: 100,000.
    pub max_directories: usize,
    /// Time for which changes are collected before they are delivered, counted from the first change. Default: 50 ms.
    pub collect_time: Duration,
    /// Most changes of one batch; two changes of one path may count as one. If there are more, the batch is an
    /// overflow. Default: 20,000.
    pub max_pending: usize,
}

impl Default for WatchOptions {
    fn default() -> Self {
        Self { max_directories: 100_000, collect_time: Duration::from_millis(50), max_pending: 20_000 }
    }
}

/// The changes since the previous batch.
#[derive(Debug, Default)]
pub struct ChangeBatch {
    /// The changes, in an order in which they can be applied one after the other.
    pub changes: Vec<PathChange>,
    /// Whether changes are missing, so that a receiver must list the whole tree again. Changes after this batch are reported as usual.
    pub overflow: bool,
    /// The reason why the watch has ended. Set in the last batch only.
    pub end: Option<WatchEnd>,
}

/// A change of one file or directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathChange {
    /// The path, which begins with the root as it was given.
    pub path: PathBuf,
    /// The kind of the change.
    pub kind: PathChangeKind,
    /// Whether the path names a directory, or did before it was removed.
    pub is_directory: bool,
}

/// The kind of a change at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathChangeKind {
    /// The file or directory is new. Also used if it was moved to this path from outside of the tree and may have
    /// replaced another file, because these cases cannot always be distinguished.
    Created,
    /// The contents, mode, owner or times of the file or directory have changed, or another file has replaced it.
    Modified,
    /// The file or directory was removed or moved out of the tree, with everything below it. This may also be
    /// reported for a file or directory that was created and removed since the previous batch.
    Removed,
    /// The file or directory was renamed to this path from another path below the root. A file that was at this path
    /// before is replaced.
    Renamed {
        /// The old path.
        from: PathBuf,
    },
}

/// The reason why a watch has ended.
#[derive(Debug)]
pub enum WatchEnd {
    /// The root was removed, moved or unmounted. For a watch of a single file: the directory that contains the file.
    RootRemoved,
    /// The tree cannot be watched any more, because of a limit, an error of the operating system or a panic of the
    /// watch.
    Failed(FileError),
}

/// A running watch. Dropping it ends the watch: its thread is woken and ends by itself. A delivery that has begun is finished.
#[derive(Debug)]
pub struct PathWatch {
    queue: Arc<EventQueue>,
}

impl PathWatch {
    /// Begins to watch the absolute path `root` in `file_root`. Every change after this function returns is reported. If `root` is
    /// not a directory, its name is watched: the file may be removed, replaced and created again. If `root` is a
    /// directory and `recursive` is false, only the entries of `root` itself are watched.
    ///
    /// `sink` is called on the thread of the watch. During a call, further changes are collected. When `sink` returns
    /// `Break`, the watch ends. The watched directories are counted in `count`.
    pub fn start(
        file_root: &FileRoot,
        root: &Path,
        recursive: bool,
        options: WatchOptions,
        count: &WatchedDirectoryCount,
        sink: Box<dyn FnMut(ChangeBatch) -> ControlFlow<()> + Send>,
    ) -> Result<Self, FileError> {
        if !root.is_absolute() {
            return Err(FileError::refused("the root of a watch must be an absolute path", root));
        }
        let queue = Arc::new(EventQueue::default());
        let sink = Arc::new(Mutex::new(sink));
        let last_sink = Arc::clone(&sink);
        let deliver = Box::new(move |changes| (sink.lock())(changes));
        let inotify = InotifyHandle::new(file_root, root, count, Arc::clone(&queue))?;
        let watcher =
            file_root.run(&[root], |inside| Watcher::new(inside, inotify, root, recursive, options, deliver))?;
        let root_of_thread = root.to_owned();
        let run = move || {
            if catch_unwind(AssertUnwindSafe(|| watcher.run())).is_err() {
                // The watch has ended, so it does not matter what the sink returns.
                let _flow = (last_sink.lock())(batch_after_panic(&root_of_thread));
            }
        };
        thread::Builder::new().name("watch".into()).spawn(run).map_err(FileError::at(root))?;
        Ok(Self { queue })
    }
}

/// The last batch of a watch whose thread has panicked. The changes that it had collected are lost.
fn batch_after_panic(root: &Path) -> ChangeBatch {
    let error = FileError::failed_check(ErrorKind::Other, "the watch has failed; begin a new one", root);
    ChangeBatch { changes: Vec::new(), overflow: true, end: Some(WatchEnd::Failed(error)) }
}

impl Drop for PathWatch {
    fn drop(&mut self) {
        self.queue.close();
    }
}
