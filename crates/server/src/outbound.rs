//! The queue of what a connection has to send: answers, and processes that have events. Output itself is not queued: the writer takes it
//! from the event logs of the processes, in turn, when the socket has room.
//!
//! `receipts` knows what the peer has received, and `reply_room` bounds the memory of unsent answers. The socket is not known here; the
//! writer is in `connection_task`.

mod receipts;
mod reply_room;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use session::{ConnectionNumber, PeerLiveness};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use transport::{Framing, ReceiptProof, WriteProgress};

pub(crate) use reply_room::{LARGE_ANSWER_BYTES, LargeAnswerRoom, LargeAnswers, ReplyRoom};

use self::receipts::ConnectionReceipts;
use crate::process::Process;

/// Answers that may wait to be sent. With more of them no further request of this connection is handled.
const WAITING_REPLY_BYTES: usize = 4 << 20;

/// How long it takes at most, on a busy machine, until a connection whose peer has closed it has ended here.
const NOTICED_WITHIN: Duration = Duration::from_millis(250);

/// What an answer costs beside its text: its place in the queue and the allocator's share.
const REPLY_OVERHEAD_BYTES: usize = 64;

/// What answers with contents of files may hold that wait to be sent, in units of [`REPLY_UNIT_BYTES`].
const REPLY_UNITS: usize = (8 << 20) / REPLY_UNIT_BYTES;
const REPLY_UNIT_BYTES: usize = 1 << 10;

/// Which incoming messages a connection may handle now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intake {
    /// Messages and control frames.
    Everything,
    /// Control frames only, because too many bytes of answers wait to be sent.
    ControlFrames,
}

/// An answer on its way.
pub(crate) struct QueuedAnswer {
    pub(crate) message: Vec<u8>,
    /// Events that came with it instead of being pushed.
    covers: Option<CoveredEvents>,
    /// Given back when the answer has been sent, so that large answers cannot pile up.
    pub(crate) room: Option<ReplyRoom>,
}

/// What an answer tells of a process: whoever has the answer has every event up to `through`.
pub(crate) struct CoveredEvents {
    pub(crate) process: Arc<Process>,
    pub(crate) through: u64,
    pub(crate) output_bytes: usize,
}

/// The sending half of a connection, as everyone else sees it.
pub(crate) struct Outbound {
    pub(crate) number: ConnectionNumber,
    pub(crate) framing: Framing,
    state: Mutex<OutboundQueue>,
    /// Wakes the reader that waits for answers to leave.
    room: Notify,
    /// Room for answers with contents of files, and for what is told in pieces.
    reply_room: Arc<Semaphore>,
    /// The connection is to end now.
    shut: CancellationToken,
    /// Another connection has taken the session.
    displaced: CancellationToken,
    /// The client has sent `initialized`.
    initialized: AtomicBool,
    /// The goodbye is queued.
    closing: CancellationToken,
    pub(crate) receipts: ConnectionReceipts,
    answered: Notify,
    liveness: Mutex<PeerLiveness>,
    last_catch_up: Mutex<Option<Instant>>,
}

#[derive(Default)]
struct OutboundQueue {
    replies: VecDeque<QueuedAnswer>,
    reply_bytes: usize,
    ready: VecDeque<Arc<Process>>,
    pong: Option<Bytes>,
    /// A ping is to be sent, and since when it is.
    ping_wanted_at: Option<Instant>,
    close: Option<(u16, &'static str)>,
    /// Further answers are dropped, because the connection has ended.
    drops_answers: bool,
    /// The writer, while it waits.
    writer: Option<Waker>,
    /// The connection's own task handles a message: it looks at the writer right after that. To wake it would make it wait
    /// behind others, and wake another thread for that.
    is_awake: bool,
}

impl OutboundQueue {
    fn has_anything(&self) -> bool {
        !self.replies.is_empty()
            || !self.ready.is_empty()
            || self.pong.is_some()
            || self.ping_wanted_at.is_some()
            || self.close.is_some()
    }

