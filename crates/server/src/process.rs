//! A process of a session: its delivery (the event log, and how far each reader of the log has got), the queue in front of its stdin, and
//! the means to stop it. The process task, which carries bytes between these and the operating system, is in
//! `process_task`. This module does not know sessions, and knows a connection only by its number.

mod counted_delivery;
mod denials;
mod input;
mod proxy_handle;
mod push;
mod queue_membership;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

use parking_lot::Mutex;
use protocol::{ProcessId, ProcessIdJson, ProcessState, ProcessSummary};
use session::{ConnectionNumber, Delivery, ReclaimStep, Reclaimed};
use spawn::{Child, Pty, Signal, Tag};
use tokio::sync::{Notify, watch};

pub(crate) use counted_delivery::CountedDelivery;
pub(crate) use input::QueuedStdin;
pub(crate) use proxy_handle::ProxyHandle;
pub(crate) use push::write_message;

use self::denials::Denials;
use self::queue_membership::QueueMembership;
use crate::sandboxes::SessionSandbox;

/// The family of notifications in which events of a process are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// The notifications `process/*`.
    Current,
    /// The notifications `command/exec/*`, with at most `output_bytes_cap` bytes of each stream.
    Legacy { output_bytes_cap: Option<u64> },
}

/// Whether a process runs in a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessConfinement {
    /// The process may do what the server may do.
    Unconfined,
    /// The process may do what its policy allows.
    Sandboxed,
}

/// Whether the server knows why a process has exited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitReason {
    /// Its timeout, a request of the client or a limit has ended the process.
    Ended,
    /// The process has exited by itself, or nobody knows why.
    OwnOrUnknown,
}

/// The way in which the process task is asked to stop. A later variant is stronger than an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StopRequest {
    /// No stop was requested. Carry bytes until the process has exited and its output streams have ended.
    None,
    /// The process and its descendants have ended, or the server has tried to kill them. After the exit, read the
    /// bytes that are in the pipes and close, even if another process still holds the pipes open.
    Drain,
    /// No client will read the output any more. Close at once.
    Discard,
}

/// Milliseconds since 1970, for the start time that `process/list` shows.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// The exit code of a process that signal N has ended is this number plus N.
const FIRST_SIGNAL_CODE: i32 = 128;

/// Bit N for signal N. No bit for a number that no signal has.
fn signal_bit(number: i32) -> u64 {
    u32::try_from(number).ok().and_then(|number| 1_u64.checked_shl(number)).unwrap_or(0)
}

/// A process of a session.
pub(crate) struct Process {
    pub(crate) id: ProcessId,
    pub(crate) id_json: ProcessIdJson,
    pub(crate) dialect: Dialect,
    /// The arguments that `process/list` shows. Long arguments are shortened, and one `…` stands for further ones.
    pub(crate) argv: Vec<String>,
    pub(crate) pid: u32,
    /// A number that all descendants of the process inherit, and by which they are found and killed.
    pub(crate) tag: Tag,
    pub(crate) started: Instant,
    started_at_ms: u64,
    delivery: Mutex<CountedDelivery>,
    /// Bytes of stdout and stderr that were sent, for the cap of the legacy family.
    legacy_sent: [AtomicU64; 2],
    /// Wakes requests that wait for an event of the process, or until its events are sent.
    pub(crate) changed: Notify,
    stdin: Mutex<QueuedStdin>,
    /// Held by the write whose bytes enter the queue. A write that waits for room in the queue keeps later writes waiting, so writes stay
    /// in order.
    pub(crate) stdin_lock: Arc<tokio::sync::Mutex<()>>,
    /// Wakes the write that waits for room in the queue.
    stdin_room: Notify,
    /// Wakes the process task: the event log has room, there are bytes to write, or a stop was requested.
    wakes_task: Notify,
    stop: Mutex<StopRequest>,
    terminated: AtomicBool,
    /// The signals that a client has sent to the process: bit N stands for signal N.
    sent_signals: AtomicU64,
    queue_membership: QueueMembership,
    /// Kept until the process is closed, even after the child was reaped: a descendant without a tag is found by the Unix session that
    /// this child leads. A signal to a reaped child has no effect.
    child: Mutex<Option<Arc<Child>>>,
    pub(crate) confinement: ProcessConfinement,
    pub(crate) denials: Denials,
    reaped: watch::Sender<bool>,
    has_terminal: bool,
    /// None after the process was closed, so that no descriptor stays open.
    terminal: Mutex<Option<Pty>>,
    /// The sandbox, if no other process uses it. It ends when the process is closed.
    own_sandbox: Mutex<Option<Arc<SessionSandbox>>>,
    /// None if the process has no network proxy, and after the process was closed.
    network_proxy: Mutex<Option<ProxyHandle>>,
}

