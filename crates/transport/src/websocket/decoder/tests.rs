//! Limits and violations, frame by frame. The tests of the reader check that the result does not depend on how the bytes are split.

use super::*;

/// The mask of all frames in these tests.
const KEY: [u8; 4] = [0x9d, 0x01, 0xfe, 0x42];
const FIN: u8 = 0x80;

/// A masked frame whose first byte is the opcode, with or without the bit `FIN`.
fn frame(first_byte: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    super::super::write_header(&mut out, Opcode::Text, payload.len(), Some(KEY));
    out[0] = first_byte;
    let start = out.len();
    out.extend_from_slice(payload);
    apply_mask(&mut out[start..], KEY, 0);
    out
}

fn text(payload: &[u8]) -> Vec<u8> {
    frame(FIN | 1, payload)
}

/// Decodes `bytes` as a server, up to the first violation.
fn decode(limit: usize, bytes: &[u8]) -> (Vec<ReadEvent>, Option<Violation>) {
    let (mut decoder, mut buffer, mut seen) = (
        WebSocketDecoder::new(WebSocketRole::Server, TextMessages::Delivered, limit),
        BytesMut::from(bytes),
        Vec::new(),
    );
    loop {
        match decoder.decode(&mut buffer) {
            Ok(Some(incoming)) => seen.push(incoming),
            Ok(None) => return (seen, None),
            Err(violation) => return (seen, Some(violation)),
        }
    }
}

fn message(payload: &[u8]) -> ReadEvent {
    ReadEvent::Message(Bytes::copy_from_slice(payload))
}

fn too_large(prefix: &[u8]) -> ReadEvent {
    ReadEvent::TooLarge { prefix: Bytes::copy_from_slice(prefix) }
}

#[test]
fn the_limit_is_exact_for_a_message_in_one_frame() {
    let bytes = [text(&[b'a'; 2000]), text(&[b'b'; 2001]), text(b"next")].concat();
    let expected = vec![message(&[b'a'; 2000]), too_large(&[b'b'; 1024]), message(b"next")];
    assert_eq!(decode(2000, &bytes), (expected, None));
}

#[test]
fn the_limit_is_exact_for_a_fragmented_message() {
    let fits = [frame(1, &[b'a'; 1500]), frame(0, &[b'a'; 500]), frame(FIN, b"")].concat();
    let exceeds = [frame(2, &[b'b'; 1500]), frame(0, &[b'b'; 500]), frame(FIN, b"b")].concat();
    let expected = vec![message(&[b'a'; 2000]), too_large(&[b'b'; 1024]), message(b"next")];
    assert_eq!(decode(2000, &[fits, exceeds, text(b"next")].concat()), (expected, None));
}

#[test]
fn the_prefix_of_an_overlong_message_spans_fragments_and_ends_with_the_one_that_exceeds_the_limit() {
    let exceeds = [frame(1, b"12"), frame(0, b"3"), frame(0, b"45"), frame(0, b"67"), frame(FIN, b"8")].concat();
    assert_eq!(decode(4, &[exceeds, text(b"next")].concat()), (vec![too_large(b"12345"), message(b"next")], None));
}

#[test]
fn an_overlong_frame_is_reported_before_it_ends_and_the_rest_is_not_kept() {
    let bytes = text(&[b'x'; 1 << 20]);
    let (mut decoder, mut buffer) =
        (WebSocketDecoder::new(WebSocketRole::Server, TextMessages::Delivered, 10), BytesMut::new());
    let mut arrive = |part: &[u8]| {
        buffer.extend_from_slice(part);
        (decoder.decode(&mut buffer), buffer.len())
    };
    // The header has 14 bytes. The first part ends one byte before the end of the prefix.
    assert_eq!(arrive(&bytes[..14 + 1023]), (Ok(None), 1023));
    assert_eq!(arrive(&bytes[14 + 1023..][..1]), (Ok(Some(too_large(&[b'x'; 1024]))), 0));
    for part in bytes[14 + 1024..].chunks(100_000) {
        assert_eq!(arrive(part), (Ok(None), 0));
    }
    assert_eq!(arrive(&text(b"next")), (Ok(Some(message(b"next"))), 0));
}

#[test]
fn control_frames_inside_messages_are_delivered_even_if_the_message_is_discarded() {
    let bytes = [
        frame(1, b"ab"),
        frame(FIN | 9, b"1"),
        frame(0, b"cdef"),
        frame(FIN | 10, b"2"),
        frame(FIN, b"g"),
        text(b"ok"),
    ];
    let expected = vec![
        ReadEvent::Ping(b"1"[..].into()),
        too_large(b"abcdef"),
        ReadEvent::Pong(b"2"[..].into()),
        message(b"ok"),
    ];
    assert_eq!(decode(4, &bytes.concat()), (expected, None));
}

#[test]
fn a_close_frame_is_delivered_with_its_code_and_reason_or_with_1005_if_it_is_empty() {
    let closed = |code, reason: &str| ReadEvent::Closed(Some(CloseReason { code, reason: reason.into() }));
    assert_eq!(decode(9, &frame(FIN | 8, b"\x03\xe9going away")).0, [closed(1001, "going away")]);
    assert_eq!(decode(9, &frame(FIN | 8, b"")).0, [closed(NO_STATUS, "")]);
}

#[test]
fn a_close_frame_with_an_invalid_code_or_reason_is_a_violation_with_close_code_1002_or_1007() {
    let violation = |payload: &[u8]| decode(9, &frame(FIN | 8, payload)).1.unwrap();
    assert_eq!(violation(b"\x03"), Violation::HalfStatusCode);
    for code in [0u16, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65_535] {
        assert_eq!(violation(&code.to_be_bytes()), Violation::ReservedStatusCode(code));
    }
    assert_eq!(violation(b"\x03\xe8\xff"), Violation::ReasonNotUtf8);
    assert_eq!((violation(b"\x03").close_code(), violation(b"\x03\xe8\xff").close_code()), (1002, 1007));
}

#[test]
fn frames_out_of_sequence_are_violations() {
    assert_eq!(decode(9, &frame(FIN, b"x")).1, Some(Violation::LoneContinuation));
    assert_eq!(decode(9, &[frame(1, b"x"), text(b"y")].concat()).1, Some(Violation::InterruptedMessage));
    assert_eq!(decode(9, &[frame(1, &[0; 10]), text(b"y")].concat()).1, Some(Violation::InterruptedMessage));
}

#[test]
fn a_decoder_that_drops_text_delivers_only_binary_messages() {
    let mut bytes = BytesMut::new();
    for (opcode, fin, payload) in [
        (1, true, "text"),
        (2, true, "binary"),
        (1, false, "text in"),
        (9, true, "ping"),
        (0, true, " pieces"),
        (1, true, ""),
        (2, false, "two "),
        (0, true, "pieces"),
    ] {
        bytes.extend_from_slice(&[if fin { 0x80 } else { 0 } | opcode, payload.len() as u8]);
        bytes.extend_from_slice(payload.as_bytes());
    }
    let mut decoder = WebSocketDecoder::new(WebSocketRole::Client, TextMessages::Dropped, 100);
    let seen: Vec<_> = std::iter::from_fn(|| decoder.decode(&mut bytes).unwrap()).collect();
    let message = |text: &'static str| ReadEvent::Message(text.into());
    assert_eq!(seen, [message("binary"), ReadEvent::Ping("ping".into()), message("two pieces")]);
}
