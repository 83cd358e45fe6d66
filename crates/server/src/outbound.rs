//! The send queue of a connection. It holds encoded answers, and the processes and TCP streams that have something to
//! send. It does not hold their events and bytes: when the socket can take bytes, the writer takes events from the logs
//! of the queued processes and bytes from the queued streams, one source after the other.
//!
//! `receipts` tracks which events the peer has received, `reply_room` limits the memory of unsent answers, and
//! `client_requests` has the requests that the server itself sends. This
//! module does not know the socket; the writer is in `connection_task`.

mod client_requests;
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
use transport::{Framing, ProofOfReceipt, WriteProgress};

pub(crate) use client_requests::AnswerOrigin;
pub(crate) use reply_room::{LargeAnswerRoom, LargeAnswers, ReplyRoom};

use self::client_requests::ClientRequests;
use self::receipts::ConnectionReceipts;
use crate::limits::{MAX_PUSHED_BYTES, MAX_UNSENT_ANSWER_BYTES};
use crate::port_stream::ForwardedStream;
use crate::process::Process;

/// The longest time, on a busy machine, until this server notices that a peer has closed its socket.
const CLOSE_NOTICED_WITHIN: Duration = Duration::from_millis(250);

/// Memory that a queued answer takes in addition to its text.
const REPLY_OVERHEAD_BYTES: usize = 64;

/// Memory of a connection for large unsent messages (see [`Outbound::reply_room`]), in units of [`REPLY_UNIT_BYTES`].
const REPLY_UNITS: usize = MAX_PUSHED_BYTES / REPLY_UNIT_BYTES;
/// Bytes for which one permit of [`Outbound::reply_room`] stands.
const REPLY_UNIT_BYTES: usize = 1 << 10;

/// The kinds of incoming messages that a connection may handle now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intake {
    /// Messages and control frames.
    Everything,
    /// Control frames only, because too many bytes of answers wait to be sent.
    ControlFrames,
}

/// An encoded message that waits to be sent: an answer, or a notification that is not an event of a process.
pub(crate) struct QueuedAnswer {
    pub(crate) message: Vec<u8>,
    /// Events that the answer contains, so that they are not sent as notifications.
    covers: Option<CoveredEvents>,
    /// Permits of the answer, which are returned when it has been sent.
    pub(crate) room: Option<ReplyRoom>,
}

/// Events of a process that are in an answer. A client that has received the answer has every event up to `through`.
pub(crate) struct CoveredEvents {
    pub(crate) process: Arc<Process>,
    /// Sequence number of the last event.
    pub(crate) through: u64,
    /// Bytes of output in the answer, and [`session::CHUNK_OVERHEAD_BYTES`] for each chunk.
    pub(crate) output_bytes: usize,
}

/// The sending half of a connection, for every task that has something to send over it.
pub(crate) struct Outbound {
    pub(crate) number: ConnectionNumber,
    pub(crate) framing: Framing,
    queue: Mutex<OutboundQueue>,
    /// Wakes the task of the connection when requests may be handled again.
    requests_allowed: Notify,
    /// Permits for the memory of unsent answers that may be large, for example about files, and of unsent
    /// notifications of searches, watches and HTTP bodies.
    reply_room: Arc<Semaphore>,
    /// Cancelled when the connection ends.
    ended: CancellationToken,
    /// Cancelled when another connection has taken over the session.
    displaced: CancellationToken,
    /// The client has sent `initialized`.
    initialized: AtomicBool,
    /// Cancelled when the close frame is queued.
    goodbye_queued: CancellationToken,
    pub(crate) receipts: ConnectionReceipts,
    /// Requests of the server that wait for an answer of the client.
    client_requests: ClientRequests,
    pong_arrived: Notify,
    liveness: Mutex<PeerLiveness>,
    /// When the client last read retained output to catch up, for example after it reconnected.
    last_catch_up: Mutex<Option<Instant>>,
}

