//! The messages that a connection has received, in the order of their arrival. While too many answers are unsent,
//! messages are parked in the inbox, and only control frames are returned: a pong shows that a slow peer is alive,
//! and a close frame ends the connection.

use std::collections::VecDeque;
use std::future::pending;
use std::io;

use transport::{ReadError, ReadEvent, Reader};

use crate::limits::MAX_PARKED_BYTES;
use crate::outbound::Intake;

/// Memory that a parked message takes in addition to its text.
const PARKED_OVERHEAD_BYTES: usize = 64;

/// The reading half of a connection.
pub(super) struct Inbox {
    reader: Reader,
    parked: VecDeque<ReadEvent>,
    parked_bytes: usize,
}

impl Inbox {
    pub(super) fn new(reader: Reader) -> Self {
        Self { reader, parked: VecDeque::new(), parked_bytes: 0 }
    }

    /// Waits for the next message or control frame to handle. Cancel safe.
    pub(super) async fn next(&mut self, intake: Intake) -> Result<ReadEvent, ReadError> {
        loop {
            if let Some(parked) = self.take_parked(intake) {
                return Ok(parked);
            }
            if self.is_full() || matches!(self.parked.back(), Some(ReadEvent::Closed(_))) {
                // The inbox is full, or the stream has ended. The caller tries again after it has sent answers.
                return pending().await;
            }
            let incoming = self.reader.next().await?;
            if let Some(incoming) = self.pass_or_park(incoming, intake) {
                return Ok(incoming);
            }
        }
    }

    /// As [`Self::next`], but does not wait: None if nothing to handle has arrived.
    pub(super) fn next_buffered(&mut self, intake: Intake) -> Option<Result<ReadEvent, ReadError>> {
        if let Some(parked) = self.take_parked(intake) {
            return Some(Ok(parked));
        }
        while !self.is_full() {
            match self.reader.next_buffered()? {
                Ok(incoming) => {
                    if let Some(incoming) = self.pass_or_park(incoming, intake) {
                        return Some(Ok(incoming));
                    }
                }
                Err(error) => return Some(Err(error)),
            }
        }
        None
    }

    /// Takes all parked messages: requests that arrived before the end of the connection and were not handled yet.
    pub(super) fn take_rest(&mut self) -> VecDeque<ReadEvent> {
        self.parked_bytes = 0;
        std::mem::take(&mut self.parked)
    }

    /// Drops the parked messages, then waits for more bytes and drops them too. Returns the number of these bytes; 0
    /// is the end of the stream.
    pub(super) async fn discard(&mut self) -> io::Result<usize> {
        self.take_rest();
        self.reader.discard().await
    }

    /// How many bytes have arrived so far, including bytes of incomplete messages.
    pub(super) fn received_bytes(&self) -> u64 {
        self.reader.received_bytes()
    }

    fn is_full(&self) -> bool {
        self.parked_bytes >= MAX_PARKED_BYTES
    }

    fn take_parked(&mut self, intake: Intake) -> Option<ReadEvent> {
        if intake == Intake::ControlFrames {
            return None;
        }
        let parked = self.parked.pop_front()?;
        self.parked_bytes -= memory_bytes(&parked);
        if self.parked.is_empty() {
            self.parked = VecDeque::new();
        }
        Some(parked)
    }

    /// Returns the event if it may be handled now. Otherwise parks it.
    fn pass_or_park(&mut self, incoming: ReadEvent, intake: Intake) -> Option<ReadEvent> {
        let may_overtake = match &incoming {
            ReadEvent::Ping(_) | ReadEvent::Pong(_) | ReadEvent::Closed(Some(_)) => true,
            // The end of the stream does not overtake the requests before it, because they may still be answered.
            ReadEvent::Message(_) | ReadEvent::TooLarge { .. } | ReadEvent::Closed(None) => false,
        };
        if may_overtake || intake == Intake::Everything {
            return Some(incoming);
        }
        self.parked_bytes += memory_bytes(&incoming);
        self.parked.push_back(incoming);
        None
    }
}

