//! Plays random sequences of valid and invalid frames to our WebSocket decoder and to that of `tokio-websockets`, and
//! compares what they deliver and what they refuse. Three differences exist on purpose: messages over the limit and
//! text that is not UTF-8, which have tests of their own at the end of this file, and an end of the byte stream
//! between two fragments of a message, which only our decoder reports.

use futures_util::StreamExt;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tokio::io::{AsyncWriteExt, DuplexStream};
use tokio_websockets::proto::ProtocolError;
use tokio_websockets::{ClientBuilder, Error, ServerBuilder, WebSocketStream};
use transport::{MessageLimits, ReadEvent, in_memory};

/// Limit for messages, in both implementations.
const LIMIT: usize = 100_000;
/// Capacity of each direction between the test and `tokio-websockets`. One direction has to hold all frames of a
/// test, the other has to hold the pongs, which the test does not read.
const PIPE_BYTES: usize = 1 << 20;
const MASK: [u8; 4] = [0x9d, 0x01, 0xfe, 0x42];
const FIN: u8 = 0x80;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;

/// The role of the implementation that decodes.
#[derive(Clone, Copy, Debug)]
enum Receiver {
    Server,
    Client,
}

/// A message or control frame that an implementation delivered. Text and binary messages are not distinguished,
/// because our implementation does not distinguish them.
#[derive(Clone, Debug, PartialEq)]
enum Delivered {
    Message(Vec<u8>),
    /// Only our implementation delivers this.
    TooLarge,
    Ping(Vec<u8>),
    Pong(Vec<u8>),
}

/// How decoding ended.
#[derive(Debug)]
enum StreamEnd<E> {
    /// The byte stream ended.
    Ended,
    /// With a close frame. Holds its status code and reason.
    Closed(u16, String),
    /// With an error of the decoder.
    Refused(E),
}

/// How the length of a payload is written.
#[derive(Clone, Copy, Debug, PartialEq)]
enum LengthForm {
    /// In as few bytes as possible, as the RFC demands.
    Minimal,
    /// In 16 bits. The payload must not have more than 65,535 bytes.
    Bits16,
    Bits64,
}

/// A frame to send. It may be invalid.
#[derive(Clone, Debug)]
struct RawFrame {
    /// FIN, reserved bits and opcode.
    first_byte: u8,
    /// The frame is masked although its receiver is a client, or not masked although its receiver is a server.
    has_wrong_mask: bool,
    length_form: LengthForm,
    payload: Vec<u8>,
}

impl RawFrame {
    fn new(first_byte: u8, payload: &[u8]) -> Self {
        let payload = payload.to_vec();
        Self { first_byte, has_wrong_mask: false, length_form: LengthForm::Minimal, payload }
    }

    fn is_control(&self) -> bool {
        self.first_byte & 0x08 != 0
    }

    fn encode(&self, receiver: Receiver) -> Vec<u8> {
        let is_masked = matches!(receiver, Receiver::Server) != self.has_wrong_mask;
        let mask_bit = if is_masked { 0x80 } else { 0 };
        let mut out = vec![self.first_byte];
        match (self.length_form, self.payload.len()) {
            (LengthForm::Minimal, length @ 0..=125) => out.push(mask_bit | u8::try_from(length).unwrap()),
            (LengthForm::Minimal, length @ 126..=65_535) | (LengthForm::Bits16, length) => {
                out.push(mask_bit | 126);
                out.extend(u16::try_from(length).unwrap().to_be_bytes());
            }
            (LengthForm::Minimal | LengthForm::Bits64, length) => {
                out.push(mask_bit | 127);
                out.extend((length as u64).to_be_bytes());
            }
        }
        if is_masked {
            out.extend(MASK);
            out.extend(self.payload.iter().zip(MASK.iter().cycle()).map(|(byte, key)| byte ^ key));
        } else {
            out.extend(&self.payload);
        }
        out
    }
}

fn ascii(length: impl Into<proptest::collection::SizeRange>) -> impl Strategy<Value = Vec<u8>> {
    vec(0x20u8..0x7f, length)
}

/// Any close code, and the edges of the valid ranges more often than others.
fn close_code() -> impl Strategy<Value = u16> {
    let edges = [0, 999, 1000, 1003, 1004, 1005, 1006, 1007, 1014, 1015, 1016, 2999, 3000, 4999, 5000, u16::MAX];
    prop_oneof![select(edges.to_vec()), any::<u16>()]
}

