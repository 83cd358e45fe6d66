//! The janitor: everything that the server does later, for example forgetting closed processes, ending detached
//! sessions and reaping orphans. The chores are in one heap with one timer, instead of a sleeping task for each. This
//! module plans the chores and forgets closed processes; `janitor_task` runs each chore when it is due.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicUsize, Ordering as Atomic};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use session::{ConnectionNumber, Reclaimed, UNSENT_CHECK_INTERVAL};
use spawn::Tag;
use tokio::sync::Notify;

use crate::metrics::Metrics;
use crate::process::Process;
use crate::session::Session;

/// Interval at which orphans (children of processes that have ended) are reaped, and the guard is continued if it was
/// stopped. The guard is the process that kills all others if the server is killed. While no process ends, a
/// sweep costs a few system calls.
pub(crate) const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// When this many bytes of output were dropped, freed memory is returned to the operating system.
const TRIM_THRESHOLD_BYTES: usize = 4 << 20;

/// Delay before freed memory is returned to the operating system. Tasks and unsent answers may hold dropped output a little longer.
const TRIM_DELAY: Duration = Duration::from_millis(500);

/// How long a client that has resumed its session may take to send `process/read` before it is sent all
/// unacknowledged events.
pub(crate) const READ_GRACE: Duration = Duration::from_secs(1);

/// Something that the server does at a given time.
pub(crate) enum Chore {
    /// Forget a process whose `--process-retention` is over, or keep it longer if its client asked for that.
    ForgetProcess(ClosedProcess),
    /// Forget processes of a session that were kept long enough for its client.
    ForgetKept(Weak<Session>),
    /// The `--detached-hold` of a session is over: its processes no longer wait for the client.
    EndHold(Weak<Session>),
    /// End a detached session if its client has not reconnected in time.
    ExpireSession(Weak<Session>),
    /// Send events to a client that has resumed its session over this connection, unless it reads them.
    PushWithoutRead(Weak<Session>, ConnectionNumber),
    /// Kill descendants of a closed process at the end of its timeout.
    KillLeftovers(LeftoverTree),
    /// Reap orphans, continue a stopped guard, and check which closed processes have left descendants to kill later.
    /// Repeated every [`SWEEP_INTERVAL`].
    Sweep,
    /// Return freed memory to the operating system.
    TrimMemory,
}

/// A closed process, its session, and when it closed.
pub(crate) struct ClosedProcess {
    process: Weak<Process>,
    session: Weak<Session>,
    closed_at: Instant,
}

/// The descendants of a closed process that was started with a timeout. They may run until the deadline.
pub(crate) struct LeftoverTree {
    pub(crate) deadline: Instant,
    /// The number by which the descendants are found.
    pub(crate) tag: Tag,
    /// After the end of the session the tag may be given to another process. By then the descendants have been killed
    /// with the session.
    pub(crate) session: Weak<Session>,
}

struct DueChore {
    at: Instant,
    chore: Chore,
}

/// The planned chores.
pub(crate) struct Janitor {
    due: Mutex<BinaryHeap<DueChore>>,
    /// Wakes the janitor task when a chore is added that is due earlier than all others.
    sooner: Notify,
    /// Whether the first sweep was planned.
    sweeping: Mutex<bool>,
    process_retention: Duration,
    /// Bytes of output that were dropped since [`Chore::TrimMemory`] was last planned.
    freed_bytes: AtomicUsize,
    /// The trees of processes that were started with a timeout and were closed since the last sweep. Most of them
    /// have no descendants left.
    unchecked_trees: Mutex<Vec<LeftoverTree>>,
}

impl Janitor {
    pub(crate) fn new(process_retention: Duration) -> Self {
        Self {
            due: Mutex::default(),
            sooner: Notify::new(),
            sweeping: Mutex::new(false),
            process_retention,
            freed_bytes: AtomicUsize::new(0),
            unchecked_trees: Mutex::default(),
        }
    }

    /// Plans to forget a closed process after `--process-retention`.
    pub(crate) fn forget_process_later(&self, process: &Arc<Process>, session: &Weak<Session>) {
        let closed =
            ClosedProcess { process: Arc::downgrade(process), session: session.clone(), closed_at: Instant::now() };
        self.add(closed.closed_at + self.process_retention, Chore::ForgetProcess(closed));
    }

    /// Forgets closed processes of a session that were kept long enough for its client, and plans the next check.
    pub(crate) fn forget_expired_processes(&self, session: &Arc<Session>, metrics: &Metrics) {
        let (expired, next_check) = session.take_expired(Instant::now());
        expired.iter().for_each(|process| self.note_forgotten(session.forget(process), metrics));
        if let Some(at) = next_check {
            self.add(at, Chore::ForgetKept(Arc::downgrade(session)));
        }
    }