#[derive(Default)]
struct OutboundQueue {
    answers: VecDeque<QueuedAnswer>,
    /// Bytes of all queued answers, with [`REPLY_OVERHEAD_BYTES`] for each.
    answer_bytes: usize,
    /// Processes and TCP streams that have something to send. When it is their turn, the writer takes it from them.
    ready: VecDeque<EventSource>,
    /// Payload of the pong to send.
    pong: Option<Bytes>,
    /// When the unsent ping was requested. None: no ping is to be sent.
    ping_wanted_at: Option<Instant>,
    /// Code and reason of the close frame to send.
    close: Option<(u16, &'static str)>,
    /// True after the end of the connection.
    drops_answers: bool,
    /// Wakes the writer. None while the writer does not wait.
    writer: Option<Waker>,
    /// The task of the connection is handling messages. The same task polls the writer right afterwards, so the
    /// writer need not be woken.
    is_handling: bool,
}

impl OutboundQueue {
    fn has_work(&self) -> bool {
        !self.answers.is_empty()
            || !self.ready.is_empty()
            || self.pong.is_some()
            || self.ping_wanted_at.is_some()
            || self.close.is_some()
    }

    /// Whether the answer is queued now. False: it was dropped.
    fn push(&mut self, answer: QueuedAnswer) -> bool {
        if self.drops_answers {
            return false;
        }
        self.answer_bytes += answer.message.len() + REPLY_OVERHEAD_BYTES;
        self.answers.push_back(answer);
        true
    }

    /// The waker of the writer, if the writer has to be woken.
    fn take_waker(&mut self) -> Option<Waker> {
        if self.is_handling { None } else { self.writer.take() }
    }
}

/// A source in the send queue. When it is its turn, the writer takes what it has to send.
enum EventSource {
    Process(Arc<Process>),
    Port(Arc<ForwardedStream>),
}

/// The next thing that the writer has to send.
pub(crate) enum Outgoing {
    /// A pong with this payload.
    Pong(Bytes),
    /// A ping that was requested at this time.
    Ping(Instant),
    Answer(QueuedAnswer),
    /// Events of this process, which the writer takes from its event log.
    Events(Arc<Process>),
    /// The writer takes bytes or the end of this TCP stream.
    Port(Arc<ForwardedStream>),
    /// A close frame with code and reason.
    Close(u16, &'static str),
}

/// The number of permits of [`Outbound::reply_room`] for an answer of this size; at most all of them.
fn reply_units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(REPLY_UNIT_BYTES).min(REPLY_UNITS)).unwrap_or(u32::MAX)
}

impl Outbound {
    /// `retain_bytes` is the limit of output that each process retains.
    pub(crate) fn new(
        number: ConnectionNumber,
        framing: Framing,
        proof_of_receipt: ProofOfReceipt,
        retain_bytes: usize,
    ) -> Self {
        Self {
            number,
            framing,
            queue: Mutex::default(),
            requests_allowed: Notify::new(),
            reply_room: Arc::new(Semaphore::new(REPLY_UNITS)),
            ended: CancellationToken::new(),
            displaced: CancellationToken::new(),
            initialized: AtomicBool::new(false),
            goodbye_queued: CancellationToken::new(),
            receipts: ConnectionReceipts::new(number, proof_of_receipt, retain_bytes),
            client_requests: ClientRequests::default(),
            pong_arrived: Notify::new(),
            liveness: Mutex::new(PeerLiveness::new(Instant::now())),
            last_catch_up: Mutex::new(None),
        }
    }

    /// Waits for memory permits for an answer of about `bytes`. An answer that is larger than the limit takes all permits. None: the
    /// connection has ended.
    pub(crate) async fn room_for_reply(&self, bytes: usize) -> Option<ReplyRoom> {
        Arc::clone(&self.reply_room).acquire_many_owned(reply_units(bytes)).await.ok().map(Into::into)
    }

    /// As [`Self::room_for_reply`], but does not wait: None if there are not enough permits now.
    pub(crate) fn room_for_reply_now(&self, bytes: usize) -> Option<ReplyRoom> {
        Arc::clone(&self.reply_room).try_acquire_many_owned(reply_units(bytes)).ok().map(Into::into)
    }

