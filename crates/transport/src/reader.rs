//! The reading half of a message stream: a byte source, a buffer, and the decoder for WebSocket frames or for lines.
//! All bytes that were read are kept in the [`Reader`], so dropping the future of [`Reader::next`] loses nothing.
//! `buffer` decides how much to read at a time; the decoders are in `line_decoder` and `websocket`.

mod buffer;

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use tokio::io::AsyncRead;
use tokio::time::Instant;

use crate::framing::Framing;
use crate::length_prefix::LengthPrefixDecoder;
use crate::line_decoder::LineDecoder;
use crate::message::{MessageLimits, ReadError, ReadEvent};
use crate::websocket::{TextMessages, WebSocketDecoder, WebSocketRole};
use buffer::ReadBuffer;
pub(crate) use buffer::take_message;

/// Reads the messages and control frames that the peer sends.
pub struct Reader {
    source: Box<dyn AsyncRead + Send + Unpin>,
    /// Proofs of receipt that do not come as bytes.
    receipts: Option<Box<dyn ReceiptSource>>,
    buffer: ReadBuffer,
    decoder: MessageDecoder,
    /// [`Reader::next`] returns only `Closed(None)` from now on.
    has_ended: bool,
    /// The byte stream has ended.
    source_has_ended: bool,
    received_bytes: u64,
    last_received: Instant,
}

/// Says which messages the peer has received, for a stream whose transport acknowledges bytes.
pub trait ReceiptSource: Send {
    /// Waits until the peer has received everything before the next ping that was written, and returns the payload of that
    /// ping. The reader reports it as if the peer had sent a pong.
    fn poll_receipt(&mut self, cx: &mut Context<'_>) -> Poll<Bytes>;
}

#[derive(Debug)]
enum MessageDecoder {
    WebSocket(WebSocketDecoder),
    Lines(LineDecoder),
    LengthPrefixed(LengthPrefixDecoder),
}

impl Reader {
    /// Decodes the bytes in `already_read`, which the upgrade of a WebSocket has read, and then those from `source`.
    pub(crate) fn new(
        source: impl AsyncRead + Send + Unpin + 'static,
        framing: Framing,
        already_read: Bytes,
        limits: MessageLimits,
    ) -> Self {
        let limit = limits.message_bytes;
        let websocket = |role, text| MessageDecoder::WebSocket(WebSocketDecoder::new(role, text, limit));
        let decoder = match framing {
            Framing::WebSocketServer => websocket(WebSocketRole::Server, TextMessages::Delivered),
            Framing::WebSocketClient => websocket(WebSocketRole::Client, TextMessages::Delivered),
            Framing::BinaryWebSocketServer => websocket(WebSocketRole::Server, TextMessages::Dropped),
            Framing::BinaryWebSocketClient => websocket(WebSocketRole::Client, TextMessages::Dropped),
            Framing::Lines => MessageDecoder::Lines(LineDecoder::new(limit)),
            Framing::LengthPrefixed => MessageDecoder::LengthPrefixed(LengthPrefixDecoder::new(limit)),
        };
        Self {
            source: Box::new(source),
            receipts: None,
            buffer: ReadBuffer::new(already_read),
            decoder,
            has_ended: false,
            source_has_ended: false,
            received_bytes: 0,
            last_received: Instant::now(),
        }
    }

    pub(crate) fn with_receipts(mut self, receipts: impl ReceiptSource + 'static) -> Self {
        self.receipts = Some(Box::new(receipts));
        self
    }

    /// Waits for the next message, control frame or the end. Cancel safe. After [`ReadEvent::Closed`] or an error it returns only
    /// `Closed(None)`.
    pub async fn next(&mut self) -> Result<ReadEvent, ReadError> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Like [`Reader::next`], but decodes only bytes that were read already and does not wait. Returns `None` if
    /// these bytes are not enough for an event, or if [`Reader::next`] would return only `Closed(None)` from now on.
    pub fn next_buffered(&mut self) -> Option<Result<ReadEvent, ReadError>> {
        if self.has_ended {
            return None;
        }
        let event = self.decoder.decode(&mut self.buffer.bytes).transpose()?;
        self.has_ended |= matches!(event, Err(_) | Ok(ReadEvent::Closed(_)));
        Some(event)
    }

