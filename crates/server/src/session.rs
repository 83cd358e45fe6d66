//! A session: the processes of one client, and the connection that hears of them now.

mod registry;
mod table;

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use protocol::SessionId;
use session::{
    Attachment, ConnectionNumber, Delivery, Departure, KeptProcesses, Observer, SessionContents, SingleTimer,
    StillAttached,
};
use spawn::SessionTags;

pub(crate) use registry::{Sessions, TooManySessions};
pub(crate) use table::{DeferredRequest, Lookup, ReserveRefusal, StartOutcome, StartReservation, Table};

use crate::blocking::Asker;
use crate::budget::Budget;
use crate::config::Config;
use crate::files::SessionFiles;
use crate::outbound::Outbound;
use crate::presence::PresenceGuard;
use crate::process::{Process, Stop};
use crate::snapshot::Snapshots;

/// A session has one of so many parts of the room for HTTP answers that are collected, so that one whose client does not read leaves room to
/// others.
const HTTP_BUDGET_DIVISOR: usize = 4;

/// What survives a lost connection.
pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) tags: SessionTags,
    pub(crate) table: Table,
    pub(crate) files: SessionFiles,
    pub(crate) snapshots: Snapshots,
    /// Names that are looked up for its HTTP requests. Of the session and not of a connection: a look-up goes on when its connection has
    /// ended, and a client that reconnects must not get new ones for it.
    pub(crate) lookups: fetch::LookupAllowance,
    /// HTTP answers that are being collected or sent.
    pub(crate) http_budget: Arc<Budget>,
    link: Mutex<AttachmentState>,
    kept: Mutex<KeptProcesses<Arc<Process>>>,
    _present: PresenceGuard,
}

/// Who is attached, and the way to it. One lock, so that nothing is sent to a connection that was just detached.
struct AttachmentState {
    attachment: Attachment,
    outbound: Option<Arc<Outbound>>,
    /// How the last connection that was attached has ended.
    last_departure: Departure,
    /// The look for the end of its time.
    expiry: SingleTimer,
}

impl Session {
    pub(crate) fn new(
        id: SessionId,
        tags: SessionTags,
        attachment: Attachment,
        outbound: Arc<Outbound>,
        files: SessionFiles,
        config: &Config,
        present: PresenceGuard,
    ) -> Self {
        Self {
            id,
            tags,
            table: Table::default(),
            files,
            snapshots: Snapshots::default(),
            lookups: fetch::LookupAllowance::default(),
            http_budget: Budget::new(config.max_buffered_http / HTTP_BUDGET_DIVISOR),
            link: Mutex::new(AttachmentState {
                attachment,
                outbound: Some(outbound),
                last_departure: Departure::Lost,
                expiry: SingleTimer::default(),
            }),
            kept: Mutex::new(KeptProcesses::new(config.max_kept_processes)),
            _present: present,
        }
    }

    /// For whom threads work that do something for this session.
    pub(crate) fn asker(&self) -> Asker {
        self.files.work.asker()
    }

    /// Gives up every start that has made no process yet. Whoever calls this must kill the tags of the session afterwards.
    pub(crate) fn cancel_starts(&self) {
        self.table.cancel_starts();
        self.snapshots.cancel_captures();
    }

    /// The start at `place`, which a client asked for over `starter`, has made a process: connects its delivery to the attached connection.
    /// The client may have left meanwhile; then the hold of the process ends at the same time as that of the older processes.
    /// False: nobody wants the process any more.
    pub(crate) fn claim(
        &self,
        reservation: &StartReservation,
        process: &Arc<Process>,
        starter: ConnectionNumber,
        now: Instant,
    ) -> bool {
        // Locked until the end, so that a connection which attaches or ends meanwhile finds the process.
        let link = self.link.lock();
        if !self.table.claim(reservation, process) {
            return false;
        }
        process.delivery(|delivery| match &link.outbound {
            Some(outbound) if outbound.number == starter || !delivery.is_requested() => {
                delivery.connect(outbound.number);
            }
            // The client has come back, or another client has taken the session over, while the process was being started.
            Some(outbound) => {
                delivery.connect(starter);
                delivery.attach(outbound.number);
            }
            None => {
                delivery.connect(starter);
                delivery.detach(starter, link.last_departure, link.attachment.hold_ends_at().unwrap_or(now));
            }
        });
        true
    }

