//! The watches of a session. Each has a thread that sees changes and a task that tells them, so that a client which does not
//! listen holds up nothing but its own news.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use files::{ChangeBatch, FileError, PathWatch, WatchOptions, WatchedDirectoryCount};
use parking_lot::Mutex;
use protocol::fs::{ChangeKind, ChangedNotification, FileChange};
use protocol::{PathUri, encode_notification, notification};
use session::{ChangeLog, ChangeMessage, ConnectionNumber};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::outbound::Outbound;

/// About what a change takes on the wire beside its paths.
const CHANGE_BYTES: usize = 80;

/// A watch.
pub(crate) struct Watched {
    id: String,
    log: Mutex<ChangeLog<FileChange>>,
    news: Notify,
    over: CancellationToken,
    /// Who is told. A client that comes back is told nothing before it has said up to where it knows, or was silent for a
    /// while.
    listener: Mutex<ConnectionNumber>,
    /// What sees the changes, while it does.
    eyes: Mutex<Option<PathWatch>>,
    /// What the watches of the session take together.
    share: WatchedDirectoryCount,
}

/// Why there is no watch.
pub(crate) enum WatchRefusal {
    Exists,
    TooMany(usize),
}

/// All watches of a session.
pub(crate) struct Watches {
    limit: usize,
    /// Changes of a watch that wait to be sent, and changes that are kept for a client that reconnects.
    max_changes: usize,
    by_id: Mutex<HashMap<String, Arc<Watched>>>,
    share: WatchedDirectoryCount,
}

impl Watches {
    pub(crate) fn new(limit: usize, max_changes: usize) -> Self {
        Self { limit, max_changes, by_id: Mutex::default(), share: WatchedDirectoryCount::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_id.lock().is_empty()
    }

    pub(crate) fn find(&self, id: &str) -> Option<Arc<Watched>> {
        self.by_id.lock().get(id).cloned()
    }

    /// Takes the name for a watch that `listener` is told of. It sees nothing yet. One whose end was told is kept for a
    /// client that missed it, until its place is needed.
    pub(crate) fn begin(&self, id: &str, listener: ConnectionNumber) -> Result<Arc<Watched>, WatchRefusal> {
        let mut by_id = self.by_id.lock();
        let in_the_way = match by_id.get(id) {
            Some(known) if known.is_over() => Some(Arc::clone(known)),
            Some(_) => return Err(WatchRefusal::Exists),
            None if by_id.len() < self.limit => None,
            None => {
                let over = by_id.values().find(|known| known.is_over()).cloned();
                Some(over.ok_or(WatchRefusal::TooMany(self.limit))?)
            }
        };
        if let Some(over) = in_the_way {
            by_id.remove(&over.id);
            over.end();
        }
        let watched = Arc::new(Watched {
            id: id.to_owned(),
            log: Mutex::new(ChangeLog::new(self.max_changes)),
            news: Notify::new(),
            over: CancellationToken::new(),
            listener: Mutex::new(listener),
            eyes: Mutex::new(None),
            share: self.share.clone(),
        });
        by_id.insert(id.to_owned(), Arc::clone(&watched));
        Ok(watched)
    }

    /// Ends a watch, if it has not been made anew meanwhile.
    pub(crate) fn end(&self, watched: &Arc<Watched>) {
        let mut by_id = self.by_id.lock();
        if by_id.get(&watched.id).is_some_and(|known| Arc::ptr_eq(known, watched)) {
            by_id.remove(&watched.id);
        }
        drop(by_id);
        watched.end();
    }

    /// The client on this connection relies on what it is told.
    pub(crate) fn listen(&self, listener: ConnectionNumber) {
        let all: Vec<_> = self.by_id.lock().values().cloned().collect();
        for watched in all {
            *watched.listener.lock() = listener;
            watched.news.notify_one();
        }
    }

    pub(crate) fn end_all(&self) {
        let all = std::mem::take(&mut *self.by_id.lock());
        all.values().for_each(|watched| watched.end());
    }
}

/// One that was begun while its session ended is in nobody's way, but nobody else would end it.
impl Drop for Watches {
    fn drop(&mut self) {
        self.end_all();
    }
}

impl Watched {
    /// Begins to see. May block.
    pub(crate) fn open_eyes(self: &Arc<Self>, path: PathBuf, recursive: bool) -> Result<(), FileError> {
        let watched = Arc::downgrade(self);
        let sink = Box::new(move |changes| Self::seen(&watched, changes));
        let eyes = PathWatch::start(&path, recursive, WatchOptions::default(), &self.share, sink)?;
        *self.eyes.lock() = Some(eyes);
        if self.over.is_cancelled() {
            self.eyes.lock().take();
        }
        Ok(())
    }

