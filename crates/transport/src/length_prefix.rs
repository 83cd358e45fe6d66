//! Messages after their length, without I/O. Before each message stands its length, in four bytes with the highest byte
//! first. A message is never empty: the length 0 begins a control frame, which has a kind (one byte), a length (two
//! bytes) and a payload.
//!
//! The published protocol has these messages, without control frames, in the encrypted streams of a relay. The stream of
//! bytes behind this framing finds the control frames that are sent with a [`LengthPrefixSplitter`], and decides which
//! of them travel to the peer: a peer of the published protocol knows none.

use bytes::{Buf, Bytes, BytesMut};

use crate::message::{PREFIX_BYTES, ReadEvent};
use crate::reader::take_message;
use crate::websocket::{Opcode, Violation, close_reason};

const LENGTH_BYTES: usize = 4;
/// The length 0, the kind and the length of the payload.
const CONTROL_HEAD_BYTES: usize = LENGTH_BYTES + 3;
/// Longest payload of a control frame that is accepted.
const MAX_PAYLOAD_BYTES: usize = 4096;

/// The kinds of control frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlKind {
    /// The peer ends the connection. The payload is that of a WebSocket close frame.
    Close,
    /// Asks for a [`ControlKind::Pong`] with the same payload.
    Ping,
    /// Answers a ping.
    Pong,
    /// A kind that the stream of bytes behind the framing uses, and that no reader gets.
    Other(u8),
}

impl ControlKind {
    /// The kind that a WebSocket would send with this opcode.
    pub(crate) fn of(opcode: Opcode) -> Self {
        match opcode {
            Opcode::Ping => Self::Ping,
            Opcode::Pong => Self::Pong,
            Opcode::Close | Opcode::Continuation | Opcode::Text | Opcode::Binary => Self::Close,
        }
    }

    fn from_byte(byte: u8) -> Self {
        match byte {
            1 => Self::Close,
            2 => Self::Ping,
            3 => Self::Pong,
            other => Self::Other(other),
        }
    }

    fn byte(self) -> u8 {
        match self {
            Self::Close => 1,
            Self::Ping => 2,
            Self::Pong => 3,
            Self::Other(byte) => byte,
        }
    }
}

/// Appends a control frame. The payload is cut to 4096 bytes.
pub fn write_control(out: &mut Vec<u8>, kind: ControlKind, payload: &[u8]) {
    let payload = &payload[..payload.len().min(MAX_PAYLOAD_BYTES)];
    out.extend_from_slice(&[0; LENGTH_BYTES]);
    out.push(kind.byte());
    out.extend_from_slice(&(payload.len() as u16).to_be_bytes());
    out.extend_from_slice(payload);
}

/// A complete control frame: its kind and its payload.
pub type ControlFrame = (ControlKind, Bytes);

/// Finds the control frames between the messages of a stream of bytes, wherever the stream is cut into pieces.
#[derive(Debug, Default)]
pub struct LengthPrefixSplitter {
    /// Bytes of the current message that have not come yet.
    missing_bytes: usize,
    /// The beginning of a length or of a control frame.
    incomplete: BytesMut,
}

impl LengthPrefixSplitter {
    /// Moves messages from the front of `bytes` to `messages`, until `messages` holds `most_bytes`, `bytes` is empty, or
    /// a control frame is complete, which is returned. A control frame with an overlong payload is an error.
    pub fn split(
        &mut self,
        bytes: &mut &[u8],
        messages: &mut Vec<u8>,
        most_bytes: usize,
    ) -> Result<Option<ControlFrame>, OverlongControl> {
        while !bytes.is_empty() && messages.len() < most_bytes {
            let room = most_bytes - messages.len();
            // A length prefix is never split, so `messages` may get up to three bytes more than `most_bytes`.
            if let Some(frame) = self.step(bytes, room, |piece| messages.extend_from_slice(piece))? {
                return Ok(Some(frame));
            }
        }
        Ok(None)
    }

    /// Removes bytes from the front of `bytes` until a control frame is complete, which is returned. The bytes of
    /// messages are dropped. A control frame with an overlong payload is an error.
    pub fn find_control(&mut self, bytes: &mut &[u8]) -> Result<Option<ControlFrame>, OverlongControl> {
        while !bytes.is_empty() {
            if let Some(frame) = self.step(bytes, usize::MAX, |_| {})? {
                return Ok(Some(frame));
            }
        }
        Ok(None)
    }

    /// Whether the bytes so far end with a complete message or control frame, so that a control frame may follow.
    pub fn is_between_messages(&self) -> bool {
        self.missing_bytes == 0 && self.incomplete.is_empty()
    }

    /// Removes the next piece from the front of `bytes`, and passes it to `take` if it belongs to a message.
    fn step(
        &mut self,
        bytes: &mut &[u8],
        most_bytes: usize,
        take: impl FnOnce(&[u8]),
    ) -> Result<Option<ControlFrame>, OverlongControl> {
        if self.missing_bytes > 0 {
            let count = self.missing_bytes.min(bytes.len()).min(most_bytes);
            take(&bytes[..count]);
            bytes.advance(count);
            self.missing_bytes -= count;
            return Ok(None);
        }
        let needed = self.needed_bytes()?;
        let count = needed.saturating_sub(self.incomplete.len()).min(bytes.len());
        self.incomplete.extend_from_slice(&bytes[..count]);
        bytes.advance(count);
        if self.incomplete.len() < needed {
            return Ok(None);
        }
        match length_at_front(&self.incomplete) {
            0 if self.needed_bytes()? > needed => {}
            0 => {
                let frame = self.incomplete.split().freeze();
                let kind = ControlKind::from_byte(frame[LENGTH_BYTES]);
                return Ok(Some((kind, frame.slice(CONTROL_HEAD_BYTES..))));
            }
            length => {
                take(&self.incomplete);
                self.incomplete.clear();
                self.missing_bytes = length;
            }
        }
        Ok(None)
    }

