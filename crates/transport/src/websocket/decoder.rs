//! Turns the bytes of a WebSocket into messages. A value without IO: it takes bytes out of the read buffer it is shown and
//! says how many more would help.
//!
//! A message in one frame stays in the read buffer until it is whole and is then handed out without a copy; fragments are moved
//! into a message of their own; an over-long message is reported once and the rest of it dropped as it arrives.

use bytes::{Buf, Bytes, BytesMut};

use super::header::{Header, Opcode};
use super::{Role, Violation, apply_mask};
use crate::message::{CloseReason, PREFIX_BYTES, ReadEvent};
use crate::reader::take;

/// The status a close frame without one stands for.
const NO_STATUS: u16 = 1005;

/// The state between two reads.
#[derive(Debug)]
pub(crate) struct Decoder {
    role: Role,
    limit: usize,
    message: Message,
    stage: Stage,
}

/// The data message that goes on over several frames.
#[derive(Debug)]
enum Message {
    None,
    Assembling(BytesMut),
    Discarding,
}

#[derive(Debug)]
enum Stage {
    /// The next bytes are a header.
    Header,
    /// A control frame, or a message in one frame: it waits in the read buffer. The number counts its bytes that are unmasked.
    Whole(Header, usize),
    /// A frame that takes its message over the limit: it waits until the prefix is there.
    Overlong(Header),
    /// A piece of a fragmented or discarded message. The number counts its bytes that have left the read buffer.
    Piece(Header, u64),
}

impl Decoder {
    pub(crate) fn new(role: Role, limit: usize) -> Self {
        Self { role, limit, message: Message::None, stage: Stage::Header }
    }

    /// Takes the next thing out of `buffer`, or `None` until more has arrived.
    pub(crate) fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<ReadEvent>, Violation> {
        loop {
            match self.stage {
                Stage::Header => {
                    let Some((header, header_bytes)) = Header::parse(buffer, self.role)? else {
                        return Ok(None);
                    };
                    buffer.advance(header_bytes);
                    self.stage = self.begin_frame(header)?;
                }
                Stage::Whole(header, unmasked) => {
                    let payload_bytes = header.payload_bytes as usize;
                    let arrived = payload_bytes.min(buffer.len());
                    unmask(&mut buffer[unmasked..arrived], &header, unmasked as u64);
                    if arrived < payload_bytes {
                        self.stage = Stage::Whole(header, arrived);
                        return Ok(None);
                    }
                    self.stage = Stage::Header;
                    return whole_frame(header.opcode, take(buffer, payload_bytes)).map(Some);
                }
                Stage::Overlong(header) => return Ok(self.report_overlong(header, buffer)),
                Stage::Piece(header, done) => {
                    let arrived =
                        buffer.len().min(usize::try_from(header.payload_bytes - done).unwrap_or(usize::MAX));
                    if let Message::Assembling(message) = &mut self.message {
                        unmask(&mut buffer[..arrived], &header, done);
                        message.extend_from_slice(&buffer[..arrived]);
                    }
                    buffer.advance(arrived);
                    let done = done + arrived as u64;
                    if done < header.payload_bytes {
                        self.stage = Stage::Piece(header, done);
                        return Ok(None);
                    }
                    self.stage = Stage::Header;
                    if let Some(message) = self.end_piece(&header) {
                        return Ok(Some(message));
                    }
                }
            }
        }
    }

    /// How many more bytes the current frame has, as far as that is known.
    pub(crate) fn missing(&self, buffered: usize) -> usize {
        let missing = match self.stage {
            Stage::Header => 0,
            Stage::Whole(header, _) | Stage::Overlong(header) => header.payload_bytes.saturating_sub(buffered as u64),
            Stage::Piece(header, done) => header.payload_bytes - done,
        };
        usize::try_from(missing).unwrap_or(usize::MAX)
    }

    /// Whether the peer may end the byte stream here without having cut a message.
    pub(crate) fn is_between_messages(&self) -> bool {
        matches!((&self.message, &self.stage), (Message::None, Stage::Header))
    }

    fn begin_frame(&mut self, header: Header) -> Result<Stage, Violation> {
        if header.opcode.is_control() {
            return Ok(Stage::Whole(header, 0));
        }
        let continues = header.opcode == Opcode::Continuation;
        let assembled = match (&self.message, continues) {
            (Message::None, true) => return Err(Violation::LoneContinuation),
            (Message::Assembling(_) | Message::Discarding, false) => {
                return Err(Violation::InterruptedMessage);
            }
            (Message::Discarding, true) => return Ok(Stage::Piece(header, 0)),
            (Message::Assembling(message), true) => message.len(),
            (Message::None, false) => 0,
        };
        if header.payload_bytes > (self.limit - assembled) as u64 {
            return Ok(Stage::Overlong(header));
        }
        if header.fin && !continues {
            return Ok(Stage::Whole(header, 0));
        }
        if !continues {
            self.message = Message::Assembling(BytesMut::new());
        }
        Ok(Stage::Piece(header, 0))
    }

    /// Reports the message as soon as its prefix is complete, and from then on discards it.
    fn report_overlong(&mut self, header: Header, buffer: &mut BytesMut) -> Option<ReadEvent> {
        let assembled: &[u8] = match &self.message {
            Message::Assembling(message) => message,
            Message::None | Message::Discarding => &[],
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
        self.message = Message::Discarding;
        self.stage = Stage::Piece(header, from_frame as u64);
        Some(ReadEvent::TooLarge { prefix })
    }

    fn end_piece(&mut self, header: &Header) -> Option<ReadEvent> {
        if !header.fin {
            return None;
        }
        match std::mem::replace(&mut self.message, Message::None) {
            Message::Assembling(message) => Some(ReadEvent::Message(message.freeze())),
            Message::None | Message::Discarding => None,
        }
    }
}

fn unmask(data: &mut [u8], header: &Header, offset: u64) {
    if let Some(key) = header.mask {
        // Only the offset within the four bytes of the key matters.
        apply_mask(data, key, (offset % 4) as usize);
    }
}

fn whole_frame(opcode: Opcode, payload: Bytes) -> Result<ReadEvent, Violation> {
    Ok(match opcode {
        Opcode::Continuation | Opcode::Text | Opcode::Binary => ReadEvent::Message(payload),
        Opcode::Ping => ReadEvent::Ping(payload),
        Opcode::Pong => ReadEvent::Pong(payload),
        Opcode::Close => ReadEvent::Closed(Some(close_reason(&payload)?)),
    })
}

fn close_reason(payload: &[u8]) -> Result<CloseReason, Violation> {
    if payload.is_empty() {
        return Ok(CloseReason { code: NO_STATUS, reason: String::new() });
    }
    let Some((code, reason)) = payload.split_first_chunk() else {
        return Err(Violation::HalfStatusCode);
    };
    Ok(CloseReason { code: u16::from_be_bytes(*code), reason: String::from_utf8_lossy(reason).into_owned() })
}

#[cfg(test)]
mod tests;
