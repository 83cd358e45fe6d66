//! A session: the processes, files and settings of a client, and the connection to which the server sends the events
//! of these processes. A session survives a lost connection.
//!
//! `table` has the processes of a session, and `registry` has all sessions of the server. The rules for attaching, detaching and ending a
//! session are in [`session::Attachment`]. This module does not know requests and answers.

mod registry;
mod table;

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use protocol::SessionId;
use session::{
    Attachment, ConnectionNumber, Delivery, Departure, KeptProcesses, Observer, Reclaimed, SessionContents,
    SingleTimer, StillAttached,
};
use spawn::SessionTags;
use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout_at;
use transport::Principal;

pub(crate) use registry::{SessionRefusal, Sessions, TooManySessions};
pub(crate) use table::{DeferredRequest, Lookup, ProcessTable, ReserveRefusal, StartOutcome, StartReservation};

use crate::blocking::JobOwner;
use crate::budget::Budget;
use crate::config::Config;
use crate::files::SessionFiles;
use crate::outbound::Outbound;
use crate::presence::PresenceGuard;
use crate::process::{Process, StopRequest};
use crate::proxy_connections;
use crate::sandboxes::SessionSandboxes;
use crate::snapshot::Snapshots;

/// A session may use a quarter of `--max-buffered-http`, so that a client that does not read leaves memory to other sessions.
const HTTP_BUDGET_DIVISOR: usize = 4;

/// The processes, files and settings of a client. They outlive its connections.
pub(crate) struct Session {
    pub(crate) id: SessionId,
    /// The user or token that made the session. No other principal can resume, take over or observe it.
    pub(crate) owner: Principal,
    /// Issues the tags of processes. A tag is a number that all descendants of a process inherit, and by which they are found and killed.
    pub(crate) tags: SessionTags,
    pub(crate) table: ProcessTable,
    pub(crate) files: SessionFiles,
    pub(crate) snapshots: Snapshots,
    pub(crate) sandboxes: SessionSandboxes,
    /// The owner of all HTTP requests of this session. It belongs to the session because a look-up of a host name goes on after the end of
    /// its connection, and a client that reconnects must not be allowed further look-ups.
    pub(crate) http_owner: fetch::RequestOwner,
    /// Limits the memory of HTTP answers that are held as a whole until they have been sent.
    pub(crate) http_budget: Arc<Budget>,
    /// Permits for the connections of programs to the network proxies of this session's processes.
    pub(crate) proxy_connections: Arc<Semaphore>,
    attachment: Mutex<SessionAttachment>,
    /// Wakes the tasks that wait for a client: a connection was attached or detached, or the session has ended.
    attachment_changed: Notify,
    /// Closed processes that stay readable beyond `--process-retention`, because the client has asked for a longer
    /// time (`keepForMs`).
    kept: Mutex<KeptProcesses<Arc<Process>>>,
    /// The server is not idle while this session exists.
    _presence: PresenceGuard,
}

/// The attached connection and the rules of attaching. One lock guards both, so that no process is queued at a
/// connection that was just detached.
struct SessionAttachment {
    rules: Attachment,
    /// The attached connection.
    outbound: Option<Arc<Outbound>>,
    /// How the last attached connection ended.
    last_departure: Departure,
    /// The time of the next check whether the session has expired.
    expiry: SingleTimer,
}

impl Session {
    /// A session to which the connection of `outbound` is attached.
    pub(crate) fn new(
        id: SessionId,
        owner: Principal,
        tags: SessionTags,
        outbound: Arc<Outbound>,
        (files, sandboxes): (SessionFiles, SessionSandboxes),
        config: &Config,
        presence: PresenceGuard,
    ) -> Self {
        Self {
            id,
            owner,
            tags,
            table: ProcessTable::default(),
            files,
            snapshots: Snapshots::default(),
            sandboxes,
            http_owner: fetch::RequestOwner::default(),
            http_budget: Budget::new(config.max_buffered_http / HTTP_BUDGET_DIVISOR),
            proxy_connections: proxy_connections::of_a_session(),
            attachment: Mutex::new(SessionAttachment {
                rules: Attachment::new(outbound.number, config.session_ttl, config.detached_hold),
                outbound: Some(outbound),
                last_departure: Departure::Lost,
                expiry: SingleTimer::default(),
            }),
            attachment_changed: Notify::new(),
            kept: Mutex::new(KeptProcesses::new(config.max_kept_processes)),
            _presence: presence,
        }
    }

