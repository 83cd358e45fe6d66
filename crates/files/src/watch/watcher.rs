//! The thread of a watch. It waits for events, passes them to the watched tree or file, collects the changes in a
//! [`Coalescer`], and delivers them when they are due. The *sink* is the function of the caller that receives the
//! changes. An *overflow* tells the receiver of the changes that some are missing and that it must list the whole
//! tree again.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FileType;
use rustix::io::Errno;

use super::coalesce::{Coalescer, PathEvent};
use super::inotify_handle::{InotifyEvent, InotifyHandle};
use super::pending_renames::SECOND_EVENT_TIMEOUT;
use super::single_file::SingleFile;
use super::watched_tree::WatchedTree;
use super::{ChangeBatch, PathChange, PathChangeKind, WatchEnd, WatchOptions};
use crate::FileError;
use crate::root::EnteredRoot;
use crate::stat::kind;

pub(super) struct Watcher {
    root: PathBuf,
    inotify: InotifyHandle,
    target: WatchTarget,
    coalescer: Coalescer,
    /// Called with each batch of changes. The watch ends when it returns `Break`.
    sink: Box<dyn FnMut(ChangeBatch) -> ControlFlow<()> + Send>,
}

/// A directory, with or without everything below it, or a single file.
enum WatchTarget {
    Tree(Box<WatchedTree>),
    File(SingleFile),
}

impl Watcher {
    /// Begins to watch. When this function returns, the directories to be watched are in inotify, except those that
    /// could not be scanned yet.
    pub(super) fn new(
        inside: &EnteredRoot<'_>,
        inotify: InotifyHandle,
        root: &Path,
        recursive: bool,
        options: WatchOptions,
        sink: Box<dyn FnMut(ChangeBatch) -> ControlFlow<()> + Send>,
    ) -> Result<Self, FileError> {
        let found = inside.stat(root).or_else(|errno| match errno {
            // Whether the target is a directory cannot be found out.
            Errno::ACCESS => Err(errno),
            // A symbolic link without a target is watched like a file.
            _ => inside.stat_itself(root),
        });
        let found = found.map_err(FileError::at(root))?;
        let target = if kind(&found) == FileType::Directory {
            WatchTarget::Tree(Box::new(WatchedTree::new(&inotify, root, recursive, options)?))
        } else {
            WatchTarget::File(SingleFile::new(&inotify, root)?)
        };
        let coalescer = Coalescer::new(options.collect_time, options.max_pending);
        Ok(Self { root: root.to_owned(), inotify, target, coalescer, sink })
    }

    /// Runs until the event queue is closed, the sink returns `Break`, the watch fails or the root is removed.
    pub(super) fn run(mut self) {
        let mut events = Vec::new();
        while self.inotify.wait(self.wait_timeout()).is_continue() {
            match self.advance(&mut events) {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => return,
                Err(end) => return self.deliver_last(end),
            }
        }
    }

    /// The longest time to wait for events. `None` means no limit.
    fn wait_timeout(&self) -> Option<Duration> {
        if self.target.needs_scan() {
            return Some(Duration::ZERO);
        }
        let until_due = self.coalescer.due().map(|due| due.saturating_duration_since(Instant::now()));
        if self.target.has_pending_renames() {
            // The kernel reports a rename as two events. A delivery waits for the second event at most this long.
            let longest = SECOND_EVENT_TIMEOUT;
            return Some(until_due.map_or(longest, |time| time.clamp(Duration::from_millis(1), longest)));
        }
        until_due
    }

    /// Reads and handles all events, scans directories until none is left to scan or the changes are due, and
    /// delivers the changes if they are due.
    fn advance(&mut self, events: &mut Vec<InotifyEvent>) -> Result<ControlFlow<()>, WatchEnd> {
        let has_lost_events = self.inotify.read_events(events).map_err(|error| failed(error, &self.root))?;
        if has_lost_events {
            self.target.mark_out_of_sync();
        }
        for event in events.drain(..) {
            let now = Instant::now();
            let coalescer = &mut self.coalescer;
            let report = &mut |path, is_directory, event| coalescer.push(now, path, is_directory, event);
            self.target.handle(&event, now, report)?;
        }
        while self.target.needs_scan() && !self.target.is_out_of_sync() && !self.is_time_to_deliver() {
            let now = Instant::now();
            let coalescer = &mut self.coalescer;
            let report = &mut |path, is_directory, event| coalescer.push(now, path, is_directory, event);
            self.target.scan_next(&self.inotify, now, report)?;
        }
        self.catch_up()?;
        Ok(if self.is_time_to_deliver() { self.deliver() } else { ControlFlow::Continue(()) })
    }

