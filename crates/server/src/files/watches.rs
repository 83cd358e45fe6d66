//! The watches of a session (`fs/watch`). Each watch has a thread that detects changes, a log of changes, and a task
//! that sends them. So a client that does not read delays only its own notifications. The rules of the log are in
//! [`session::ChangeLog`].
//!
//! A watch *ends* when no more changes can be detected; the client is told so. It is *closed* when the client or the
//! end of the session closes it; then nothing more is sent.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Weak};

use files::{ChangeBatch, FileError, FileRoot, PathWatch, WatchOptions, WatchedDirectoryCount};
use parking_lot::Mutex;
use protocol::fs::{ChangeKind, ChangedNotification, FileChange};
use protocol::{PathUri, encode_notification, notification};
use session::{ChangeLog, ChangeMessage, ConnectionNumber};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::outbound::Outbound;

/// Approximate number of bytes that a change takes in a message, without its paths.
const CHANGE_BYTES: usize = 80;

/// A watched file or directory. The watch belongs to the session and survives a lost connection.
pub(crate) struct SessionWatch {
    /// The id that the client chose.
    id: String,
    log: Mutex<ChangeLog<FileChange>>,
    /// Wakes the sending task: the log or the listener has changed.
    changed: Notify,
    /// Cancelled when the watch is closed; stops the sending task.
    closed: CancellationToken,
    /// The connection that changes are sent to. After a reconnection this is still the old connection, so nothing is
    /// sent until the client says which changes it has, or has said nothing for a short time.
    listener: Mutex<ConnectionNumber>,
    /// Detects the changes. None before [`Self::start`] and after [`Self::close`].
    path_watch: Mutex<Option<PathWatch>>,
    /// Counts the directories that all watches of the session watch.
    directory_count: WatchedDirectoryCount,
}

/// Why a watch could not be made.
pub(crate) enum WatchRefusal {
    /// The session has a watch with this id already.
    Exists,
    /// The session has reached its limit, which is this many watches.
    TooMany(usize),
}

/// All watches of a session.
pub(crate) struct Watches {
    limit: usize,
    /// The most changes of a watch that wait to be sent. As many changes that were sent are kept, for a client that
    /// reconnects.
    max_changes: usize,
    by_id: Mutex<HashMap<String, Arc<SessionWatch>>>,
    /// Counts the directories that all watches of the session watch.
    directory_count: WatchedDirectoryCount,
}

impl Watches {
    pub(crate) fn new(limit: usize, max_changes: usize) -> Self {
        Self { limit, max_changes, by_id: Mutex::default(), directory_count: WatchedDirectoryCount::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_id.lock().is_empty()
    }

    pub(crate) fn find(&self, id: &str) -> Option<Arc<SessionWatch>> {
        self.by_id.lock().get(id).cloned()
    }

    /// Makes a watch with this id that detects nothing before [`SessionWatch::start`]. Changes are sent to the
    /// connection `listener`. A watch is kept after the message about its end was sent, for a client that missed this
    /// message. The new watch replaces such a watch if both have the same id or the limit is reached.
    pub(crate) fn create(&self, id: &str, listener: ConnectionNumber) -> Result<Arc<SessionWatch>, WatchRefusal> {
        let mut by_id = self.by_id.lock();
        let replaced = match by_id.get(id) {
            Some(known) if known.end_was_sent() => Some(Arc::clone(known)),
            Some(_) => return Err(WatchRefusal::Exists),
            None if by_id.len() < self.limit => None,
            None => {
                let ended = by_id.values().find(|known| known.end_was_sent()).cloned();
                Some(ended.ok_or(WatchRefusal::TooMany(self.limit))?)
            }
        };
        if let Some(ended) = replaced {
            by_id.remove(&ended.id);
            ended.close();
        }
        let watched = Arc::new(SessionWatch {
            id: id.to_owned(),
            log: Mutex::new(ChangeLog::new(self.max_changes)),
            changed: Notify::new(),
            closed: CancellationToken::new(),
            listener: Mutex::new(listener),
            path_watch: Mutex::new(None),
            directory_count: self.directory_count.clone(),
        });
        by_id.insert(id.to_owned(), Arc::clone(&watched));
        Ok(watched)
    }

    /// Closes `watched`. If a newer watch has the same id, that one stays.
    pub(crate) fn close(&self, watched: &Arc<SessionWatch>) {
        let mut by_id = self.by_id.lock();
        if by_id.get(&watched.id).is_some_and(|known| Arc::ptr_eq(known, watched)) {
            by_id.remove(&watched.id);
        }
        drop(by_id);
        watched.close();
    }

    /// From now on, changes of all watches are sent to this connection.
    pub(crate) fn set_listener(&self, listener: ConnectionNumber) {
        let all: Vec<_> = self.by_id.lock().values().cloned().collect();
        for watched in all {
            *watched.listener.lock() = listener;
            watched.changed.notify_one();
        }
    }

    pub(crate) fn close_all(&self) {
        let all = std::mem::take(&mut *self.by_id.lock());
        all.values().for_each(|watched| watched.close());
    }
}

/// Closes a watch that was made while its session ended, after [`Watches::close_all`].
impl Drop for Watches {
    fn drop(&mut self) {
        self.close_all();
    }
}

impl SessionWatch {
    /// Begins to detect changes of `path`, which is resolved in `root`. May block.
    pub(crate) fn start(self: &Arc<Self>, root: &FileRoot, path: &Path, recursive: bool) -> Result<(), FileError> {
        let watched = Arc::downgrade(self);
        let sink = Box::new(move |changes| Self::handle_changes(&watched, changes));
        let path_watch =
            PathWatch::start(root, path, recursive, WatchOptions::default(), &self.directory_count, sink)?;
        *self.path_watch.lock() = Some(path_watch);
        // Another thread may have closed the watch meanwhile, when there was no `path_watch` to drop.
        if self.closed.is_cancelled() {
            self.path_watch.lock().take();
        }
        Ok(())
    }