/// The memory that a parked event takes.
fn memory_bytes(incoming: &ReadEvent) -> usize {
    let bytes = match incoming {
        ReadEvent::Message(bytes)
        | ReadEvent::TooLarge { prefix: bytes }
        | ReadEvent::Ping(bytes)
        | ReadEvent::Pong(bytes) => bytes.len(),
        ReadEvent::Closed(_) => 0,
    };
    bytes + PARKED_OVERHEAD_BYTES
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;
    use transport::{Framing, MessageLimits, MessageStream, in_memory};

    use super::*;

    struct TestPeer(MessageStream);

    impl TestPeer {
        async fn send(&mut self, text: &[u8]) {
            let mut out = Vec::new();
            Framing::WebSocketClient.frame(&mut out, text.len(), |out| out.extend_from_slice(text));
            self.0.writer.write_all(&out).await.unwrap();
        }

        async fn pong(&mut self) {
            let mut out = Vec::new();
            Framing::WebSocketClient.pong(&mut out, b"1");
            self.0.writer.write_all(&out).await.unwrap();
        }
    }

    fn connected_pair() -> (Inbox, TestPeer) {
        let (ours, theirs) = in_memory(MessageLimits::default());
        (Inbox::new(ours.reader), TestPeer(theirs))
    }

    #[tokio::test]
    async fn pongs_overtake_messages_and_messages_keep_their_order() {
        let (mut inbox, mut peer) = connected_pair();
        peer.send(b"one").await;
        peer.send(b"two").await;
        peer.pong().await;
        assert_eq!(inbox.next(Intake::ControlFrames).await.unwrap(), ReadEvent::Pong("1".into()));
        assert!(inbox.next_buffered(Intake::ControlFrames).is_none());
        peer.send(b"three").await;
        for expected in ["one", "two", "three"] {
            assert_eq!(inbox.next(Intake::Everything).await.unwrap(), ReadEvent::Message(expected.into()));
        }
        assert_eq!(inbox.parked_bytes, 0);
    }

    #[tokio::test]
    async fn a_close_frame_overtakes_messages_which_are_not_lost() {
        let (mut inbox, mut peer) = connected_pair();
        peer.send(b"one").await;
        peer.send(b"two").await;
        let mut out = Vec::new();
        Framing::WebSocketClient.close(&mut out, 1000, "");
        peer.0.writer.write_all(&out).await.unwrap();
        let next = inbox.next(Intake::ControlFrames).await.unwrap();
        assert!(matches!(next, ReadEvent::Closed(Some(_))), "{next:?}");
        assert_eq!(inbox.take_rest(), ["one", "two"].map(|text| ReadEvent::Message(text.into())));
        assert_eq!((inbox.take_rest().len(), inbox.parked_bytes), (0, 0));
    }

    #[tokio::test]
    async fn the_end_of_the_stream_comes_after_parked_messages() {
        let (mut inbox, mut peer) = connected_pair();
        peer.send(b"one").await;
        drop(peer);
        assert!(timeout(Duration::from_millis(20), inbox.next(Intake::ControlFrames)).await.is_err());
        assert_eq!(inbox.next(Intake::Everything).await.unwrap(), ReadEvent::Message("one".into()));
        assert_eq!(inbox.next(Intake::Everything).await.unwrap(), ReadEvent::Closed(None));
    }

    #[tokio::test]
    async fn a_connection_is_not_read_while_too_many_bytes_are_parked() {
        let (mut inbox, mut peer) = connected_pair();
        let sending = async {
            let message = vec![b'x'; 64 << 10];
            loop {
                peer.send(&message).await;
            }
        };
        let reading = timeout(Duration::from_millis(200), inbox.next(Intake::ControlFrames));
        tokio::select! {
            () = sending => {}
            read = reading => assert!(read.is_err(), "no control frame was sent"),
        }
        assert!(inbox.parked_bytes >= MAX_PARKED_BYTES, "{} bytes", inbox.parked_bytes);
        assert!(inbox.parked_bytes < MAX_PARKED_BYTES + (128 << 10), "{} bytes", inbox.parked_bytes);
    }
}
