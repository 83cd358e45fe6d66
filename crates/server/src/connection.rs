//! A connection: reads messages, answers them, and detaches its session when it ends.

mod call;
mod goodbye;
mod inbox;
mod outbound;
mod receipts;
mod reply_room;
mod writer;

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use protocol::{
    ErrorData, Incoming, Notification, RequestId, TakenOverNotification, WireError, decode, encode_error,
    encode_notification, error_kind, notification, sniff_id,
};
use session::{ConnectionNumber, Departure, Observer};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use transport::{Framing, MessageStream, PeerLabel, ReadError, Reader, Writer};

pub(crate) use call::Call;
pub(crate) use goodbye::LONGEST_GOODBYE;
pub(crate) use outbound::{Covered, Outbound};
pub(crate) use reply_room::{LARGE_ANSWER_BYTES, LargeAnswerRoom, LargeAnswers, ReplyRoom};

use inbox::{Handling, Inbox};

use crate::handlers::{self, ActiveRequest, PendingLook, SearchCancel};
use crate::metrics::Transport;
use crate::server::Shared;
use crate::session::Session;
use crate::survive::survive;

/// Answers with retained output that may be waiting to be sent at once.
const LARGE_REPLIES: usize = 4;

/// How long the last requests of a peer that sends nothing more have to be answered. On stdio the session ends only then.
const LAST_ANSWERS_PATIENCE: Duration = Duration::from_secs(5);

/// Close codes of WebSocket.
const PROTOCOL_ERROR: u16 = 1002;
const NORMAL: u16 = 1000;

/// A close code of our own, from the range that is free for it: coming back would take the session from its new owner.
const TAKEN_OVER: u16 = 4010;

/// A connection, as its handlers see it.
pub(crate) struct Connection {
    pub(crate) shared: Arc<Shared>,
    pub(crate) outbound: Arc<Outbound>,
    pub(crate) requests: Arc<Semaphore>,
    pub(crate) large_replies: Arc<Semaphore>,
    /// Lets one large answer about files through at a time.
    large_answer_turn: Arc<Semaphore>,
    /// Files to look at that came in this turn.
    pub(crate) looks: Mutex<Vec<PendingLook>>,
    /// Searches by the names that the client gave them.
    pub(crate) searches: Mutex<HashMap<String, SearchCancel>>,
    /// HTTP requests that can be ended, by the names that the client gave them.
    pub(crate) http: Mutex<HashMap<String, ActiveRequest>>,
    pub(crate) http_places: Arc<Semaphore>,
    /// Bytes of requests that wait for a process to start or to read.
    pub(crate) waiting_bytes: AtomicUsize,
    peer: PeerLabel,
    phase: Mutex<Phase>,
    /// The peer has closed the connection in order.
    said_goodbye: AtomicBool,
    /// The session goes on without this connection already.
    has_detached: AtomicBool,
    /// Handlers that are still waiting for something.
    handlers: TaskTracker,
    /// Requests without an answer, whoever works on them.
    calls: TaskTracker,
    /// The peer sends nothing more and waits for its last answers.
    input_ended: CancellationToken,
    gone: CancellationToken,
}

/// Messages that have arrived together are handled together, up to so many: their answers then leave in one write.
const MESSAGES_IN_A_TURN: usize = 32;

/// How far the handshake has come.
#[derive(Clone)]
pub(crate) enum Phase {
    Fresh,
    /// `initialize` was answered.
    Greeted(Arc<Session>, Role),
    /// `initialized` was received.
    Ready(Arc<Session>, Role),
}

/// What a connection is to its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It is sent the events of the session; no other connection is.
    Attached,
    /// It looks beside the attached connection. It is sent no events, and no process waits for it.
    Observing(Observer),
}