    /// Puts detected changes into the log. `Break` stops the detection.
    fn handle_changes(watched: &Weak<Self>, changes: ChangeBatch) -> ControlFlow<()> {
        let Some(watched) = watched.upgrade() else { return ControlFlow::Break(()) };
        let has_ended = changes.end.is_some();
        let mut log = watched.log.lock();
        log.add(changes.changes.into_iter().filter_map(to_wire).collect(), changes.overflow);
        if has_ended {
            log.end();
        }
        drop(log);
        watched.changed.notify_one();
        if has_ended { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// The client has reconnected over `listener` and knows the messages up to the sequence number `seq`.
    pub(crate) fn resume(&self, seq: u64, listener: ConnectionNumber) {
        self.log.lock().resume(seq);
        *self.listener.lock() = listener;
        self.changed.notify_one();
    }

    /// Sends changes to the client until the watch is closed. `attached` returns the connection that is attached to
    /// the session, or None if the client is not connected now.
    pub(crate) async fn send_changes(self: Arc<Self>, attached: impl Fn() -> Option<Arc<Outbound>>) {
        let closed = self.closed.clone();
        closed.run_until_cancelled(self.send_until_cancelled(attached)).await;
    }

    async fn send_until_cancelled(&self, attached: impl Fn() -> Option<Arc<Outbound>>) {
        loop {
            self.changed.notified().await;
            while let Some((outbound, message)) = self.next(attached()) {
                self.send_message(&outbound, message).await;
            }
        }
    }

    /// The message to send now, and the connection to send it on.
    fn next(&self, attached: Option<Arc<Outbound>>) -> Option<(Arc<Outbound>, ChangeMessage<FileChange>)> {
        let outbound = attached?;
        if outbound.number != *self.listener.lock() {
            return None;
        }
        let message = self.log.lock().next_message()?;
        Some((outbound, message))
    }

    async fn send_message(&self, outbound: &Outbound, message: ChangeMessage<FileChange>) {
        let bytes = message.changes.iter().map(wire_bytes).sum();
        let room = tokio::select! {
            room = outbound.room_for_reply(bytes) => room,
            () = outbound.displaced() => None,
        };
        // Without room, the connection has ended, or another connection has taken over the session. A client that
        // reconnects gets the message then.
        let Some(room) = room else { return };
        let changed = ChangedNotification {
            watch_id: self.id.clone(),
            seq: message.seq,
            changes: message.changes.to_vec(),
            overflow: message.overflow,
            ended: message.ended,
        };
        outbound.reply_in_room(encode_notification(notification::FS_CHANGED, &changed), room);
    }

    /// Whether the watch has ended and the client was sent the message about the end.
    fn end_was_sent(&self) -> bool {
        self.log.lock().is_over()
    }

    fn close(&self) {
        self.closed.cancel();
        self.path_watch.lock().take();
    }
}

/// Approximate number of bytes that a change takes in a message.
fn wire_bytes(change: &FileChange) -> usize {
    CHANGE_BYTES + change.path.as_str().len() + change.from.as_ref().map_or(0, |from| from.as_str().len())
}

/// The change in the form of the protocol. None if its path cannot be written as a URI.
fn to_wire(change: files::PathChange) -> Option<FileChange> {
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
    fn a_watch_that_was_made_after_close_all_is_closed_with_its_session() {
        let root = tempfile::tempdir().unwrap();
        let watches = Watches::new(1, 1);
        watches.close_all();
        let Ok(watched) = watches.create("late", ConnectionNumber(1)) else { panic!("there is room") };
        watched.start(FileRoot::host(), root.path(), false).unwrap();
        drop(watches);
        assert!(watched.closed.is_cancelled() && watched.path_watch.lock().is_none());
    }
}
