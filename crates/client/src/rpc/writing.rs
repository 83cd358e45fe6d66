//! The task that writes.

use std::sync::Arc;
use std::time::Duration;

use transport::{WriteProgress, Writer};

use super::outbox::Batch;
use super::{End, Rpc};

/// After a write has failed, how long the reader may take to find what the peer said before it went away.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long a goodbye may take a peer that does not read.
const GOODBYE: Duration = Duration::from_secs(2);
/// Larger buffers are given back when nothing was written for a while; a busy connection would only ask for them again.
const IDLE_BUFFER_BYTES: usize = 64 * 1024;
const BUFFER_KEPT: Duration = Duration::from_millis(500);

pub(super) async fn run(rpc: Arc<Rpc>, mut writer: Writer) {
    let mut batch = Vec::new();
    let mut has_large_buffers = false;
    loop {
        let kind = tokio::select! {
            kind = rpc.outbox.take(&mut batch) => kind,
            () = rpc.stop.cancelled() => break,
            () = tokio::time::sleep(BUFFER_KEPT), if has_large_buffers => {
                batch.shrink_to(IDLE_BUFFER_BYTES);
                rpc.outbox.shrink_to(IDLE_BUFFER_BYTES);
                has_large_buffers = false;
                continue;
            }
        };
        has_large_buffers |= batch.capacity() > IDLE_BUFFER_BYTES;
        let is_last = matches!(kind, Batch::WriteLast);
        let watch = |progress| {
            // A full transport that takes bytes again shows that the peer, or the network before it, has taken some.
            if progress == WriteProgress::Resumed {
                rpc.outbox.note_drained();
            }
        };
        let written = tokio::select! {
            written = writer.write_all_watched(&batch, watch) => written,
            // Only a peer that does not take it is left in the middle of a message.
            () = rpc.stop.cancelled() => break,
            () = tokio::time::sleep(GOODBYE), if is_last => break,
        };
        if let Err(error) = written {
            let _ended_by_itself = tokio::time::timeout(LAST_WORDS, rpc.ended()).await;
            rpc.finish(End(Some(error.to_string())));
            break;
        }
        if is_last {
            break;
        }
        batch.clear();
    }
    writer.shutdown().await;
    rpc.finish(End(None));
}
