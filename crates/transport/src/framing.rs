//! Encodes messages and control frames for the wire. The caller writes each payload directly after its header, into
//! the buffer that goes to the socket, so a payload is not copied. Decoding is in [`crate::Reader`].

use crate::length_prefix::{ControlKind, write_control};
use crate::websocket::{
    FragmentPosition, MAX_CONTROL_BYTES, Opcode, WebSocketRole, apply_mask, mask_key, write_fragment_header,
    write_header,
};

/// The format in which messages are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// WebSocket frames as a server sends them: unmasked.
    WebSocketServer,
    /// WebSocket frames as a client sends them: masked.
    WebSocketClient,
    /// As [`Framing::WebSocketServer`], with binary messages. Text messages of the peer are dropped.
    BinaryWebSocketServer,
    /// As [`Framing::WebSocketClient`], with binary messages. Text messages of the peer are dropped.
    BinaryWebSocketClient,
    /// One message per line, with `\n` at its end. There are no control frames.
    Lines,
    /// Each message after its length, in four bytes with the highest byte first. The length 0 begins a control frame. The
    /// stream of bytes behind this framing decides which control frames travel to the peer.
    LengthPrefixed,
}

/// How a payload is wrapped.
enum Wrapping {
    WebSocket(WebSocketRole, Opcode),
    Line,
    Length,
}

impl Framing {
    /// Appends one message to `out`. `fill` appends the payload, which must have exactly `len` bytes. With [`Framing::Lines`] the payload
    /// must not contain a newline.
    pub fn frame(self, out: &mut Vec<u8>, len: usize, fill: impl FnOnce(&mut Vec<u8>)) {
        match self.wrapping() {
            Wrapping::WebSocket(role, opcode) => websocket_frame(role, out, opcode, len, fill),
            Wrapping::Line => {
                out.reserve(len + 1);
                let start = append_exactly(out, len, fill);
                debug_assert!(!out[start..].contains(&b'\n'), "the payload of a line contains a newline");
                out.push(b'\n');
            }
            Wrapping::Length => {
                debug_assert!(len > 0, "an empty message would be taken for a control frame");
                out.reserve(4 + len);
                out.extend_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes());
                append_exactly(out, len, fill);
            }
        }
    }

    /// The bytes of a message for a peer that refuses long frames: a WebSocket message is split into frames with at
    /// most `most_bytes` of the payload each. Other framings give one piece, which is what [`Framing::frame`] appends.
    pub fn fragments(self, payload: &[u8], most_bytes: usize) -> impl Iterator<Item = Vec<u8>> {
        let Wrapping::WebSocket(role, opcode) = self.wrapping() else {
            let mut whole = Vec::new();
            self.frame(&mut whole, payload.len(), |out| out.extend_from_slice(payload));
            return Fragments::Whole(Some(whole));
        };
        Fragments::Frames { role, opcode: Some(opcode), rest: payload, most_bytes: most_bytes.max(1) }
    }

    fn wrapping(self) -> Wrapping {
        use WebSocketRole::{Client, Server};
        match self {
            Self::WebSocketServer => Wrapping::WebSocket(Server, Opcode::Text),
            Self::WebSocketClient => Wrapping::WebSocket(Client, Opcode::Text),
            Self::BinaryWebSocketServer => Wrapping::WebSocket(Server, Opcode::Binary),
            Self::BinaryWebSocketClient => Wrapping::WebSocket(Client, Opcode::Binary),
            Self::Lines => Wrapping::Line,
            Self::LengthPrefixed => Wrapping::Length,
        }
    }

    /// Appends a ping with the first 125 bytes of `payload`. Returns false, and appends nothing, if the framing has no pings.
    pub fn ping(self, out: &mut Vec<u8>, payload: &[u8]) -> bool {
        self.control_frame(out, Opcode::Ping, payload)
    }

    /// Appends a pong with the first 125 bytes of `payload`. Returns false, and appends nothing, if the framing has no pongs.
    pub fn pong(self, out: &mut Vec<u8>, payload: &[u8]) -> bool {
        self.control_frame(out, Opcode::Pong, payload)
    }

    /// Appends a close frame. The reason is cut to 123 bytes. With [`Framing::Lines`] nothing is appended.
    pub fn close(self, out: &mut Vec<u8>, code: u16, reason: &str) {
        let code = code.to_be_bytes();
        let reason = &reason[..reason.floor_char_boundary(MAX_CONTROL_BYTES - code.len())];
        self.control_frame(out, Opcode::Close, &[&code, reason.as_bytes()].concat());
    }

    /// Whether this framing has pings and pongs.
    pub fn supports_ping(self) -> bool {
        self != Self::Lines
    }

    /// Whether a close frame can tell the peer why the connection is closed. If not, [`Framing::close`] appends nothing.
    pub fn has_close_codes(self) -> bool {
        self.supports_ping()
    }

    fn control_frame(self, out: &mut Vec<u8>, opcode: Opcode, payload: &[u8]) -> bool {
        let payload = &payload[..payload.len().min(MAX_CONTROL_BYTES)];
        match self.wrapping() {
            Wrapping::WebSocket(role, _) => {
                websocket_frame(role, out, opcode, payload.len(), |out| out.extend_from_slice(payload));
            }
            Wrapping::Length => write_control(out, ControlKind::of(opcode), payload),
            Wrapping::Line => return false,
        }
        true
    }
}