    fn queue(&mut self, answer: QueuedAnswer) {
        if self.drops_answers {
            return;
        }
        self.reply_bytes += answer.message.len() + REPLY_OVERHEAD_BYTES;
        self.replies.push_back(answer);
    }

    /// Whom to wake, now that there is something to send.
    fn whom_to_wake(&mut self) -> Option<Waker> {
        if self.is_awake { None } else { self.writer.take() }
    }
}

/// Something to send.
pub(crate) enum Outgoing {
    Pong(Bytes),
    /// Wanted since this moment.
    Ping(Instant),
    Answer(QueuedAnswer),
    Events(Arc<Process>),
    Close(u16, &'static str),
}

fn reply_units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(REPLY_UNIT_BYTES).min(REPLY_UNITS)).unwrap_or(u32::MAX)
}

impl Outbound {
    /// `retain_bytes` is what a process may have on its way at most.
    pub(crate) fn new(
        number: ConnectionNumber,
        framing: Framing,
        receipt_proof: ReceiptProof,
        retain_bytes: usize,
    ) -> Self {
        Self {
            number,
            framing,
            state: Mutex::default(),
            room: Notify::new(),
            reply_room: Arc::new(Semaphore::new(REPLY_UNITS)),
            shut: CancellationToken::new(),
            displaced: CancellationToken::new(),
            initialized: AtomicBool::new(false),
            closing: CancellationToken::new(),
            receipts: ConnectionReceipts::new(number, receipt_proof, retain_bytes),
            answered: Notify::new(),
            liveness: Mutex::new(PeerLiveness::new(Instant::now())),
            last_catch_up: Mutex::new(None),
        }
    }

    /// Waits for room for an answer of about so many bytes. One that is larger than all the room has it alone. None: the
    /// connection has ended.
    pub(crate) async fn room_for_reply(&self, bytes: usize) -> Option<ReplyRoom> {
        Arc::clone(&self.reply_room).acquire_many_owned(reply_units(bytes)).await.ok().map(Into::into)
    }

    /// The same if there is room at once.
    pub(crate) fn room_for_reply_now(&self, bytes: usize) -> Option<ReplyRoom> {
        Arc::clone(&self.reply_room).try_acquire_many_owned(reply_units(bytes)).ok().map(Into::into)
    }

    pub(crate) fn reply(&self, message: Vec<u8>) {
        self.reply_covering(message, None, None);
    }

    /// Answers with events, and gives the room back when the answer has been sent.
    pub(crate) fn reply_covering(&self, message: Vec<u8>, covers: Option<CoveredEvents>, room: Option<ReplyRoom>) {
        self.add(|state| state.queue(QueuedAnswer { message, covers, room }));
    }

    /// Answers several requests, and wakes the writer once.
    pub(crate) fn reply_together(&self, messages: Vec<Vec<u8>>) {
        self.add(|state| {
            for message in messages {
                state.queue(QueuedAnswer { message, covers: None, room: None });
            }
        });
    }

    /// The connection has ended, and its last requests are carried out without an answer: too many answers wait already.
    pub(crate) fn stop_answering(&self) {
        self.state.lock().drops_answers = true;
    }

    /// Nobody sends what still waits: it must not hold room that others wait for.
    pub(crate) fn drop_answers(&self) {
        let mut state = self.state.lock();
        state.drops_answers = true;
        let unsent = std::mem::take(&mut state.replies);
        state.reply_bytes = 0;
        drop(state);
        drop(unsent);
    }

