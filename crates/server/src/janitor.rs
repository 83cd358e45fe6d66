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

use crate::blocking::Asker;
use crate::process::Process;
use crate::server::Shared;
use crate::session::Session;

/// How often zombies of daemons that outlived their parents are reaped, and a guard that was stopped is continued. Costs three system calls.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Output of forgotten processes after which it is worth looking for memory to give back.
const WORTH_RETURNING_BYTES: usize = 4 << 20;

/// How long it takes until whoever else had a hold on it has let go too.
const FREED_WITHIN: Duration = Duration::from_millis(500);

/// How often it is looked at least whether a client has taken what it lets wait.
const OWED_LOOK: Duration = Duration::from_secs(1);

/// How long a resumed client has to ask what it missed before it is simply told.
const READ_GRACE: Duration = Duration::from_secs(1);

enum Chore {
    /// A closed process, and when it closed.
    ForgetProcess(Weak<Process>, Instant),
    ForgetKept(Weak<Session>),
    EndHold(Weak<Session>),
    ExpireSession(Weak<Session>),
    PushWithoutRead(Weak<Session>, ConnectionNumber),
    EndRestOfTree(OutlivedTree),
    Sweep,
    ReturnMemory,
}

/// A process that is closed and whose time is not over: what it has started may live on until then.
struct OutlivedTree {
    deadline: Instant,
    tag: Tag,
    /// A tag is given again when its session is over, and then nothing is left of the tree anyway.
    session: Weak<Session>,
}

struct Due {
    at: Instant,
    chore: Chore,
}

/// What is to be done later.
pub(crate) struct Janitor {
    due: Mutex<BinaryHeap<Due>>,
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
    pub(crate) fn forget_process_later(&self, process: &Arc<Process>) {
        let now = Instant::now();
        self.add(now + self.process_retention, Chore::ForgetProcess(Arc::downgrade(process), now));
    }

    /// Forgets closed processes of a session that were kept for its client long enough.
    pub(crate) fn look_after_kept(&self, session: &Arc<Session>) {
        let (expired, next_look) = session.take_expired(Instant::now());
        expired.iter().for_each(|process| self.note_freed(process.forget()));
        if let Some(at) = next_look {
            self.add(at, Chore::ForgetKept(Arc::downgrade(session)));
        }
    }

