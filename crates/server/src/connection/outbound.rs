//! What a connection has to send: answers, and the processes that have something to say. Nobody pushes output into a
//! queue here; the writer pulls it from the journals, in turn, when the socket has room.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use session::ConnectionNumber;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use transport::Framing;

use super::receipts::Receipts;
use crate::process::Process;

/// Answers that may wait to be sent. With more of them nothing is read from the peer: whoever does not listen to what it
/// has asked is not asked what else it wants.
const WAITING_REPLY_BYTES: usize = 4 << 20;

/// How long it takes at most, on a busy machine, until a connection whose peer has closed it has ended here.
const NOTICED_WITHIN: Duration = Duration::from_millis(250);

/// What an answer costs beside its text: its place in the queue and the allocator's share.
const REPLY_OVERHEAD_BYTES: usize = 64;

/// What answers with contents of files may hold that wait to be sent, in units of [`REPLY_UNIT_BYTES`].
const REPLY_UNITS: usize = (8 << 20) / REPLY_UNIT_BYTES;
const REPLY_UNIT_BYTES: usize = 1 << 10;

/// An answer on its way.
pub(crate) struct Reply {
    pub(crate) message: Vec<u8>,
    /// Events that came with it instead of being pushed.
    covers: Option<Covered>,
    /// Given back when the answer has been sent, so that large answers cannot pile up.
    pub(crate) _permit: Option<OwnedSemaphorePermit>,
}

/// What an answer tells of a process: whoever has the answer has every event up to `through`.
pub(crate) struct Covered {
    pub(crate) process: Arc<Process>,
    pub(crate) through: u64,
    pub(crate) output_bytes: usize,
}

/// The sending half of a connection, as everyone else sees it.
pub(crate) struct Outbound {
    pub(crate) number: ConnectionNumber,
    pub(crate) framing: Framing,
    state: Mutex<State>,
    /// Wakes the reader that waits for answers to leave.
    room: Notify,
    /// Room for answers with contents of files, and for what is told in pieces.
    reply_room: Arc<Semaphore>,
    /// The connection is to end now.
    shut: CancellationToken,
    /// Another connection has taken the session.
    displaced: CancellationToken,
    pub(crate) receipts: Receipts,
    answered: Notify,
    last_heard: Mutex<Instant>,
    last_catch_up: Mutex<Option<Instant>>,
}

#[derive(Default)]
struct State {
    replies: VecDeque<Reply>,
    reply_bytes: usize,
    ready: VecDeque<Arc<Process>>,
    pong: Option<Bytes>,
    ping: bool,
    close: Option<(u16, &'static str)>,
    /// The writer, while it waits.
    writer: Option<Waker>,
    /// The connection's own task handles a message: it looks at the writer right after that. To wake it would make it wait
    /// behind others, and wake another thread for that.
    is_awake: bool,
}

impl State {
    fn has_anything(&self) -> bool {
        !self.replies.is_empty() || !self.ready.is_empty() || self.pong.is_some() || self.ping || self.close.is_some()
    }

    /// Whom to wake, now that there is something to send.
    fn whom_to_wake(&mut self) -> Option<Waker> {
        if self.is_awake { None } else { self.writer.take() }
    }
}

/// Something to send.
pub(crate) enum Outgoing {
    Pong(Bytes),
    Ping,
    Reply(Reply),
    Events(Arc<Process>),
    Close(u16, &'static str),
}

fn reply_units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(REPLY_UNIT_BYTES).min(REPLY_UNITS)).unwrap_or(u32::MAX)
}

impl Outbound {
    /// `retain_bytes` is what a process may have on its way at most.
    pub(crate) fn new(number: ConnectionNumber, framing: Framing, retain_bytes: usize) -> Self {
        Self {
            number,
            framing,
            state: Mutex::default(),
            room: Notify::new(),
            reply_room: Arc::new(Semaphore::new(REPLY_UNITS)),
            shut: CancellationToken::new(),
            displaced: CancellationToken::new(),
            receipts: Receipts::new(retain_bytes),
            answered: Notify::new(),
            last_heard: Mutex::new(Instant::now()),
            last_catch_up: Mutex::new(None),
        }
    }