    /// Puts a process that has events for the attached connection into the queue of that connection.
    pub(crate) fn line_up(&self, process: &Arc<Process>) {
        let link = self.link.lock();
        let Some(outbound) = &link.outbound else { return };
        if process.delivery(|delivery| delivery.has_events_for(outbound.number))
            && process.enter_queue(outbound.number)
        {
            outbound.line_up(Arc::clone(process));
        }
    }

    /// Attaches a connection again, and keeps the session for so long from now on. `Ok(false)`: the session is over.
    pub(crate) fn resume(
        &self,
        outbound: &Arc<Outbound>,
        keep: Option<Duration>,
        now: Instant,
    ) -> Result<bool, StillAttached> {
        let mut link = self.link.lock();
        let resumed = link.attachment.resume(outbound.number, now)?;
        if resumed {
            self.attach(&mut link, outbound, keep);
        }
        Ok(resumed)
    }

    /// As [`resume`](Self::resume), from whoever is attached. False: the session is over.
    pub(crate) fn take_over(&self, outbound: &Arc<Outbound>, keep: Option<Duration>, now: Instant) -> bool {
        let mut link = self.link.lock();
        let taken = link.attachment.take_over(outbound.number, now);
        if taken {
            let before = self.attach(&mut link, outbound, keep);
            before.iter().for_each(|before| before.displace());
        }
        taken
    }

    /// Lets a connection look beside the attached one, and says for how long the session is to be kept after it. None: the session is
    /// over.
    pub(crate) fn observe(&self, keep: Option<Duration>, now: Instant) -> Option<Observer> {
        self.link.lock().attachment.observe(keep, now)
    }

    /// A connection that observed has ended.
    pub(crate) fn observer_left(&self, observer: Observer, now: Instant) {
        self.link.lock().attachment.observer_left(observer, now);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.link.lock().attachment.has_ended()
    }

    /// Returns who was attached before.
    fn attach(
        &self,
        link: &mut AttachmentState,
        outbound: &Arc<Outbound>,
        keep: Option<Duration>,
    ) -> Option<Arc<Outbound>> {
        if let Some(keep) = keep {
            link.attachment.keep_for(keep);
        }
        for process in self.table.processes() {
            process.delivery(|delivery| delivery.attach(outbound.number));
        }
        link.outbound.replace(Arc::clone(outbound))
    }

    /// How long the session outlives its connection from now on.
    pub(crate) fn keep_for(&self, keep: Duration) {
        self.link.lock().attachment.keep_for(keep);
    }

    /// Lets the events of a process wait. False if this connection is no longer the attached one.
    pub(crate) fn pause(&self, process: &Process, connection: ConnectionNumber) -> bool {
        // Kept locked, so that a connection which was just replaced cannot pause its successor.
        let link = self.link.lock();
        let attached = link.attachment.is_attached_to(connection);
        if attached {
            process.delivery(|delivery| delivery.pause(connection));
            // A terminate no longer waits for them.
            process.news.notify_waiters();
        }
        attached
    }

    /// Lets the events of a process go on.
    pub(crate) fn unpause(&self, process: &Arc<Process>, connection: ConnectionNumber) {
        let link = self.link.lock();
        if link.attachment.is_attached_to(connection) {
            process.delivery(|delivery| delivery.resume(connection));
        }
        drop(link);
        self.line_up(process);
    }

    /// The server ends, and its processes have: what the attached client lets wait, or has not asked for since it came back, is sent
    /// now or never. Each process has at most what is retained of it and what is left in its pipes.
    pub(crate) fn push_everything(&self) {
        for process in self.table.processes() {
            process.delivery(Delivery::finish);
            process.poke();
            self.line_up(&process);
        }
    }

    /// The time that every closed process has is over for this one. Returns the one that has to go: this one, or an
    /// older one that this client wanted to find again.
    pub(crate) fn retention_over(
        &self,
        process: Arc<Process>,
        closed: Instant,
        retention: Duration,
    ) -> Option<Arc<Process>> {
        let keep = self.link.lock().attachment.kept_for();
        if keep.is_some_and(|keep| keep > retention) { self.kept.lock().keep(process, closed) } else { Some(process) }
    }

    /// Those whose time is over even for a client that wanted to find them again, and when to look next.
    pub(crate) fn take_expired(&self, now: Instant) -> (Vec<Arc<Process>>, Option<Instant>) {
        let Some(keep) = self.link.lock().attachment.kept_for() else { return (Vec::new(), None) };
        let mut kept = self.kept.lock();
        (kept.take_expired(keep, now), kept.next_timer(keep, now))
    }