    /// Queues an encoded answer.
    pub(crate) fn reply(&self, message: Vec<u8>) {
        self.reply_covering(message, None, None);
    }

    /// Queues an answer that contains events (`covers`), or that holds memory permits (`room`) until it has been sent.
    pub(crate) fn reply_covering(&self, message: Vec<u8>, covers: Option<CoveredEvents>, room: Option<ReplyRoom>) {
        self.change_queue(|queue| {
            // An answer that is dropped has no receiver any more.
            let _is_queued = queue.push(QueuedAnswer { message, covers, room });
        });
    }

    /// Queues an answer or notification that holds memory permits (`room`) until it has been sent.
    pub(crate) fn reply_in_room(&self, message: Vec<u8>, room: ReplyRoom) {
        self.reply_covering(message, None, Some(room));
    }

    /// Waits until the connection has room for a message, and queues it. A client that does not read thus makes the
    /// sender wait. None: the connection has ended, and the message was not queued.
    pub(crate) async fn send_in_room(&self, message: Vec<u8>) -> Option<()> {
        let room = Some(self.room_for_reply(message.len()).await?);
        let is_queued = self.change_queue(|queue| queue.push(QueuedAnswer { message, covers: None, room }));
        if !is_queued {
            // Answers are dropped shortly before the connection ends. A caller that tries again would find the same
            // connection until then.
            self.ended().await;
        }
        is_queued.then_some(())
    }

    /// Queues several answers, and wakes the writer once.
    pub(crate) fn reply_together(&self, messages: Vec<Vec<u8>>) {
        self.change_queue(|queue| {
            for message in messages {
                let _is_queued = queue.push(QueuedAnswer { message, covers: None, room: None });
            }
        });
    }

    /// Drops every answer that is added from now on; queued answers stay. The connection has ended, and its last
    /// requests are carried out without answers.
    pub(crate) fn stop_answering(&self) {
        self.queue.lock().drops_answers = true;
    }

    /// Drops the queued answers of a connection that has ended, and every answer that is added from now on. This
    /// frees shared memory permits for which other connections may wait.
    pub(crate) fn drop_answers(&self) {
        let mut queue = self.queue.lock();
        queue.drops_answers = true;
        let unsent = std::mem::take(&mut queue.answers);
        queue.answer_bytes = 0;
        drop(queue);
        drop(unsent);
    }

    /// Changes the queue, and wakes the writer if it waits.
    fn change_queue<R>(&self, change: impl FnOnce(&mut OutboundQueue) -> R) -> R {
        let mut queue = self.queue.lock();
        let changed = change(&mut queue);
        let writer = queue.take_waker();
        drop(queue);
        if let Some(writer) = writer {
            writer.wake();
        }
        changed
    }

    /// The task of the connection begins to handle messages. Until [`Self::end_handling`] the writer need not be woken.
    pub(crate) fn begin_handling(&self) {
        self.queue.lock().is_handling = true;
    }

    /// The task of the connection has handled its messages and polls the writer next.
    pub(crate) fn end_handling(&self) {
        self.queue.lock().is_handling = false;
    }

    /// The kinds of messages that may be handled now. Requests wait while too many bytes of answers are unsent.
    pub(crate) fn intake(&self) -> Intake {
        if self.queue.lock().answer_bytes < MAX_UNSENT_ANSWER_BYTES {
            Intake::Everything
        } else {
            Intake::ControlFrames
        }
    }

    /// Waits until enough answers have been sent that requests may be handled again.
    pub(crate) async fn room_for_requests(&self) {
        self.requests_allowed.notified().await;
    }

    /// Queues a process that has events. The caller has made sure that the process is not queued yet ([`Process::enter_queue`]).
    pub(crate) fn queue_process(&self, process: Arc<Process>) {
        self.change_queue(|queue| queue.ready.push_back(EventSource::Process(process)));
    }

    /// Queues a TCP stream that has something to send. Must not be called for a stream that is in the queue already;
    /// the methods of the stream return whether it has to be queued.
    pub(crate) fn queue_port(&self, stream: Arc<ForwardedStream>) {
        self.change_queue(|queue| queue.ready.push_back(EventSource::Port(stream)));
    }

