//! The thread of a watch: waits for events, lets the subject make sense of them, and delivers when it is time.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::coalesce::{Coalescer, Happening};
use super::departures::PATIENCE;
use super::inbox::Inbox;
use super::kernel::{Event, Kernel};
use super::single_file::SingleFile;
use super::watched_tree::WatchedTree;
use super::{ChangeBatch, PathChange, PathChangeKind, WatchEnd, WatchOptions, WatchedDirectoryCount};
use crate::FileError;

pub(super) struct Watcher {
    root: PathBuf,
    kernel: Kernel,
    subject: Subject,
    coalescer: Coalescer,
    sink: Box<dyn FnMut(ChangeBatch) -> ControlFlow<()> + Send>,
}

/// What is watched.
enum Subject {
    Tree(Box<WatchedTree>),
    File(SingleFile),
}

impl Watcher {
    /// Watches everything there is to watch before it returns.
    pub(super) fn new(
        root: &Path,
        recursive: bool,
        options: WatchOptions,
        share: &WatchedDirectoryCount,
        inbox: Arc<Inbox>,
        sink: Box<dyn FnMut(ChangeBatch) -> ControlFlow<()> + Send>,
    ) -> Result<Self, FileError> {
        let is_directory = match std::fs::metadata(root) {
            Ok(metadata) => metadata.is_dir(),
            // A link to nowhere has a name that can be watched.
            Err(_) => std::fs::symlink_metadata(root).map_err(FileError::at(root))?.is_dir(),
        };
        let kernel = Kernel::new(root, share, inbox)?;
        let subject = if is_directory {
            Subject::Tree(Box::new(WatchedTree::new(&kernel, root, recursive, options)?))
        } else {
            Subject::File(SingleFile::new(&kernel, root)?)
        };
        let coalescer = Coalescer::new(options.settle, options.max_pending);
        Ok(Self { root: root.to_owned(), kernel, subject, coalescer, sink })
    }

    /// Goes on until the inbox is closed, the sink breaks, or there is nothing left to watch.
    pub(super) fn run(mut self) {
        let mut events = Vec::new();
        while self.kernel.wait(self.patience()).is_continue() {
            match self.advance(&mut events) {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => return,
                Err(end) => return self.deliver_last(end),
            }
        }
    }

    /// How long to wait for events.
    fn patience(&self) -> Option<Duration> {
        if self.subject.has_work() {
            return Some(Duration::ZERO);
        }
        let until_due = self.coalescer.due().map(|due| due.saturating_duration_since(Instant::now()));
        if self.subject.is_expecting() {
            // A delivery waits for second halves of renames, but not for long.
            return Some(until_due.map_or(PATIENCE, |due| due.clamp(Duration::from_millis(1), PATIENCE)));
        }
        until_due
    }

    fn advance(&mut self, events: &mut Vec<Event>) -> Result<ControlFlow<()>, WatchEnd> {
        if self.kernel.read(events).map_err(|error| failed(error, &self.root))? {
            self.subject.lose_track();
        }
        for event in events.drain(..) {
            let now = Instant::now();
            let coalescer = &mut self.coalescer;
            let report = &mut |path, is_directory, happening| coalescer.push(now, path, is_directory, happening);
            self.subject.handle(&event, now, report)?;
        }
        while self.subject.has_work() && !self.subject.has_lost_track() && !self.is_time_to_deliver() {
            let now = Instant::now();
            let coalescer = &mut self.coalescer;
            let report = &mut |path, is_directory, happening| coalescer.push(now, path, is_directory, happening);
            self.subject.work(&self.kernel, now, report)?;
        }
        self.catch_up()?;
        Ok(if self.is_time_to_deliver() { self.deliver() } else { ControlFlow::Continue(()) })
    }

    /// What is to be done when all events have been read.
    fn catch_up(&mut self) -> Result<(), WatchEnd> {
        let now = Instant::now();
        if self.subject.take_unclear() {
            self.coalescer.overflow(now);
        }
        if self.subject.has_lost_track() {
            self.coalescer.overflow(now);
            self.subject.look_again(&self.kernel)?;
        }
        let coalescer = &mut self.coalescer;
        let report = &mut |path, is_directory, happening| coalescer.push(now, path, is_directory, happening);
        self.subject.give_up_waiting(&self.kernel, now, report);
        Ok(())
    }