/// The parts of a process that has just been started.
pub(crate) struct ProcessParts {
    pub(crate) id: ProcessId,
    pub(crate) dialect: Dialect,
    pub(crate) argv: Vec<String>,
    pub(crate) tag: Tag,
    pub(crate) child: Arc<Child>,
    pub(crate) confinement: ProcessConfinement,
    pub(crate) terminal: Option<Pty>,
    pub(crate) delivery: CountedDelivery,
    pub(crate) stdin: QueuedStdin,
    pub(crate) own_sandbox: Option<Arc<SessionSandbox>>,
    pub(crate) network_proxy: Option<ProxyHandle>,
}

impl Process {
    pub(crate) fn new(parts: ProcessParts) -> Arc<Self> {
        Arc::new(Self {
            id_json: ProcessIdJson::from(&parts.id),
            id: parts.id,
            dialect: parts.dialect,
            argv: parts.argv,
            pid: parts.child.pid(),
            tag: parts.tag,
            started: Instant::now(),
            started_at_ms: now_ms(),
            delivery: Mutex::new(parts.delivery),
            legacy_sent: Default::default(),
            changed: Notify::new(),
            stdin: Mutex::new(parts.stdin),
            stdin_lock: Arc::default(),
            stdin_room: Notify::new(),
            wakes_task: Notify::new(),
            stop: Mutex::new(StopRequest::None),
            terminated: AtomicBool::new(false),
            sent_signals: AtomicU64::new(0),
            queue_membership: QueueMembership::default(),
            child: Mutex::new(Some(parts.child)),
            confinement: parts.confinement,
            denials: Denials::default(),
            reaped: watch::Sender::new(false),
            has_terminal: parts.terminal.is_some(),
            terminal: Mutex::new(parts.terminal),
            own_sandbox: Mutex::new(parts.own_sandbox),
            network_proxy: Mutex::new(parts.network_proxy),
        })
    }

    /// Calls `change` with the delivery while it is locked.
    pub(crate) fn delivery<T>(&self, change: impl FnOnce(&mut Delivery) -> T) -> T {
        self.delivery.lock().change(change)
    }

    /// How many bytes of output may be read from the process now.
    pub(crate) fn allowed_output_bytes(&self) -> usize {
        self.delivery.lock().allowed_output_bytes()
    }

    /// Drops output to free memory; see [`Delivery::reclaim`].
    pub(crate) fn reclaim(&self, step: ReclaimStep, share_bytes: usize) -> Reclaimed {
        self.delivery.lock().reclaim(step, share_bytes)
    }

    /// Makes the process task check again what there is to do.
    pub(crate) fn wake_task(&self) {
        self.wakes_task.notify_one();
    }

    /// Asks the process task to stop, unless a stronger stop was requested before.
    pub(crate) fn stop(&self, stop: StopRequest) {
        {
            let mut current = self.stop.lock();
            *current = stop.max(*current);
        }
        self.wake_task();
    }

    /// The strongest stop that was requested.
    pub(crate) fn requested_stop(&self) -> StopRequest {
        *self.stop.lock()
    }

    /// Waits for [`Self::wake_task`].
    pub(crate) async fn task_woken(&self) {
        self.wakes_task.notified().await;
    }

