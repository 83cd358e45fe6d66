//! The task that writes the outbox to a connection, and closes the connection at the end.

use std::sync::Arc;
use std::time::Duration;

use transport::{WriteProgress, Writer};

use super::outbox::BatchKind;
use super::{Disconnect, Rpc};

/// After a failed write: how long the reading task may take to find the reason that the server sent before it closed
/// the connection.
const CLOSE_REASON_WAIT: Duration = Duration::from_secs(1);
/// How long a server that does not read may delay the last write, and then again the shutdown of the connection.
const LAST_WRITE_TIMEOUT: Duration = Duration::from_secs(2);
/// Capacity that an idle connection keeps in each of its two write buffers: the batch and the outbox. A larger buffer
/// is reduced to this after [`BUFFER_KEPT`] without a write.
const IDLE_BUFFER_BYTES: usize = 64 * 1024;
const BUFFER_KEPT: Duration = Duration::from_millis(500);

pub(super) async fn run(rpc: Arc<Rpc>, mut writer: Writer) {
    let mut batch = Vec::new();
    let mut has_large_buffers = false;
    let mut was_closed_in_order = false;
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
        let is_last = kind == BatchKind::Last;
        let note_progress = |progress| {
            // A full transport that accepts bytes again shows that the server, or the network on the way to it, is
            // alive.
            if progress == WriteProgress::Resumed {
                rpc.outbox.note_write_resumed();
            }
        };
        let written = tokio::select! {
            written = writer.write_all_watched(&batch, note_progress) => written,
            // Another task has ended the connection. The last message may have been written only in part.
            () = rpc.stop.cancelled() => break,
            () = tokio::time::sleep(LAST_WRITE_TIMEOUT), if is_last => break,
        };
        if let Err(error) = written {
            let _ended_or_timed_out = tokio::time::timeout(CLOSE_REASON_WAIT, rpc.ended()).await;
            // The error becomes the reason only if the reading task has found none.
            rpc.finish(Disconnect(Some(error.to_string())));
            break;
        }
        if is_last {
            was_closed_in_order = true;
            break;
        }
        batch.clear();
    }
    let _shut_down_or_timed_out = tokio::time::timeout(LAST_WRITE_TIMEOUT, writer.shutdown()).await;
    if was_closed_in_order {
        rpc.let_companion_end().await;
    }
    // If the connection has already ended, its reason stays.
    rpc.finish(Disconnect(None));
}