    fn add(&self, something: impl FnOnce(&mut OutboundQueue)) {
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

    /// Further requests may be handled only while there is room for their answers.
    pub(crate) fn intake(&self) -> Intake {
        if self.state.lock().reply_bytes < WAITING_REPLY_BYTES { Intake::Everything } else { Intake::ControlFrames }
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
        self.add(|state| {
            state.ping_wanted_at.get_or_insert_with(Instant::now);
        });
    }

    /// Says goodbye after everything else has been sent.
    pub(crate) fn close(&self, code: u16, reason: &'static str) {
        self.add(|state| {
            state.close.get_or_insert((code, reason));
        });
        self.closing.cancel();
    }

    /// Waits until the goodbye is queued.
    pub(crate) async fn closing(&self) {
        self.closing.cancelled().await;
    }

    /// Ends the connection without waiting for anything. Nobody waits any more for answers to leave.
    pub(crate) fn shut(&self) {
        self.shut.cancel();
        self.reply_room.close();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.shut.is_cancelled()
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
        if let Some(wanted_at) = state.ping_wanted_at.take() {
            return Some(Outgoing::Ping(wanted_at));
        }
        if let Some(mut reply) = state.replies.pop_front() {
            let before = state.reply_bytes;
            state.reply_bytes -= reply.message.len() + REPLY_OVERHEAD_BYTES;
            if before >= WAITING_REPLY_BYTES && state.reply_bytes < WAITING_REPLY_BYTES {
                self.room.notify_one();
            }
            let mut wants_ping = self.receipts.answer_sent(reply.message.len());
            if let Some(CoveredEvents { process, through, output_bytes }) = reply.covers.take() {
                wants_ping |= self.receipts.sent(&process, through, output_bytes);
            }
            if wants_ping {
                // Asked for now, the ping is what follows the answer.
                state.ping_wanted_at.get_or_insert_with(Instant::now);
            }
            return Some(Outgoing::Answer(reply));
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

    pub(crate) fn note_initialized(&self) {
        self.initialized.store(true, Ordering::Release);
    }

    pub(crate) fn is_initialized(&self) -> bool {
        self.initialized.load(Ordering::Acquire)
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
        if self.receipts.pong(payload) {
            let nothing_is_open = self.oldest_question().is_none();
            self.liveness.lock().ping_answered(nothing_is_open, Instant::now());
            self.answered.notify_waiters();
        }
    }

    /// The peer sent something, whatever it was.
    pub(crate) fn note_heard(&self) {
        self.liveness.lock().bytes_arrived(Instant::now());
    }

    /// The transport stopped to take bytes, or begins again.
    pub(crate) fn note_write(&self, progress: WriteProgress) {
        let mut liveness = self.liveness.lock();
        match progress {
            WriteProgress::Blocked => liveness.writes_blocked(Instant::now()),
            WriteProgress::Resumed => liveness.writes_resumed(Instant::now()),
        }
    }

    /// When a peer that was asked and does not answer is given up. None: it was not asked.
    pub(crate) fn given_up_at(&self, deadline: Duration) -> Option<Instant> {
        Some(self.given_up_since(self.oldest_question()?, deadline))
    }

    /// When a peer for which something has been waiting since `since` is given up.
    pub(crate) fn given_up_since(&self, since: Instant, deadline: Duration) -> Instant {
        self.liveness.lock().given_up_at(since, deadline)
    }

    /// Whether the peer has not answered a ping yet, and so may not have read what was sent before it.
    pub(crate) fn waits_for_an_answer(&self) -> bool {
        self.oldest_question().is_some()
    }

    /// Since when the oldest ping without an answer has been wanted, sent or not.
    fn oldest_question(&self) -> Option<Instant> {
        self.receipts.oldest_unanswered().or_else(|| self.state.lock().ping_wanted_at)
    }

    /// Asks the peer and waits for its answer; what it sent before it was asked proves nothing. A transport without pings
    /// notices a dead peer by itself.
    pub(crate) async fn is_alive(&self, patience: Duration) -> bool {
        if !self.framing.supports_ping() {
            // The end of such a peer is known at once, and only has to be noticed.
            return tokio::time::timeout(patience.min(NOTICED_WITHIN), self.shut.cancelled()).await.is_err();
        }
        let asked_before = self.receipts.last_ping();
        self.ping();
        let answered = async {
            loop {
                let answer = self.answered.notified();
                tokio::pin!(answer);
                answer.as_mut().enable();
                if self.receipts.last_pong() > asked_before {
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
