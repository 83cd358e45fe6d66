//! The writing task: gathers what there is to send into one buffer, and gives it to the socket in one write.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use transport::Writer;

use crate::outbound::{Outbound, Outgoing, ReplyRoom};
use crate::process::write_message;

/// Gathered before a write. Beyond this, larger writes gain nothing and small messages would wait longer.
const BATCH_BYTES: usize = 384 << 10;

/// Bytes of output that one process may add before the next one gets its turn. Base64 makes 192 KiB of them.
const PROCESS_BYTES: usize = 144 << 10;

/// Kept for good; an idle connection must not sit on the buffer of a busy one.
const IDLE_BUFFER_BYTES: usize = 1 << 10;

/// How long a larger buffer is kept, at least: a busy connection is only ever idle for moments.
const BUFFER_KEPT: Duration = Duration::from_millis(500);

/// Sends until the connection ends. Returns after a goodbye was sent.
pub(super) async fn run(outbound: Arc<Outbound>, mut writer: Writer) -> io::Result<()> {
    let mut buffer = Vec::new();
    let mut shared_room = Vec::new();
    // One timer for good: to set a new one for each message would wake the thread that waits for timers each time.
    let mut look = pin!(sleep(BUFFER_KEPT));
    let mut look_is_set = true;
    let mut was_used = true;
    loop {
        if buffer.capacity() > IDLE_BUFFER_BYTES {
            if !look_is_set {
                look.as_mut().reset(Instant::now() + BUFFER_KEPT);
                look_is_set = true;
            }
            tokio::select! {
                biased;
                () = outbound.wait_for_work() => was_used = true,
                () = &mut look => {
                    look_is_set = false;
                    if !std::mem::take(&mut was_used) {
                        buffer = Vec::new();
                        outbound.trim();
                    }
                    continue;
                }
            }
        } else {
            outbound.wait_for_work().await;
        }
        loop {
            let goodbye = gather(&outbound, &mut buffer, &mut shared_room);
            if buffer.is_empty() && !goodbye {
                break;
            }
            writer.write_all_watched(&buffer, |progress| outbound.note_write(progress)).await?;
            buffer.clear();
            shared_room.clear();
            outbound.receipts.flushed();
            if goodbye {
                writer.shutdown().await;
                return Ok(());
            }
        }
    }
}

/// Fills the buffer. True if a goodbye is in it, after which nothing may be sent. Room that other connections wait for is kept until
/// the buffer is written.
fn gather(outbound: &Arc<Outbound>, buffer: &mut Vec<u8>, shared_room: &mut Vec<ReplyRoom>) -> bool {
    let framing = outbound.framing;
    while buffer.len() < BATCH_BYTES {
        match outbound.next() {
            None => break,
            Some(Outgoing::Pong(payload)) => {
                framing.pong(buffer, &payload);
            }
            Some(Outgoing::Ping(wanted_at)) => {
                framing.ping(buffer, &outbound.receipts.ping(wanted_at));
            }
            Some(Outgoing::Answer(answer)) => {
                write_message(framing, buffer, &answer.message);
                shared_room.extend(answer.room.filter(|room| room.is_shared));
            }
            Some(Outgoing::Events(process)) => {
                process.leave_queue(outbound.number);
                let Some(pushed) = process.push_into(outbound.number, framing, buffer, PROCESS_BYTES) else {
                    continue;
                };
                if pushed.has_more && process.enter_queue(outbound.number) {
                    outbound.queue_process(Arc::clone(&process));
                }
                let wants_ping = if pushed.is_last {
                    outbound.receipts.sent_last(&process, pushed.output_bytes)
                } else {
                    outbound.receipts.sent(&process, pushed.through, pushed.output_bytes)
                };
                if wants_ping {
                    framing.ping(buffer, &outbound.receipts.ping(std::time::Instant::now()));
                }
            }
            Some(Outgoing::Close(code, reason)) => {
                framing.close(buffer, code, reason);
                return true;
            }
        }
    }
    false
}
