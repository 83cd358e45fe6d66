//! What a connection has to send: answers, and the processes that have something to say. Nobody pushes output into a
//! queue here; the writer pulls it from the journals, in turn, when the socket has room.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use session::ConnectionNumber;
use tokio::sync::{Notify, OwnedSemaphorePermit};
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
    wake: Notify,
    /// Wakes the reader that waits for answers to leave.
    room: Notify,
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
}

/// Something to send.
pub(crate) enum Outgoing {
    Pong(Bytes),
    Ping,
    Reply(Reply),
    Events(Arc<Process>),
    Close(u16, &'static str),
}

impl Outbound {
    /// `retain_bytes` is what a process may have on its way at most.
    pub(crate) fn new(number: ConnectionNumber, framing: Framing, retain_bytes: usize) -> Self {
        Self {
            number,
            framing,
            state: Mutex::default(),
            wake: Notify::new(),
            room: Notify::new(),
            shut: CancellationToken::new(),
            displaced: CancellationToken::new(),
            receipts: Receipts::new(retain_bytes),
            answered: Notify::new(),
            last_heard: Mutex::new(Instant::now()),
            last_catch_up: Mutex::new(None),
        }
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
        let mut state = self.state.lock();
        state.reply_bytes += message.len() + REPLY_OVERHEAD_BYTES;
        state.replies.push_back(Reply { message, covers, _permit: permit });
        drop(state);
        self.wake.notify_one();
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
        self.state.lock().ready.push_back(process);
        self.wake.notify_one();
    }

    /// Answers a ping. Only the newest needs an answer.
    pub(crate) fn pong(&self, payload: Bytes) {
        self.state.lock().pong = Some(payload);
        self.wake.notify_one();
    }

    /// Asks the peer whether it is there.
    pub(crate) fn ping(&self) {
        self.state.lock().ping = true;
        self.wake.notify_one();
    }

    /// Says goodbye after everything else has been sent.
    pub(crate) fn close(&self, code: u16, reason: &'static str) {
        self.state.lock().close.get_or_insert((code, reason));
        self.wake.notify_one();
    }

    /// Ends the connection without waiting for anything.
    pub(crate) fn shut(&self) {
        self.shut.cancel();
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

    pub(crate) async fn woken(&self) {
        self.wake.notified().await;
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
