//! A session: the processes of one client, and the connection that hears of them now.

mod registry;
mod table;

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use protocol::SessionId;
use session::{Attachment, ConnectionNumber, StillAttached};
use spawn::TagRange;

pub(crate) use registry::Sessions;
pub(crate) use table::{Deferred, Lookup, Place, Refusal, Table};

use crate::connection::Outbound;
use crate::process::{Journal, Process, Pushing, Stop};

/// What survives a lost connection.
pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) tags: TagRange,
    pub(crate) table: Table,
    link: Mutex<Link>,
}

/// Who is attached, and the way to it. One lock, so that nothing is sent to a connection that was just detached.
struct Link {
    attachment: Attachment,
    outbound: Option<Arc<Outbound>>,
}

impl Session {
    pub(crate) fn new(id: SessionId, tags: TagRange, attachment: Attachment, outbound: Arc<Outbound>) -> Self {
        Self { id, tags, table: Table::default(), link: Mutex::new(Link { attachment, outbound: Some(outbound) }) }
    }

    /// Puts a process that has something to say into the queue of the attached connection.
    pub(crate) fn line_up(&self, process: &Arc<Process>) {
        let link = self.link.lock();
        let Some(outbound) = &link.outbound else { return };
        let has_push = process.journal(|journal| {
            journal.listener = Some(outbound.number);
            journal.has_push()
        });
        if has_push && process.enter_queue(outbound.number) {
            outbound.line_up(Arc::clone(process));
        }
    }

    /// Attaches a connection again. `Ok(false)`: the session is over.
    pub(crate) fn resume(&self, outbound: &Arc<Outbound>, now: Instant) -> Result<bool, StillAttached> {
        let mut link = self.link.lock();
        if !link.attachment.resume(outbound.number, now)? {
            return Ok(false);
        }
        link.outbound = Some(Arc::clone(outbound));
        for process in self.table.processes() {
            process.journal(|journal| {
                journal.hold = true;
                journal.listener = None;
                if journal.pushing != Pushing::NotYet {
                    journal.pushing = Pushing::AwaitingRead;
                }
            });
        }
        Ok(true)
    }

    /// The client has not caught up on any process for a while since it came back on this connection, so it relies on
    /// notifications alone for the rest: go on after what it is known to have.
    pub(crate) fn push_without_read(&self, connection: ConnectionNumber) {
        if !self.is_attached_to(connection) {
            return;
        }
        for process in self.table.processes() {
            process.journal(Journal::give_up_waiting);
            self.line_up(&process);
        }
    }

    /// The connection is gone. False if another one has taken its place.
    pub(crate) fn detach(&self, connection: ConnectionNumber, now: Instant) -> bool {
        let mut link = self.link.lock();
        let detached = link.attachment.detach(connection, now);
        if detached {
            link.outbound = None;
            // What the old connection has not taken yet is for the next one.
            self.table.processes().iter().for_each(|process| process.journal(|journal| journal.listener = None));
        }
        detached
    }

    pub(crate) fn is_attached_to(&self, connection: ConnectionNumber) -> bool {
        self.link.lock().attachment.is_attached_to(connection)
    }

    pub(crate) fn outbound(&self) -> Option<Arc<Outbound>> {
        self.link.lock().outbound.clone()
    }

    /// When the janitor must look at a detached session: when output stops waiting, and when all is over.
    pub(crate) fn deadlines(&self) -> Option<(Instant, Instant)> {
        let link = self.link.lock();
        Some((link.attachment.hold_ends_at()?, link.attachment.expires_at()?))
    }

    /// Nobody came back in time: output no longer waits.
    pub(crate) fn release_hold(&self) {
        let link = self.link.lock();
        if link.attachment.is_attached() {
            return;
        }
        for process in self.table.processes() {
            process.journal(|journal| journal.hold = false);
            process.poke();
        }
    }

    /// Ends the session if its time is over. True if it ended just now.
    pub(crate) fn end_if_expired(&self, now: Instant) -> bool {
        let mut link = self.link.lock();
        link.attachment.expires_at().is_some_and(|end| end <= now) && link.attachment.end()
    }

    /// Ends the session whatever its state. False if it had ended before.
    pub(crate) fn end(&self) -> bool {
        let mut link = self.link.lock();
        link.outbound = None;
        link.attachment.end()
    }

    /// Lets go of every process after they were killed. Returns how much output that was.
    pub(crate) fn discard_processes(&self) -> usize {
        let mut bytes = 0;
        for process in self.table.clear() {
            bytes += process.journal(|journal| journal.log.retained_bytes());
            process.stop(Stop::Discard);
        }
        bytes
    }
}
