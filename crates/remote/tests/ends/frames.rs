//! Messages that are no frames, frames that break a rule, and frames of unknown streams.

use bytes::Bytes;
use relay::{Frame, FrameBody, MAX_FRAME_BYTES, MAX_STREAM_ID_BYTES};
use testkit::TestService;
use testkit::service::{Leg, Operation};

use crate::raw_harness::RawHarness;
use crate::support::{TestExecutor, connect, exchange};

/// A length-delimited protobuf field with this number and these bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length > 0x7f {
        field.push(length as u8 | 0x80);
        length >>= 7;
    }
    field.push(length as u8);
    field.extend_from_slice(bytes);
    field
}

/// A frame of the given version with one body.
fn frame(version: u8, stream_id: &[u8], body: &[u8]) -> Bytes {
    [&[8, version][..], &field(2, stream_id), body].concat().into()
}

/// Messages that are not frames of the protocol. `known` is the id of a stream that exists.
fn invalid_messages(known: &str) -> Vec<Bytes> {
    let known = known.as_bytes();
    let record = |segments: [u8; 2], payload: &[u8]| {
        field(5, &[&[0x10, segments[0], 0x18, segments[1]][..], &field(4, payload)].concat())
    };
    let ack = field(6, b"");
    let valid = Frame::new("known", FrameBody::Data { seq: 0, record: vec![7; 300].into() }).encode();
    let mut messages = vec![
        Bytes::new(),
        Bytes::from_static(b"{\"id\":1,\"method\":\"initialize\"}"),
        Bytes::from(vec![0xff; 1000]),
        Bytes::from(vec![0; MAX_FRAME_BYTES]),
        // One byte more than a message may have.
        Bytes::from(vec![0; MAX_FRAME_BYTES + 1]),
        frame(0, known, &ack),
        frame(2, known, &ack),
        frame(1, b"", &ack),
        frame(1, b" \t\n", &ack),
        frame(1, b"\xff\xfe", &ack),
        frame(1, &[b'x'; MAX_STREAM_ID_BYTES + 1], &ack),
        frame(1, &vec![b'x'; MAX_FRAME_BYTES - 100], &ack),
        // A frame without a body, and one with an unknown body.
        frame(1, known, b""),
        frame(1, known, &field(15, b"body")),
        // A record that is one of several segments, and records with empty payloads.
        frame(1, known, &record([0, 2], b"record")),
        frame(1, known, &record([1, 1], b"record")),
        frame(1, known, &record([0, 0], b"record")),
        frame(1, known, &record([0, 1], b"")),
        frame(1, known, &field(8, b"")),
        frame(1, known, &field(10, b"")),
        // A reason that is not text.
        frame(1, known, &field(8, &field(1, b"\xff"))),
    ];
    messages.extend((1..valid.len()).step_by(7).map(|length| Bytes::copy_from_slice(&valid[..length])));
    messages
}

#[tokio::test]
async fn messages_that_are_no_frames_are_dropped_and_the_streams_go_on() {
    let service = TestService::start().await;
    let executor = TestExecutor::start(&service).await;
    service.capture();
    let (mut connection, mut at_executor) = connect(&service, &executor).await;
    let stream_id = Frame::decode(service.captured()[0].bytes.clone()).unwrap().stream_id;
    for leg in [Leg::Executor, Leg::Harness] {
        service.inject_all(leg, invalid_messages(&stream_id)).await;
        exchange(&mut connection.stream, &mut at_executor).await;
    }
    assert_eq!(executor.host.notes(), ["registered", "dialled"]);
    assert_eq!([Leg::Executor, Leg::Harness].map(|leg| service.upgrades(leg)), [1, 1]);
}

#[tokio::test]
async fn whoever_uses_a_stream_that_does_not_exist_learns_it() {
    let service = TestService::start().await;
    let executor = TestExecutor::start(&service).await;
    let (mut connection, mut at_executor) = connect(&service, &executor).await;
    for (number, body) in [
        FrameBody::Data { seq: 0, record: vec![7; 100].into() },
        FrameBody::Resume { next_seq: 9 },
        FrameBody::Heartbeat,
        FrameBody::Handshake("not a handshake".into()),
    ]
    .into_iter()
    .enumerate()
    {
        let mut raw = RawHarness::dial(&service).await;
        let stream_id = format!("stream {number}");
        raw.name_stream(&stream_id).await;
        // The executor answers none of these frames.
        raw.send_body(&stream_id, FrameBody::Ack).await;
        raw.send_body(&stream_id, FrameBody::Reset { reason: "gone".to_owned() }).await;
        // The relay has forgotten the stream with this reset.
        let mut raw = RawHarness::dial(&service).await;
        raw.name_stream(&stream_id).await;
        raw.send_body(&stream_id, body).await;
        raw.expect_reset(&stream_id).await;
    }
    exchange(&mut connection.stream, &mut at_executor).await;
    assert_eq!(service.count(Operation::Validate), 1, "the registry was asked about the one good handshake only");
}

#[tokio::test]
async fn an_id_of_256_bytes_with_strange_letters_is_as_good_as_any_other() {
    let service = TestService::start().await;
    let executor = TestExecutor::start(&service).await;
    let mut raw = RawHarness::dial(&service).await;
    let stream_id = format!("\u{1b}[2J\u{0}{}", "ü".repeat((MAX_STREAM_ID_BYTES - 5) / 2));
    raw.name_stream(&stream_id).await;
    let (waiting, message) = raw.first_message(&stream_id);
    raw.send_body(&stream_id, FrameBody::Handshake(message)).await;
    let FrameBody::Handshake(answer) = raw.next_frame().await.body else { panic!("no answer") };
    waiting.finish(&answer).unwrap();
    let (_stream, harness) = executor.accept().await;
    assert_eq!(harness, raw.identity.public_key());
}
