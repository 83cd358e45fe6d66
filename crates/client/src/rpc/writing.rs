//! The task that writes.

use std::sync::Arc;
use std::time::Duration;

use transport::Writer;

use super::outbox::Batch;
use super::{End, Rpc};

/// After a write has failed, how long the reader may take to find what the peer said before it went away.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long a goodbye may take a peer that does not read.
const GOODBYE: Duration = Duration::from_secs(2);
/// A buffer that a large message has grown beyond this is given back.
const KEEP_CAPACITY: usize = 256 * 1024;

pub(super) async fn run(rpc: Arc<Rpc>, mut writer: Writer) {
    let mut batch = Vec::new();
    loop {
        let kind = tokio::select! {
            kind = rpc.outbox.take(&mut batch) => kind,
            () = rpc.stop.cancelled() => break,
        };
        let is_last = matches!(kind, Batch::WriteLast);
        let written = tokio::select! {
            written = writer.write_all(&batch) => written,
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
        batch.shrink_to(KEEP_CAPACITY);
    }
    writer.shutdown().await;
    rpc.finish(End(None));
}