/// The pieces of [`Framing::fragments`].
enum Fragments<'a> {
    /// A message that is not split. None after it was returned.
    Whole(Option<Vec<u8>>),
    /// The frames of a WebSocket message. `rest` is the part of the payload that is still to be returned.
    Frames {
        role: WebSocketRole,
        /// The opcode of the next frame. None after the last frame.
        opcode: Option<Opcode>,
        rest: &'a [u8],
        most_bytes: usize,
    },
}

impl Iterator for Fragments<'_> {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        match self {
            Self::Whole(whole) => whole.take(),
            Self::Frames { role, opcode, rest, most_bytes } => {
                let frame_opcode = opcode.take()?;
                let (piece, after) = rest.split_at(rest.len().min(*most_bytes));
                let position = if after.is_empty() { FragmentPosition::Last } else { FragmentPosition::NotLast };
                *rest = after;
                *opcode = (position == FragmentPosition::NotLast).then_some(Opcode::Continuation);
                let mask = (*role == WebSocketRole::Client).then(mask_key);
                let mut frame = Vec::with_capacity(LONGEST_HEADER_BYTES + piece.len());
                write_fragment_header(&mut frame, frame_opcode, position, piece.len(), mask);
                let start = append_exactly(&mut frame, piece.len(), |out| out.extend_from_slice(piece));
                if let Some(key) = mask {
                    apply_mask(&mut frame[start..], key, 0);
                }
                Some(frame)
            }
        }
    }
}

/// Length of the longest header of a WebSocket frame.
const LONGEST_HEADER_BYTES: usize = 14;

fn websocket_frame(
    role: WebSocketRole,
    out: &mut Vec<u8>,
    opcode: Opcode,
    len: usize,
    fill: impl FnOnce(&mut Vec<u8>),
) {
    let mask = (role == WebSocketRole::Client).then(mask_key);
    out.reserve(LONGEST_HEADER_BYTES + len);
    write_header(out, opcode, len, mask);
    let start = append_exactly(out, len, fill);
    if let Some(key) = mask {
        apply_mask(&mut out[start..], key, 0);
    }
}

/// Appends the payload with `fill` and returns the offset at which it begins.
fn append_exactly(out: &mut Vec<u8>, len: usize, fill: impl FnOnce(&mut Vec<u8>)) -> usize {
    let start = out.len();
    fill(out);
    debug_assert_eq!(out.len() - start, len, "the payload does not have the announced length");
    start
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(framing: Framing, payload: &[u8]) -> Vec<u8> {
        let mut out = b"before".to_vec();
        framing.frame(&mut out, payload.len(), |out| {
            out.extend_from_slice(payload);
        });
        out.split_off(b"before".len())
    }

    #[test]
    fn a_server_frame_is_an_unmasked_text_frame_with_its_length() {
        assert_eq!(framed(Framing::WebSocketServer, b"{}"), b"\x81\x02{}");
        assert_eq!(framed(Framing::WebSocketServer, &[b'x'; 126])[..4], [0x81, 126, 0, 126]);
    }

    #[test]
    fn a_client_frame_is_masked_with_the_key_in_its_header() {
        let mut frame = framed(Framing::WebSocketClient, b"hello");
        assert_eq!(frame[..2], [0x81, 0x85]);
        let key = frame[2..6].try_into().unwrap();
        apply_mask(&mut frame[6..], key, 0);
        assert_eq!(&frame[6..], b"hello");
    }

    #[test]
    fn line_framing_ends_a_message_with_a_newline_and_has_no_control_frames() {
        assert_eq!(framed(Framing::Lines, b"{}"), b"{}\n");
        let mut out = Vec::new();
        Framing::Lines.close(&mut out, 1000, "bye");
        assert!(!Framing::Lines.ping(&mut out, b"") && !Framing::Lines.pong(&mut out, b"") && out.is_empty());
    }

    #[test]
    fn a_long_message_is_cut_into_frames_of_which_only_the_last_ends_it() {
        let frames: Vec<Vec<u8>> = Framing::WebSocketServer.fragments(b"12345", 2).collect();
        assert_eq!(frames, [&b"\x01\x0212"[..], b"\x00\x0234", b"\x80\x015"]);
        let whole: Vec<Vec<u8>> = Framing::WebSocketServer.fragments(b"12", 2).collect();
        assert_eq!(whole, [b"\x81\x0212"]);
        assert_eq!(Framing::WebSocketServer.fragments(b"", 2).collect::<Vec<_>>(), [b"\x81\x00"]);
        assert_eq!(Framing::Lines.fragments(b"12345", 2).collect::<Vec<_>>(), [b"12345\n"]);
        let masked: Vec<Vec<u8>> = Framing::BinaryWebSocketClient.fragments(b"123", 2).collect();
        assert_eq!(masked.iter().map(|frame| frame[0]).collect::<Vec<_>>(), [0x02, 0x80]);
        let key = masked[0][2..6].try_into().unwrap();
        let mut payload = masked[0][6..].to_vec();
        apply_mask(&mut payload, key, 0);
        assert_eq!(payload, b"12");
    }

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        let mut out = Vec::new();
        Framing::WebSocketServer.close(&mut out, 1002, &"é".repeat(100));
        assert_eq!((out[1], &out[2..4]), (124, &[0x03, 0xea][..]));
        assert!(std::str::from_utf8(&out[4..]).is_ok());
    }
}