    /// Identifies this session to pools of threads, which share their time fairly between sessions.
    pub(crate) fn job_owner(&self) -> JobOwner {
        self.files.operations.job_owner()
    }

    /// Cancels every start that has made no process yet, and the starts of shells for snapshots. Afterwards the
    /// caller must kill all processes with tags of this session, because the kernel may already be executing a
    /// program.
    pub(crate) fn cancel_starts(&self) {
        self.table.cancel_starts();
        self.snapshots.cancel_captures();
    }

    /// Puts the process that a start has made into the table, and connects its [`Delivery`] (its events and their
    /// readers) to the attached connection. `requester` is the connection that asked for the start. If no connection
    /// is attached any more, this process waits for the client as long as the older processes do (`--detached-hold`).
    /// Returns false if the id of the start was freed meanwhile; the caller must then kill the process.
    pub(crate) fn claim(
        &self,
        reservation: &StartReservation,
        process: &Arc<Process>,
        requester: ConnectionNumber,
        now: Instant,
    ) -> bool {
        // The lock is held to the end of this function, so that a connection that attaches or ends meanwhile finds the process.
        let attachment = self.attachment.lock();
        if !self.table.claim(reservation, process) {
            return false;
        }
        process.delivery(|delivery| match &attachment.outbound {
            // The attached connection asked for the start, or an observer did and the client has not asked for
            // events.
            Some(outbound) if outbound.number == requester || !delivery.is_requested() => {
                delivery.connect(outbound.number);
            }
            // While the process was being started, the client has reconnected, or another connection has taken over the session.
            Some(outbound) => {
                delivery.connect(requester);
                delivery.attach(outbound.number);
            }
            None => {
                delivery.connect(requester);
                delivery.detach(requester, attachment.last_departure, attachment.rules.hold_ends_at().unwrap_or(now));
            }
        });
        true
    }

    /// Queues the process at the attached connection, if it has events for that connection and is not queued yet.
    pub(crate) fn queue_if_ready(&self, process: &Arc<Process>) {
        let attachment = self.attachment.lock();
        let Some(outbound) = &attachment.outbound else { return };
        if process.delivery(|delivery| delivery.has_events_for(outbound.number))
            && process.enter_queue(outbound.number)
        {
            outbound.queue_process(Arc::clone(process));
        }
    }

    /// Attaches a connection to a detached session. If `keep` is given, the session outlives its connections by this time from now on.
    /// `Ok(false)`: the session has ended.
    pub(crate) fn resume(
        &self,
        outbound: &Arc<Outbound>,
        keep: Option<Duration>,
        now: Instant,
    ) -> Result<bool, StillAttached> {
        let mut attachment = self.attachment.lock();
        let resumed = attachment.rules.resume(outbound.number, now)?;
        if resumed {
            self.attach(&mut attachment, outbound, keep);
        }
        Ok(resumed)
    }

    /// As [`resume`](Self::resume), but displaces the connection that is attached. Returns false if the session has ended.
    pub(crate) fn take_over(&self, outbound: &Arc<Outbound>, keep: Option<Duration>, now: Instant) -> bool {
        let mut attachment = self.attachment.lock();
        let taken = attachment.rules.take_over(outbound.number, now);
        if taken {
            let before = self.attach(&mut attachment, outbound, keep);
            before.iter().for_each(|before| before.displace());
        }
        taken
    }

    /// Adds an observer: a connection that reads from the session while another connection is attached. If `keep` is given, the session
    /// outlives the observer by this time. None: the session has ended.
    pub(crate) fn observe(&self, keep: Option<Duration>, now: Instant) -> Option<Observer> {
        self.attachment.lock().rules.observe(keep, now)
    }

    /// The connection of an observer has ended.
    pub(crate) fn observer_left(&self, observer: Observer, now: Instant) {
        self.attachment.lock().rules.observer_left(observer, now);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.attachment.lock().rules.has_ended()
    }

    /// Attaches a connection to the session and its processes. Returns the connection that was attached before.
    fn attach(
        &self,
        attachment: &mut SessionAttachment,
        outbound: &Arc<Outbound>,
        keep: Option<Duration>,
    ) -> Option<Arc<Outbound>> {
        if let Some(keep) = keep {
            attachment.rules.keep_for(keep);
        }
        for process in self.table.processes() {
            process.delivery(|delivery| delivery.attach(outbound.number));
        }
        self.attachment_changed.notify_waiters();
        attachment.outbound.replace(Arc::clone(outbound))
    }

