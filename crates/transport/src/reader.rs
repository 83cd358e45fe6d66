//! The reading half of a message stream: a byte source, a buffer and the decoder of the framing. Everything that was read
//! lives in the reader, so a dropped `next` loses nothing.

mod buffer;

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use tokio::io::AsyncRead;
use tokio::time::Instant;

use crate::framing::Framing;
use crate::line_decoder::LineDecoder;
use crate::message::{MessageLimits, ReadError, ReadEvent};
use crate::websocket;
use buffer::ReadBuffer;
pub(crate) use buffer::take;

/// Reads messages.
pub struct Reader {
    source: Box<dyn AsyncRead + Send + Unpin>,
    buffer: ReadBuffer,
    decoder: Decoder,
    has_ended: bool,
    /// The source itself has ended, not just the messages in it.
    source_has_ended: bool,
    received_bytes: u64,
    last_received: Instant,
}

#[derive(Debug)]
enum Decoder {
    WebSocket(websocket::Decoder),
    Lines(LineDecoder),
}

impl Reader {
    /// Reads from `source` what follows `already_read`.
    pub(crate) fn new(
        source: impl AsyncRead + Send + Unpin + 'static,
        framing: Framing,
        already_read: Bytes,
        limits: MessageLimits,
    ) -> Self {
        let limit = limits.message_bytes;
        let decoder = match framing {
            Framing::WebSocketServer => Decoder::WebSocket(websocket::Decoder::new(websocket::Role::Server, limit)),
            Framing::WebSocketClient => Decoder::WebSocket(websocket::Decoder::new(websocket::Role::Client, limit)),
            Framing::Lines => Decoder::Lines(LineDecoder::new(limit)),
        };
        Self {
            source: Box::new(source),
            buffer: ReadBuffer::new(already_read),
            decoder,
            has_ended: false,
            source_has_ended: false,
            received_bytes: 0,
            last_received: Instant::now(),
        }
    }

    /// Waits for the next thing from the peer. Cancel safe. After [`ReadEvent::Closed`] or an error it only ever says closed.
    pub async fn next(&mut self) -> Result<ReadEvent, ReadError> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// What has arrived already, if that is a whole message or an end. Reads nothing.
    pub fn next_buffered(&mut self) -> Option<Result<ReadEvent, ReadError>> {
        if self.has_ended {
            return None;
        }
        let outcome = self.decoder.decode(&mut self.buffer.bytes).transpose()?;
        self.has_ended |= matches!(outcome, Err(_) | Ok(ReadEvent::Closed(_)));
        Some(outcome)
    }

    /// Waits for more bytes and drops them, whatever they say; 0 is the end of the byte stream. Cancel safe. For a connection on
    /// which the last word was said: a socket that is closed while bytes arrive is reset, and the peer may lose what it has not
    /// read yet. After this the reader only ever says closed.
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

    /// How much has come so far, of messages that are not whole yet too.
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// When bytes came for the last time, of messages that are not whole yet too; at first, when the connection was made.
    pub fn last_received(&self) -> Instant {
        self.last_received
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<ReadEvent, ReadError>> {
        if self.has_ended {
            return Poll::Ready(Ok(ReadEvent::Closed(None)));
        }
        let outcome = loop {
            match self.decoder.decode(&mut self.buffer.bytes) {
                Ok(Some(incoming)) => break Ok(incoming),
                Ok(None) => {}
                Err(error) => break Err(error),
            }
            let missing = self.decoder.missing(self.buffer.bytes.len());
            match ready!(self.buffer.poll_fill(&mut self.source, missing, cx)) {
                Ok(0) => {
                    self.has_ended = true;
                    self.source_has_ended = true;
                    break self.decoder.finish(&mut self.buffer.bytes);
                }
                Ok(count) => {
                    self.received_bytes += count as u64;
                    self.last_received = Instant::now();
                }
                Err(error) => break Err(error.into()),
            }
        };
        self.has_ended |= matches!(outcome, Err(_) | Ok(ReadEvent::Closed(_)));
        Poll::Ready(outcome)
    }

    #[cfg(test)]
    fn buffered_capacity(&self) -> usize {
        self.buffer.bytes.capacity()
    }
}

impl Decoder {
    fn decode(&mut self, bytes: &mut BytesMut) -> Result<Option<ReadEvent>, ReadError> {
        match self {
            Self::WebSocket(decoder) => Ok(decoder.decode(bytes)?),
            Self::Lines(decoder) => Ok(decoder.decode(bytes)),
        }
    }

    fn missing(&self, buffered: usize) -> usize {
        match self {
            Self::WebSocket(decoder) => decoder.missing(buffered),
            Self::Lines(_) => 0,
        }
    }

    /// What the end of the byte stream means after what came before.
    fn finish(&mut self, bytes: &mut BytesMut) -> Result<ReadEvent, ReadError> {
        match self {
            Self::WebSocket(decoder) if decoder.is_between_messages() && bytes.is_empty() => {
                Ok(ReadEvent::Closed(None))
            }
            Self::WebSocket(_) => Err(ReadError::Truncated),
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
