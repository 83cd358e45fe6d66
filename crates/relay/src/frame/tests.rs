//! The bytes of frames, and frames that are refused.

use proptest::prelude::*;

use super::*;

const STREAM: &str = "6f1c2a9e-3f0d-4b55-9a6e-0b7c3f2d1e90";

fn header() -> Vec<u8> {
    [&[0x08, 0x01, 0x12, 0x24], STREAM.as_bytes()].concat()
}

fn encoded(body: FrameBody) -> Vec<u8> {
    Frame::new(STREAM, body).encode()[header().len()..].to_vec()
}

#[test]
fn frames_have_the_bytes_of_the_published_protocol() {
    assert!(Frame::new(STREAM, FrameBody::Ack).encode().starts_with(&header()));
    assert_eq!(encoded(FrameBody::Resume { next_seq: 0 }), [0x3a, 0x00]);
    assert_eq!(encoded(FrameBody::Ack), [0x32, 0x00]);
    assert_eq!(encoded(FrameBody::Heartbeat), [0x4a, 0x00]);
    let record = Bytes::from(vec![0xaa; 22]);
    let data = [&[0x2a, 0x1a, 0x18, 0x01, 0x22, 0x16][..], &record].concat();
    assert_eq!(encoded(FrameBody::Data { seq: 0, record }), data);
    let record = Bytes::from(vec![0xaa; 4]);
    assert_eq!(encoded(FrameBody::Data { seq: 7, record })[..4], [0x2a, 0x0a, 0x08, 0x07]);
    let reason = "noise_relay_protocol_error".to_owned();
    assert_eq!(encoded(FrameBody::Reset { reason })[..4], [0x42, 0x1c, 0x0a, 0x1a]);
    let handshake = encoded(FrameBody::Handshake(vec![1; 3583].into()));
    assert_eq!((handshake.len(), &handshake[..6]), (3583 + 6, &[0x52, 0x82, 0x1c, 0x0a, 0xff, 0x1b][..]));
}

#[test]
fn a_frame_with_all_fields_is_read_as_it_was_written() {
    let frame = Frame {
        ack: 3,
        ack_bits: 0x8000_0001,
        credit: 70,
        features: Features::ACKNOWLEDGES,
        ..Frame::new(STREAM, FrameBody::Handshake(Bytes::from("noise")))
    };
    assert_eq!(Frame::decode(frame.encode().into()), Ok(frame));
}

#[test]
fn unknown_fields_and_trace_fields_are_ignored() {
    let mut bytes = Frame::new(STREAM, FrameBody::Heartbeat).encode();
    bytes.extend_from_slice(&[0x5a, 0x01, b'x', 0x62, 0x01, b'y', 0xfa, 0x01, 0x02, 1, 2]);
    assert_eq!(Frame::decode(bytes.into()), Ok(Frame::new(STREAM, FrameBody::Heartbeat)));
}

#[test]
fn invalid_frames_are_refused_and_name_their_stream() {
    let data = |segment_index, segment_count, payload: &'static str| {
        Some(Body::Data(wire::RelayData { seq: 0, segment_index, segment_count, payload: payload.into() }))
    };
    let valid = RelayMessageFrame {
        version: 1,
        stream_id: STREAM.to_owned(),
        body: data(0, 1, "x"),
        ..RelayMessageFrame::default()
    };
    let long_id = "i".repeat(MAX_STREAM_ID_BYTES + 1);
    let cases = [
        (RelayMessageFrame { version: 0, ..valid.clone() }, FrameProblem::Version),
        (RelayMessageFrame { version: 2, ..valid.clone() }, FrameProblem::Version),
        (RelayMessageFrame { stream_id: String::new(), ..valid.clone() }, FrameProblem::StreamId),
        (RelayMessageFrame { stream_id: " \t".to_owned(), ..valid.clone() }, FrameProblem::StreamId),
        (RelayMessageFrame { stream_id: long_id, ..valid.clone() }, FrameProblem::StreamId),
        (RelayMessageFrame { body: None, ..valid.clone() }, FrameProblem::Body),
        (RelayMessageFrame { body: data(1, 1, "x"), ..valid.clone() }, FrameProblem::Segment),
        (RelayMessageFrame { body: data(0, 0, "x"), ..valid.clone() }, FrameProblem::Segment),
        (RelayMessageFrame { body: data(0, 2, "x"), ..valid.clone() }, FrameProblem::Segment),
        (RelayMessageFrame { body: data(0, 1, ""), ..valid.clone() }, FrameProblem::Empty),
        (
            RelayMessageFrame { body: Some(Body::Reset(wire::RelayReset::default())), ..valid.clone() },
            FrameProblem::Empty,
        ),
        (
            RelayMessageFrame { body: Some(Body::Handshake(wire::RelayHandshake::default())), ..valid.clone() },
            FrameProblem::Empty,
        ),
    ];
    assert!(Frame::decode(valid.encode_to_vec().into()).is_ok());
    for (frame, problem) in cases {
        let stream_id = frame.stream_id[..frame.stream_id.len().min(MAX_STREAM_ID_BYTES)].to_owned();
        assert_eq!(Frame::decode(frame.encode_to_vec().into()), Err(FrameError::Invalid { stream_id, problem }));
    }
}

#[test]
fn a_message_that_is_too_long_is_no_frame() {
    let frame = |bytes| Frame::new("s", FrameBody::Data { seq: 0, record: vec![0; bytes].into() }).encode();
    let longest = MAX_FRAME_BYTES - (frame(200_000).len() - 200_000);
    assert!(Frame::decode(frame(longest).into()).is_ok());
    assert_eq!(Frame::decode(frame(longest + 1).into()), Err(FrameError::Undecodable));
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(frame) = Frame::decode(Bytes::from(bytes)) {
            prop_assert_eq!(Frame::decode(frame.encode().into()), Ok(frame));
        }
    }

    #[test]
    fn a_cut_or_altered_frame_is_read_without_a_panic(cut in 0_usize..60, place in 0_usize..60, xor in 1_u8..) {
        let frame = Frame::new(STREAM, FrameBody::Data { seq: 300, record: Bytes::from_static(b"0123456789") });
        let mut bytes = frame.encode();
        bytes.truncate(cut);
        if let Some(byte) = bytes.get_mut(place) {
            *byte ^= xor;
        }
        let _ = Frame::decode(bytes.into());
    }
}
