//! Decodes WebSocket frames into messages, without I/O: it removes bytes from the read buffer of the caller.
//!
//! A message in a single frame stays in the read buffer until it is complete, so a large one is delivered without a copy. The fragments of
//! a message are copied into a buffer of its own. A message over the limit is reported once, and the rest of it is discarded as it arrives.

use bytes::{Buf, Bytes, BytesMut};

use super::header::{FrameHeader, Opcode};
use super::{Violation, WebSocketRole, apply_mask};
use crate::message::{CloseReason, PREFIX_BYTES, ReadEvent};
use crate::reader::take_message;

/// The status code that RFC 6455 defines for a close frame without a code.
const NO_STATUS: u16 = 1005;

/// The state of the decoder between two reads. Bytes that are not decoded stay in the read buffer, which the caller passes to each call.
#[derive(Debug)]
pub(crate) struct WebSocketDecoder {
    role: WebSocketRole,
    text_messages: TextMessages,
    /// Length of the longest message, in bytes.
    limit: usize,
    fragmented: FragmentedMessage,
    frame: FrameState,
}

/// The treatment of messages in text frames. Those in binary frames are always delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextMessages {
    Delivered,
    Dropped,
}

/// A message of several frames, or over the limit, whose last frame has not been decoded.
#[derive(Debug)]
enum FragmentedMessage {
    /// There is no such message.
    None,
    /// A message of several frames within the limit: its payload so far.
    Assembling(BytesMut),
    /// The message, of one frame or several, is over the limit and was reported. The rest of it is discarded.
    Discarding,
}

/// The progress in the current frame.
#[derive(Debug)]
enum FrameState {
    /// The next bytes are the header of a frame.
    Header,
    /// A control frame, or a message in a single frame. Its payload stays in the read buffer until it is complete. The number is how many
    /// bytes of it are unmasked.
    Buffering(FrameHeader, usize),
    /// The frame makes its message longer than the limit. Its payload stays in the read buffer until there is enough
    /// of it for the prefix in [`ReadEvent::TooLarge`].
    Overlong(FrameHeader),
    /// A frame of a fragmented or discarded message. The number is how many bytes of its payload were removed from the read buffer.
    Fragment(FrameHeader, u64),
}

impl WebSocketDecoder {
    pub(crate) fn new(role: WebSocketRole, text_messages: TextMessages, limit: usize) -> Self {
        Self { role, text_messages, limit, fragmented: FragmentedMessage::None, frame: FrameState::Header }
    }

    /// Removes the next message or control frame from `buffer`. Returns `None` if more bytes are needed. After a violation the decoder
    /// must not be used again.
    pub(crate) fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<ReadEvent>, Violation> {
        loop {
            match self.frame {
                FrameState::Header => {
                    let Some((header, header_bytes)) = FrameHeader::parse(buffer, self.role)? else {
                        return Ok(None);
                    };
                    buffer.advance(header_bytes);
                    self.frame = self.begin_frame(header)?;
                }
                FrameState::Buffering(header, unmasked) => {
                    let payload_bytes = header.payload_bytes as usize;
                    let arrived = payload_bytes.min(buffer.len());
                    unmask(&mut buffer[unmasked..arrived], &header, unmasked as u64);
                    if arrived < payload_bytes {
                        self.frame = FrameState::Buffering(header, arrived);
                        return Ok(None);
                    }
                    self.frame = FrameState::Header;
                    return event_of_frame(header.opcode, take_message(buffer, payload_bytes)).map(Some);
                }
                FrameState::Overlong(header) => return Ok(self.report_overlong(header, buffer)),
                FrameState::Fragment(header, done) => {
                    let arrived =
                        buffer.len().min(usize::try_from(header.payload_bytes - done).unwrap_or(usize::MAX));
                    if let FragmentedMessage::Assembling(message) = &mut self.fragmented {
                        unmask(&mut buffer[..arrived], &header, done);
                        message.extend_from_slice(&buffer[..arrived]);
                    }
                    buffer.advance(arrived);
                    let done = done + arrived as u64;
                    if done < header.payload_bytes {
                        self.frame = FrameState::Fragment(header, done);
                        return Ok(None);
                    }
                    self.frame = FrameState::Header;
                    if let Some(message) = self.end_fragment(&header) {
                        return Ok(Some(message));
                    }
                }
            }
        }
    }

    /// Number of bytes of the current frame that are missing if the read buffer has `buffered` bytes. 0 if the header
    /// is not complete.
    pub(crate) fn missing_bytes(&self, buffered: usize) -> usize {
        let missing = match self.frame {
            FrameState::Header => 0,
            FrameState::Buffering(header, _) | FrameState::Overlong(header) => {
                header.payload_bytes.saturating_sub(buffered as u64)
            }
            FrameState::Fragment(header, done) => header.payload_bytes - done,
        };
        usize::try_from(missing).unwrap_or(usize::MAX)
    }