    /// Answers a ping of the peer. A newer pong replaces one that was not sent yet, as RFC 6455 permits.
    pub(crate) fn pong(&self, payload: Bytes) {
        self.change_queue(|queue| queue.pong = Some(payload));
    }

    /// Sends a ping, to learn whether the peer is alive.
    pub(crate) fn ping(&self) {
        self.change_queue(|queue| {
            queue.ping_wanted_at.get_or_insert_with(Instant::now);
        });
    }

    /// Queues a close frame behind everything else. Only the first call counts.
    pub(crate) fn close(&self, code: u16, reason: &'static str) {
        self.change_queue(|queue| {
            queue.close.get_or_insert((code, reason));
        });
        self.goodbye_queued.cancel();
    }

    /// Waits until the close frame is queued.
    pub(crate) async fn goodbye_queued(&self) {
        self.goodbye_queued.cancelled().await;
    }

    /// Ends the connection at once. Tasks that wait for memory permits for their answers give up.
    pub(crate) fn end_now(&self) {
        self.ended.cancel();
        self.reply_room.close();
        self.give_up_client_requests();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.is_cancelled()
    }

    pub(crate) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// Another connection has taken over the session. The task of this connection tells the peer and ends the
    /// connection. Only a connection on stdio stays open; its further requests are refused.
    pub(crate) fn displace(&self) {
        self.displaced.cancel();
        self.give_up_client_requests();
    }

    pub(crate) fn is_displaced(&self) -> bool {
        self.displaced.is_cancelled()
    }

    pub(crate) async fn displaced(&self) {
        self.displaced.cancelled().await;
    }

    /// Waits until there is something to send. Only the writer may call this, because one waker is kept.
    pub(crate) async fn wait_for_work(&self) {
        poll_fn(|cx| {
            let mut queue = self.queue.lock();
            if queue.has_work() {
                return Poll::Ready(());
            }
            match &mut queue.writer {
                Some(known) => known.clone_from(cx.waker()),
                none => *none = Some(cx.waker().clone()),
            }
            Poll::Pending
        })
        .await;
    }

    /// Takes the next thing to send: control frames first, then answers, then events. So the answer to a start precedes the events of the
    /// process.
    pub(crate) fn next(&self) -> Option<Outgoing> {
        let mut queue = self.queue.lock();
        if let Some(payload) = queue.pong.take() {
            return Some(Outgoing::Pong(payload));
        }
        if let Some(wanted_at) = queue.ping_wanted_at.take() {
            return Some(Outgoing::Ping(wanted_at));
        }
        if let Some(mut answer) = queue.answers.pop_front() {
            let before = queue.answer_bytes;
            queue.answer_bytes -= answer.message.len() + REPLY_OVERHEAD_BYTES;
            if before >= MAX_UNSENT_ANSWER_BYTES && queue.answer_bytes < MAX_UNSENT_ANSWER_BYTES {
                self.requests_allowed.notify_one();
            }
            let mut wants_ping = self.receipts.answer_sent(answer.message.len());
            if let Some(CoveredEvents { process, through, output_bytes }) = answer.covers.take() {
                wants_ping |= self.receipts.sent(&process, through, output_bytes);
            }
            if wants_ping {
                // Control frames are sent first, so the ping follows this answer directly.
                queue.ping_wanted_at.get_or_insert_with(Instant::now);
            }
            return Some(Outgoing::Answer(answer));
        }
        match queue.ready.pop_front() {
            Some(EventSource::Process(process)) => return Some(Outgoing::Events(process)),
            Some(EventSource::Port(stream)) => return Some(Outgoing::Port(stream)),
            None => {}
        }
        queue.close.map(|(code, reason)| Outgoing::Close(code, reason))
    }

    /// Frees most of the capacity of empty queues.
    pub(crate) fn trim(&self) {
        let mut queue = self.queue.lock();
        if queue.answers.is_empty() && queue.ready.is_empty() {
            queue.answers.shrink_to(4);
            queue.ready.shrink_to(4);
        }
    }