    fn seen(watched: &Weak<Self>, changes: ChangeBatch) -> ControlFlow<()> {
        let Some(watched) = watched.upgrade() else { return ControlFlow::Break(()) };
        let is_over = changes.end.is_some();
        let mut log = watched.log.lock();
        log.add(changes.changes.into_iter().filter_map(on_the_wire).collect(), changes.overflow);
        if is_over {
            log.end();
        }
        drop(log);
        watched.news.notify_one();
        if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// The client on this connection knows everything up to `seq`.
    pub(crate) fn resume(&self, seq: u64, listener: ConnectionNumber) {
        self.log.lock().resume(seq);
        *self.listener.lock() = listener;
        self.news.notify_one();
    }

    /// Tells the attached client what changes, until the watch is over or the session is.
    /// `attached` returns the connection of that client, if there is one now.
    pub(crate) async fn tell(self: Arc<Self>, attached: impl Fn() -> Option<Arc<Outbound>>) {
        let over = self.over.clone();
        over.run_until_cancelled(self.tell_for_ever(attached)).await;
    }

    async fn tell_for_ever(&self, attached: impl Fn() -> Option<Arc<Outbound>>) {
        loop {
            self.news.notified().await;
            while let Some((outbound, told)) = self.next(attached()) {
                self.tell_one(&outbound, told).await;
            }
        }
    }

    /// What to tell now, and whom.
    fn next(&self, attached: Option<Arc<Outbound>>) -> Option<(Arc<Outbound>, ChangeMessage<FileChange>)> {
        let outbound = attached?;
        if outbound.number != *self.listener.lock() {
            return None;
        }
        let told = self.log.lock().next_message()?;
        Some((outbound, told))
    }

    async fn tell_one(&self, outbound: &Outbound, told: ChangeMessage<FileChange>) {
        let bytes = told.changes.iter().map(wire_bytes).sum();
        let room = tokio::select! {
            room = outbound.room_for_reply(bytes) => room,
            () = outbound.displaced() => None,
        };
        // Whoever comes back is told again.
        let Some(room) = room else { return };
        let changed = ChangedNotification {
            watch_id: self.id.clone(),
            seq: told.seq,
            changes: told.changes.to_vec(),
            overflow: told.overflow,
            ended: told.ended,
        };
        outbound.reply_covering(encode_notification(notification::FS_CHANGED, &changed), None, Some(room));
    }

    fn is_over(&self) -> bool {
        self.log.lock().is_over()
    }

    fn end(&self) {
        self.over.cancel();
        self.eyes.lock().take();
    }
}

fn wire_bytes(change: &FileChange) -> usize {
    CHANGE_BYTES + change.path.as_str().len() + change.from.as_ref().map_or(0, |from| from.as_str().len())
}

fn on_the_wire(change: files::PathChange) -> Option<FileChange> {
    let (kind, from) = match change.kind {
        files::PathChangeKind::Created => (ChangeKind::Created, None),
        files::PathChangeKind::Modified => (ChangeKind::Modified, None),
        files::PathChangeKind::Removed => (ChangeKind::Removed, None),
        files::PathChangeKind::Renamed { from } => (ChangeKind::Renamed, PathUri::from_native(&from)),
    };
    Some(FileChange { path: PathUri::from_native(&change.path)?, kind, from, is_directory: change.is_directory })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_that_was_begun_late_ends_with_its_session() {
        let root = tempfile::tempdir().unwrap();
        let watches = Watches::new(1, 1);
        watches.end_all();
        let Ok(watched) = watches.begin("late", ConnectionNumber(1)) else { panic!("there is room") };
        watched.open_eyes(root.path().to_owned(), false).unwrap();
        drop(watches);
        assert!(watched.over.is_cancelled() && watched.eyes.lock().is_none());
    }
}
