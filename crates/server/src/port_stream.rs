//! One byte stream between a client and a TCP port. It holds the bytes of the client that the port has not taken, and
//! the bytes of the port that the writer of the connection has not taken. Credit bounds both. This module knows no
//! socket; the task that reads and writes the port is in `handlers/ports`.
//!
//! The stream holds at most one piece of bytes for the client, and stays in the send queue of its connection until the
//! writer has taken that piece. So busy streams share a connection fairly with processes and with each other.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use protocol::{
    ReceivedBytes, SendCredit, StreamIdJson, StreamViolation, TcpCloseNotification, TcpData, encode_notification,
    notification,
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use transport::Framing;

use crate::process::write_message;

/// The most bytes that are read from a port at once. A stream has up to two pieces of this size in memory.
pub(crate) const PIECE_BYTES: usize = 64 << 10;

pub(crate) struct ForwardedStream {
    pub(crate) id: String,
    id_json: StreamIdJson,
    received: Mutex<ReceivedBytes>,
    /// Wakes the task that writes to the port: `received` has changed.
    has_received: Notify,
    sending: Mutex<Sending>,
    /// Wakes the task that reads from the port: the client has given credit, or the writer has taken the piece.
    may_send: Notify,
    /// Whether the client has sent a `tcp/close`, also if that is not the [`StopReason`].
    is_closed_by_client: AtomicBool,
    /// Why the stream must end before both directions have ended.
    stop_reason: Mutex<Option<StopReason>>,
    /// Cancelled when there is a [`StopReason`].
    stopped: CancellationToken,
}

/// The direction to the client.
struct Sending {
    credit: SendCredit,
    /// The piece that the writer takes next. Empty if there is none.
    piece: Vec<u8>,
    /// How the direction ends after the piece. None: it goes on.
    end: Option<StreamEnd>,
    is_queued: bool,
    /// Empty memory of a sent piece, to be used for the next piece.
    spare: Vec<u8>,
}

/// How the direction to the client ends.
#[derive(Clone, Debug)]
pub(crate) enum StreamEnd {
    /// The port has ended its direction.
    Complete,
    /// The stream ends in both directions. There is no cause if the client has closed it.
    Closed(Option<CloseCause>),
}

/// Why this server closes a stream.
#[derive(Clone, Debug)]
pub(crate) struct CloseCause {
    /// One of [`protocol::error_kind`].
    pub(crate) kind: &'static str,
    pub(crate) message: String,
}

/// Why a stream ends before both directions have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopReason {
    ClosedByClient,
    Violation(StreamViolation),
    /// A message of the client had bytes that are not base64.
    InvalidBytes,
}

impl ForwardedStream {
    /// A stream whose port is not connected yet. The client may send up to `window` bytes that the port has not taken.
    /// The server may at first send `credit` bytes to the client.
    pub(crate) fn new(id: String, window: u64, credit: u64) -> Self {
        Self {
            id_json: StreamIdJson::from(id.as_str()),
            id,
            received: Mutex::new(ReceivedBytes::new(window)),
            has_received: Notify::new(),
            sending: Mutex::new(Sending {
                credit: SendCredit::new(credit),
                piece: Vec::new(),
                end: None,
                is_queued: false,
                spare: Vec::new(),
            }),
            may_send: Notify::new(),
            is_closed_by_client: AtomicBool::new(false),
            stop_reason: Mutex::new(None),
            stopped: CancellationToken::new(),
        }
    }

    /// Takes bytes of the client. If they break a rule of the credit, the stream is stopped.
    pub(crate) fn receive(&self, bytes: Vec<u8>, is_end: bool) {
        let pushed = self.received.lock().push(bytes, is_end);
        match pushed {
            Ok(()) => self.has_received.notify_one(),
            Err(violation) => self.stop(StopReason::Violation(violation)),
        }
    }

    /// Adds credit that the client has given.
    pub(crate) fn grant(&self, bytes: u64) {
        self.sending.lock().credit.grant(bytes);
        self.may_send.notify_one();
    }

    /// Tells the task of the stream to end it in both directions. Only the first reason counts.
    pub(crate) fn stop(&self, reason: StopReason) {
        self.is_closed_by_client.fetch_or(reason == StopReason::ClosedByClient, Ordering::Relaxed);
        self.stop_reason.lock().get_or_insert(reason);
        self.stopped.cancel();
    }

    /// Waits until [`Self::stop`] was called, and returns the reason.
    pub(crate) async fn stopped(&self) -> StopReason {
        self.stopped.cancelled().await;
        self.stop_reason.lock().unwrap_or(StopReason::ClosedByClient)
    }

    /// Waits for bytes of the client. None: the client has ended its direction, and all bytes were returned.
    pub(crate) async fn next_received(&self) -> Option<Vec<u8>> {
        loop {
            let changed = self.has_received.notified();
            {
                let mut received = self.received.lock();
                if let Some(bytes) = received.pop() {
                    return Some(bytes);
                }
                if received.is_over() {
                    return None;
                }
            }
            changed.await;
        }
    }