    pub(crate) fn note_initialized(&self) {
        self.initialized.store(true, Ordering::Release);
    }

    pub(crate) fn is_initialized(&self) -> bool {
        self.initialized.load(Ordering::Acquire)
    }

    /// The client has now read retained output of a process to catch up, for example after it reconnected.
    pub(crate) fn note_catch_up(&self) {
        *self.last_catch_up.lock() = Some(Instant::now());
    }

    pub(crate) fn last_catch_up(&self) -> Option<Instant> {
        *self.last_catch_up.lock()
    }

    /// The peer has sent a pong.
    pub(crate) fn note_pong(&self, payload: &[u8]) {
        if self.receipts.pong(payload) {
            let all_are_answered = self.oldest_unanswered_ping().is_none();
            self.liveness.lock().ping_answered(all_are_answered, Instant::now());
            self.pong_arrived.notify_waiters();
        }
    }

    /// The peer has sent bytes, which shows that it is alive.
    pub(crate) fn note_received(&self) {
        self.liveness.lock().bytes_arrived(Instant::now());
    }

    /// The transport takes no more bytes, or takes bytes again.
    pub(crate) fn note_write(&self, progress: WriteProgress) {
        let mut liveness = self.liveness.lock();
        match progress {
            WriteProgress::Blocked => liveness.writes_blocked(Instant::now()),
            WriteProgress::Resumed => liveness.writes_resumed(Instant::now()),
        }
    }

    /// The time at which the connection is closed if the peer still does not answer a ping. None: no ping is
    /// unanswered.
    pub(crate) fn given_up_at(&self, patience: Duration) -> Option<Instant> {
        Some(self.given_up_if_silent_since(self.oldest_unanswered_ping()?, patience))
    }

    /// The time at which the connection is closed if the peer stays silent. `since` is when the server sent or queued
    /// something that the peer has to read or to answer.
    pub(crate) fn given_up_if_silent_since(&self, since: Instant, patience: Duration) -> Instant {
        self.liveness.lock().given_up_at(since, patience)
    }

    /// Whether a ping is unanswered. Then the peer may not have read what was sent before that ping.
    pub(crate) fn waits_for_pong(&self) -> bool {
        self.oldest_unanswered_ping().is_some()
    }

    /// The time at which the oldest ping without a pong was requested. The ping may be unsent.
    fn oldest_unanswered_ping(&self) -> Option<Instant> {
        self.receipts.oldest_unanswered().or_else(|| self.queue.lock().ping_wanted_at)
    }

    /// Sends a ping and waits up to `patience` for its pong. Bytes that arrived before the ping prove nothing. On a transport without
    /// pings, a peer is alive as long as its stream is open, because the kernel closes the stream of a peer that has ended.
    pub(crate) async fn is_alive(&self, patience: Duration) -> bool {
        if !self.framing.supports_ping() {
            // The stream of a peer that has ended is closed already; the task of the connection only has to notice it.
            return tokio::time::timeout(patience.min(CLOSE_NOTICED_WITHIN), self.ended.cancelled()).await.is_err();
        }
        let last_before = self.receipts.last_ping();
        self.ping();
        let answered = async {
            loop {
                let answer = self.pong_arrived.notified();
                tokio::pin!(answer);
                answer.as_mut().enable();
                if self.receipts.last_pong() > last_before {
                    return;
                }
                answer.await;
            }
        };
        tokio::select! {
            () = answered => true,
            () = self.ended.cancelled() => false,
            () = tokio::time::sleep(patience) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_message_that_is_dropped_is_not_reported_as_queued() {
        let outbound = Outbound::new(ConnectionNumber(1), Framing::WebSocketServer, ProofOfReceipt::Pong, 0);
        let outbound = Arc::new(outbound);
        // The connection is lost, and its parked requests are carried out before it ends.
        outbound.stop_answering();
        let sender = Arc::clone(&outbound);
        let sending = tokio::spawn(async move { sender.send_in_room(b"decision".to_vec()).await });
        tokio::task::yield_now().await;
        outbound.end_now();
        assert_eq!(sending.await.unwrap(), None);
    }
}
