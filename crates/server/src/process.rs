//! A process as its session sees it: the delivery of its events, a queue in front of its stdin, and the means to stop it. The task that
//! carries bytes between these and the operating system is in `process_task`. Sessions and connections are not known here.

mod counted_delivery;
mod input;
mod push;
mod queued_at;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

use parking_lot::Mutex;
use protocol::{ProcessId, ProcessIdJson, ProcessState, ProcessSummary};
use session::{ConnectionNumber, Delivery, ReclaimStep, Reclaimed};
use spawn::{Child, Pty, Tag};
use tokio::sync::{Notify, watch};

pub(crate) use counted_delivery::CountedDelivery;
pub(crate) use input::StdinFeed;
pub(crate) use push::write_message;

use self::queued_at::QueuedAt;

/// Which family of notifications a process speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// `process/*`.
    Current,
    /// `command/exec/*`, with at most so many bytes of each stream sent.
    Legacy { output_bytes_cap: Option<u64> },
}

/// What is asked of the actor beyond carrying bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stop {
    /// Nothing.
    No,
    /// The tree is gone: read what is left in the pipes and close, even if somebody outside the tree holds them.
    Drain,
    /// Nobody will read it any more: close at once.
    Discard,
}

/// Milliseconds since 1970, for people who look at a list of processes.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// A process of a session.
pub(crate) struct Process {
    pub(crate) id: ProcessId,
    pub(crate) id_json: ProcessIdJson,
    pub(crate) dialect: Dialect,
    pub(crate) argv: Vec<String>,
    pub(crate) pid: u32,
    pub(crate) tag: Tag,
    pub(crate) started: Instant,
    started_at_ms: u64,
    delivery: Mutex<CountedDelivery>,
    /// Bytes of stdout and stderr that were sent, for the cap of the legacy family.
    legacy_sent: [AtomicU64; 2],
    /// Wakes reads that wait for something to happen.
    pub(crate) changed: Notify,
    stdin: Mutex<StdinFeed>,
    /// One write after the other: whoever waits for room keeps later writes behind it.
    pub(crate) stdin_lane: Arc<tokio::sync::Mutex<()>>,
    /// Wakes the write that waits for room.
    stdin_room: Notify,
    /// Wakes the actor: there is room in the event log, something to write, or a reason to stop.
    wakes_task: Notify,
    stop: Mutex<Stop>,
    terminated: AtomicBool,
    queued_at: QueuedAt,
    /// Kept until the process is closed: a descendant that has no tag is found by the session of this leader, also after the leader has
    /// been reaped. A signal to a reaped child reaches nobody.
    child: Mutex<Option<Arc<Child>>>,
    reaped: watch::Sender<bool>,
    has_terminal: bool,
    /// Gone when closed, so that no descriptor outlives the process.
    terminal: Mutex<Option<Pty>>,
}

/// What a process is made of when it has just been started.
pub(crate) struct ProcessParts {
    pub(crate) id: ProcessId,
    pub(crate) dialect: Dialect,
    pub(crate) argv: Vec<String>,
    pub(crate) tag: Tag,
    pub(crate) child: Arc<Child>,
    pub(crate) terminal: Option<Pty>,
    pub(crate) delivery: CountedDelivery,
    pub(crate) stdin: StdinFeed,
}

impl Process {
    pub(crate) fn new(birth: ProcessParts) -> Arc<Self> {
        Arc::new(Self {
            id_json: ProcessIdJson::from(&birth.id),
            id: birth.id,
            dialect: birth.dialect,
            argv: birth.argv,
            pid: birth.child.pid(),
            tag: birth.tag,
            started: Instant::now(),
            started_at_ms: now_ms(),
            delivery: Mutex::new(birth.delivery),
            legacy_sent: Default::default(),
            changed: Notify::new(),
            stdin: Mutex::new(birth.stdin),
            stdin_lane: Arc::default(),
            stdin_room: Notify::new(),
            wakes_task: Notify::new(),
            stop: Mutex::new(Stop::No),
            terminated: AtomicBool::new(false),
            queued_at: QueuedAt::default(),
            child: Mutex::new(Some(birth.child)),
            reaped: watch::Sender::new(false),
            has_terminal: birth.terminal.is_some(),
            terminal: Mutex::new(birth.terminal),
        })
    }