    /// The `--process-retention` of a closed process is over. The process is forgotten, or kept longer if its client asked for that. A
    /// process with events that its connected client was not sent yet is retained again.
    pub(crate) fn retention_over(&self, closed: ClosedProcess, metrics: &Metrics) {
        let Some(process) = closed.process.upgrade() else { return };
        if !process.may_be_forgotten() {
            let next_check = Instant::now() + self.process_retention.max(UNSENT_CHECK_INTERVAL);
            return self.add(next_check, Chore::ForgetProcess(closed));
        }
        let Some(session) = closed.session.upgrade() else {
            return self.note_freed(process.discard().bytes);
        };
        if let Some(forgotten) = session.retention_over(process, closed.closed_at, self.process_retention) {
            self.note_forgotten(session.forget(&forgotten), metrics);
        }
        self.forget_expired_processes(&session, metrics);
    }

    /// The retained output of a closed process was dropped, because the process is forgotten.
    pub(crate) fn note_forgotten(&self, output: Reclaimed, metrics: &Metrics) {
        self.note_freed(output.bytes);
        metrics.output_dropped(output.missed_bytes);
    }

    /// Plans the chores of a session that was just detached.
    pub(crate) fn plan_chores_of_detached(&self, session: &Arc<Session>) {
        if let Some(hold_ends) = session.hold_ends_at() {
            self.add(hold_ends, Chore::EndHold(Arc::downgrade(session)));
        }
        self.plan_expiry_check(session);
    }

    /// Plans to end a detached session when its time is over.
    pub(crate) fn plan_expiry_check(&self, session: &Arc<Session>) {
        if let Some(at) = session.next_expiry_check(Instant::now()) {
            self.add(at, Chore::ExpireSession(Arc::downgrade(session)));
        }
    }

    /// Plans to push events to a client that has resumed its session, in case the client has sent no `process/read` until [`READ_GRACE`] is
    /// over.
    pub(crate) fn schedule_push_without_read(&self, session: &Arc<Session>, connection: ConnectionNumber) {
        self.add(Instant::now() + READ_GRACE, Chore::PushWithoutRead(Arc::downgrade(session), connection));
    }

    /// Plans the first sweep. Called at each start, because only processes leave orphans.
    pub(crate) fn start_sweeping(&self) {
        let mut sweeping = self.sweeping.lock();
        if !*sweeping {
            *sweeping = true;
            self.add(Instant::now() + SWEEP_INTERVAL, Chore::Sweep);
        }
    }

    /// This many bytes of retained output were dropped. After enough of them, plans to return memory to the system.
    pub(crate) fn note_freed(&self, bytes: usize) {
        let freed = self.freed_bytes.fetch_add(bytes, Atomic::Relaxed) + bytes;
        if freed >= TRIM_THRESHOLD_BYTES {
            self.freed_bytes.store(0, Atomic::Relaxed);
            self.add(Instant::now() + TRIM_DELAY, Chore::TrimMemory);
        }
    }

    /// Plans to kill, at `deadline`, the descendants that a closed process has left running. Mostly there are none. So the next sweep checks
    /// all processes that were closed meanwhile at once, and a chore is added only for those with descendants.
    pub(crate) fn kill_leftovers_at(&self, deadline: Instant, tag: Tag, session: Weak<Session>) {
        self.unchecked_trees.lock().push(LeftoverTree { deadline, tag, session });
    }

    /// Takes the trees that were given to [`Self::kill_leftovers_at`] since the last call.
    pub(crate) fn take_unchecked_trees(&self) -> Vec<LeftoverTree> {
        std::mem::take(&mut *self.unchecked_trees.lock())
    }

    /// Waits until the earliest chore may be due. Returns early when an earlier chore is added.
    pub(crate) async fn wait(&self) {
        let next = self.due.lock().peek().map(|due| due.at);
        match next {
            None => self.sooner.notified().await,
            Some(at) => {
                let _due_or_sooner = tokio::time::timeout_at(at.into(), self.sooner.notified()).await;
            }
        }
    }

    pub(crate) fn add(&self, at: Instant, chore: Chore) {
        let mut due = self.due.lock();
        let sooner = due.peek().is_none_or(|first| at < first.at);
        due.push(DueChore { at, chore });
        if sooner {
            self.sooner.notify_one();
        }
    }

    pub(crate) fn take_due(&self, now: Instant) -> Option<Chore> {
        let mut due = self.due.lock();
        if due.peek()?.at > now {
            return None;
        }
        let chore = due.pop()?.chore;
        if due.is_empty() {
            due.shrink_to_fit();
        }
        Some(chore)
    }
}

impl PartialEq for DueChore {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for DueChore {}

impl PartialOrd for DueChore {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for DueChore {
    /// In reverse order of time, because the heap returns the greatest first and the earliest chore is wanted.
    fn cmp(&self, other: &Self) -> Ordering {
        other.at.cmp(&self.at)
    }
}