    /// Waits for more bytes and discards them. Returns how many; 0 is the end of the byte stream. Cancel safe. It is for a connection that
    /// is about to be closed: the kernel resets a socket that is closed with unread bytes, and then the peer may lose data that it has
    /// not read yet. Afterwards, [`Reader::next`] returns only `Closed(None)`.
    pub async fn discard(&mut self) -> io::Result<usize> {
        self.has_ended = true;
        if self.source_has_ended {
            return Ok(0);
        }
        self.buffer.bytes.clear();
        let count = poll_fn(|cx| self.buffer.poll_fill(&mut self.source, 0, cx)).await?;
        self.source_has_ended = count == 0;
        Ok(count)
    }

    /// Waits until the peer has ended its side of the byte stream, or the stream has failed. What arrives meanwhile is kept for
    /// [`Reader::next`], up to about `most_bytes`. When so many bytes are kept, the stream is not read any more, and this function waits for
    /// ever. Cancel safe.
    pub async fn wait_for_end(&mut self, most_bytes: usize) {
        poll_fn(|cx| {
            while self.buffer.bytes.len() < most_bytes {
                match ready!(self.buffer.poll_fill(&mut self.source, 0, cx)) {
                    Ok(0) | Err(_) => return Poll::Ready(()),
                    Ok(count) => self.note_received(count),
                }
            }
            Poll::Pending
        })
        .await;
    }

    /// Number of bytes received so far, including those of a message that is not complete. Bytes that the upgrade or
    /// [`Reader::discard`] has read do not count.
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// When the last bytes were received, including those of a message that is not complete. Before the first bytes, the time at which
    /// the reader was made.
    pub fn last_received(&self) -> Instant {
        self.last_received
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<ReadEvent, ReadError>> {
        if self.has_ended {
            return Poll::Ready(Ok(ReadEvent::Closed(None)));
        }
        if let Some(receipts) = &mut self.receipts
            && let Poll::Ready(payload) = receipts.poll_receipt(cx)
        {
            return Poll::Ready(Ok(ReadEvent::Pong(payload)));
        }
        let event = loop {
            match self.decoder.decode(&mut self.buffer.bytes) {
                Ok(Some(event)) => break Ok(event),
                Ok(None) => {}
                Err(error) => break Err(error),
            }
            let missing_bytes = self.decoder.missing_bytes(&self.buffer.bytes);
            match ready!(self.buffer.poll_fill(&mut self.source, missing_bytes, cx)) {
                Ok(0) => {
                    self.has_ended = true;
                    self.source_has_ended = true;
                    break self.decoder.finish(&mut self.buffer.bytes);
                }
                Ok(count) => self.note_received(count),
                Err(error) => break Err(error.into()),
            }
        };
        self.has_ended |= matches!(event, Err(_) | Ok(ReadEvent::Closed(_)));
        Poll::Ready(event)
    }

    fn note_received(&mut self, count: usize) {
        self.received_bytes += count as u64;
        self.last_received = Instant::now();
    }

    #[cfg(test)]
    fn buffer_capacity(&self) -> usize {
        self.buffer.bytes.capacity()
    }
}

impl MessageDecoder {
    fn decode(&mut self, bytes: &mut BytesMut) -> Result<Option<ReadEvent>, ReadError> {
        match self {
            Self::WebSocket(decoder) => Ok(decoder.decode(bytes)?),
            Self::Lines(decoder) => Ok(decoder.decode(bytes)),
            Self::LengthPrefixed(decoder) => Ok(decoder.decode(bytes)?),
        }
    }

    /// Number of bytes of the current frame that are not in the buffer yet, or 0 if the decoder does not know how
    /// many.
    fn missing_bytes(&self, buffered: &[u8]) -> usize {
        match self {
            Self::WebSocket(decoder) => decoder.missing_bytes(buffered.len()),
            Self::LengthPrefixed(decoder) => decoder.missing_bytes(buffered),
            Self::Lines(_) => 0,
        }
    }

    /// Handles the end of the byte stream: a last line without a newline is a message, and an incomplete WebSocket message is an error.
    fn finish(&mut self, bytes: &mut BytesMut) -> Result<ReadEvent, ReadError> {
        match self {
            Self::WebSocket(decoder) if decoder.is_between_messages() && bytes.is_empty() => {
                Ok(ReadEvent::Closed(None))
            }
            Self::LengthPrefixed(decoder) if decoder.is_between_messages() && bytes.is_empty() => {
                Ok(ReadEvent::Closed(None))
            }
            Self::WebSocket(_) | Self::LengthPrefixed(_) => Err(ReadError::Truncated),
            Self::Lines(decoder) => Ok(decoder.finish(bytes).unwrap_or(ReadEvent::Closed(None))),
        }
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("buffered_bytes", &self.buffer.bytes.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
