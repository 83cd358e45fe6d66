//! The executor's end of the direct path: it makes offers, and admits those who show a ticket.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use transport::{MessageLimits, MessageStream};

use super::{DIRECT_OFFER, DIRECT_REQUEST, SOCKET_LIMITS, serve_route};
use crate::executor::{ExecutorEvent, ExecutorShared};
use crate::relayed_stream::{DirectRoute, RelayedStream};

/// Whoever has shown a ticket has to send a frame of the stream within this time.
const FIRST_FRAME_TIMEOUT: Duration = Duration::from_secs(5);

/// Where the listeners of an executor ask about tickets.
#[derive(Clone)]
pub struct DirectDoor(Weak<ExecutorShared>);

impl DirectDoor {
    pub(crate) fn new(shared: &Arc<ExecutorShared>) -> Self {
        Self(Arc::downgrade(shared))
    }

    /// Uses a ticket up. `None`: there is no such ticket, or it is too old.
    pub fn take_ticket(&self, ticket: &str) -> Option<DirectEntrance> {
        let shared = self.0.upgrade()?;
        let (stream, answer) = shared.tickets.lock().take(ticket, Instant::now())?;
        let stream = stream.upgrade().filter(|stream| stream.end().is_none())?;
        Some(DirectEntrance { shared, stream, answer })
    }
}

/// A stream whose harness has shown a ticket.
pub struct DirectEntrance {
    shared: Arc<ExecutorShared>,
    stream: Arc<RelayedStream>,
    answer: String,
}

impl DirectEntrance {
    /// The limits of the socket on which the harness comes.
    pub const LIMITS: MessageLimits = SOCKET_LIMITS;

    /// Serves the socket on which the harness has come. The stream moves to it with the first frame that the harness has made.
    /// Returns when the stream has ended or uses the relay again.
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
    /// A harness has sent a control frame that is for this end of the stream.
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

/// 256 random bits. `None`: the system has no randomness.
fn secret() -> Option<String> {
    let mut bytes = [0; 32];
    rand::fill(&mut bytes).ok()?;
    Some(URL_SAFE_NO_PAD.encode(bytes))
}
