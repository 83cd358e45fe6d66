//! Events of a process written into a connection's buffer. Output goes from the journal straight into the frame.

use protocol::{
    ClosedNotification, ExitedNotification, LegacyExited, OutputFrame, Stream, encode_notification, notification,
};
use session::{CHUNK_OVERHEAD_BYTES, Chunk, ConnectionNumber, Event};
use transport::Framing;

use super::{Dialect, Process};

/// What was written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pushed {
    /// The last event written.
    pub(crate) through: u64,
    /// Bytes of output among it, with what each piece occupies however short it is: a process that writes single bytes must not reach
    /// the limit of retained chunks before the client is asked how far it is.
    pub(crate) output_bytes: usize,
    /// There is more to say.
    pub(crate) more: bool,
    /// The last event was the last for ever.
    pub(crate) closed: bool,
}

impl Process {
    /// Appends events for `listener` to `out` until it has grown by about `budget` bytes.
    pub(crate) fn push_into(
        &self,
        listener: ConnectionNumber,
        framing: Framing,
        out: &mut Vec<u8>,
        budget: usize,
    ) -> Pushed {
        let start = out.len();
        let mut pushed = Pushed { through: 0, output_bytes: 0, more: false, closed: false };
        loop {
            let Some((event, output_bytes, more)) = self.journal(|journal| {
                if !journal.has_push() || journal.listener != Some(listener) {
                    return None;
                }
                let mut event = journal.log.next_event(journal.sent)?;
                journal.sent = event.seq();
                // What a cap holds back counts too: only its receipt makes room for more.
                let output_bytes =
                    if let Event::Output(chunk) = &event { chunk.bytes.len() + CHUNK_OVERHEAD_BYTES } else { 0 };
                self.apply_cap(&mut event, &mut journal.legacy_sent);
                Some((event, output_bytes, journal.has_push()))
            }) else {
                pushed.more = false;
                break;
            };
            pushed.through = event.seq();
            pushed.more = more;
            pushed.output_bytes += output_bytes;
            pushed.closed = matches!(event, Event::Closed { .. });
            self.write_event(framing, out, &event);
            if out.len() - start >= budget {
                break;
            }
        }
        if pushed.through > 0 {
            // A terminate may be waiting for its output to be on its way.
            self.news.notify_waiters();
        }
        pushed
    }

    /// The legacy family sends at most so many bytes of each stream.
    fn apply_cap(&self, event: &mut Event, sent: &mut [u64; 2]) {
        if let Dialect::Legacy { output_bytes_cap: Some(cap) } = self.dialect
            && let Event::Output(chunk) = event
        {
            let sent = &mut sent[usize::from(chunk.stream == Stream::Stderr)];
            chunk.bytes.truncate(usize::try_from(cap.saturating_sub(*sent)).unwrap_or(usize::MAX));
            *sent += chunk.bytes.len() as u64;
        }
    }

    fn write_event(&self, framing: Framing, out: &mut Vec<u8>, event: &Event) {
        match (event, self.dialect) {
            (Event::Output(Chunk { seq, stream, bytes }), dialect) => {
                let frame = match dialect {
                    Dialect::Current => {
                        OutputFrame::Current { process: &self.id_json, seq: *seq, stream: *stream, bytes }
                    }
                    Dialect::Legacy { .. } if bytes.is_empty() => return,
                    Dialect::Legacy { .. } => OutputFrame::Legacy { process: &self.id_json, stream: *stream, bytes },
                };
                framing.frame(out, frame.encoded_len(), |out| frame.write_to(out));
            }
            (Event::Exited { seq, exit }, Dialect::Current) => {
                let params = ExitedNotification {
                    process_id: self.id.clone(),
                    seq: *seq,
                    exit_code: exit.code,
                    sandbox_denied: Some(exit.sandbox_denied),
                    timed_out: exit.timed_out,
                };
                write_message(framing, out, &encode_notification(notification::PROCESS_EXITED, &params));
            }
            (Event::Exited { exit, .. }, Dialect::Legacy { .. }) => {
                let params = LegacyExited { process_id: self.id.clone(), exit_code: exit.code };
                write_message(framing, out, &encode_notification(notification::LEGACY_EXITED, &params));
            }
            (Event::Closed { seq }, Dialect::Current) => {
                let params = ClosedNotification { process_id: self.id.clone(), seq: *seq };
                write_message(framing, out, &encode_notification(notification::PROCESS_CLOSED, &params));
            }
            (Event::Closed { .. }, Dialect::Legacy { .. }) => {}
        }
    }
}

/// Appends one encoded message.
pub(crate) fn write_message(framing: Framing, out: &mut Vec<u8>, message: &[u8]) {
    framing.frame(out, message.len(), |out| out.extend_from_slice(message));
}