    /// Notes that the port has taken bytes of the client. Returns the credit to give to the client now, if it is enough
    /// for a message.
    pub(crate) fn note_consumed(&self, bytes: usize) -> Option<u64> {
        self.received.lock().note_consumed(bytes)
    }

    /// Whether the client has sent the end of its direction, or has closed the stream.
    pub(crate) fn client_sends_nothing_more(&self) -> bool {
        self.is_closed_by_client.load(Ordering::Relaxed) || self.received.lock().has_ended()
    }

    /// Waits until there is credit of the client. Returns how many bytes may be read from the port now.
    pub(crate) async fn room_to_read(&self) -> usize {
        loop {
            let changed = self.may_send.notified();
            let allowed = self.sending.lock().credit.allowed(PIECE_BYTES);
            if allowed > 0 {
                return allowed;
            }
            changed.await;
        }
    }

    /// Empty memory for the next piece.
    pub(crate) fn memory_for_piece(&self) -> Vec<u8> {
        let mut spare = std::mem::take(&mut self.sending.lock().spare);
        spare.reserve_exact(PIECE_BYTES);
        spare
    }

    /// Waits until the writer has taken the piece before, and then offers it this one. Returns whether the stream has
    /// to be queued.
    pub(crate) async fn send(&self, piece: Vec<u8>) -> bool {
        loop {
            let changed = self.may_send.notified();
            {
                let mut sending = self.sending.lock();
                if sending.piece.is_empty() {
                    sending.credit.spend(piece.len());
                    sending.piece = piece;
                    return !std::mem::replace(&mut sending.is_queued, true);
                }
            }
            changed.await;
        }
    }

    /// Sets how the direction to the client ends. If the client has closed the stream, a piece that was not sent is
    /// dropped. Returns whether the stream has to be queued.
    pub(crate) fn end(&self, end: StreamEnd) -> bool {
        let mut sending = self.sending.lock();
        if matches!(end, StreamEnd::Closed(None)) {
            // The client has closed the stream, so it wants no further bytes.
            sending.piece = Vec::new();
        }
        sending.end = Some(end);
        !std::mem::replace(&mut sending.is_queued, true)
    }

    /// Appends the piece and the end of the direction, if there are any, to `out`. The writer calls this after it has
    /// taken the stream from the send queue.
    pub(crate) fn write_into(&self, framing: Framing, out: &mut Vec<u8>) {
        let (mut piece, end) = {
            let mut sending = self.sending.lock();
            sending.is_queued = false;
            (std::mem::take(&mut sending.piece), sending.end.take())
        };
        let is_complete = matches!(end, Some(StreamEnd::Complete));
        if !piece.is_empty() || is_complete {
            let data = TcpData { stream: &self.id_json, bytes: &piece, end: is_complete };
            framing.frame(out, data.encoded_len(), |out| data.write_to(out));
        }
        if let Some(StreamEnd::Closed(cause)) = end {
            let (kind, message) = cause.map(|cause| (cause.kind.to_owned(), cause.message)).unzip();
            let close = TcpCloseNotification { stream_id: self.id.clone(), kind, message };
            write_message(framing, out, &encode_notification(notification::TCP_CLOSE, &close));
            return;
        }
        piece.clear();
        self.sending.lock().spare = piece;
        self.may_send.notify_one();
    }

    /// Frees the memory for the next piece while the port sends nothing.
    pub(crate) fn drop_spare_memory(&self) {
        self.sending.lock().spare = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    fn written(stream: &ForwardedStream) -> String {
        let mut out = Vec::new();
        stream.write_into(Framing::Lines, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[tokio::test]
    async fn a_piece_and_the_end_behind_it_are_one_message() {
        let stream = ForwardedStream::new("t".to_owned(), 10, 10);
        assert!(stream.send(b"hi".to_vec()).await);
        assert!(!stream.end(StreamEnd::Complete), "the stream is queued already");
        let expected = r#"{"method":"tcp/data","params":{"streamId":"t","chunk":"aGk=","end":true}}"#;
        assert_eq!(written(&stream), format!("{expected}\n"));
    }

    #[tokio::test]
    async fn a_stream_that_the_client_has_closed_sends_no_further_bytes() {
        let stream = ForwardedStream::new("t".to_owned(), 10, 10);
        stream.send(b"hi".to_vec()).await;
        stream.end(StreamEnd::Closed(None));
        assert_eq!(written(&stream), "{\"method\":\"tcp/close\",\"params\":{\"streamId\":\"t\"}}\n");
    }

    #[tokio::test]
    async fn nothing_is_read_without_credit() {
        let stream = ForwardedStream::new("t".to_owned(), 10, 0);
        assert!(timeout(Duration::ZERO, stream.room_to_read()).await.is_err());
        stream.grant(7);
        assert_eq!(stream.room_to_read().await, 7);
        stream.send(vec![0; 7]).await;
        assert!(timeout(Duration::ZERO, stream.room_to_read()).await.is_err());
    }

    #[tokio::test]
    async fn bytes_without_credit_stop_the_stream() {
        let stream = ForwardedStream::new("t".to_owned(), 2, 0);
        stream.receive(vec![0; 3], false);
        assert_eq!(stream.stopped().await, StopReason::Violation(StreamViolation::OverCredit));
    }
}
