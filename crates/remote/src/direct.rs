//! The direct path: a second socket for an encrypted stream, straight from the harness to a listener of the executor. The
//! stream moves to this socket in the same way as to a new socket to the relay: it keeps its keys and sends all
//! unacknowledged records again, so no data is lost and neither end has to trust anything new. The socket to the relay
//! stays open, and the stream returns to it when the direct path breaks.
//!
//! The harness asks for an offer over the stream (`offer`) and picks addresses that its policy permits (`addresses`).
//! It sends the ticket of the offer to the listener, and the listener accepts each ticket once (`tickets`). The
//! listener answers with a secret that is in the offer too, which proves that it belongs to the executor. From then on
//! the socket carries frames of this stream only. An end closes the socket at the first frame for which it has no proof
//! that the other end of the stream made it ([`serve_route`]).

mod addresses;
mod door;
mod machine;
mod offer;
mod tickets;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use relay::MAX_FRAME_BYTES;
use transport::{MessageLimits, MessageStream};

use crate::relay_socket;
use crate::relayed_stream::{DirectRoute, RelayedStream};
pub use addresses::{DirectPolicy, UnknownDirectPolicy};
pub use door::{DirectDoor, DirectEntrance};
pub(crate) use machine::this_machine;
pub(crate) use offer::{DIRECT_OFFER, DIRECT_REQUEST, DirectOffer};
pub(crate) use tickets::DirectTickets;

/// A direct path counts as broken when nothing has arrived from the other end for this time. The other end is pinged
/// after half of this time. Shorter than for a relay, because returning to the relay is cheap.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long to wait until the socket has taken the last frames of a stream.
const LAST_FRAMES_TIMEOUT: Duration = Duration::from_millis(300);

/// The limits of a socket of the direct path.
pub(crate) const SOCKET_LIMITS: MessageLimits = MessageLimits { message_bytes: MAX_FRAME_BYTES };

/// The listeners of an executor, and the policy that says which of their addresses are offered to harnesses.
#[derive(Clone, Debug, Default)]
pub struct DirectListeners {
    /// Which addresses are offered.
    pub policy: DirectPolicy,
    /// The addresses of the listeners without TLS, with their real ports. An unspecified IP stands for every address of this
    /// machine.
    pub addresses: Vec<SocketAddr>,
}

/// The path on which the frames of a connection travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionPath {
    /// Through the relay of the service.
    Relay,
    /// Straight to this address of the executor.
    Direct(SocketAddr),
}

/// `relay` or `direct 192.168.1.7:7000`.
impl fmt::Display for ConnectionPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Relay => f.write_str("relay"),
            Self::Direct(address) => write!(f, "direct {address}"),
        }
    }
}

/// Serves a socket of the direct path until the socket ends, the stream ends, the stream leaves the path, or a message
/// arrives that is no frame of the other end. Afterwards the stream uses the relay again.
pub(crate) async fn serve_route(stream: &Arc<RelayedStream>, route: &Arc<DirectRoute>, socket: MessageStream) {
    let frames = relay_socket::run(socket, route.outgoing(), SILENCE_TIMEOUT, |frame| {
        let is_ours = frame.is_ok_and(|frame| {
            frame.stream_id == stream.id() && stream.handle_direct_frame(route, frame, Instant::now())
        });
        if !is_ours {
            route.leave();
        }
    });
    let stream_end = async {
        stream.wait_for_end().await;
        let _left_behind = tokio::time::timeout(LAST_FRAMES_TIMEOUT, route.outgoing().wait_until_empty()).await;
    };
    let reason = tokio::select! {
        end = frames => end.as_str(),
        () = route.wait_until_left() => "left",
        () = stream_end => "the stream has ended",
    };
    tracing::debug!(reason, "the direct path has ended");
    stream.leave_direct_route(route, Instant::now());
}