    /// Only when everything that the kernel had told was read: then what was seen by looking is not told by an event of the next delivery.
    fn is_time_to_deliver(&self) -> bool {
        let now = Instant::now();
        let is_past = |time: Instant| now >= time;
        let Some(due) = self.coalescer.due() else { return false };
        is_past(due) && (!self.subject.is_expecting() || is_past(due + PATIENCE))
    }

    fn deliver(&mut self) -> ControlFlow<()> {
        let (changes, overflow) = self.coalescer.take();
        if changes.is_empty() && !overflow {
            return ControlFlow::Continue(());
        }
        if overflow {
            self.subject.announced();
        }
        (self.sink)(ChangeBatch { changes, overflow, end: None })
    }

    fn deliver_last(mut self, end: WatchEnd) {
        let is_directory = matches!(self.subject, Subject::Tree(_));
        let is_root_removed = matches!(end, WatchEnd::RootRemoved);
        if is_root_removed {
            self.coalescer.push(Instant::now(), self.root.clone(), is_directory, Happening::Removed);
        }
        let (mut changes, overflow) = self.coalescer.take();
        if is_root_removed && overflow {
            changes.push(PathChange { path: self.root, kind: PathChangeKind::Removed, is_directory });
        }
        let _nothing_to_break = (self.sink)(ChangeBatch { changes, overflow, end: Some(end) });
    }
}

/// Takes what a subject has made of an event: path, whether it is a directory, and what happened to it.
pub(super) type Report<'r> = dyn FnMut(PathBuf, bool, Happening) + 'r;

impl Subject {
    fn handle(&mut self, event: &Event, now: Instant, report: &mut Report<'_>) -> Result<(), WatchEnd> {
        match self {
            Self::Tree(tree) => tree.handle(event, now, report),
            Self::File(file) => file.handle(event, report),
        }
    }

    /// Whether there is something to do without an event.
    fn has_work(&self) -> bool {
        matches!(self, Self::Tree(tree) if tree.has_work())
    }

    /// Does a small part of it.
    fn work(&mut self, kernel: &Kernel, now: Instant, report: &mut Report<'_>) -> Result<(), WatchEnd> {
        match self {
            Self::Tree(tree) => tree.look_into_next(kernel, now, report),
            Self::File(_) => Ok(()),
        }
    }

    /// Whether something has happened that cannot be told.
    fn take_unclear(&mut self) -> bool {
        match self {
            Self::Tree(tree) => tree.take_unclear(),
            Self::File(_) => false,
        }
    }

    /// The client is told to look at everything.
    fn announced(&mut self) {
        if let Self::Tree(tree) = self {
            tree.announced();
        }
    }

    fn lose_track(&mut self) {
        match self {
            Self::Tree(tree) => tree.lose_track(),
            Self::File(file) => file.lose_track(),
        }
    }

    fn has_lost_track(&self) -> bool {
        match self {
            Self::Tree(tree) => tree.has_lost_track(),
            Self::File(file) => file.has_lost_track(),
        }
    }

    fn look_again(&mut self, kernel: &Kernel) -> Result<(), WatchEnd> {
        match self {
            Self::Tree(tree) => tree.look_again(kernel),
            Self::File(file) => file.look_again(),
        }
    }

    /// Whether the second half of a rename may still come.
    fn is_expecting(&self) -> bool {
        matches!(self, Self::Tree(tree) if tree.is_expecting())
    }

    fn give_up_waiting(&mut self, kernel: &Kernel, now: Instant, report: &mut Report<'_>) {
        if let Self::Tree(tree) = self {
            tree.give_up_waiting(kernel, now, report);
        }
    }
}

fn failed(error: Errno, root: &Path) -> WatchEnd {
    WatchEnd::Failed(FileError::os(error, root))
}
