//! Parses and writes the header of a frame, 2 to 14 bytes. The rules for a single header are checked here; those for
//! the sequence of frames and for the payload of a close frame are checked in the decoder.

use super::{Violation, WebSocketRole};

/// Longest payload of a ping, pong or close frame.
pub(crate) const MAX_CONTROL_BYTES: usize = 125;

/// Bit of the first byte: the frame is the last of its message.
const FIN: u8 = 0x80;
/// Bits of the first byte that only extensions use.
const RESERVED: u8 = 0x70;
/// Bit of the second byte: the payload is masked.
const MASKED: u8 = 0x80;
/// Value of the 7-bit length that means that the length follows in 16 bits.
const LENGTH_IN_16_BITS: u8 = 126;
/// Value of the 7-bit length that means that the length follows in 64 bits.
const LENGTH_IN_64_BITS: u8 = 127;

/// The type of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opcode {
    Continuation = 0,
    Text = 1,
    Binary = 2,
    Close = 8,
    Ping = 9,
    Pong = 10,
}

impl Opcode {
    pub(super) fn is_control(self) -> bool {
        matches!(self, Self::Close | Self::Ping | Self::Pong)
    }

    fn parse(bits: u8) -> Result<Self, Violation> {
        Ok(match bits {
            0 => Self::Continuation,
            1 => Self::Text,
            2 => Self::Binary,
            8 => Self::Close,
            9 => Self::Ping,
            10 => Self::Pong,
            unknown => return Err(Violation::UnknownOpcode(unknown)),
        })
    }
}

/// The header of a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHeader {
    /// Whether the frame is the last of its message.
    pub(super) fin: bool,
    pub(super) opcode: Opcode,
    pub(super) payload_bytes: u64,
    /// The key with which the payload is masked.
    pub(super) mask: Option<[u8; 4]>,
}

impl FrameHeader {
    /// Parses the header at the start of `bytes`. Returns it with its length in bytes, or `None` if more bytes are
    /// needed. `role` is ours, and the frame comes from the peer. All violations are found in the first two bytes,
    /// except those of a length that follows in 16 or 64 bits.
    pub(super) fn parse(bytes: &[u8], role: WebSocketRole) -> Result<Option<(Self, usize)>, Violation> {
        let Some((&[first, second], rest)) = bytes.split_first_chunk() else {
            return Ok(None);
        };
        let opcode = Opcode::parse(first & 0x0f)?;
        let fin = first & FIN != 0;
        let short_length = second & !MASKED;
        if first & RESERVED != 0 {
            return Err(Violation::ReservedBits);
        }
        match (role, second & MASKED != 0) {
            (WebSocketRole::Server, false) => return Err(Violation::Unmasked),
            (WebSocketRole::Client, true) => return Err(Violation::Masked),
            (WebSocketRole::Server, true) | (WebSocketRole::Client, false) => {}
        }
        if opcode.is_control() && !fin {
            return Err(Violation::FragmentedControl);
        }
        if opcode.is_control() && usize::from(short_length) > MAX_CONTROL_BYTES {
            return Err(Violation::LongControl);
        }
        let Some((payload_bytes, rest)) = parse_length(short_length, rest) else {
            return Ok(None);
        };
        if payload_bytes > i64::MAX as u64 {
            return Err(Violation::ImpossibleLength);
        }
        if short_length != short_length_of(payload_bytes) {
            return Err(Violation::LongLengthForm);
        }
        let (mask, rest) = match role {
            WebSocketRole::Client => (None, rest),
            WebSocketRole::Server => match rest.split_first_chunk() {
                Some((key, rest)) => (Some(*key), rest),
                None => return Ok(None),
            },
        };
        Ok(Some((Self { fin, opcode, payload_bytes, mask }, bytes.len() - rest.len())))
    }
}

/// Returns the length of the payload and the bytes after the length. `short` is the 7-bit length, and `rest` are the
/// bytes after it. Returns `None` if more bytes are needed.
fn parse_length(short: u8, rest: &[u8]) -> Option<(u64, &[u8])> {
    match short {
        LENGTH_IN_16_BITS => {
            rest.split_first_chunk().map(|(length, rest)| (u16::from_be_bytes(*length).into(), rest))
        }
        LENGTH_IN_64_BITS => rest.split_first_chunk().map(|(length, rest)| (u64::from_be_bytes(*length), rest)),
        length => Some((length.into(), rest)),
    }
}