    /// Sets how long the session outlives its connection.
    pub(crate) fn keep_for(&self, keep: Duration) {
        self.attachment.lock().rules.keep_for(keep);
    }

    /// Stops sending events of a process. False if `connection` is no longer the attached connection.
    pub(crate) fn pause(&self, process: &Process, connection: ConnectionNumber) -> bool {
        // The lock is held to the end, so that a connection that was just displaced cannot pause events of its successor.
        let attachment = self.attachment.lock();
        let attached = attachment.rules.is_attached_to(connection);
        if attached {
            process.delivery(|delivery| delivery.pause(connection));
            // A `process/terminate` that waits until all events are sent must not wait for paused events.
            process.changed.notify_waiters();
        }
        attached
    }

    /// Sends events of a process again. A connection that is no longer attached cannot end the pause of its
    /// successor.
    pub(crate) fn unpause(&self, process: &Arc<Process>, connection: ConnectionNumber) {
        let attachment = self.attachment.lock();
        if attachment.rules.is_attached_to(connection) {
            process.delivery(|delivery| delivery.resume(connection));
        }
        drop(attachment);
        self.queue_if_ready(process);
    }

    /// Queues all unsent events, also those that the client has paused or has not read since it reconnected. Called
    /// at shutdown, because the events cannot be sent later.
    pub(crate) fn push_everything(&self) {
        for process in self.table.processes() {
            process.delivery(Delivery::finish);
            // The process may no longer have to wait for a client that is not connected.
            process.wake_task();
            self.queue_if_ready(&process);
        }
    }

    /// The `--process-retention` of a closed process is over. If the client asked to keep closed processes longer, the process is kept.
    /// Returns the process to forget: this one, or the oldest kept process that may be forgotten, if too many are kept.
    pub(crate) fn retention_over(
        &self,
        process: Arc<Process>,
        closed: Instant,
        retention: Duration,
    ) -> Option<Arc<Process>> {
        let keep = self.attachment.lock().rules.requested_lifetime();
        if keep.is_none_or(|keep| keep <= retention) {
            return Some(process);
        }
        self.kept.lock().keep(process, closed, may_be_forgotten)
    }

    /// Takes the kept processes whose time is over. Also returns when to call this again; None if no process is kept,
    /// or if a call is planned already.
    pub(crate) fn take_expired(&self, now: Instant) -> (Vec<Arc<Process>>, Option<Instant>) {
        let Some(keep) = self.attachment.lock().rules.requested_lifetime() else { return (Vec::new(), None) };
        let mut kept = self.kept.lock();
        (kept.take_expired(keep, now, may_be_forgotten), kept.next_timer(keep, now))
    }

    /// Takes the process that was kept for the longest time and may be forgotten, so that a new process can be started within the limit.
    pub(crate) fn take_oldest_kept(&self) -> Option<Arc<Process>> {
        self.kept.lock().take_oldest(may_be_forgotten)
    }

    /// Sends events to a client that has resumed the session and has not sent `process/read` for a while: the client
    /// seems to rely on notifications alone. [`Delivery::push_without_read`] decides which events are sent again.
    /// From now on, changes of watched files are sent to this connection too.
    pub(crate) fn push_without_read(&self, connection: ConnectionNumber) {
        if !self.is_attached_to(connection) {
            return;
        }
        for process in self.table.processes() {
            process.delivery(|delivery| delivery.push_without_read(connection));
            // Sent events that are not sent again count as acknowledged, so the process may write more output.
            process.wake_task();
            self.queue_if_ready(&process);
        }
        self.files.watches.set_listener(connection);
    }

    /// The connection has ended. Returns false if it was not attached: another connection is attached, or the session
    /// has ended.
    pub(crate) fn detach(&self, connection: ConnectionNumber, departure: Departure, now: Instant) -> bool {
        let mut attachment = self.attachment.lock();
        let detached = attachment.rules.detach(connection, now);
        if detached {
            attachment.outbound = None;
            attachment.last_departure = departure;
            self.attachment_changed.notify_waiters();
            let hold_until = attachment.rules.hold_ends_at().unwrap_or(now);
            for process in self.table.processes() {
                process.delivery(|delivery| delivery.detach(connection, departure, hold_until));
                // The process may no longer have to wait until its output is read.
                process.wake_task();
            }
        }
        detached
    }