    fn retention_over(&self, process: Arc<Process>, closed: Instant) {
        if process.delivery(|delivery| delivery.owes_paused_events()) {
            let look = Instant::now() + self.process_retention.max(OWED_LOOK);
            return self.add(look, Chore::ForgetProcess(Arc::downgrade(&process), closed));
        }
        let Some(session) = process.session() else {
            return self.note_freed(process.forget());
        };
        if let Some(gone) = session.retention_over(process, closed, self.process_retention) {
            self.note_freed(gone.forget());
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
    pub(crate) fn end_rest_of_tree_at(&self, deadline: Instant, process: &Process) {
        if let Some(session) = process.session() {
            let tree = OutlivedTree { deadline, tag: process.tag, session: Arc::downgrade(&session) };
            self.maybe_outlived.lock().push(tree);
        }
    }

    fn look_for_rests(&self, shared: &Arc<Shared>) {
        let trees = std::mem::take(&mut *self.maybe_outlived.lock());
        if trees.is_empty() {
            return;
        }
        let shared = Arc::clone(shared);
        shared.clone().tasks.spawn(async move {
            let (spawner, tags) = (Arc::clone(&shared.spawner), trees.iter().map(|tree| tree.tag).collect());
            let look = shared.threads.run(Asker::SERVER, move || spawner.still_running(&tags));
            // Other work may keep all these threads busy. Without an answer each may have left something.
            let alive = tokio::time::timeout(SWEEP_INTERVAL, look).await.ok().flatten();
            let is_left = |tree: &OutlivedTree| alive.as_ref().is_none_or(|alive| alive.contains(&tree.tag));
            for tree in trees.into_iter().filter(is_left) {
                shared.janitor.add(tree.deadline, Chore::EndRestOfTree(tree));
            }
        });
    }

    /// Does the chores, for ever. A chore that panics costs itself only: it is not on the heap any more, and this can be run again.
    pub(crate) async fn run(&self, shared: &Arc<Shared>) {
        loop {
            let next = self.due.lock().peek().map(|due| due.at);
            match next {
                None => self.sooner.notified().await,
                Some(at) => tokio::select! {
                    () = self.sooner.notified() => {}
                    () = tokio::time::sleep_until(at.into()) => {
                        while let Some(chore) = self.take_due(Instant::now()) {
                            self.perform(chore, shared);
                        }
                    }
                },
            }
        }
    }

    fn add(&self, at: Instant, chore: Chore) {
        let mut due = self.due.lock();
        let sooner = due.peek().is_none_or(|first| at < first.at);
        due.push(Due { at, chore });
        if sooner {
            self.sooner.notify_one();
        }
    }

    fn take_due(&self, now: Instant) -> Option<Chore> {
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

    fn perform(&self, chore: Chore, shared: &Arc<Shared>) {
        match chore {
            Chore::ForgetProcess(process, closed) => {
                if let Some(process) = process.upgrade() {
                    self.retention_over(process, closed);
                }
            }
            Chore::ForgetKept(session) => {
                if let Some(session) = session.upgrade() {
                    self.look_after_kept(&session);
                }
            }
            Chore::EndHold(session) => {
                if let Some(session) = session.upgrade() {
                    session.wake_processes();
                }
            }
            Chore::ExpireSession(session) => {
                let Some(session) = session.upgrade() else { return };
                if session.end_if_expired(Instant::now()) {
                    shared.end_session_in_background(session);
                } else {
                    self.watch_expiry(&session);
                }
            }
            Chore::PushWithoutRead(session, connection) => {
                let Some(session) = session.upgrade() else { return };
                match session.outbound().and_then(|outbound| outbound.last_catch_up()) {
                    // It is catching up on its processes one after the other.
                    Some(at) if at.elapsed() < READ_GRACE => self.push_without_read_later(&session, connection),
                    _ => session.push_without_read(connection),
                }
            }
            Chore::ReturnMemory => {
                let threads = Arc::clone(&shared.threads);
                shared.tasks.spawn(async move { threads.run(Asker::SERVER, spawn::trim_freed_memory).await });
            }
            Chore::EndRestOfTree(tree) => {
                if let Some(session) = tree.session.upgrade() {
                    shared.end_rest_in_background(tree.tag, session);
                }
            }
            Chore::Sweep => {
                // First, so that a sweep that panics is followed by another one.
                self.add(Instant::now() + SWEEP_INTERVAL, Chore::Sweep);
                self.look_for_rests(shared);
                shared.spawner.reap_orphans();
                shared.spawner.continue_guard();
            }
        }
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    /// The heap gives the greatest first; the soonest is wanted.
    fn cmp(&self, other: &Self) -> Ordering {
        other.at.cmp(&self.at)
    }
}

#[cfg(test)]
mod tests {
    use protocol::SessionId;
    use session::Attachment;
    use spawn::{SpawnCommand, StdinMode, Stdio};
    use tokio::time::timeout;
    use transport::{Framing, ReceiptProof};

    use super::*;
    use crate::config::Config;
    use crate::files::{OPERATIONS_IN_ALL, SessionFiles};
    use crate::outbound::Outbound;
    use crate::server::Server;
    use crate::start_cancel::StartCancel;

    /// Nothing here takes this long, even on a loaded machine.
    const AT_LAST: Duration = Duration::from_secs(20);

    fn session(shared: &Shared) -> Arc<Session> {
        let config = &shared.config;
        let number = shared.next_connection();
        let outbound = Arc::new(Outbound::new(number, Framing::Lines, ReceiptProof::Flush, config.retain_bytes));
        Arc::new(Session::new(
            SessionId::from("s".to_owned()),
            shared.spawner.session_tags(),
            Attachment::new(outbound.number, config.session_ttl, config.detached_hold),
            outbound,
            SessionFiles::new(shared),
            config,
            shared.presence.enter(),
        ))
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn rests_of_trees_are_ended_although_all_threads_are_busy() {
        let server = Server::new(Config::default()).unwrap();
        let shared = &server.shared;
        let session = session(shared);
        let tag = session.tags.next();
        let command = SpawnCommand {
            argv: vec!["/bin/sleep".into(), "1000".into()],
            arg0: None,
            env: Vec::new(),
            cwd: "/".into(),
            stdio: Stdio::Pipes { stdin: StdinMode::Null },
            umask: None,
        };
        let rest =
            shared.starter.start(session.asker(), command, tag, &StartCancel::default()).await.unwrap().unwrap();
        let (open, gate) = std::sync::mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let mut hanging = Vec::new();
        for _ in 0..OPERATIONS_IN_ALL {
            let gate = Arc::clone(&gate);
            let mut work = Box::pin(shared.threads.run(Asker::SERVER, move || gate.lock().recv().is_ok()));
            assert!(timeout(Duration::ZERO, &mut work).await.is_err());
            hanging.push(work);
        }

        let tree = OutlivedTree { deadline: Instant::now(), tag, session: Arc::downgrade(&session) };
        shared.janitor.maybe_outlived.lock().push(tree);
        shared.janitor.look_for_rests(shared);
        timeout(AT_LAST, rest.child.wait()).await.expect("its time is over");
        drop(open);
        for work in hanging {
            assert_eq!(work.await, Some(false));
        }
    }
}