/// How a connection ended, with the words for the log.
enum End {
    /// The peer is still there to hear a goodbye.
    Orderly(&'static str),
    /// The peer sends nothing more, but may still read the answers to what it has sent: the end of a stream of lines.
    InputEnded(&'static str),
    /// The writer has said goodbye, because the server shuts down.
    GoodbyeSaid(&'static str),
    Lost(&'static str),
    /// The peer is still there, but its session is elsewhere.
    TakenOver(&'static str),
}

/// Serves a connection until it ends.
pub(crate) async fn serve(stream: MessageStream, transport: Transport, shared: Arc<Shared>) {
    let MessageStream { reader, writer, framing, peer } = stream;
    let outbound = Arc::new(Outbound::new(shared.next_connection(), framing, shared.config.retain_bytes));
    let connection = Arc::new(Connection {
        requests: Arc::new(Semaphore::new(shared.config.max_requests)),
        large_replies: Arc::new(Semaphore::new(LARGE_REPLIES)),
        large_answer_turn: Arc::new(Semaphore::new(1)),
        looks: Mutex::default(),
        searches: Mutex::default(),
        http: Mutex::default(),
        http_places: Arc::new(Semaphore::new(shared.config.max_http_requests)),
        waiting_bytes: AtomicUsize::new(0),
        outbound: Arc::clone(&outbound),
        peer,
        phase: Mutex::new(Phase::Fresh),
        said_goodbye: AtomicBool::new(false),
        has_detached: AtomicBool::new(false),
        handlers: TaskTracker::new(),
        calls: TaskTracker::new(),
        input_ended: CancellationToken::new(),
        gone: CancellationToken::new(),
        shared: Arc::clone(&shared),
    });
    shared.metrics.connection_opened(transport);
    shared.add_connection(&connection);
    tracing::debug!(peer = %connection.peer, "connection opened");
    if survive(converse(&connection, reader, writer, framing)).await.is_none() {
        // Its session must not wait for it, nor its handlers. Calls that wait for a look hold the connection.
        connection.detach();
        outbound.shut();
        drop(std::mem::take(&mut *connection.looks.lock()));
        connection.end_handlers().await;
    }
    outbound.drop_answers();
    shared.remove_connection(&connection);
    shared.metrics.connection_closed(transport);
}

/// Reads and writes until the connection ends, and says goodbye if somebody can hear it.
async fn converse(connection: &Arc<Connection>, reader: Reader, writer: Writer, framing: Framing) {
    let (shared, outbound) = (&connection.shared, &connection.outbound);
    let mut inbox = Inbox::new(reader);
    let writing = writer::run(Arc::clone(outbound), writer);
    tokio::pin!(writing);
    let mut next_ping = Instant::now() + shared.config.ping_interval;
    let mut received = inbox.received_bytes();
    // At shutdown: since when the goodbye waits for everything before it to be sent.
    let mut goodbye_queued_at = None;
    let given_up_at = |goodbye_queued_at: Option<Instant>| {
        let goodbye = goodbye_queued_at.map(|at| outbound.given_up_since(at, goodbye::FLUSH_PATIENCE));
        goodbye.or_else(|| outbound.given_up_at(shared.config.pong_deadline))
    };
    let watch_until = |next_ping: Instant, goodbye_queued_at| -> tokio::time::Instant {
        given_up_at(goodbye_queued_at).map_or(next_ping, |at| at.min(next_ping)).into()
    };
    // Set again only when it must be earlier: a look too early costs less than a new timer for each message.
    let watch = tokio::time::sleep_until(watch_until(next_ping, goodbye_queued_at));
    tokio::pin!(watch);
    let mut end = loop {
        let look_at = watch_until(next_ping, goodbye_queued_at);
        if look_at < watch.deadline() {
            watch.as_mut().reset(look_at);
        }
        let handling = outbound.handling();
        tokio::select! {
            () = outbound.room(), if handling == Handling::ControlFrames => {}
            incoming = inbox.next(handling) => {
                let mut incoming = Some(incoming);
                let mut left = MESSAGES_IN_A_TURN;
                outbound.enter_task();
                let end = loop {
                    match incoming.take() {
                        Some(Ok(incoming)) => {
                            if let transport::ReadEvent::Closed(reason) = &incoming {
                                let in_order = reason.as_ref().is_some_and(|reason| reason.code == NORMAL);
                                connection.said_goodbye.store(in_order, Ordering::Relaxed);
                                let may_still_read = reason.is_none() && framing == Framing::Lines;
                                let end = if may_still_read { End::InputEnded } else { End::Orderly };
                                break Some(end("closed by the peer"));
                            }
                            outbound.note_heard();
                            connection.handle(incoming).await;
                        }
                        Some(Err(ReadError::Violation(violation))) => {
                            tracing::debug!(%violation, "protocol error");
                            outbound.close(PROTOCOL_ERROR, "protocol error");
                            break Some(End::Orderly("protocol error"));
                        }
                        Some(Err(_)) => break Some(End::Lost("connection lost")),
                        None => break None,
                    }
                    left -= 1;
                    if left > 0 {
                        incoming = inbox.next_buffered(outbound.handling());
                    }
                };
                handlers::look_now(connection);
                outbound.leave_task();
                if let Some(end) = end {
                    break end;
                }
            }
            written = &mut writing => break End::of_writer(&written),
            () = outbound.closing(), if goodbye_queued_at.is_none() => goodbye_queued_at = Some(Instant::now()),
            () = outbound.is_shut() => break End::Lost("replaced"),
            // Whoever is on stdio would not notice its end; its further requests are answered with the reason.
            () = outbound.displaced(), if !matches!(connection.peer, PeerLabel::Stdio) => break End::TakenOver("session has been taken over by another connection"),
            () = &mut watch => {
                // A peer in the middle of a long message cannot answer, but it is there.
                if inbox.received_bytes() != received {
                    received = inbox.received_bytes();
                    outbound.note_heard();
                }
                let now = Instant::now();
                if given_up_at(goodbye_queued_at).is_some_and(|at| at <= now) {
                    break End::Lost("no sign of life");
                }
                if next_ping <= now {
                    next_ping = now + shared.config.ping_interval;
                    if framing.supports_ping() {
                        outbound.ping();
                    }
                }
                watch.as_mut().reset(watch_until(next_ping, goodbye_queued_at));
            }
        }
    };
    if !matches!(end, End::GoodbyeSaid(_) | End::TakenOver(_)) {
        connection.carry_out(inbox.take_rest()).await;
    }
    if let End::InputEnded(reason) = end {
        tracing::debug!(peer = %connection.peer, reason, "the last requests are answered");
        // A session that outlives its connection is free for the next one at once. That of stdio would end, and with it the
        // processes that the last requests are about.
        if !matches!(connection.peer, PeerLabel::Stdio) {
            connection.detach();
        }
        tokio::select! {
            () = connection.everything_is_answered() => {}
            () = outbound.is_shut() => {}
            written = &mut writing => end = End::of_writer(&written),
            () = tokio::time::sleep(LAST_ANSWERS_PATIENCE) => {}
        }
    }
    let (goodbye, reason) = match end {
        End::Orderly(reason) | End::InputEnded(reason) => (Some((NORMAL, "")), reason),
        End::TakenOver(reason) => (Some((TAKEN_OVER, reason)), reason),
        End::GoodbyeSaid(reason) | End::Lost(reason) => (None, reason),
    };
    tracing::debug!(peer = %connection.peer, reason, "connection ended");
    connection.detach();
    // Whoever resumes the session need not wait for a sign of life.
    outbound.shut();
    // What a connection that was taken over has asked is answered before the goodbye.
    connection.end_handlers().await;
    if let Some((code, reason)) = goodbye {
        if matches!(end, End::TakenOver(_)) && !framing.has_close_codes() {
            let message = TakenOverNotification { message: reason.to_owned() };
            outbound.reply(encode_notification(notification::SESSION_TAKEN_OVER, &message));
        }
        outbound.close(code, reason);
    }
    // A dead socket must not hold anything up.
    if !matches!(end, End::Lost(_)) {
        let writing = goodbye.is_some().then_some(writing);
        goodbye::part(writing, &mut inbox, connection).await;
    }
}

impl End {
    /// The writer has ended.
    fn of_writer(written: &std::io::Result<()>) -> Self {
        match written {
            Ok(()) => Self::GoodbyeSaid("the server shuts down"),
            Err(_) => Self::Lost("connection lost"),
        }
    }
}

impl Connection {
    async fn handle(self: &Arc<Self>, incoming: transport::ReadEvent) {
        match incoming {
            transport::ReadEvent::Message(message) => self.handle_message(message).await,
            transport::ReadEvent::TooLarge { prefix } => {
                let id = sniff_id(&prefix).unwrap_or(RequestId::UNKNOWN);
                let limit = self.shared.config.max_message_bytes;
                let from = self.peer_words();
                let reason = format!("JSON-RPC message from {from} exceeds maximum length of {limit} bytes");
                handlers::note_refused_message(self, &prefix, &reason);
                let data = ErrorData::of_kind(error_kind::MESSAGE_TOO_LARGE);
                self.outbound.reply(encode_error(&id, &WireError::invalid_request(reason).with_data(data)));
            }
            transport::ReadEvent::Ping(payload) => self.outbound.pong(payload),
            transport::ReadEvent::Pong(payload) => self.outbound.note_answer(&payload),
            // The loop that reads ends the connection.
            transport::ReadEvent::Closed(_) => {}
        }
    }

    /// Handles what came before the end of the connection and had to wait for room for its answers. Whoever closes a connection has a
    /// right to what it has asked for before, but nobody reads the answers.
    async fn carry_out(self: &Arc<Self>, requests: VecDeque<transport::ReadEvent>) {
        if requests.is_empty() {
            return;
        }
        self.outbound.stop_answering();
        for request in requests {
            self.handle(request).await;
        }
        handlers::look_now(self);
    }

    async fn handle_message(self: &Arc<Self>, message: Bytes) {
        if let Some((id, params)) = protocol::fs::recognise_write_block(&message) {
            return handlers::write_block(self, id, params);
        }
        match decode(&message) {
            Ok(Incoming::Request(request)) => handlers::dispatch(self, request, &message).await,
            Ok(Incoming::Notification(notification)) => self.handle_notification(&notification, &message),
            Ok(Incoming::Response(response)) => self.refuse_answer(&response.id),
            Ok(Incoming::Error { id, .. }) => self.refuse_answer(&id),
            Err(error) => {
                let kind = if matches!(self.peer, PeerLabel::Tcp(_)) { "websocket JSON-RPC" } else { "JSON-RPC" };
                let from = self.peer_words();
                let reason = format!("failed to parse {kind} message from {from}: {error}");
                handlers::note_refused_message(self, &message, &reason);
                self.refuse(&RequestId::UNKNOWN, reason);
            }
        }
    }

    fn handle_notification(&self, notification: &Notification<'_>, message: &[u8]) {
        if notification.method != notification::INITIALIZED {
            let reason = format!("unexpected notification `{}`", protocol::shortened(&notification.method));
            handlers::note_refused_message(self, message, &reason);
            return self.refuse(&RequestId::UNKNOWN, reason);
        }
        let mut phase = self.phase.lock();
        match &*phase {
            Phase::Fresh => {
                drop(phase);
                self.refuse(&RequestId::UNKNOWN, "client must call initialize before sending initialized".to_owned());
            }
            Phase::Greeted(session, role) => {
                let (session, role) = (Arc::clone(session), *role);
                self.outbound.note_initialized();
                if role == Role::Attached {
                    self.shared.janitor.push_without_read_later(&session, self.number());
                }
                *phase = Phase::Ready(session, role);
            }
            Phase::Ready(..) => {}
        }
    }

    /// This server asks its clients nothing, so an answer belongs to no question.
    fn refuse_answer(&self, id: &RequestId) {
        self.refuse(
            &RequestId::UNKNOWN,
            format!("no request with id {} is waiting for an answer", protocol::shortened(&id.to_string())),
        );
    }

    fn refuse(&self, id: &RequestId, message: String) {
        self.outbound.reply(encode_error(id, &WireError::invalid_request(message)));
    }

    /// How the protocol's messages name this connection.
    fn peer_words(&self) -> String {
        match &self.peer {
            PeerLabel::Tcp(address) => format!("exec-server websocket {address}"),
            other => format!("exec-server {other}"),
        }
    }

    pub(crate) fn number(&self) -> ConnectionNumber {
        self.outbound.number
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase.lock().clone()
    }

    /// What it is to its session; none before the handshake.
    pub(crate) fn role(&self) -> Option<Role> {
        match &*self.phase.lock() {
            Phase::Fresh => None,
            Phase::Greeted(_, role) | Phase::Ready(_, role) => Some(*role),
        }
    }

    /// The session that this connection is attached to, from its `initialize` on until another connection takes it.
    pub(crate) fn own_session(&self) -> Option<Arc<Session>> {
        match self.phase() {
            Phase::Greeted(session, Role::Attached) | Phase::Ready(session, Role::Attached) => {
                Some(session).filter(|session| session.is_attached_to(self.number()))
            }
            _ => None,
        }
    }

    pub(crate) fn greeted(&self, session: Arc<Session>, role: Role) {
        *self.phase.lock() = Phase::Greeted(session, role);
    }

    /// Waits until an answer of so many bytes may be made, if it is a large one. None: the connection has ended.
    pub(crate) async fn room_if_large(&self, bytes: usize) -> Option<Option<LargeAnswerRoom>> {
        if bytes <= LARGE_ANSWER_BYTES {
            return Some(None);
        }
        self.shared.large_answers.room(&self.large_answer_turn, bytes).await.map(Some)
    }

    /// Room for an answer of so many bytes, if there is some at once.
    pub(crate) fn room_for_answer_now(&self, bytes: usize) -> Option<ReplyRoom> {
        let large = if bytes <= LARGE_ANSWER_BYTES {
            None
        } else {
            Some(self.shared.large_answers.room_now(&self.large_answer_turn, bytes)?)
        };
        Some(self.outbound.room_for_reply_now(bytes)?.with_large(large))
    }

    /// Runs a handler that waits, until it is done or the connection is gone.
    pub(crate) fn spawn(self: &Arc<Self>, handler: impl Future<Output = ()> + Send + 'static) {
        let gone = self.gone.clone();
        self.handlers.spawn(async move {
            gone.run_until_cancelled(handler).await;
        });
    }

    /// Ends when the peer sends nothing more: what only waits for news is answered then with what there is.
    pub(crate) async fn input_ended(&self) {
        self.input_ended.cancelled().await;
    }

    /// Waits until every request that was read has its answer in the queue.
    async fn everything_is_answered(&self) {
        self.input_ended.cancel();
        self.calls.close();
        self.calls.wait().await;
    }

    /// Whether nobody is there to be answered any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.is_cancelled() || self.outbound.has_ended()
    }

    async fn end_handlers(&self) {
        self.gone.cancel();
        self.handlers.close();
        self.handlers.wait().await;
    }

    /// The session goes on without this connection. Only the first call counts.
    fn detach(&self) {
        if self.has_detached.swap(true, Ordering::Relaxed) {
            return;
        }
        let (session, role) = match self.phase() {
            Phase::Fresh => return,
            Phase::Greeted(session, role) | Phase::Ready(session, role) => (session, role),
        };
        if let Role::Observing(observer) = role {
            session.observer_left(observer, Instant::now());
            return self.shared.janitor.watch_expiry(&session);
        }
        let said_goodbye = self.said_goodbye.load(Ordering::Relaxed);
        let departure = if said_goodbye { Departure::Goodbye } else { Departure::Lost };
        if !session.detach(self.number(), departure, Instant::now()) {
            return;
        }
        if matches!(self.peer, PeerLabel::Stdio) {
            // Nobody can come back over stdio.
            if session.end() {
                self.shared.end_session_in_background(session);
            }
        } else {
            self.shared.janitor.watch_detached(&session);
        }
    }
}