    /// Looks at or changes the delivery of its events.
    pub(crate) fn delivery<T>(&self, change: impl FnOnce(&mut Delivery) -> T) -> T {
        self.delivery.lock().change(change)
    }

    /// How many bytes of output may be read from the process now.
    pub(crate) fn room(&self) -> usize {
        self.delivery.lock().room()
    }

    /// Drops output to give memory back; see [`Delivery::reclaim`].
    pub(crate) fn reclaim(&self, step: ReclaimStep, share: usize) -> Reclaimed {
        self.delivery.lock().reclaim(step, share)
    }

    /// Asks the actor to look again.
    pub(crate) fn wake_task(&self) {
        self.wakes_task.notify_one();
    }

    /// Tells the actor to stop, unless it was told something stronger.
    pub(crate) fn stop(&self, stop: Stop) {
        {
            let mut current = self.stop.lock();
            *current = stop.max(*current);
        }
        self.wake_task();
    }

    /// The strongest stop that was asked for.
    pub(crate) fn requested_stop(&self) -> Stop {
        *self.stop.lock()
    }

    /// Waits for [`Self::wake_task`].
    pub(crate) async fn task_woken(&self) {
        self.wakes_task.notified().await;
    }

    pub(crate) fn mark_terminated(&self) {
        self.terminated.store(true, Ordering::Relaxed);
    }

    /// Whether a client asked for the end of the process, or its session has ended.
    pub(crate) fn was_terminated(&self) -> bool {
        self.terminated.load(Ordering::Relaxed)
    }

    /// The process itself was reaped, or will never be.
    pub(crate) fn note_reaped(&self) {
        self.reaped.send_replace(true);
    }

    /// Waits until the process itself, not its descendants, has been reaped.
    pub(crate) async fn wait_reaped(&self) {
        // The sender lives in `self`, so this cannot fail while we wait.
        let _ = self.reaped.subscribe().wait_for(|reaped| *reaped).await;
    }

    pub(crate) fn has_exited(&self) -> bool {
        *self.reaped.borrow()
    }

    /// The child, while there is one to signal.
    pub(crate) fn child(&self) -> Option<Arc<Child>> {
        self.child.lock().clone()
    }

    /// Nothing of the tree is left that a signal could be meant for.
    pub(crate) fn release_child(&self) {
        self.child.lock().take();
    }

    pub(crate) fn close_terminal(&self) {
        self.terminal.lock().take();
    }

    /// The terminal, while it is open.
    pub(crate) fn with_terminal<T>(&self, action: impl FnOnce(&Pty) -> T) -> Option<T> {
        self.terminal.lock().as_ref().map(action)
    }

    pub(crate) fn summary(&self) -> ProcessSummary {
        self.delivery(|delivery| {
            let log = delivery.log();
            let exit = log.exit_event();
            ProcessSummary {
                process_id: self.id.clone(),
                argv: self.argv.clone(),
                pid: Some(self.pid),
                started_at_ms: self.started_at_ms,
                state: match (exit, log.is_closed()) {
                    (_, true) => ProcessState::Closed,
                    (Some(_), false) => ProcessState::Exited,
                    (None, false) => ProcessState::Running,
                },
                exit_code: exit.map(|(_, exit)| exit.code),
                next_seq: log.next_seq(),
                output_bytes: log.total_bytes(),
                oldest_seq: log.oldest_seq(),
                tty: self.has_terminal,
            }
        })
    }

    /// Drops the retained output. Returns how many bytes of memory that gives back.
    pub(crate) fn discard(&self) -> usize {
        self.delivery(Delivery::discard)
    }

    /// Takes its place in the queue of a connection. False if it stands there already.
    pub(crate) fn enter_queue(&self, connection: ConnectionNumber) -> bool {
        self.queued_at.enter(connection)
    }

    /// Leaves the queue before its events are taken, so that an event which is added meanwhile queues it again.
    pub(crate) fn leave_queue(&self, connection: ConnectionNumber) {
        self.queued_at.leave(connection);
    }
}