    /// How many bytes the length or the control frame has, as far as that is known.
    fn needed_bytes(&self) -> Result<usize, OverlongControl> {
        let has_bytes = self.incomplete.len();
        if has_bytes < LENGTH_BYTES || length_at_front(&self.incomplete) > 0 {
            Ok(LENGTH_BYTES)
        } else if has_bytes < CONTROL_HEAD_BYTES {
            Ok(CONTROL_HEAD_BYTES)
        } else {
            control_bytes(&self.incomplete)
        }
    }
}

/// A control frame announces a payload that is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a control frame is longer than {MAX_PAYLOAD_BYTES} bytes")]
pub struct OverlongControl;

fn length_at_front(bytes: &[u8]) -> usize {
    bytes.first_chunk().map_or(0, |length| u32::from_be_bytes(*length) as usize)
}

/// The length of the control frame whose head is at the front of `bytes`.
fn control_bytes(bytes: &[u8]) -> Result<usize, OverlongControl> {
    let payload = usize::from(u16::from_be_bytes([bytes[LENGTH_BYTES + 1], bytes[LENGTH_BYTES + 2]]));
    if payload > MAX_PAYLOAD_BYTES { Err(OverlongControl) } else { Ok(CONTROL_HEAD_BYTES + payload) }
}

/// The state of the decoder between two reads. Bytes that are not decoded stay in the read buffer, which the caller
/// passes to each call.
#[derive(Debug)]
pub(crate) struct LengthPrefixDecoder {
    /// Length of the longest message, in bytes.
    limit: usize,
    /// Bytes of a message over the limit that are still to be discarded.
    discarding: usize,
}

impl LengthPrefixDecoder {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, discarding: 0 }
    }

    /// Removes the next message or control frame from `buffer`. Returns `None` if more bytes are needed.
    pub(crate) fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<ReadEvent>, Violation> {
        loop {
            let discarded = self.discarding.min(buffer.len());
            buffer.advance(discarded);
            self.discarding -= discarded;
            if self.discarding > 0 || buffer.len() < LENGTH_BYTES {
                return Ok(None);
            }
            let length = length_at_front(buffer);
            if length == 0 {
                let Some(event) = self.decode_control(buffer)? else { return Ok(None) };
                if let Some(event) = event {
                    return Ok(Some(event));
                }
                continue;
            }
            let needed = if length > self.limit { PREFIX_BYTES.min(length) } else { length };
            if buffer.len() < LENGTH_BYTES + needed {
                return Ok(None);
            }
            buffer.advance(LENGTH_BYTES);
            if length <= self.limit {
                return Ok(Some(ReadEvent::Message(take_message(buffer, length))));
            }
            self.discarding = length;
            return Ok(Some(ReadEvent::TooLarge { prefix: Bytes::copy_from_slice(&buffer[..needed]) }));
        }
    }

    /// Removes the control frame at the front of `buffer`. `None`: more bytes are needed. `Some(None)`: the frame is of
    /// a kind that says nothing to a reader.
    fn decode_control(&mut self, buffer: &mut BytesMut) -> Result<Option<Option<ReadEvent>>, Violation> {
        if buffer.len() < CONTROL_HEAD_BYTES {
            return Ok(None);
        }
        let frame_bytes = control_bytes(buffer).map_err(|_| Violation::LongControl)?;
        if buffer.len() < frame_bytes {
            return Ok(None);
        }
        let kind = ControlKind::from_byte(buffer[LENGTH_BYTES]);
        let payload = Bytes::copy_from_slice(&buffer[CONTROL_HEAD_BYTES..frame_bytes]);
        buffer.advance(frame_bytes);
        Ok(Some(match kind {
            ControlKind::Close => Some(ReadEvent::Closed(Some(close_reason(&payload)?))),
            ControlKind::Ping => Some(ReadEvent::Ping(payload)),
            ControlKind::Pong => Some(ReadEvent::Pong(payload)),
            // The published protocol has no message of the length 0, so a peer that knows no control frames has sent it.
            ControlKind::Other(0) => return Err(Violation::EmptyMessage),
            ControlKind::Other(_) => None,
        }))
    }

    /// Number of bytes of the current message that are missing if the read buffer has `buffered`.
    pub(crate) fn missing_bytes(&self, buffered: &[u8]) -> usize {
        if self.discarding > 0 || buffered.len() < LENGTH_BYTES {
            return self.discarding;
        }
        let length = length_at_front(buffered).min(self.limit);
        (LENGTH_BYTES + length).saturating_sub(buffered.len())
    }

    /// Whether the byte stream may end here, if the read buffer is empty as well.
    pub(crate) fn is_between_messages(&self) -> bool {
        self.discarding == 0
    }
}

#[cfg(test)]
mod tests;
