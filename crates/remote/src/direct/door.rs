//! The executor's end of the direct path: it makes offers, and serves the sockets on which a valid ticket arrives.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use transport::{MessageLimits, MessageStream};

use super::{DIRECT_OFFER, DIRECT_REQUEST, SOCKET_LIMITS, serve_route};
use crate::executor::{ExecutorEvent, ExecutorShared};
use crate::relayed_stream::{DirectRoute, RelayedStream};

/// How long the executor may take to send its answer after a ticket was accepted, and the harness then to send the
/// first frame of the stream.
const FIRST_FRAME_TIMEOUT: Duration = Duration::from_secs(5);

/// Checks tickets for the listeners of an executor.
#[derive(Clone)]
pub struct DirectDoor(Weak<ExecutorShared>);

impl DirectDoor {
    pub(crate) fn new(shared: &Arc<ExecutorShared>) -> Self {
        Self(Arc::downgrade(shared))
    }

    /// Accepts a ticket, which is then used up. `None`: there is no such ticket, it is too old, or its stream has
    /// ended.
    pub fn take_ticket(&self, ticket: &str) -> Option<DirectEntrance> {
        let shared = self.0.upgrade()?;
        let (stream, answer) = shared.tickets.lock().take(ticket, Instant::now())?;
        let stream = stream.upgrade().filter(|stream| stream.end().is_none())?;
        Some(DirectEntrance { shared, stream, answer })
    }
}

/// A stream whose ticket was accepted by a listener. [`Self::serve`] then serves the socket on which the ticket
/// arrived.
pub struct DirectEntrance {
    shared: Arc<ExecutorShared>,
    stream: Arc<RelayedStream>,
    answer: String,
}

impl DirectEntrance {
    /// The limits of the socket on which the ticket arrived.
    pub const LIMITS: MessageLimits = SOCKET_LIMITS;

    /// Serves the socket on which the ticket arrived. The stream moves to this socket when the first frame arrives that
    /// is proven to come from its harness. Returns when the socket is no longer used.
    pub async fn serve(self, mut socket: MessageStream) {
        let Self { shared, stream, answer } = self;
        let mut greeting = Vec::new();
        socket.framing.frame(&mut greeting, answer.len(), |out| out.extend_from_slice(answer.as_bytes()));
        let greeted = tokio::time::timeout(FIRST_FRAME_TIMEOUT, socket.writer.write_all(&greeting));
        if !matches!(greeted.await, Ok(Ok(()))) {
            return;
        }
        let route = Arc::new(DirectRoute::default());
        let mut served = std::pin::pin!(serve_route(&stream, &route, socket));
        tokio::select! {
            () = &mut served => return,
            () = route.wait_until_used() => {}
            () = tokio::time::sleep(FIRST_FRAME_TIMEOUT) => return stream.leave_direct_route(&route, Instant::now()),
        }
        shared.host.note(ExecutorEvent::DirectPathUsed);
        served.await;
        shared.host.note(ExecutorEvent::DirectPathLeft);
    }
}

impl ExecutorShared {
    /// Handles a control frame of a harness that is not for the reader of the stream. Answers a request for a direct
    /// path with an offer.
    pub(crate) fn handle_control(&self, stream: &Arc<RelayedStream>, kind: u8) {
        let now = Instant::now();
        if kind != DIRECT_REQUEST || self.closing.is_cancelled() || !self.tickets.lock().may_issue(stream.id(), now) {
            return;
        }
        let (Some(ticket), Some(answer)) = (secret(), secret()) else { return };
        let Some(offer) = self.settings.direct.offer(ticket.clone(), answer.clone()) else { return };
        self.tickets.lock().add(ticket, answer, stream.id(), Arc::downgrade(stream), now);
        stream.send_control(DIRECT_OFFER, &offer.encode());
    }
}

/// 256 random bits in base64. `None`: the system could not give random bytes.
fn secret() -> Option<String> {
    let mut bytes = [0; 32];
    rand::fill(&mut bytes).ok()?;
    Some(URL_SAFE_NO_PAD.encode(bytes))
}