    pub(crate) fn is_attached_to(&self, connection: ConnectionNumber) -> bool {
        self.attachment.lock().rules.is_attached_to(connection)
    }

    /// Whether the session has not ended and no connection is attached to it.
    pub(crate) fn is_detached(&self) -> bool {
        self.attachment.lock().rules.is_detached()
    }

    pub(crate) fn outbound(&self) -> Option<Arc<Outbound>> {
        self.attachment.lock().outbound.clone()
    }

    /// The attached connection. If the client has lost its connection, waits for the next one, as long as processes
    /// wait for the client (`--detached-hold`). None: there is none, or the client has closed its connection in
    /// order.
    pub(crate) async fn outbound_within_hold(&self) -> Option<Arc<Outbound>> {
        loop {
            let mut changed = pin!(self.attachment_changed.notified());
            changed.as_mut().enable();
            let hold_ends_at = {
                let attachment = self.attachment.lock();
                match &attachment.outbound {
                    Some(outbound) if !outbound.has_ended() => return Some(Arc::clone(outbound)),
                    // The task of the connection detaches it in a moment.
                    Some(_) => None,
                    None => {
                        let hold_ends_at = attachment.rules.hold_ends_at()?;
                        (attachment.last_departure == Departure::Lost).then_some(hold_ends_at)?.into()
                    }
                }
            };
            match hold_ends_at {
                Some(end) => timeout_at(end.into(), changed).await.ok()?,
                None => changed.await,
            }
        }
    }

    /// The time at which the processes of a detached session stop waiting for their client (`--detached-hold`). None:
    /// the session is attached.
    pub(crate) fn hold_ends_at(&self) -> Option<Instant> {
        self.attachment.lock().rules.hold_ends_at()
    }

    /// The time at which the caller must check whether a detached session has expired. None: the session cannot
    /// expire now, or an earlier call has returned a time that is soon enough.
    pub(crate) fn next_expiry_check(&self, now: Instant) -> Option<Instant> {
        let mut attachment = self.attachment.lock();
        let expires = attachment.rules.expires_at()?;
        attachment.expiry.set(expires, now)
    }

    /// Wakes the task of every process, because the time for which processes wait for a lost client is over.
    pub(crate) fn wake_processes(&self) {
        self.table.processes().iter().for_each(|process| process.wake_task());
    }

    /// Ends the session if it has expired. True if this call has ended it.
    pub(crate) fn end_if_expired(&self, now: Instant) -> bool {
        let mut attachment = self.attachment.lock();
        attachment.rules.expires_at().is_some_and(|end| end <= now) && attachment.rules.end()
    }

    /// The session with the lowest rank is ended first when a new session would exceed the limit. None: this session must not be ended.
    fn eviction_rank(&self, now: Instant) -> Option<(SessionContents, Instant)> {
        self.attachment.lock().rules.eviction_order(self.contents(), now)
    }

    /// Ends the session if its [`Self::eviction_rank`] still permits it. Returns true if this call has ended it.
    fn end_if_evictable(&self, now: Instant) -> bool {
        let mut attachment = self.attachment.lock();
        attachment.rules.eviction_order(self.contents(), now).is_some() && attachment.rules.end()
    }

    fn contents(&self) -> SessionContents {
        match self.table.has_open_process() {
            Some(true) => SessionContents::Work,
            Some(false) => SessionContents::Leftovers,
            None if self.files.is_empty() => SessionContents::Nothing,
            None => SessionContents::Leftovers,
        }
    }

    /// Ends the session. False if it had ended before.
    pub(crate) fn end(&self) -> bool {
        let mut attachment = self.attachment.lock();
        attachment.outbound = None;
        self.attachment_changed.notify_waiters();
        attachment.rules.end()
    }

    /// Removes a process from the table and drops its retained output.
    pub(crate) fn forget(&self, process: &Arc<Process>) -> Reclaimed {
        self.table.forget(process);
        process.discard()
    }

    /// Forgets all processes, after they were killed. Returns how many bytes of memory their output occupied.
    pub(crate) fn discard_processes(&self) -> usize {
        self.kept.lock().clear();
        let mut bytes = 0;
        for process in self.table.clear() {
            bytes += process.delivery(|delivery| delivery.log().occupied_bytes());
            process.stop(StopRequest::Discard);
        }
        bytes
    }
}

/// [`Process::may_be_forgotten`] for [`KeptProcesses`].
fn may_be_forgotten(process: &Arc<Process>) -> bool {
    process.may_be_forgotten()
}
