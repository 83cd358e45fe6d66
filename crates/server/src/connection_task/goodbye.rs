//! The last moments of a connection: what is queued leaves, the goodbye after it, and the peer is read on until it has closed too.
//! A socket that is closed while pongs still arrive is reset by the kernel, and the peer then loses what it has not read yet:
//! the last events, and the reason of the goodbye.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::{Duration, Instant};

use super::inbox::Inbox;
use crate::connection::Connection;
use crate::limits::LONGEST_GOODBYE;
use crate::metrics::Transport;

/// At shutdown, a peer that takes nothing of its last messages for this long is not waited for. One that takes them slowly gets more
/// time, as any slow peer does.
pub(super) const FLUSH_PATIENCE: Duration = Duration::from_secs(2);

/// At shutdown, a peer that has read everything but the goodbye and is silent for this long is not waited for. Closing takes a round
/// trip.
const CLOSE_PATIENCE: Duration = Duration::from_secs(1);

/// Waits until everything was written and the peer has closed its side. `writing` is the writer, which ends after the goodbye;
/// none if it has ended already.
pub(super) async fn part<W>(mut writing: Option<Pin<&mut W>>, inbox: &mut Inbox, connection: &Connection)
where
    W: Future<Output = io::Result<()>>,
{
    let (outbound, closing) = (&connection.outbound, &connection.shared.closing);
    let end = Instant::now() + LONGEST_GOODBYE;
    // Since when the peer has had the chance to do what is waited for.
    let mut since = Instant::now();
    // Pipes are never reset.
    let mut peer_has_ended = connection.transport == Transport::stdio;
    while writing.is_some() || !peer_has_ended {
        let is_closing = closing.is_cancelled();
        let patience = if !is_closing {
            // Nobody waits for this connection, and its peer may only be stalled.
            connection.shared.config.pong_deadline
        } else if writing.is_some() || outbound.waits_for_pong() {
            FLUSH_PATIENCE
        } else {
            CLOSE_PATIENCE
        };
        let given_up_at = outbound.given_up_since(since, patience).min(end);
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
            () = closing.cancelled(), if !is_closing => since = Instant::now(),
            // Looked at again above: there may have been a sign of life.
            () = tokio::time::sleep_until(given_up_at.into()) => {}
        }
    }
}
