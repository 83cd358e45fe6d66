//! How a stream moves between the relay and a direct path. A move works like a new socket after a lost one: the stream
//! sends again all records that the peer has not acknowledged, and the peer drops the records that it already has. So
//! frames that are still on their way over the old route do no harm.

use std::sync::Arc;
use std::time::Instant;

use relay::{Frame, FrameBody, StreamFailure};
use tokio_util::sync::CancellationToken;

use super::{RelayedStream, SlotState};
use crate::outgoing::OutgoingFrames;

/// One direct path: the queue of its socket, and whether the stream has started and stopped using it.
#[derive(Debug, Default)]
pub(crate) struct DirectRoute {
    outgoing: Arc<OutgoingFrames>,
    used: CancellationToken,
    left: CancellationToken,
}

impl DirectRoute {
    /// The queue of the socket.
    pub(crate) fn outgoing(&self) -> &Arc<OutgoingFrames> {
        &self.outgoing
    }

    /// Marks the route as one that must not be used any more.
    pub(crate) fn leave(&self) {
        self.left.cancel();
    }

    pub(crate) async fn wait_until_left(&self) {
        self.left.cancelled().await;
    }

    /// Waits until the stream has moved to this route.
    pub(crate) async fn wait_until_used(&self) {
        self.used.cancelled().await;
    }
}

impl RelayedStream {
    /// Whether the stream sends over a direct path.
    pub(crate) fn is_direct(&self) -> bool {
        self.state.lock().direct.is_some()
    }

    /// Moves the stream to this route, unless the stream or the route has ended.
    pub(crate) fn use_direct_route(self: &Arc<Self>, route: &Arc<DirectRoute>, now: Instant) {
        let mut state = self.state.lock();
        if state.end.is_none() && !route.left.is_cancelled() {
            self.change_route(&mut state, Some(Arc::clone(route)), now);
        }
    }

    /// Handles a frame that has arrived over this route. If the frame is proven to come from the peer, the stream moves
    /// to this route. Returns false if the socket has to be closed: there is no such proof, or the stream or the route
    /// has ended.
    pub(crate) fn handle_direct_frame(
        self: &Arc<Self>,
        route: &Arc<DirectRoute>,
        frame: Frame,
        now: Instant,
    ) -> bool {
        let mut state = self.state.lock();
        if state.end.is_some() || route.left.is_cancelled() {
            return false;
        }
        let is_used = state.uses(route);
        let is_from_peer = match frame.body {
            FrameBody::Reset { .. } => is_used,
            _ => state.stream.is_proven(&frame),
        };
        if !is_from_peer {
            return false;
        }
        if !is_used {
            self.change_route(&mut state, Some(Arc::clone(route)), now);
        }
        self.deliver(&mut state, frame, now);
        true
    }

    /// Ends this route. If the stream uses it, the stream goes on over the relay.
    pub(crate) fn leave_direct_route(self: &Arc<Self>, route: &Arc<DirectRoute>, now: Instant) {
        route.leave();
        route.outgoing.clear();
        let mut state = self.state.lock();
        if state.uses(route) {
            self.change_route(&mut state, None, now);
        }
    }

    /// Whether to handle a frame that has arrived over the relay. While the stream uses a direct path, a frame that the
    /// relay may have made itself is dropped. A resume of the peer means that it has returned to the relay, and this
    /// end follows.
    pub(super) fn accept_relayed(self: &Arc<Self>, state: &mut SlotState, frame: &Frame, now: Instant) -> bool {
        if state.direct.is_none() {
            return true;
        }
        if !state.stream.is_proven(frame) {
            return false;
        }
        if matches!(frame.body, FrameBody::Resume { .. }) {
            self.change_route(state, None, now);
        }
        true
    }

    /// Waits until the stream uses the relay.
    pub(crate) async fn wait_until_relayed(&self) {
        loop {
            let moved = self.moved.notified();
            if !self.is_direct() {
                return;
            }
            moved.await;
        }
    }

    /// The relay cannot be reached any more. The stream ends, unless it uses a direct path.
    pub(crate) fn fail_unless_direct(&self, failure: StreamFailure) {
        let mut state = self.state.lock();
        if state.direct.is_none() {
            self.end_with(&mut state, failure);
        }
    }

    /// Sends the peer a reset. If the stream uses a direct path, the relay gets the reset too, unless no frame of the
    /// stream was sent on the current socket to the relay.
    pub(crate) fn push_reset(&self, reason: &str) {
        let state = self.state.lock();
        let reset = Frame::new(&self.id, FrameBody::Reset { reason: reason.to_owned() });
        if let Some(direct) = &state.direct {
            direct.outgoing.push_control(reset.clone());
        }
        if state.direct.is_none() || (state.has_relay_socket && state.relay_knows_stream) {
            // If the socket has just been replaced, the relay learns from this resume which stream the socket carries.
            // Otherwise the resume has no effect.
            state.relay.push_control(Frame::new(&self.id, FrameBody::Resume { next_seq: 0 }));
            state.relay.push_control(reset);
        }
    }

    /// Waits until the socket that the stream uses has taken all queued frames.
    pub(crate) async fn wait_until_sent(&self) {
        let outgoing = Arc::clone(self.state.lock().outgoing());
        outgoing.wait_until_empty().await;
    }

    fn change_route(self: &Arc<Self>, state: &mut SlotState, route: Option<Arc<DirectRoute>>, now: Instant) {
        if let Some(route) = &route {
            route.used.cancel();
        }
        if let Some(old) = std::mem::replace(&mut state.direct, route) {
            old.leave();
        }
        state.is_queued = false;
        if state.end.is_none() {
            if state.direct.is_some() || state.has_relay_socket {
                state.relay_knows_stream |= state.direct.is_none();
                state.stream.socket_replaced(now);
                self.queue(state);
            } else if let Err(failure) = state.stream.socket_lost(now) {
                self.end_with(state, failure);
            }
            self.update_timer(state);
        }
        self.moved.notify_waiters();
    }
}

impl SlotState {
    /// The queue of the socket that the stream uses: the direct path if there is one, or else the relay.
    pub(super) fn outgoing(&self) -> &Arc<OutgoingFrames> {
        self.direct.as_ref().map_or(&self.relay, |direct| &direct.outgoing)
    }

    fn uses(&self, route: &Arc<DirectRoute>) -> bool {
        self.direct.as_ref().is_some_and(|used| Arc::ptr_eq(used, route))
    }
}