    /// The process that may go first to make room for another one.
    pub(crate) fn take_oldest_kept(&self) -> Option<Arc<Process>> {
        self.kept.lock().take_oldest()
    }

    /// The client has not caught up on any process for a while since it came back on this connection, so it relies on
    /// notifications alone for the rest: go on after what it is known to have.
    pub(crate) fn push_without_read(&self, connection: ConnectionNumber) {
        if !self.is_attached_to(connection) {
            return;
        }
        for process in self.table.processes() {
            process.delivery(|delivery| delivery.stop_awaiting_read(connection));
            // What is not sent again leaves room for more.
            process.poke();
            self.line_up(&process);
        }
        self.files.watches.listen(connection);
    }

    /// The connection is gone. False if another connection has taken its place.
    pub(crate) fn detach(&self, connection: ConnectionNumber, departure: Departure, now: Instant) -> bool {
        let mut link = self.link.lock();
        let detached = link.attachment.detach(connection, now);
        if detached {
            link.outbound = None;
            link.last_departure = departure;
            let hold_until = link.attachment.hold_ends_at().unwrap_or(now);
            for process in self.table.processes() {
                process.delivery(|delivery| delivery.detach(connection, departure, hold_until));
                // It may no longer have to wait for a reader.
                process.poke();
            }
        }
        detached
    }

    pub(crate) fn is_attached_to(&self, connection: ConnectionNumber) -> bool {
        self.link.lock().attachment.is_attached_to(connection)
    }

    /// Whether the session goes on and no connection is attached to it.
    pub(crate) fn is_detached(&self) -> bool {
        self.link.lock().attachment.is_detached()
    }

    pub(crate) fn outbound(&self) -> Option<Arc<Outbound>> {
        self.link.lock().outbound.clone()
    }

    /// When output of a detached session stops waiting.
    pub(crate) fn hold_ends_at(&self) -> Option<Instant> {
        self.link.lock().attachment.hold_ends_at()
    }

    /// When to look whether a detached session is over, unless somebody does so anyway.
    pub(crate) fn next_expiry_look(&self, now: Instant) -> Option<Instant> {
        let mut link = self.link.lock();
        let expires = link.attachment.expires_at()?;
        link.expiry.set(expires, now)
    }

    /// The time for which processes wait for a lost client may be over: wakes them, so that they look how much room there is.
    pub(crate) fn wake_processes(&self) {
        self.table.processes().iter().for_each(|process| process.poke());
    }

    /// Ends the session if its time is over. True if it ended just now.
    pub(crate) fn end_if_expired(&self, now: Instant) -> bool {
        let mut link = self.link.lock();
        link.attachment.expires_at().is_some_and(|end| end <= now) && link.attachment.end()
    }

    /// How readily it makes room for a new session; none if it stays.
    fn eviction_rank(&self, now: Instant) -> Option<(SessionContents, Instant)> {
        self.link.lock().attachment.eviction_order(self.contents(), now)
    }

    /// Ends the session if it still makes room for a new one.
    fn end_if_evictable(&self, now: Instant) -> bool {
        let mut link = self.link.lock();
        link.attachment.eviction_order(self.contents(), now).is_some() && link.attachment.end()
    }

    fn contents(&self) -> SessionContents {
        match self.table.is_at_work() {
            Some(true) => SessionContents::Work,
            Some(false) => SessionContents::Leftovers,
            None if self.files.is_empty() => SessionContents::Nothing,
            None => SessionContents::Leftovers,
        }
    }

    /// Ends the session whatever its state. False if it had ended before.
    pub(crate) fn end(&self) -> bool {
        let mut link = self.link.lock();
        link.outbound = None;
        link.attachment.end()
    }

    /// Removes a process from the table and drops its retained output. Returns how many bytes of memory that gives back.
    pub(crate) fn forget(&self, process: &Arc<Process>) -> usize {
        self.table.forget(process);
        process.discard()
    }

    /// Lets go of every process after they were killed. Returns how much output that was.
    pub(crate) fn discard_processes(&self) -> usize {
        self.kept.lock().clear();
        let mut bytes = 0;
        for process in self.table.clear() {
            bytes += process.delivery(|delivery| delivery.log().occupied_bytes());
            process.stop(Stop::Discard);
        }
        bytes
    }
}
