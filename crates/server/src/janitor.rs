//! The one task that waits for time to pass: closed processes and detached sessions whose time is over, orphans to
//! reap. One timer for all, instead of a sleeping task for each.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicUsize, Ordering as Atomic};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use session::ConnectionNumber;
use spawn::Tag;
use tokio::sync::Notify;

use crate::process::Process;
use crate::session::Session;

/// How often zombies of daemons that outlived their parents are reaped, and a guard that was stopped is continued. Costs three system calls.
pub(crate) const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Output of forgotten processes after which it is worth looking for memory to give back.
const WORTH_RETURNING_BYTES: usize = 4 << 20;

/// How long it takes until whoever else had a hold on it has let go too.
const FREED_WITHIN: Duration = Duration::from_millis(500);

/// How often it is looked at least whether a client has taken what it lets wait.
const OWED_LOOK: Duration = Duration::from_secs(1);

/// How long a resumed client has to ask what it missed before it is simply told.
pub(crate) const READ_GRACE: Duration = Duration::from_secs(1);

/// One thing to do when its time has come.
pub(crate) enum Chore {
    ForgetProcess(ClosedProcess),
    ForgetKept(Weak<Session>),
    EndHold(Weak<Session>),
    ExpireSession(Weak<Session>),
    PushWithoutRead(Weak<Session>, ConnectionNumber),
    EndRestOfTree(OutlivedTree),
    Sweep,
    ReturnMemory,
}

/// A closed process, its session, and when it closed.
pub(crate) struct ClosedProcess {
    process: Weak<Process>,
    session: Weak<Session>,
    at: Instant,
}

/// A process that is closed and whose time is not over: what it has started may live on until then.
pub(crate) struct OutlivedTree {
    pub(crate) deadline: Instant,
    pub(crate) tag: Tag,
    /// A tag is given again when its session is over, and then nothing is left of the tree anyway.
    pub(crate) session: Weak<Session>,
}

struct DueChore {
    at: Instant,
    chore: Chore,
}

/// What is to be done later.
pub(crate) struct Janitor {
    due: Mutex<BinaryHeap<DueChore>>,
    sooner: Notify,
    sweeping: Mutex<bool>,
    process_retention: Duration,
    freed_bytes: AtomicUsize,
    /// Closed since the last sweep.
    maybe_outlived: Mutex<Vec<OutlivedTree>>,
}

impl Janitor {
    pub(crate) fn new(process_retention: Duration) -> Self {
        Self {
            due: Mutex::default(),
            sooner: Notify::new(),
            sweeping: Mutex::new(false),
            process_retention,
            freed_bytes: AtomicUsize::new(0),
            maybe_outlived: Mutex::default(),
        }
    }

    /// A closed process stays readable for a while.
    pub(crate) fn forget_process_later(&self, process: &Arc<Process>, session: &Weak<Session>) {
        let closed = ClosedProcess { process: Arc::downgrade(process), session: session.clone(), at: Instant::now() };
        self.add(closed.at + self.process_retention, Chore::ForgetProcess(closed));
    }

    /// Forgets closed processes of a session that were kept for its client long enough.
    pub(crate) fn look_after_kept(&self, session: &Arc<Session>) {
        let (expired, next_look) = session.take_expired(Instant::now());
        expired.iter().for_each(|process| self.note_freed(session.forget(process)));
        if let Some(at) = next_look {
            self.add(at, Chore::ForgetKept(Arc::downgrade(session)));
        }
    }

    /// A closed process was retained for as long as every process is.
    pub(crate) fn retention_over(&self, closed: ClosedProcess) {
        let Some(process) = closed.process.upgrade() else { return };
        if process.delivery(|delivery| delivery.owes_paused_events()) {
            let look = Instant::now() + self.process_retention.max(OWED_LOOK);
            return self.add(look, Chore::ForgetProcess(closed));
        }
        let Some(session) = closed.session.upgrade() else {
            return self.note_freed(process.discard());
        };
        if let Some(gone) = session.retention_over(process, closed.at, self.process_retention) {
            self.note_freed(session.forget(&gone));
        }
        self.look_after_kept(&session);
    }

    /// A detached session waits for its client.
    pub(crate) fn watch_detached(&self, session: &Arc<Session>) {
        if let Some(hold_ends) = session.hold_ends_at() {
            self.add(hold_ends, Chore::EndHold(Arc::downgrade(session)));
        }
        self.watch_expiry(session);
    }

    /// The time for which a session is kept has begun, or has begun again.
    pub(crate) fn watch_expiry(&self, session: &Arc<Session>) {
        if let Some(at) = session.next_expiry_look(Instant::now()) {
            self.add(at, Chore::ExpireSession(Arc::downgrade(session)));
        }
    }

    /// A resumed client that never reads is told all the same.
    pub(crate) fn push_without_read_later(&self, session: &Arc<Session>, connection: ConnectionNumber) {
        self.add(Instant::now() + READ_GRACE, Chore::PushWithoutRead(Arc::downgrade(session), connection));
    }

    /// The first process runs, so from now on orphans may turn up.
    pub(crate) fn start_sweeping(&self) {
        let mut sweeping = self.sweeping.lock();
        if !*sweeping {
            *sweeping = true;
            self.add(Instant::now() + SWEEP_INTERVAL, Chore::Sweep);
        }
    }

    /// So much retained output is let go of.
    pub(crate) fn note_freed(&self, bytes: usize) {
        let freed = self.freed_bytes.fetch_add(bytes, Atomic::Relaxed) + bytes;
        if freed >= WORTH_RETURNING_BYTES {
            self.freed_bytes.store(0, Atomic::Relaxed);
            self.add(Instant::now() + FREED_WITHIN, Chore::ReturnMemory);
        }
    }

    /// Ends what a closed process has left running, when its time is over. Almost always nothing is left, so that the next sweep looks
    /// for all that were closed meanwhile at once, and keeps only what it finds.
    pub(crate) fn end_rest_of_tree_at(&self, deadline: Instant, tag: Tag, session: Weak<Session>) {
        self.maybe_outlived.lock().push(OutlivedTree { deadline, tag, session });
    }

    /// Takes the trees of processes that were closed since the last call.
    pub(crate) fn take_maybe_outlived(&self) -> Vec<OutlivedTree> {
        std::mem::take(&mut *self.maybe_outlived.lock())
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
    /// The heap gives the greatest first; the soonest is wanted.
    fn cmp(&self, other: &Self) -> Ordering {
        other.at.cmp(&self.at)
    }
}