    /// Whether every frame whose header was decoded, and every message, is complete. The byte stream may end here if
    /// the read buffer is empty as well.
    pub(crate) fn is_between_messages(&self) -> bool {
        matches!((&self.fragmented, &self.frame), (FragmentedMessage::None, FrameState::Header))
    }

    fn begin_frame(&mut self, header: FrameHeader) -> Result<FrameState, Violation> {
        if header.opcode.is_control() {
            return Ok(FrameState::Buffering(header, 0));
        }
        let continues = header.opcode == Opcode::Continuation;
        if header.opcode == Opcode::Text
            && self.text_messages == TextMessages::Dropped
            && matches!(self.fragmented, FragmentedMessage::None)
        {
            self.fragmented = FragmentedMessage::Discarding;
            return Ok(FrameState::Fragment(header, 0));
        }
        let assembled = match (&self.fragmented, continues) {
            (FragmentedMessage::None, true) => return Err(Violation::LoneContinuation),
            (FragmentedMessage::Assembling(_) | FragmentedMessage::Discarding, false) => {
                return Err(Violation::InterruptedMessage);
            }
            (FragmentedMessage::Discarding, true) => return Ok(FrameState::Fragment(header, 0)),
            (FragmentedMessage::Assembling(message), true) => message.len(),
            (FragmentedMessage::None, false) => 0,
        };
        if header.payload_bytes > (self.limit - assembled) as u64 {
            return Ok(FrameState::Overlong(header));
        }
        if header.fin && !continues {
            return Ok(FrameState::Buffering(header, 0));
        }
        if !continues {
            self.fragmented = FragmentedMessage::Assembling(BytesMut::new());
        }
        Ok(FrameState::Fragment(header, 0))
    }

    /// Reports the message as soon as its prefix is complete. From then on the message is discarded.
    fn report_overlong(&mut self, header: FrameHeader, buffer: &mut BytesMut) -> Option<ReadEvent> {
        let assembled: &[u8] = match &self.fragmented {
            FragmentedMessage::Assembling(message) => message,
            FragmentedMessage::None | FragmentedMessage::Discarding => &[],
        };
        let assembled = &assembled[..assembled.len().min(PREFIX_BYTES)];
        let room = (PREFIX_BYTES - assembled.len()) as u64;
        let from_frame = header.payload_bytes.min(room) as usize;
        if buffer.len() < from_frame {
            return None;
        }
        unmask(&mut buffer[..from_frame], &header, 0);
        let prefix = [assembled, &buffer[..from_frame]].concat().into();
        buffer.advance(from_frame);
        self.fragmented = FragmentedMessage::Discarding;
        self.frame = FrameState::Fragment(header, from_frame as u64);
        Some(ReadEvent::TooLarge { prefix })
    }

    fn end_fragment(&mut self, header: &FrameHeader) -> Option<ReadEvent> {
        if !header.fin {
            return None;
        }
        match std::mem::replace(&mut self.fragmented, FragmentedMessage::None) {
            FragmentedMessage::Assembling(message) => Some(ReadEvent::Message(message.freeze())),
            FragmentedMessage::None | FragmentedMessage::Discarding => None,
        }
    }
}

fn unmask(data: &mut [u8], header: &FrameHeader, offset: u64) {
    if let Some(key) = header.mask {
        // The key has four bytes, so only the offset modulo four matters.
        apply_mask(data, key, (offset % 4) as usize);
    }
}

fn event_of_frame(opcode: Opcode, payload: Bytes) -> Result<ReadEvent, Violation> {
    Ok(match opcode {
        Opcode::Continuation | Opcode::Text | Opcode::Binary => ReadEvent::Message(payload),
        Opcode::Ping => ReadEvent::Ping(payload),
        Opcode::Pong => ReadEvent::Pong(payload),
        Opcode::Close => ReadEvent::Closed(Some(close_reason(&payload)?)),
    })
}

/// Reads the payload of a close frame.
pub(crate) fn close_reason(payload: &[u8]) -> Result<CloseReason, Violation> {
    if payload.is_empty() {
        return Ok(CloseReason { code: NO_STATUS, reason: String::new() });
    }
    let Some((code, reason)) = payload.split_first_chunk() else {
        return Err(Violation::HalfStatusCode);
    };
    let code = u16::from_be_bytes(*code);
    if !may_be_sent(code) {
        return Err(Violation::ReservedStatusCode(code));
    }
    let reason = std::str::from_utf8(reason).map_err(|_| Violation::ReasonNotUtf8)?;
    Ok(CloseReason { code, reason: reason.to_owned() })
}

/// Whether a close frame may have this status code. Of the codes 1000 to 1014, 1004 has no meaning, 1005 stands for a
/// close frame without a code, and 1006 for an end without a close frame; the others are defined. Libraries and
/// applications use 3000 to 4999.
fn may_be_sent(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}

#[cfg(test)]
mod tests;