/// A frame that both implementations treat alike. Text messages are ASCII, because our implementation does not check
/// whether they are UTF-8.
fn any_frame() -> impl Strategy<Value = RawFrame> {
    let data_frame = prop_oneof![
        12 => (select(vec![0, FIN, TEXT, FIN | TEXT, FIN | TEXT, BINARY, FIN | BINARY]), ascii(0..200)),
        // Never a fragment: two fragments of this length in one message would exceed the limit.
        1 => (select(vec![FIN | TEXT, FIN | BINARY]), ascii(65_500..65_600)),
    ];
    let control_frame = (select(vec![FIN | 9, FIN | 10]), vec(any::<u8>(), 0..=125));
    let close = prop_oneof![
        Just(Vec::new()),
        (close_code(), ascii(0..20)).prop_map(|(code, reason)| [&code.to_be_bytes()[..], &reason].concat()),
        // The reason is hardly ever UTF-8.
        (close_code(), vec(any::<u8>(), 0..20))
            .prop_map(|(code, reason)| [&code.to_be_bytes()[..], &reason].concat()),
    ];
    let close_frame = (Just(FIN | CLOSE), close);
    // Mostly invalid: reserved bits and opcodes, fragmented or long control frames, half a status code.
    let invalid_frame = prop_oneof![
        (any::<u8>(), ascii(0..10)),
        (select(vec![FIN | 9, FIN | 10, FIN | CLOSE]), vec(any::<u8>(), 126..200)),
        (Just(FIN | CLOSE), vec(any::<u8>(), 1)),
    ];
    let first_byte_and_payload =
        prop_oneof![20 => data_frame, 6 => control_frame, 1 => close_frame, 1 => invalid_frame];
    let length_form = prop_oneof![
        40 => Just(LengthForm::Minimal),
        1 => Just(LengthForm::Bits16),
        1 => Just(LengthForm::Bits64),
    ];
    let fault = (proptest::bool::weighted(0.02), length_form);
    (first_byte_and_payload, fault).prop_map(|((first_byte, payload), (has_wrong_mask, length_form))| {
        let fits = length_form != LengthForm::Bits16 || payload.len() <= usize::from(u16::MAX);
        let length_form = if fits { length_form } else { LengthForm::Minimal };
        RawFrame { first_byte, has_wrong_mask, length_form, payload }
    })
}

/// Messages and pings that both implementations deliver.
fn valid_frames() -> impl Strategy<Value = Vec<RawFrame>> {
    let frame = (select(vec![FIN | TEXT, FIN | BINARY, FIN | 9]), ascii(0..125));
    vec(frame.prop_map(|(first_byte, payload)| RawFrame::new(first_byte, &payload)), 0..4)
}

fn receiver() -> impl Strategy<Value = Receiver> {
    select(vec![Receiver::Server, Receiver::Client])
}

