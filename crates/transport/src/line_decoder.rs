//! Splits bytes into messages at newlines, without I/O. The caller uses it like the WebSocket decoder, but it cannot
//! fail.

use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr;

use crate::message::{PREFIX_BYTES, ReadEvent};
use crate::reader::take_message;

/// The state of the decoder between two reads. The bytes themselves stay in the read buffer, which the caller passes to each call.
#[derive(Debug)]
pub(crate) struct LineDecoder {
    /// Length of the longest message in bytes, without the line end.
    limit: usize,
    /// How many bytes at the start of the read buffer were searched and contain no newline. They are not searched again.
    searched: usize,
    /// The current line was reported as too long, and the rest of it is discarded.
    discarding: bool,
}

impl LineDecoder {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, searched: 0, discarding: false }
    }

    /// Removes the next line from `buffer`. Returns `None` if more bytes are needed. Blank lines within the limit are
    /// skipped.
    pub(crate) fn decode(&mut self, buffer: &mut BytesMut) -> Option<ReadEvent> {
        loop {
            let Some(newline) = memchr(b'\n', &buffer[self.searched..]).map(|at| self.searched + at) else {
                return self.decode_incomplete_line(buffer);
            };
            let line = self.take_line(buffer, newline);
            buffer.advance(1);
            if line.is_some() {
                return line;
            }
        }
    }

    /// Handles the end of the byte stream: a last line without a newline is decoded like any other line.
    pub(crate) fn finish(&mut self, buffer: &mut BytesMut) -> Option<ReadEvent> {
        let line_bytes = buffer.len();
        self.take_line(buffer, line_bytes)
    }

    /// Handles a buffer without a newline: reports the line if it is too long already.
    fn decode_incomplete_line(&mut self, buffer: &mut BytesMut) -> Option<ReadEvent> {
        if self.discarding {
            buffer.clear();
            return None;
        }
        self.searched = buffer.len();
        // A carriage return at the end may be the first byte of the line end, which does not count towards the limit.
        if without_carriage_return(buffer).len() <= self.limit {
            return None;
        }
        let too_large = ReadEvent::TooLarge { prefix: prefix(buffer) };
        buffer.clear();
        self.searched = 0;
        self.discarding = true;
        Some(too_large)
    }

    /// Removes a line of `line_bytes` bytes, but not the newline after it. Returns `None` for a blank line and for
    /// the rest of a line that was reported as too long.
    fn take_line(&mut self, buffer: &mut BytesMut, line_bytes: usize) -> Option<ReadEvent> {
        self.searched = 0;
        let was_reported = std::mem::take(&mut self.discarding);
        let line = without_carriage_return(&buffer[..line_bytes]);
        let message_bytes = line.len();
        if message_bytes > self.limit && !was_reported {
            let prefix = prefix(line);
            buffer.advance(line_bytes);
            return Some(ReadEvent::TooLarge { prefix });
        }
        if was_reported || line.trim_ascii().is_empty() {
            buffer.advance(line_bytes);
            return None;
        }
        let message = take_message(buffer, message_bytes);
        buffer.advance(line_bytes - message_bytes);
        Some(ReadEvent::Message(message))
    }
}

fn without_carriage_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// The beginning of a line that is too long.
fn prefix(line: &[u8]) -> Bytes {
    Bytes::copy_from_slice(&line[..line.len().min(PREFIX_BYTES)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode_in_pieces(limit: usize, pieces: &[&[u8]]) -> Vec<ReadEvent> {
        let (mut decoder, mut buffer, mut seen) = (LineDecoder::new(limit), BytesMut::new(), Vec::new());
        for piece in pieces {
            buffer.extend_from_slice(piece);
            seen.extend(std::iter::from_fn(|| decoder.decode(&mut buffer)));
        }
        seen.extend(decoder.finish(&mut buffer));
        seen
    }

    fn message(text: &str) -> ReadEvent {
        ReadEvent::Message(Bytes::copy_from_slice(text.as_bytes()))
    }

    fn too_large(prefix: &str) -> ReadEvent {
        ReadEvent::TooLarge { prefix: Bytes::copy_from_slice(prefix.as_bytes()) }
    }

    #[test]
    fn a_line_ends_with_lf_or_crlf_or_the_stream_and_blank_lines_are_skipped() {
        let seen = decode_in_pieces(100, &[b"one\ntwo\r\n\n \t\r\n  three\r\nla", b"st"]);
        assert_eq!(seen, [message("one"), message("two"), message("  three"), message("last")]);
    }

    #[test]
    fn the_line_end_does_not_count_towards_the_limit() {
        assert_eq!(decode_in_pieces(4, &[b"1234\n1234\r\n"]), [message("1234"), message("1234")]);
        assert_eq!(decode_in_pieces(4, &[b"1234\r", b"\n"]), [message("1234")]);
        assert_eq!(decode_in_pieces(4, &[b"12345\n1\n"]), [too_large("12345"), message("1")]);
        assert_eq!(decode_in_pieces(4, &[b"12345\r\n1\n"]), [too_large("12345"), message("1")]);
    }

    #[test]
    fn an_overlong_line_is_reported_before_its_end_and_the_rest_discarded() {
        let (mut decoder, mut buffer) = (LineDecoder::new(4), BytesMut::from(&b"12345"[..]));
        assert_eq!(decoder.decode(&mut buffer), Some(too_large("12345")));
        buffer.extend_from_slice(&[b'x'; 10_000]);
        assert_eq!((decoder.decode(&mut buffer), buffer.len()), (None, 0));
        buffer.extend_from_slice(b"x\nnext\n");
        assert_eq!(decoder.decode(&mut buffer), Some(message("next")));
    }

    #[test]
    fn the_prefix_of_an_overlong_line_is_at_most_a_kibibyte() {
        let line = "y".repeat(3000);
        assert_eq!(decode_in_pieces(2000, &[line.as_bytes()]), [too_large(&line[..1024])]);
    }

    proptest! {
        #[test]
        fn any_split_of_the_bytes_gives_the_same_messages(bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), Just(b' '), Just(b'x')], 0..200), at in 0usize..200, limit in 0usize..8) {
            let (head, tail) = bytes.split_at(at.min(bytes.len()));
            // `TooLarge` is not compared: its prefix depends on how much of the line had arrived.
            let messages = |seen: Vec<ReadEvent>| seen.into_iter().filter(|event| matches!(event, ReadEvent::Message(_))).collect::<Vec<_>>();
            prop_assert_eq!(messages(decode_in_pieces(limit, &[head, tail])), messages(decode_in_pieces(limit, &[&bytes])));
        }
    }
}
