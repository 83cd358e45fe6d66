//! The last moments of a connection: what is queued leaves, the goodbye after it, and the peer is read on until it has closed too.
//! A socket that is closed while pongs still arrive is reset by the kernel, and the peer then loses what it has not read yet:
//! the last events, and the reason of the goodbye.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use transport::PeerLabel;

use super::inbox::Inbox;
use super::outbound::Outbound;

/// A peer that takes nothing of its last messages for this long is not waited for.
pub(super) const FLUSH_PATIENCE: Duration = Duration::from_secs(2);

/// A peer that has been sent everything and is silent for this long is not waited for. Closing takes a round trip.
const CLOSE_PATIENCE: Duration = Duration::from_secs(1);

/// No peer is waited for longer than this, however much it sends.
pub(crate) const LONGEST_GOODBYE: Duration = Duration::from_secs(10);

/// Waits until everything was written and the peer has closed its side. `writing` is the writer, which ends after the goodbye;
/// none if it has ended already.
pub(super) async fn part<W>(mut writing: Option<Pin<&mut W>>, inbox: &mut Inbox, outbound: &Outbound, peer: PeerLabel)
where
    W: Future<Output = io::Result<()>>,
{
    let end = Instant::now() + LONGEST_GOODBYE;
    let mut last_sign = Instant::now();
    // Pipes are never reset.
    let mut peer_has_ended = matches!(peer, PeerLabel::Stdio);
    while writing.is_some() || !peer_has_ended {
        let patience = if writing.is_some() { FLUSH_PATIENCE } else { CLOSE_PATIENCE };
        tokio::select! {
            written = async { writing.as_mut()?.as_mut().await.ok() }, if writing.is_some() => {
                if written.is_none() {
                    return;
                }
                writing = None;
                last_sign = Instant::now();
            }
            discarded = inbox.discard(), if !peer_has_ended => match discarded {
                Ok(0) => peer_has_ended = true,
                Ok(_) => last_sign = Instant::now(),
                Err(_) => return,
            },
            () = sleep_until(end.min(last_sign + patience)) => {
                last_sign = last_sign.max(outbound.last_sign_of_life().into());
                if Instant::now() >= end.min(last_sign + patience) {
                    return;
                }
            }
        }
    }
}