/// The 7-bit length in the shortest header for a payload: the length itself, or the value that says in how many bits it follows.
fn short_length_of(payload_bytes: u64) -> u8 {
    match payload_bytes {
        0..=125 => payload_bytes as u8,
        126..=0xffff => LENGTH_IN_16_BITS,
        _ => LENGTH_IN_64_BITS,
    }
}

/// Appends the header of a frame that is a whole message or a control frame.
pub(crate) fn write_header(out: &mut Vec<u8>, opcode: Opcode, payload_bytes: usize, mask: Option<[u8; 4]>) {
    write_fragment_header(out, opcode, FragmentPosition::Last, payload_bytes, mask);
}

/// Whether a frame is the last one of its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FragmentPosition {
    /// More frames of the same message follow.
    NotLast,
    /// The frame is the last one of its message, or the only one.
    Last,
}

/// Appends the header of a frame that may be a part of a message. All frames of a message but the first have
/// [`Opcode::Continuation`].
pub(crate) fn write_fragment_header(
    out: &mut Vec<u8>,
    opcode: Opcode,
    position: FragmentPosition,
    payload_bytes: usize,
    mask: Option<[u8; 4]>,
) {
    let fin = if position == FragmentPosition::Last { FIN } else { 0 };
    out.push(fin | opcode as u8);
    let masked = if mask.is_some() { MASKED } else { 0 };
    if payload_bytes < usize::from(LENGTH_IN_16_BITS) {
        out.push(masked | payload_bytes as u8);
    } else if let Ok(length) = u16::try_from(payload_bytes) {
        out.push(masked | LENGTH_IN_16_BITS);
        out.extend_from_slice(&length.to_be_bytes());
    } else {
        out.push(masked | LENGTH_IN_64_BITS);
        out.extend_from_slice(&(payload_bytes as u64).to_be_bytes());
    }
    if let Some(key) = mask {
        out.extend_from_slice(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn violation(bytes: &[u8], role: WebSocketRole) -> Violation {
        FrameHeader::parse(bytes, role).unwrap_err()
    }

    #[test]
    fn a_written_header_is_parsed_back_for_every_form_of_the_length_once_it_is_complete() {
        for payload_bytes in [0, 1, 125, 126, 65_535, 65_536, 1 << 40] {
            for (mask, role) in [(None, WebSocketRole::Client), (Some([1, 2, 3, 4]), WebSocketRole::Server)] {
                let mut out = Vec::new();
                write_header(&mut out, Opcode::Text, payload_bytes, mask);
                let expected =
                    FrameHeader { fin: true, opcode: Opcode::Text, payload_bytes: payload_bytes as u64, mask };
                assert_eq!(FrameHeader::parse(&out, role), Ok(Some((expected, out.len()))));
                for partial in 0..out.len() {
                    assert_eq!(FrameHeader::parse(&out[..partial], role), Ok(None));
                }
            }
        }
    }

    #[test]
    fn violations_are_found_in_the_first_two_bytes() {
        assert_eq!(violation(&[0xc1, 0x80], WebSocketRole::Server), Violation::ReservedBits);
        assert_eq!(violation(&[0x83, 0x80], WebSocketRole::Server), Violation::UnknownOpcode(3));
        assert_eq!(violation(&[0x81, 0x00], WebSocketRole::Server), Violation::Unmasked);
        assert_eq!(violation(&[0x81, 0x80], WebSocketRole::Client), Violation::Masked);
        assert_eq!(violation(&[0x09, 0x80], WebSocketRole::Server), Violation::FragmentedControl);
        assert_eq!(violation(&[0x89, 0xfe], WebSocketRole::Server), Violation::LongControl);
    }

    #[test]
    fn a_length_in_more_bytes_than_needed_is_a_violation() {
        for header in [&[0x82, 0x7e, 0, 125][..], &[0x82, 0x7f, 0, 0, 0, 0, 0, 0, 0xff, 0xff]] {
            assert_eq!(violation(header, WebSocketRole::Client), Violation::LongLengthForm);
        }
    }

    #[test]
    fn a_length_with_its_highest_bit_set_is_a_violation() {
        let header = [0x82, 0x7f, 0x80, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(violation(&header, WebSocketRole::Client), Violation::ImpossibleLength);
    }
}
