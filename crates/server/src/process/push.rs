//! Encodes events of a process as notifications, directly into the send buffer of a connection. Output is copied only once, from the event
//! log into the frame.

use std::sync::atomic::Ordering;

use protocol::{
    ClosedNotification, ExitedNotification, LegacyExited, OutputEvent, Stream, encode_notification, notification,
};
use session::{Chunk, ConnectionNumber, LogEvent, Polled};
use transport::Framing;

use super::{Dialect, Process};

/// The events that [`Process::push_into`] has written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pushed {
    /// Sequence number of the last event.
    pub(crate) through: u64,
    /// Bytes of output, with the overhead of each chunk, as [`EventBatch::output_bytes`](session::EventBatch::output_bytes) counts them.
    pub(crate) output_bytes: usize,
    /// The process has further events for this connection.
    pub(crate) has_more: bool,
}

impl Process {
    /// Appends events for `connection` to `out`: about `budget` bytes of output. None: there was no event to send.
    pub(crate) fn push_into(
        &self,
        connection: ConnectionNumber,
        framing: Framing,
        out: &mut Vec<u8>,
        budget: usize,
    ) -> Option<Pushed> {
        let Polled::Events(batch) = self.delivery(|delivery| delivery.poll(connection, budget)) else { return None };
        let through = batch.last_seq();
        for mut event in batch.events {
            self.apply_cap(&mut event);
            self.write_event(framing, out, &event);
        }
        // A `process/terminate` may be waiting until the last output is sent.
        self.changed.notify_waiters();
        Some(Pushed { through, output_bytes: batch.output_bytes, has_more: batch.has_more })
    }

    /// Shortens output so that at most `output_bytes_cap` bytes of each stream are sent in the legacy family.
    fn apply_cap(&self, event: &mut LogEvent) {
        if let Dialect::Legacy { output_bytes_cap: Some(cap) } = self.dialect
            && let LogEvent::Output(chunk) = event
        {
            let sent = &self.legacy_sent[usize::from(chunk.stream == Stream::Stderr)];
            let left = cap.saturating_sub(sent.load(Ordering::Relaxed));
            chunk.bytes.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            sent.fetch_add(chunk.bytes.len() as u64, Ordering::Relaxed);
        }
    }

    fn write_event(&self, framing: Framing, out: &mut Vec<u8>, event: &LogEvent) {
        match (event, self.dialect) {
            (LogEvent::Output(Chunk { seq, stream, bytes }), dialect) => {
                let frame = match dialect {
                    Dialect::Current => {
                        OutputEvent::Current { process: &self.id_json, seq: *seq, stream: *stream, bytes }
                    }
                    Dialect::Legacy { .. } if bytes.is_empty() => return,
                    Dialect::Legacy { .. } => OutputEvent::Legacy { process: &self.id_json, stream: *stream, bytes },
                };
                framing.frame(out, frame.encoded_len(), |out| frame.write_to(out));
            }
            (LogEvent::Exited { seq, exit }, Dialect::Current) => {
                let params = ExitedNotification {
                    process_id: self.id.clone(),
                    seq: *seq,
                    exit_code: exit.code,
                    sandbox_denied: Some(exit.sandbox_denied),
                    sandbox_denials: self.denials.list(),
                    timed_out: exit.timed_out,
                    usage: exit.resources.usage,
                    limit_reached: exit.resources.limit_reached,
                };
                write_message(framing, out, &encode_notification(notification::PROCESS_EXITED, &params));
            }
            (LogEvent::Exited { exit, .. }, Dialect::Legacy { .. }) => {
                let params = LegacyExited { process_id: self.id.clone(), exit_code: exit.code };
                write_message(framing, out, &encode_notification(notification::LEGACY_EXITED, &params));
            }
            (LogEvent::Closed { seq }, Dialect::Current) => {
                let params = ClosedNotification { process_id: self.id.clone(), seq: *seq };
                write_message(framing, out, &encode_notification(notification::PROCESS_CLOSED, &params));
            }
            (LogEvent::Closed { .. }, Dialect::Legacy { .. }) => {}
        }
    }
}

/// Appends an encoded message as one frame.
pub(crate) fn write_message(framing: Framing, out: &mut Vec<u8>, message: &[u8]) {
    framing.frame(out, message.len(), |out| out.extend_from_slice(message));
}
