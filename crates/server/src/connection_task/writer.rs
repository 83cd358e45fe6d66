//! The writer of a connection: collects messages of the send queue in one buffer, and gives the buffer to the socket in one write.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use transport::Writer;

use crate::outbound::{Outbound, Outgoing, ReplyRoom};
use crate::process::write_message;

/// Bytes that are collected before a write. Larger writes would not be faster, and small messages would wait longer.
const BATCH_BYTES: usize = 384 << 10;

/// Bytes of output that the writer takes from one process before it goes on to the next. In base64 they are 192 KiB.
const PROCESS_BYTES: usize = 144 << 10;

/// Capacity that the buffer of an idle connection may keep. A larger buffer is freed after [`BUFFER_KEPT`].
const IDLE_BUFFER_BYTES: usize = 1 << 10;

/// A buffer larger than [`IDLE_BUFFER_BYTES`] is kept unused for at least this time. A busy connection uses its
/// buffer again within this time.
const BUFFER_KEPT: Duration = Duration::from_millis(500);

/// Sends until the connection ends. Returns after a close frame was sent, or with an error if a write fails.
pub(super) async fn run(outbound: Arc<Outbound>, mut writer: Writer) -> io::Result<()> {
    let mut buffer = Vec::new();
    let mut shared_room = Vec::new();
    // One timer for the whole connection, because setting a timer for each message would wake the thread of tokio that waits for timers.
    let mut idle_check = pin!(sleep(BUFFER_KEPT));
    let mut idle_check_is_set = true;
    let mut was_used = true;
    loop {
        if buffer.capacity() > IDLE_BUFFER_BYTES {
            if !idle_check_is_set {
                idle_check.as_mut().reset(Instant::now() + BUFFER_KEPT);
                idle_check_is_set = true;
            }
            tokio::select! {
                biased;
                () = outbound.wait_for_work() => was_used = true,
                () = &mut idle_check => {
                    idle_check_is_set = false;
                    if !std::mem::take(&mut was_used) {
                        // The connection is idle: the buffer and the unused memory of the send queue are freed.
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
            let has_close_frame = gather(&outbound, &mut buffer, &mut shared_room);
            if buffer.is_empty() && !has_close_frame {
                break;
            }
            writer.write_all_watched(&buffer, |progress| outbound.note_write(progress)).await?;
            buffer.clear();
            shared_room.clear();
            outbound.receipts.flushed();
            if has_close_frame {
                writer.shutdown().await;
                return Ok(());
            }
        }
    }
}

/// Fills the buffer from the send queue. Returns true if the buffer ends with a close frame, after which nothing may be sent. Memory permits
/// that other connections may wait for go into `shared_room`, because they must be held until the buffer is written.
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
                if outbound.receipts.sent(&process, pushed.through, pushed.output_bytes) {
                    framing.ping(buffer, &outbound.receipts.ping(std::time::Instant::now()));
                }
            }
            Some(Outgoing::Port(stream)) => stream.write_into(framing, buffer),
            Some(Outgoing::Close(code, reason)) => {
                framing.close(buffer, code, reason);
                return true;
            }
        }
    }
    false
}