fn encode(frames: &[RawFrame], receiver: Receiver) -> Vec<u8> {
    frames.iter().flat_map(|frame| frame.encode(receiver)).collect()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

/// Decodes `wire`, which arrives in pieces of `piece_bytes` bytes, with our implementation. Errors are returned as
/// text.
fn decode_with_ours(receiver: Receiver, wire: &[u8], piece_bytes: usize) -> (Vec<Delivered>, StreamEnd<String>) {
    let (server, client) = in_memory(MessageLimits { message_bytes: LIMIT });
    let (mut reading, mut writing) = match receiver {
        Receiver::Server => (server.reader, client.writer),
        Receiver::Client => (client.reader, server.writer),
    };
    let read = async {
        let mut delivered = Vec::new();
        let end = loop {
            match reading.next().await {
                Ok(ReadEvent::Message(message)) => delivered.push(Delivered::Message(message.to_vec())),
                Ok(ReadEvent::TooLarge { .. }) => delivered.push(Delivered::TooLarge),
                Ok(ReadEvent::Ping(payload)) => delivered.push(Delivered::Ping(payload.to_vec())),
                Ok(ReadEvent::Pong(payload)) => delivered.push(Delivered::Pong(payload.to_vec())),
                Ok(ReadEvent::Closed(None)) => break StreamEnd::Ended,
                Ok(ReadEvent::Closed(Some(reason))) => break StreamEnd::Closed(reason.code, reason.reason),
                Err(error) => break StreamEnd::Refused(error.to_string()),
            }
        };
        (delivered, end)
    };
    let write = async {
        for piece in wire.chunks(piece_bytes) {
            writing.write_all(piece).await.unwrap();
            // Lets the reader see this piece before the next one.
            tokio::task::yield_now().await;
        }
        writing.shutdown().await;
        std::future::pending::<()>().await;
    };
    block_on(async {
        tokio::select! {
            decoded = read => decoded,
            () = write => unreachable!("never ready"),
        }
    })
}

/// Decodes `wire` with `tokio-websockets`.
fn decode_with_theirs(receiver: Receiver, wire: &[u8]) -> (Vec<Delivered>, StreamEnd<Error>) {
    let limits = tokio_websockets::Limits::default().max_payload_len(Some(LIMIT));
    block_on(async {
        let (mut writing, reading) = tokio::io::duplex(PIPE_BYTES);
        let mut reading: WebSocketStream<DuplexStream> = match receiver {
            Receiver::Server => ServerBuilder::new().limits(limits).serve(reading),
            Receiver::Client => ClientBuilder::new().limits(limits).take_over(reading),
        };
        writing.write_all(wire).await.unwrap();
        writing.shutdown().await.unwrap();
        let mut delivered = Vec::new();
        loop {
            let message = match reading.next().await {
                None => return (delivered, StreamEnd::Ended),
                Some(Err(error)) => return (delivered, StreamEnd::Refused(error)),
                Some(Ok(message)) => message,
            };
            if let Some((code, reason)) = message.as_close() {
                return (delivered, StreamEnd::Closed(code.into(), reason.to_owned()));
            }
            let payload = message.as_payload().to_vec();
            delivered.push(match () {
                () if message.is_ping() => Delivered::Ping(payload),
                () if message.is_pong() => Delivered::Pong(payload),
                () => Delivered::Message(payload),
            });
        }
    })
}

/// Whether the frames end inside a fragmented message.
fn ends_between_fragments(frames: &[RawFrame]) -> bool {
    frames.iter().rev().find(|frame| !frame.is_control()).is_some_and(|frame| frame.first_byte & FIN == 0)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn both_implementations_deliver_and_refuse_the_same(
        frames in vec(any_frame(), 0..12), receiver in receiver(), piece in 1usize..5000, cut in prop_oneof![2 => Just(0), 1 => 1usize..20],
    ) {
        let mut wire = encode(&frames, receiver);
        // The cut leaves at least one byte of the last frame, so it never falls between two frames.
        let last_frame_bytes = frames.last().map_or(0, |frame| frame.encode(receiver).len());
        let cut = cut.min(last_frame_bytes.saturating_sub(1));
        wire.truncate(wire.len() - cut);

        let (our_messages, our_end) = decode_with_ours(receiver, &wire, piece);
        let (their_messages, their_end) = decode_with_theirs(receiver, &wire);
        prop_assert_eq!(our_messages, their_messages);
        match (our_end, their_end) {
            (StreamEnd::Ended, StreamEnd::Ended) | (StreamEnd::Refused(_), StreamEnd::Refused(_)) => {}
            (StreamEnd::Closed(our_code, our_reason), StreamEnd::Closed(code, reason)) => {
                prop_assert_eq!((our_code, our_reason), (code, reason));
            }
            // `tokio-websockets` accepts an end of the byte stream between two fragments. Our implementation reports
            // it, because the message that was begun is lost.
            (StreamEnd::Refused(ours), StreamEnd::Ended) => {
                prop_assert_eq!(ours, "the connection ended in the middle of a message");
                prop_assert!(ends_between_fragments(&frames));
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn difference_a_message_over_the_limit_is_skipped_by_ours_and_refused_by_theirs(
        before in valid_frames(), after in valid_frames(), receiver in receiver(), piece in 1usize..5000, is_fragmented: bool,
    ) {
        let long = if is_fragmented {
            vec![RawFrame::new(BINARY, &[b'x'; LIMIT]), RawFrame::new(FIN, b"x")]
        } else {
            vec![RawFrame::new(FIN | BINARY, &[b'x'; LIMIT + 1])]
        };
        let wire = encode(&[before.clone(), long, after.clone()].concat(), receiver);
        let (our_messages, our_end) = decode_with_ours(receiver, &wire, piece);
        prop_assert_eq!(our_messages, [expected(&before), vec![Delivered::TooLarge], expected(&after)].concat());
        prop_assert!(matches!(our_end, StreamEnd::Ended), "{:?}", our_end);
        let (their_messages, their_end) = decode_with_theirs(receiver, &wire);
        prop_assert_eq!(their_messages, expected(&before));
        prop_assert!(matches!(their_end, StreamEnd::Refused(Error::PayloadTooLong { .. })), "{:?}", their_end);
    }

    #[test]
    fn difference_text_that_is_not_utf_8_is_delivered_by_ours_and_refused_by_theirs(
        before in valid_frames(), after in valid_frames(), receiver in receiver(),
    ) {
        let frame = RawFrame::new(FIN | TEXT, b"\xff\xfe");
        let is_expected = |error: &ProtocolError| matches!(error, ProtocolError::InvalidUtf8);
        check_that_only_theirs_refuses(&before, frame, &after, receiver, is_expected)?;
    }
}

/// Checks that our implementation delivers all frames, and that `tokio-websockets` refuses `frame` with the expected
/// error.
fn check_that_only_theirs_refuses(
    before: &[RawFrame],
    frame: RawFrame,
    after: &[RawFrame],
    receiver: Receiver,
    is_expected: impl Fn(&ProtocolError) -> bool,
) -> Result<(), TestCaseError> {
    let frames = [before, &[frame], after].concat();
    let wire = encode(&frames, receiver);
    let (our_messages, our_end) = decode_with_ours(receiver, &wire, wire.len());
    prop_assert_eq!(our_messages, expected(&frames));
    prop_assert!(matches!(our_end, StreamEnd::Ended), "{:?}", our_end);
    let (their_messages, their_end) = decode_with_theirs(receiver, &wire);
    prop_assert_eq!(their_messages, expected(before));
    prop_assert!(
        matches!(&their_end, StreamEnd::Refused(Error::Protocol(error)) if is_expected(error)),
        "{:?}",
        their_end
    );
    Ok(())
}

/// The output of a correct decoder for frames that are whole messages and pings.
fn expected(frames: &[RawFrame]) -> Vec<Delivered> {
    let deliver = |frame: &RawFrame| match frame.is_control() {
        true => Delivered::Ping(frame.payload.clone()),
        false => Delivered::Message(frame.payload.clone()),
    };
    frames.iter().map(deliver).collect()
}
