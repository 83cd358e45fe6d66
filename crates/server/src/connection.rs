//! The state of a connection that request handlers use: its handshake, its session, its send queue, and the permits for its requests. The
//! task that reads and writes the connection is in `connection_task`.

mod active_requests;
mod call;

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use session::{ConnectionNumber, Departure, Observer};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use transport::{Framing, PeerLabel, Principal, ProofOfReceipt};

pub(crate) use active_requests::{ActiveHttpRequest, FileMetadataRequest, PortEntry, SearchCancel};
pub(crate) use call::{Call, resumed_elsewhere};

use crate::limits::{LARGE_ANSWER_BYTES, MAX_UNSENT_READS};
use crate::metrics::Transport;
use crate::outbound::{LargeAnswerRoom, Outbound, ReplyRoom};
use crate::server_state::ServerState;
use crate::session::Session;

/// The state of one connection, which its task and the handlers of its requests share.
pub(crate) struct Connection {
    pub(crate) shared: Arc<ServerState>,
    /// The send queue, with the state of the sending side.
    pub(crate) outbound: Arc<Outbound>,
    /// Permits for unanswered requests (`--max-requests`).
    pub(crate) requests: Arc<Semaphore>,
    /// Permits for answers to `process/read` that wait to be sent.
    pub(crate) read_answers: Arc<Semaphore>,
    /// One permit, so that large answers about files are made one at a time.
    large_answer_permit: Arc<Semaphore>,
    /// Requests for the metadata of files. They are collected here and answered together at the end of each batch of messages.
    pub(crate) file_metadata_requests: Mutex<Vec<FileMetadataRequest>>,
    /// Searches by the ids that the client chose.
    pub(crate) searches: Mutex<HashMap<String, SearchCancel>>,
    /// HTTP requests that can be cancelled, by the ids that the client chose.
    pub(crate) http: Mutex<HashMap<String, ActiveHttpRequest>>,
    /// The TCP streams of this connection, by the ids that the client chose.
    pub(crate) ports: Mutex<HashMap<String, PortEntry>>,
    /// Permits for HTTP requests (`--max-http-requests`).
    pub(crate) http_permits: Arc<Semaphore>,
    /// Bytes of requests that wait until a process is started, until a process reads its stdin, or for the disk.
    pub(crate) waiting_bytes: AtomicUsize,
    pub(crate) transport: Transport,
    /// Describes the peer in logs and errors.
    pub(crate) peer: PeerLabel,
    /// The user or token of the client. It decides which sessions the connection may use.
    pub(crate) principal: Principal,
    phase: Mutex<HandshakePhase>,
    /// The peer has closed the connection with code 1000, so it will not reconnect.
    closed_by_client: AtomicBool,
    /// [`Self::detach`] was called.
    has_detached: AtomicBool,
    /// Tasks of handlers that wait for something.
    handlers: TaskTracker,
    /// Has a tracker token for each unanswered request, so that the connection can wait for its last answers.
    calls: TaskTracker,
    /// Cancelled when the peer sends nothing more and waits for its last answers.
    input_ended: CancellationToken,
    /// Cancelled when the connection has ended; stops the handlers.
    ended: CancellationToken,
}

/// The progress of the handshake.
#[derive(Clone)]
pub(crate) enum HandshakePhase {
    /// No `initialize` has succeeded yet.
    Fresh,
    /// `initialize` has succeeded, and `initialized` has not been received yet.
    Greeted(Arc<Session>, ConnectionRole),
    /// `initialized` was received.
    Ready(Arc<Session>, ConnectionRole),
}

/// The role of a connection in its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionRole {
    /// The connection is sent the events of the session. A session has at most one such connection.
    Attached,
    /// The connection reads from the session while another connection may be attached. It is sent no events. A
    /// process never waits until an observing connection has read its output.
    Observing(Observer),
}

impl Connection {
    /// The state of a connection that has just been opened. `proof_of_receipt` says how the stream proves that the client has received a
    /// message.
    pub(crate) fn new(
        shared: &Arc<ServerState>,
        transport: Transport,
        framing: Framing,
        proof_of_receipt: ProofOfReceipt,
        peer: PeerLabel,
        principal: Principal,
    ) -> Self {
        let config = &shared.config;
        Self {
            requests: Arc::new(Semaphore::new(config.max_requests)),
            read_answers: Arc::new(Semaphore::new(MAX_UNSENT_READS)),
            large_answer_permit: Arc::new(Semaphore::new(1)),
            file_metadata_requests: Mutex::default(),
            searches: Mutex::default(),
            http: Mutex::default(),
            ports: Mutex::default(),
            http_permits: Arc::new(Semaphore::new(config.max_http_requests)),
            waiting_bytes: AtomicUsize::new(0),
            outbound: Arc::new(Outbound::new(
                shared.next_connection(),
                framing,
                proof_of_receipt,
                config.retain_bytes,
            )),
            transport,
            peer,
            principal,
            phase: Mutex::new(HandshakePhase::Fresh),
            closed_by_client: AtomicBool::new(false),
            has_detached: AtomicBool::new(false),
            handlers: TaskTracker::new(),
            calls: TaskTracker::new(),
            input_ended: CancellationToken::new(),
            ended: CancellationToken::new(),
            shared: Arc::clone(shared),
        }
    }

    /// Whether the client can open another connection and resume its session. The client on stdio cannot, so its session ends with the
    /// connection.
    pub(crate) fn can_reconnect(&self) -> bool {
        self.transport != Transport::stdio
    }

