//! How a stream moves between the relay and a direct path. Moving is what happens after a lost socket too: everything that
//! the peer has not acknowledged is sent again, and the peer drops what it has already. So frames that are still on their
//! way over the other route do no harm.

use std::sync::Arc;
use std::time::Instant;

use relay::{Frame, FrameBody, StreamFailure};
use tokio_util::sync::CancellationToken;

use super::{RelayedStream, SlotState};
use crate::outgoing::OutgoingFrames;

/// A socket of a direct path, as the stream sees it.
#[derive(Debug, Default)]
pub(crate) struct DirectRoute {
    outgoing: Arc<OutgoingFrames>,
    used: CancellationToken,
    left: CancellationToken,
}

impl DirectRoute {
    /// The frames that wait for the socket.
    pub(crate) fn outgoing(&self) -> &Arc<OutgoingFrames> {
        &self.outgoing
    }

    /// The socket is not to be used any more.
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

    /// A frame has arrived over this route. Moves the stream there if the peer has made the frame. Returns false if the
    /// route has to be left, because the frame proves that somebody else sends there, or because the stream does not use the
    /// route any more.
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

    /// The socket of this route has ended, or nobody may use it. The stream goes on over the relay.
    pub(crate) fn leave_direct_route(self: &Arc<Self>, route: &Arc<DirectRoute>, now: Instant) {
        route.leave();
        route.outgoing.clear();
        let mut state = self.state.lock();
        if state.uses(route) {
            self.change_route(&mut state, None, now);
        }
    }

    /// Whether a frame that has come over the relay counts. If the stream uses a direct path, the relay knows nothing of it, so
    /// its own frames do not count. With a resume, the peer says that it has returned to the relay.
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

    /// The relay cannot be reached again. The stream ends, unless it uses a direct path.
    pub(crate) fn fail_unless_direct(&self, failure: StreamFailure) {
        let mut state = self.state.lock();
        if state.direct.is_none() {
            self.end_with(&mut state, failure);
        }
    }

    /// Sends the peer a reset. If the stream uses a direct path, the relay gets the reset too, unless no frame of the
    /// stream was sent on the current socket to the relay.
    pub(crate) fn push_reset(&self, reason: &str) {
        self.push_last_frames(&[FrameBody::Reset { reason: reason.to_owned() }]);
    }

    /// As [`Self::push_reset`], for the end that names its stream to the relay. If the socket has just been replaced, the relay does not
    /// know yet which stream it has. Otherwise the resume says nothing.
    pub(crate) fn push_named_reset(&self, reason: &str) {
        self.push_last_frames(&[FrameBody::Resume { next_seq: 0 }, FrameBody::Reset { reason: reason.to_owned() }]);
    }

    fn push_last_frames(&self, bodies: &[FrameBody]) {
        let state = self.state.lock();
        let push_to = |outgoing: &OutgoingFrames| {
            bodies.iter().for_each(|body| outgoing.push_control(Frame::new(&self.id, body.clone())));
        };
        if let Some(direct) = &state.direct {
            push_to(&direct.outgoing);
        }
        if state.direct.is_none() || (state.has_relay_socket && state.relay_knows_stream) {
            push_to(&state.relay);
        }
    }

    /// Waits until the socket that the stream uses has taken everything.
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
    /// The frames that wait for the socket over which the stream sends.
    pub(super) fn outgoing(&self) -> &Arc<OutgoingFrames> {
        self.direct.as_ref().map_or(&self.relay, |direct| &direct.outgoing)
    }

    fn uses(&self, route: &Arc<DirectRoute>) -> bool {
        self.direct.as_ref().is_some_and(|used| Arc::ptr_eq(used, route))
    }
}