    /// Records an overflow if changes cannot be reported otherwise, scans the whole tree again if its state may be
    /// wrong, and stops waiting for the second event of renames that have timed out. To be called when all events
    /// were handled.
    fn catch_up(&mut self) -> Result<(), WatchEnd> {
        let now = Instant::now();
        if self.target.take_needs_overflow() {
            self.coalescer.overflow(now);
        }
        if self.target.is_out_of_sync() {
            self.coalescer.overflow(now);
            self.target.rescan(&self.inotify)?;
        }
        let coalescer = &mut self.coalescer;
        let report = &mut |path, is_directory, event| coalescer.push(now, path, is_directory, event);
        self.target.expire_pending_renames(&self.inotify, now, report);
        Ok(())
    }

    /// Whether the collected changes must be delivered now. The coalescer says when they are due. If the second event
    /// of a rename is awaited, the delivery is a little later. To be called only when all events of the kernel were
    /// read: otherwise an event of the next batch could report an entry that a scan has already reported in this
    /// batch.
    fn is_time_to_deliver(&self) -> bool {
        let now = Instant::now();
        let is_past = |time: Instant| now >= time;
        let Some(due) = self.coalescer.due() else { return false };
        is_past(due) && (!self.target.has_pending_renames() || is_past(due + SECOND_EVENT_TIMEOUT))
    }

    fn deliver(&mut self) -> ControlFlow<()> {
        let (changes, overflow) = self.coalescer.take();
        if changes.is_empty() && !overflow {
            return ControlFlow::Continue(());
        }
        if overflow {
            self.target.prepare_for_receiver_listing();
        }
        (self.sink)(ChangeBatch { changes, overflow, end: None })
    }

    fn deliver_last(mut self, end: WatchEnd) {
        let is_directory = matches!(self.target, WatchTarget::Tree(_));
        let is_root_removed = matches!(end, WatchEnd::RootRemoved);
        if is_root_removed {
            self.coalescer.push(Instant::now(), self.root.clone(), is_directory, PathEvent::Removed);
        }
        let (mut changes, overflow) = self.coalescer.take();
        if is_root_removed && overflow {
            // The overflow has dropped all changes, also the removal of the root.
            changes.push(PathChange { path: self.root, kind: PathChangeKind::Removed, is_directory });
        }
        // The watch has ended, so it does not matter what the sink returns.
        let _flow = (self.sink)(ChangeBatch { changes, overflow, end: Some(end) });
    }
}

/// Receives what an event means: the path, whether it is the path of a directory, and what happened at the path.
pub(super) type ReportEvent<'r> = dyn FnMut(PathBuf, bool, PathEvent) + 'r;

impl WatchTarget {
    fn handle(&mut self, event: &InotifyEvent, now: Instant, report: &mut ReportEvent<'_>) -> Result<(), WatchEnd> {
        match self {
            Self::Tree(tree) => tree.handle(event, now, report),
            Self::File(file) => file.handle(event, report),
        }
    }

    /// Whether a directory, or the whole tree, has to be scanned. The watch scans without waiting for an event.
    fn needs_scan(&self) -> bool {
        matches!(self, Self::Tree(tree) if tree.needs_scan())
    }

    /// Scans one directory, if one has to be scanned, and handles the events that came meanwhile.
    fn scan_next(
        &mut self,
        inotify: &InotifyHandle,
        now: Instant,
        report: &mut ReportEvent<'_>,
    ) -> Result<(), WatchEnd> {
        match self {
            Self::Tree(tree) => tree.scan_next(inotify, now, report),
            Self::File(_) => Ok(()),
        }
    }

    /// Whether something has happened that can be reported only as an overflow. Returns true only once for it.
    fn take_needs_overflow(&mut self) -> bool {
        match self {
            Self::Tree(tree) => tree.take_needs_overflow(),
            Self::File(_) => false,
        }
    }

    /// To be called when an overflow is delivered, because the receiver then lists the whole tree.
    fn prepare_for_receiver_listing(&mut self) {
        if let Self::Tree(tree) = self {
            tree.prepare_for_receiver_listing();
        }
    }

    /// Records that events were lost. The state may be wrong until the next [`rescan`](Self::rescan).
    fn mark_out_of_sync(&mut self) {
        match self {
            Self::Tree(tree) => tree.mark_out_of_sync(),
            Self::File(file) => file.mark_out_of_sync(),
        }
    }

    fn is_out_of_sync(&self) -> bool {
        match self {
            Self::Tree(tree) => tree.is_out_of_sync(),
            Self::File(file) => file.is_out_of_sync(),
        }
    }

    fn rescan(&mut self, inotify: &InotifyHandle) -> Result<(), WatchEnd> {
        match self {
            Self::Tree(tree) => tree.rescan(inotify),
            Self::File(file) => file.rescan(inotify),
        }
    }

    /// Whether the second event of a rename is still awaited.
    fn has_pending_renames(&self) -> bool {
        matches!(self, Self::Tree(tree) if tree.has_pending_renames())
    }

    fn expire_pending_renames(&mut self, inotify: &InotifyHandle, now: Instant, report: &mut ReportEvent<'_>) {
        if let Self::Tree(tree) = self {
            tree.expire_pending_renames(inotify, now, report);
        }
    }
}

fn failed(error: Errno, root: &Path) -> WatchEnd {
    WatchEnd::Failed(FileError::os(error, root))
}
