//! The end of a connection: the queued messages and the close frame (the goodbye) are sent, and the server goes on
//! reading until the peer has closed its side too. If a socket is closed while pongs still arrive, the kernel resets
//! it, and the peer loses the messages that it has not read yet: the last events and the close frame.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::{Duration, Instant};

use super::inbox::Inbox;
use crate::connection::Connection;
use crate::limits::LONGEST_GOODBYE;
use crate::metrics::Transport;

/// At shutdown, a connection is closed if its peer reads nothing of its last messages for this long. A peer that reads slowly gets more
/// time, see [`session::PeerLiveness`].
pub(super) const FLUSH_PATIENCE: Duration = Duration::from_secs(2);

/// At shutdown, a connection is closed if its peer has read everything but does not answer the close frame for this long. An answer takes one
/// round trip.
const CLOSE_PATIENCE: Duration = Duration::from_secs(1);

/// Waits until everything was written and the peer has closed its side. Gives up if the peer shows no sign of life
/// for too long, and after [`LONGEST_GOODBYE`] at the latest. `writing` is the writer, which ends after the close
/// frame; None if it has ended already.
pub(super) async fn wait_for_peer<W>(mut writing: Option<Pin<&mut W>>, inbox: &mut Inbox, connection: &Connection)
where
    W: Future<Output = io::Result<()>>,
{
    let (outbound, shutdown) = (&connection.outbound, &connection.shared.closing);
    let end = Instant::now() + LONGEST_GOODBYE;
    // When the current wait for the peer began.
    let mut since = Instant::now();
    // Pipes are never reset, so the other end of stdio is not waited for.
    let mut peer_has_ended = connection.transport == Transport::stdio;
    while writing.is_some() || !peer_has_ended {
        let is_shutting_down = shutdown.is_cancelled();
        let patience = if !is_shutting_down {
            // The peer may only be stalled, and nothing else waits for the end of this connection.
            connection.shared.config.pong_deadline
        } else if writing.is_some() || outbound.waits_for_pong() {
            FLUSH_PATIENCE
        } else {
            CLOSE_PATIENCE
        };
        let given_up_at = outbound.given_up_if_silent_since(since, patience).min(end);
        if given_up_at <= Instant::now() {
            return;
        }
        tokio::select! {
            written = async { writing.as_mut()?.as_mut().await.ok() }, if writing.is_some() => {
                if written.is_none() {
                    return;
                }
                writing = None;
                since = Instant::now();
            }
            discarded = inbox.discard(), if !peer_has_ended => match discarded {
                Ok(0) => peer_has_ended = true,
                Ok(_) => outbound.note_received(),
                Err(_) => return,
            },
            () = shutdown.cancelled(), if !is_shutting_down => since = Instant::now(),
            // The loop computes the time again, because there may have been a sign of life.
            () = tokio::time::sleep_until(given_up_at.into()) => {}
        }
    }
}