    /// A client has sent `process/terminate`, or the session has ended.
    pub(crate) fn mark_terminated(&self) {
        self.terminated.store(true, Ordering::Relaxed);
        self.end_policy_questions();
    }

    /// Whether [`Self::mark_terminated`] was called.
    pub(crate) fn was_terminated(&self) -> bool {
        self.terminated.load(Ordering::Relaxed)
    }

    /// A client sends this signal to the process.
    pub(crate) fn note_sent_signal(&self, signal: Signal) {
        self.sent_signals.fetch_or(signal_bit(signal.as_raw()), Ordering::Relaxed);
    }

    /// Whether a signal that a client has sent explains this exit code.
    pub(crate) fn was_ended_by_client_signal(&self, exit_code: i32) -> bool {
        self.sent_signals.load(Ordering::Relaxed) & signal_bit(exit_code - FIRST_SIGNAL_CODE) != 0
    }

    /// The process was reaped, or the server has given up waiting for it.
    pub(crate) fn note_reaped(&self) {
        self.reaped.send_replace(true);
        self.end_policy_questions();
    }

    /// Waits until the process itself, not its descendants, has been reaped.
    pub(crate) async fn wait_reaped(&self) {
        // The sender lives in `self`, so this cannot fail while we wait.
        let _ = self.reaped.subscribe().wait_for(|reaped| *reaped).await;
    }

    pub(crate) fn has_exited(&self) -> bool {
        *self.reaped.borrow()
    }

    /// The child. None after [`Self::release_child`].
    pub(crate) fn child(&self) -> Option<Arc<Child>> {
        self.child.lock().clone()
    }

    /// The process is closed, so the child is not needed any more. Descendants that still run are found by their tag.
    pub(crate) fn release_child(&self) {
        self.child.lock().take();
    }

    /// Whether the process has probably failed because its sandbox refused something. Never true without a sandbox. To be called once, when
    /// the process has exited.
    pub(crate) fn was_denied(&self, exit_code: i32, reason: ExitReason) -> bool {
        let was_refused_a_call = self.denials.finish();
        if self.confinement == ProcessConfinement::Unconfined || exit_code == 0 || reason == ExitReason::Ended {
            return false;
        }
        was_refused_a_call
            || self.delivery(|delivery| sandbox::suggests_denial(exit_code, delivery.log().retained_output()))
    }

    pub(crate) fn close_terminal(&self) {
        self.terminal.lock().take();
    }

    /// From now on the client is not asked about hosts for this process: unanswered questions count as answered with
    /// no. What the rules of the proxy allow is still allowed, to descendants that outlive the process.
    fn end_policy_questions(&self) {
        if let Some(proxy) = &*self.network_proxy.lock() {
            proxy.end_questions();
        }
    }

    /// Takes the sandbox that no other process uses, because the process is closed. Dropping it ends the sandbox, which can block.
    pub(crate) fn take_own_sandbox(&self) -> Option<Arc<SessionSandbox>> {
        self.own_sandbox.lock().take()
    }

    /// Takes the network proxy, because the process is closed. Dropping the handle stops the proxy.
    pub(crate) fn take_network_proxy(&self) -> Option<ProxyHandle> {
        self.network_proxy.lock().take()
    }

    /// Calls `action` with the terminal. None if the process has no terminal or it is closed.
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

    /// Whether a closed process may be forgotten: no connected client must still be sent events of it.
    pub(crate) fn may_be_forgotten(&self) -> bool {
        self.delivery(|delivery| !delivery.owes_events())
    }

    /// Drops the retained output.
    pub(crate) fn discard(&self) -> Reclaimed {
        self.delivery(Delivery::discard)
    }

    /// Notes that the process is in the queue of a connection. Returns false if it is in that queue already.
    pub(crate) fn enter_queue(&self, connection: ConnectionNumber) -> bool {
        self.queue_membership.enter(connection)
    }

    /// Notes that the process has left the queue. Must be called before its events are taken, so that an event that is added meanwhile
    /// queues the process again.
    pub(crate) fn leave_queue(&self, connection: ConnectionNumber) {
        self.queue_membership.leave(connection);
    }
}
