//! Tests of the splitter and of the decoder.

use proptest::prelude::*;

use super::*;
use crate::framing::Framing;
use crate::message::CloseReason;

/// What is sent: a message, or a control frame.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Sent {
    Message(Vec<u8>),
    Control(u8, Vec<u8>),
}

fn encoded(sent: &[Sent]) -> Vec<u8> {
    let mut out = Vec::new();
    for item in sent {
        match item {
            Sent::Message(text) => Framing::LengthPrefixed.frame(&mut out, text.len(), |out| out.extend(text)),
            Sent::Control(kind, payload) => write_control(&mut out, ControlKind::from_byte(*kind), payload),
        }
    }
    out
}

fn sent() -> impl Strategy<Value = Sent> {
    let bytes = |range| proptest::collection::vec(any::<u8>(), range);
    prop_oneof![
        bytes(1..300).prop_map(Sent::Message),
        (any::<u8>(), bytes(0..300)).prop_map(|(kind, payload)| Sent::Control(kind, payload)),
    ]
}

fn decode_in_pieces(limit: usize, bytes: &[u8], piece: usize) -> Result<Vec<ReadEvent>, Violation> {
    let (mut decoder, mut buffer, mut seen) = (LengthPrefixDecoder::new(limit), BytesMut::new(), Vec::new());
    for piece in bytes.chunks(piece) {
        buffer.extend_from_slice(piece);
        while let Some(event) = decoder.decode(&mut buffer)? {
            seen.push(event);
        }
    }
    assert!(decoder.is_between_messages() && buffer.is_empty());
    Ok(seen)
}

#[test]
fn a_message_stands_after_its_length_with_the_highest_byte_first() {
    assert_eq!(encoded(&[Sent::Message(b"{}".to_vec())]), b"\0\0\0\x02{}");
}

#[test]
fn control_frames_become_the_events_of_a_websocket() {
    let mut out = Vec::new();
    Framing::LengthPrefixed.ping(&mut out, b"1");
    Framing::LengthPrefixed.pong(&mut out, b"2");
    Framing::LengthPrefixed.close(&mut out, 4010, "taken over");
    let close = CloseReason { code: 4010, reason: "taken over".to_owned() };
    let expected = [ReadEvent::Ping("1".into()), ReadEvent::Pong("2".into()), ReadEvent::Closed(Some(close))];
    assert_eq!(decode_in_pieces(9, &out, 1).unwrap(), expected);
}

#[test]
fn a_message_over_the_limit_is_reported_once_and_discarded() {
    let long = [b"{\"id\":1".to_vec(), vec![b'x'; 3000]].concat();
    let bytes = encoded(&[Sent::Message(long.clone()), Sent::Message(b"{}".to_vec())]);
    for piece in [1, 7, 1000, 10_000] {
        let prefix = Bytes::copy_from_slice(&long[..PREFIX_BYTES]);
        let expected = [ReadEvent::TooLarge { prefix }, ReadEvent::Message("{}".into())];
        assert_eq!(decode_in_pieces(3000, &bytes, piece).unwrap(), expected);
    }
}

#[test]
fn an_empty_message_and_an_overlong_control_frame_are_violations() {
    assert_eq!(decode_in_pieces(9, &[0; 7], 7), Err(Violation::EmptyMessage));
    assert_eq!(decode_in_pieces(9, b"\0\0\0\0\x02\xff\xff", 7), Err(Violation::LongControl));
    let mut messages = Vec::new();
    let split = LengthPrefixSplitter::default().split(&mut &b"\0\0\0\0\x02\xff\xff"[..], &mut messages, 10);
    assert_eq!(split, Err(OverlongControl));
}

proptest! {
    /// However the bytes are cut, the splitter finds all control frames at their places, and the messages are unchanged.
    #[test]
    fn a_splitter_separates_messages_and_control_frames(
        items in proptest::collection::vec(sent(), 0..20),
        pieces in proptest::collection::vec(1_usize..100, 1..20),
        most in 1_usize..200,
    ) {
        let bytes = encoded(&items);
        let mut rest = &bytes[..];
        let (mut splitter, mut seen, mut all) = (LengthPrefixSplitter::default(), Vec::new(), Vec::new());
        let (mut finder, mut found) = (LengthPrefixSplitter::default(), Vec::new());
        for size in pieces.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (mut piece, after) = rest.split_at((*size).min(rest.len()));
            rest = after;
            let mut searched = piece;
            while let Some(control) = finder.find_control(&mut searched).unwrap() {
                found.push(control);
            }
            while !piece.is_empty() {
                let mut messages = Vec::new();
                let control = splitter.split(&mut piece, &mut messages, most).unwrap();
                prop_assert!(messages.len() < most + 4);
                all.extend(messages);
                seen.extend(control.map(|(kind, payload)| (all.len(), kind, payload)));
            }
        }
        let mut expected = Vec::new();
        let mut written = Vec::new();
        for item in &items {
            match item {
                Sent::Message(_) => written.extend(encoded(std::slice::from_ref(item))),
                Sent::Control(kind, payload) => {
                    expected.push((written.len(), ControlKind::from_byte(*kind), Bytes::copy_from_slice(payload)));
                }
            }
        }
        prop_assert!(splitter.is_between_messages() && finder.is_between_messages());
        prop_assert_eq!(found, expected.iter().map(|(_, kind, payload)| (*kind, payload.clone())).collect::<Vec<_>>());
        prop_assert_eq!(all, written);
        prop_assert_eq!(seen, expected);
    }

    /// Whatever arrives, the decoder does not panic.
    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in proptest::collection::vec(0_u8..5, 0..200), piece in 1_usize..20) {
        let (mut decoder, mut buffer) = (LengthPrefixDecoder::new(50), BytesMut::new());
        for piece in bytes.chunks(piece) {
            buffer.extend_from_slice(piece);
            while let Ok(Some(_)) = decoder.decode(&mut buffer) {}
            let _hint = decoder.missing_bytes(&buffer);
        }
    }
}