    /// Waits for room for an answer of about so many bytes. One that is larger than all the room has it alone. None: the
    /// connection has ended.
    pub(crate) async fn room_for_reply(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.reply_room).acquire_many_owned(reply_units(bytes)).await.ok()
    }

    /// The same if there is room at once.
    pub(crate) fn room_for_reply_now(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.reply_room).try_acquire_many_owned(reply_units(bytes)).ok()
    }

    pub(crate) fn reply(&self, message: Vec<u8>) {
        self.reply_covering(message, None, None);
    }

    /// Answers with events, and gives the permit back when the answer has been sent.
    pub(crate) fn reply_covering(
        &self,
        message: Vec<u8>,
        covers: Option<Covered>,
        permit: Option<OwnedSemaphorePermit>,
    ) {
        self.add(|state| {
            state.reply_bytes += message.len() + REPLY_OVERHEAD_BYTES;
            state.replies.push_back(Reply { message, covers, _permit: permit });
        });
    }

    fn add(&self, something: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        something(&mut state);
        let writer = state.whom_to_wake();
        drop(state);
        if let Some(writer) = writer {
            writer.wake();
        }
    }

    /// From here on until [`Self::leave_task`] the task that writes is the one that handles.
    pub(crate) fn enter_task(&self) {
        self.state.lock().is_awake = true;
    }

    pub(crate) fn leave_task(&self) {
        self.state.lock().is_awake = false;
    }

    /// Whether there is room for the answer to another request.
    pub(crate) fn has_room(&self) -> bool {
        self.state.lock().reply_bytes < WAITING_REPLY_BYTES
    }

    /// Waits until answers have left.
    pub(crate) async fn room(&self) {
        self.room.notified().await;
    }

    /// The process must have entered the queue.
    pub(crate) fn line_up(&self, process: Arc<Process>) {
        self.add(|state| state.ready.push_back(process));
    }

    /// Answers a ping. Only the newest needs an answer.
    pub(crate) fn pong(&self, payload: Bytes) {
        self.add(|state| state.pong = Some(payload));
    }

    /// Asks the peer whether it is there.
    pub(crate) fn ping(&self) {
        self.add(|state| state.ping = true);
    }

    /// Says goodbye after everything else has been sent.
    pub(crate) fn close(&self, code: u16, reason: &'static str) {
        self.add(|state| {
            state.close.get_or_insert((code, reason));
        });
    }

    /// Ends the connection without waiting for anything. Nobody waits any more for answers to leave.
    pub(crate) fn shut(&self) {
        self.shut.cancel();
        self.reply_room.close();
    }

    pub(crate) async fn is_shut(&self) {
        self.shut.cancelled().await;
    }

    /// Another connection has taken the session: the peer is told so, and the connection ends.
    pub(crate) fn displace(&self) {
        self.displaced.cancel();
    }

    pub(crate) fn is_displaced(&self) -> bool {
        self.displaced.is_cancelled()
    }

    pub(crate) async fn displaced(&self) {
        self.displaced.cancelled().await;
    }

    /// Waits until there is something to send. Only the writer does.
    pub(crate) async fn woken(&self) {
        poll_fn(|cx| {
            let mut state = self.state.lock();
            if state.has_anything() {
                return Poll::Ready(());
            }
            match &mut state.writer {
                Some(known) => known.clone_from(cx.waker()),
                none => *none = Some(cx.waker().clone()),
            }
            Poll::Pending
        })
        .await;
    }

    /// What to send next: control first, answers before events, so that an answer to a start precedes its events.
    pub(crate) fn next(&self) -> Option<Outgoing> {
        let mut state = self.state.lock();
        if let Some(payload) = state.pong.take() {
            return Some(Outgoing::Pong(payload));
        }
        if std::mem::take(&mut state.ping) {
            return Some(Outgoing::Ping);
        }
        if let Some(mut reply) = state.replies.pop_front() {
            let before = state.reply_bytes;
            state.reply_bytes -= reply.message.len() + REPLY_OVERHEAD_BYTES;
            if before >= WAITING_REPLY_BYTES && state.reply_bytes < WAITING_REPLY_BYTES {
                self.room.notify_one();
            }
            if let Some(Covered { process, through, output_bytes }) = reply.covers.take() {
                // Asked for now, the ping is what follows the answer.
                state.ping |=
                    self.receipts.sent(&process, through, output_bytes, false) && self.framing.supports_ping();
            }
            return Some(Outgoing::Reply(reply));
        }
        if let Some(process) = state.ready.pop_front() {
            return Some(Outgoing::Events(process));
        }
        state.close.map(|(code, reason)| Outgoing::Close(code, reason))
    }

    /// Gives back what a burst has allocated.
    pub(crate) fn trim(&self) {
        let mut state = self.state.lock();
        if state.replies.is_empty() && state.ready.is_empty() {
            state.replies.shrink_to(4);
            state.ready.shrink_to(4);
        }
    }

    /// The client has read what it missed of some process.
    pub(crate) fn note_catch_up(&self) {
        *self.last_catch_up.lock() = Some(Instant::now());
    }

    pub(crate) fn last_catch_up(&self) -> Option<Instant> {
        *self.last_catch_up.lock()
    }

    /// The peer answered a ping.
    pub(crate) fn note_answer(&self, payload: &[u8]) {
        self.receipts.pong(payload);
        self.answered.notify_waiters();
    }

    /// The peer sent something, whatever it was.
    pub(crate) fn note_heard(&self) {
        *self.last_heard.lock() = Instant::now();
    }

    /// When a peer that was asked and does not answer is given up: so long after the question, or after the last sign
    /// of life if that came later.
    pub(crate) fn given_up_at(&self, deadline: Duration) -> Option<Instant> {
        let asked = self.receipts.oldest_question()?;
        Some(asked.max(*self.last_heard.lock()) + deadline)
    }

    /// Asks the peer and waits for its answer; what it sent before it was asked proves nothing. A transport without pings
    /// notices a dead peer by itself.
    pub(crate) async fn is_alive(&self, patience: Duration) -> bool {
        if !self.framing.supports_ping() {
            // The end of such a peer is known at once, and only has to be noticed.
            return tokio::time::timeout(patience.min(NOTICED_WITHIN), self.shut.cancelled()).await.is_err();
        }
        let asked_before = self.receipts.last_question();
        self.ping();
        let answered = async {
            loop {
                let answer = self.answered.notified();
                tokio::pin!(answer);
                answer.as_mut().enable();
                if self.receipts.last_answer() > asked_before {
                    return;
                }
                answer.await;
            }
        };
        tokio::select! {
            () = answered => true,
            () = self.shut.cancelled() => false,
            () = tokio::time::sleep(patience) => false,
        }
    }
}