    pub(crate) fn number(&self) -> ConnectionNumber {
        self.outbound.number
    }

    pub(crate) fn phase(&self) -> HandshakePhase {
        self.phase.lock().clone()
    }

    /// The role of this connection in its session. None before `initialize` has succeeded.
    pub(crate) fn role(&self) -> Option<ConnectionRole> {
        match &*self.phase.lock() {
            HandshakePhase::Fresh => None,
            HandshakePhase::Greeted(_, role) | HandshakePhase::Ready(_, role) => Some(*role),
        }
    }

    /// The session that this connection is attached to. None before `initialize` has succeeded, for an observer, and
    /// after another connection has resumed the session.
    pub(crate) fn own_session(&self) -> Option<Arc<Session>> {
        match self.phase() {
            HandshakePhase::Greeted(session, ConnectionRole::Attached)
            | HandshakePhase::Ready(session, ConnectionRole::Attached) => {
                Some(session).filter(|session| session.is_attached_to(self.number()))
            }
            _ => None,
        }
    }

    /// The peer has sent `initialized`. Returns false if no `initialize` has succeeded before.
    pub(crate) fn note_initialized(&self) -> bool {
        let mut phase = self.phase.lock();
        match &*phase {
            HandshakePhase::Fresh => return false,
            HandshakePhase::Greeted(session, role) => {
                let (session, role) = (Arc::clone(session), *role);
                self.outbound.note_initialized();
                if role == ConnectionRole::Attached {
                    // A client that has resumed its session and reads nothing is sent its events after a short time.
                    self.shared.janitor.schedule_push_without_read(&session, self.number());
                }
                *phase = HandshakePhase::Ready(session, role);
            }
            HandshakePhase::Ready(..) => {}
        }
        true
    }

    /// The peer has closed the connection with code 1000, so it will not reconnect to its session.
    pub(crate) fn note_closed_by_client(&self) {
        self.closed_by_client.store(true, Ordering::Relaxed);
    }

    /// `initialize` has succeeded. Called directly before it is answered.
    pub(crate) fn note_greeted(&self, session: Arc<Session>, role: ConnectionRole) {
        *self.phase.lock() = HandshakePhase::Greeted(session, role);
    }

    /// Waits until a large answer of `bytes` bytes may be kept in memory, and returns its permits. All connections share the memory for
    /// large answers. `Some(None)`: the answer is not large and needs no permits. None: a semaphore was closed.
    pub(crate) async fn room_if_large(&self, bytes: usize) -> Option<Option<LargeAnswerRoom>> {
        if bytes <= LARGE_ANSWER_BYTES {
            return Some(None);
        }
        self.shared.large_answers.room(&self.large_answer_permit, bytes).await.map(Some)
    }

    /// Memory permits for an answer of `bytes` bytes. None if they are not available at once.
    pub(crate) fn room_for_answer_now(&self, bytes: usize) -> Option<ReplyRoom> {
        let large = if bytes <= LARGE_ANSWER_BYTES {
            None
        } else {
            Some(self.shared.large_answers.room_now(&self.large_answer_permit, bytes)?)
        };
        Some(self.outbound.room_for_reply_now(bytes)?.with_large(large))
    }

    /// Runs a handler that waits for something, until it is done or the connection ends.
    pub(crate) fn spawn(self: &Arc<Self>, handler: impl Future<Output = ()> + Send + 'static) {
        let ended = self.ended.clone();
        self.handlers.spawn(async move {
            ended.run_until_cancelled(handler).await;
        });
    }

    /// Waits until the peer sends nothing more. A request that waits for events is then answered with the events there are.
    pub(crate) async fn input_ended(&self) {
        self.input_ended.cancelled().await;
    }

    /// Waits until the answers to all requests are queued. Requests that wait for events are answered at once.
    pub(crate) async fn wait_for_last_answers(&self) {
        self.input_ended.cancel();
        self.calls.close();
        self.calls.wait().await;
    }

    /// Whether the connection has ended, so that no answer can be sent.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.is_cancelled() || self.outbound.has_ended()
    }

    /// Stops the handlers that wait for something, and waits for the end of their tasks.
    pub(crate) async fn end_handlers(&self) {
        self.ended.cancel();
        self.handlers.close();
        self.handlers.wait().await;
    }

    /// Detaches this connection from its session, which may continue with another connection. A second call does nothing.
    pub(crate) fn detach(&self) {
        if self.has_detached.swap(true, Ordering::Relaxed) {
            return;
        }
        let (session, role) = match self.phase() {
            HandshakePhase::Fresh => return,
            HandshakePhase::Greeted(session, role) | HandshakePhase::Ready(session, role) => (session, role),
        };
        if let ConnectionRole::Observing(observer) = role {
            session.observer_left(observer, Instant::now());
            return self.shared.janitor.plan_expiry_check(&session);
        }
        let closed_by_client = self.closed_by_client.load(Ordering::Relaxed);
        let departure = if closed_by_client { Departure::Goodbye } else { Departure::Lost };
        if !session.detach(self.number(), departure, Instant::now()) {
            // The session has ended, or another connection has resumed it.
            return;
        }
        if self.can_reconnect() {
            self.shared.janitor.plan_chores_of_detached(&session);
        } else if session.end() {
            // The session can no longer be used. Its processes are killed in the background.
            self.shared.end_session_in_background(session);
        }
    }
}
