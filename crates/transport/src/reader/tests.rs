//! The reader over sources that return given bytes in given pieces: any split and fragmentation, random bytes, the end of the stream,
//! cancellation, and the memory of an idle reader.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;

use proptest::collection::vec;
use proptest::prelude::*;
use tokio::io::{AsyncWriteExt, ReadBuf};

use super::*;
use crate::websocket::{Opcode, apply_mask, write_header};

const LIMITS: MessageLimits = MessageLimits { message_bytes: 64 * 1024 * 1024 };

/// A source that returns at most one piece for each read and is pending once before each read that returns.
struct PiecewiseSource {
    unread: VecDeque<Vec<u8>>,
    was_pending: bool,
}

impl PiecewiseSource {
    /// Cuts `bytes` into pieces of the given sizes, and begins again with the first size after the last.
    fn cut(bytes: &[u8], sizes: &[usize]) -> Self {
        let (mut rest, mut unread) = (bytes, VecDeque::new());
        for size in sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, later) = rest.split_at((*size).min(rest.len()));
            unread.push_back(piece.to_vec());
            rest = later;
        }
        Self { unread, was_pending: false }
    }
}

impl AsyncRead for PiecewiseSource {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.was_pending = !self.was_pending;
        if self.was_pending {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if let Some(mut piece) = self.unread.pop_front() {
            let rest = piece.split_off(piece.len().min(buffer.remaining()));
            buffer.put_slice(&piece);
            if !rest.is_empty() {
                self.unread.push_front(rest);
            }
        }
        Poll::Ready(Ok(()))
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

/// Reads to the close or the first error. Returns the events before it, and the text of the error if there was one.
fn read_all(source: PiecewiseSource, framing: Framing, limits: MessageLimits) -> (Vec<ReadEvent>, Option<String>) {
    let mut reader = Reader::new(source, framing, Bytes::new(), limits);
    let mut seen = Vec::new();
    loop {
        match block_on(reader.next()) {
            Ok(ReadEvent::Closed(_)) => return (seen, None),
            Ok(event) => seen.push(event),
            Err(error) => return (seen, Some(error.to_string())),
        }
    }
}

fn put_frame(out: &mut Vec<u8>, opcode: Opcode, is_last: bool, mask: Option<[u8; 4]>, payload: &[u8]) {
    let header = out.len();
    write_header(out, opcode, payload.len(), mask);
    if !is_last {
        out[header] &= 0x7f;
    }
    let start = out.len();
    out.extend_from_slice(payload);
    if let Some(key) = mask {
        apply_mask(&mut out[start..], key, 0);
    }
}

#[test]
fn next_buffered_returns_only_messages_that_were_read_already() {
    let mut bytes = Vec::new();
    for text in [&b"one"[..], b"two", b"three"] {
        put_frame(&mut bytes, Opcode::Text, true, None, text);
    }
    let messages_end = bytes.len();
    put_frame(&mut bytes, Opcode::Close, true, None, b"");
    // The first read ends before the last byte of the third message.
    let source = PiecewiseSource::cut(&bytes, &[messages_end - 1, 1, 2]);
    let mut reader = Reader::new(source, Framing::WebSocketClient, Bytes::new(), LIMITS);
    let message = |text: &'static [u8]| ReadEvent::Message(Bytes::from_static(text));
    assert!(reader.next_buffered().is_none());
    assert_eq!(block_on(reader.next()).unwrap(), message(b"one"));
    assert_eq!(reader.next_buffered().unwrap().unwrap(), message(b"two"));
    assert!(reader.next_buffered().is_none());
    assert_eq!(block_on(reader.next()).unwrap(), message(b"three"));
    assert!(matches!(block_on(reader.next()), Ok(ReadEvent::Closed(_))));
    assert!(reader.next_buffered().is_none());
}

/// A message, the sizes of the fragments before its last one, and the pings between the fragments.
#[derive(Clone, Debug)]
struct MessageInFrames {
    payload: Vec<u8>,
    fragment_sizes: Vec<usize>,
    pings: Vec<Vec<u8>>,
}

impl MessageInFrames {
    /// Appends the frames to `out` and the events of a correct decoder to `expected`.
    fn put(&self, out: &mut Vec<u8>, expected: &mut Vec<ReadEvent>, mask: Option<[u8; 4]>) {
        let (mut rest, mut opcode, mut pings) = (&self.payload[..], Opcode::Binary, self.pings.iter());
        for size in &self.fragment_sizes {
            let (piece, later) = rest.split_at((*size).min(rest.len()));
            put_frame(out, opcode, false, mask, piece);
            (rest, opcode) = (later, Opcode::Continuation);
            if let Some(ping) = pings.next() {
                put_frame(out, Opcode::Ping, true, mask, ping);
                expected.push(ReadEvent::Ping(Bytes::copy_from_slice(ping)));
            }
        }
        put_frame(out, opcode, true, mask, rest);
        expected.push(ReadEvent::Message(Bytes::copy_from_slice(&self.payload)));
    }
}

fn any_message_in_frames() -> impl Strategy<Value = MessageInFrames> {
    let payload = prop_oneof![8 => vec(any::<u8>(), 0..300), 1 => vec(any::<u8>(), 60_000..140_000)];
    (payload, vec(0usize..200, 0..4), vec(vec(any::<u8>(), 0..=125), 0..4))
        .prop_map(|(payload, fragment_sizes, pings)| MessageInFrames { payload, fragment_sizes, pings })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_messages_in_any_frames_in_any_pieces_arrive(
        messages in vec(any_message_in_frames(), 0..6), key: [u8; 4], is_masked: bool,
        sizes in prop_oneof![vec(1usize..20, 1..5), vec(1usize..100_000, 1..5)],
    ) {
        let (mask, framing) = if is_masked { (Some(key), Framing::WebSocketServer) } else { (None, Framing::WebSocketClient) };
        let (mut bytes, mut expected) = (Vec::new(), Vec::new());
        for message in &messages {
            message.put(&mut bytes, &mut expected, mask);
        }
        prop_assert_eq!(read_all(PiecewiseSource::cut(&bytes, &sizes), framing, LIMITS), (expected, None));
    }

    #[test]
    fn any_lines_in_any_pieces_arrive(lines in vec("[a-z{}\" ]{0,40}x", 0..10), sizes in vec(1usize..50, 1..5), ends_with_carriage_return: bool) {
        let terminator = if ends_with_carriage_return { "\r\n" } else { "\n" };
        let bytes: String = lines.iter().flat_map(|line| [line, terminator]).collect();
        let expected = lines.iter().map(|line| ReadEvent::Message(Bytes::copy_from_slice(line.as_bytes()))).collect();
        prop_assert_eq!(read_all(PiecewiseSource::cut(bytes.as_bytes(), &sizes), Framing::Lines, LIMITS), (expected, None));
    }

    #[test]
    fn random_bytes_cause_no_panic(bytes in vec(any::<u8>(), 0..2000), size in 1usize..100, limit in 0usize..300) {
        for framing in [Framing::WebSocketServer, Framing::WebSocketClient, Framing::Lines] {
            read_all(PiecewiseSource::cut(&bytes, &[size]), framing, MessageLimits { message_bytes: limit });
        }
    }

    #[test]
    fn no_message_over_the_limit_is_delivered(
        messages in vec(any_message_in_frames(), 0..6), key: [u8; 4], limit in 0usize..400, size in 1usize..2000, kept in 0usize..10_000,
    ) {
        let (mut bytes, mut expected) = (Vec::new(), Vec::new());
        for message in &messages {
            message.put(&mut bytes, &mut expected, Some(key));
        }
        bytes.truncate(kept);
        let (seen, _) = read_all(PiecewiseSource::cut(&bytes, &[size]), Framing::WebSocketServer, MessageLimits { message_bytes: limit });
        let fits = |event: &ReadEvent| !matches!(event, ReadEvent::Message(message) if message.len() > limit);
        prop_assert!(seen.iter().all(fits));
    }
}

fn masked_text(payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_frame(&mut out, Opcode::Text, true, Some([1, 2, 3, 4]), payload);
    out
}

/// Polls `next` once and drops the future, as a `select!` with another branch that is ready does.
fn poll_and_drop(reader: &mut Reader) -> Poll<Result<ReadEvent, ReadError>> {
    let mut next = std::pin::pin!(reader.next());
    next.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop()))
}

#[test]
fn dropping_the_future_of_next_at_every_wait_loses_nothing() {
    let bytes = [masked_text(b"one"), masked_text(&[b'2'; 5000]), masked_text(b"three")].concat();
    let mut reader = Reader::new(PiecewiseSource::cut(&bytes, &[7]), Framing::WebSocketServer, Bytes::new(), LIMITS);
    let mut seen = Vec::new();
    while seen.len() < 3 {
        if let Poll::Ready(event) = poll_and_drop(&mut reader) {
            seen.push(event.unwrap());
        }
    }
    let expected =
        [&b"one"[..], &[b'2'; 5000], b"three"].map(|payload| ReadEvent::Message(Bytes::copy_from_slice(payload)));
    assert_eq!(seen, expected);
}

#[test]
fn bytes_that_were_read_with_the_upgrade_are_decoded_first() {
    let bytes = masked_text(b"early");
    let (early, late) = bytes.split_at(4);
    let mut reader = Reader::new(
        PiecewiseSource::cut(late, &[100]),
        Framing::WebSocketServer,
        Bytes::copy_from_slice(early),
        LIMITS,
    );
    assert_eq!(block_on(reader.next()).unwrap(), ReadEvent::Message(Bytes::from_static(b"early")));
}

#[test]
fn an_end_inside_a_websocket_message_is_an_error_and_then_a_close() {
    let bytes = masked_text(b"hello");
    for kept in 1..bytes.len() {
        let mut reader =
            Reader::new(PiecewiseSource::cut(&bytes[..kept], &[100]), Framing::WebSocketServer, Bytes::new(), LIMITS);
        assert!(matches!(block_on(reader.next()), Err(ReadError::Truncated)), "{kept}");
        assert!(matches!(block_on(reader.next()), Ok(ReadEvent::Closed(None))));
    }
}

#[test]
fn an_end_after_a_message_is_a_close_without_a_reason() {
    for (framing, bytes) in [
        (Framing::WebSocketServer, masked_text(b"x")),
        (Framing::Lines, b"x\n".to_vec()),
        (Framing::Lines, b"x".to_vec()),
    ] {
        let mut reader = Reader::new(PiecewiseSource::cut(&bytes, &[100]), framing, Bytes::new(), LIMITS);
        assert_eq!(block_on(reader.next()).unwrap(), ReadEvent::Message(Bytes::from_static(b"x")));
        assert_eq!(block_on(reader.next()).unwrap(), ReadEvent::Closed(None));
        assert_eq!(block_on(reader.next()).unwrap(), ReadEvent::Closed(None));
    }
}

#[tokio::test]
async fn an_idle_reader_keeps_almost_no_memory_even_after_a_large_message() {
    let (mut peer, ours) = tokio::io::duplex(1 << 20);
    let mut reader = Reader::new(ours, Framing::WebSocketServer, Bytes::new(), LIMITS);
    let large = vec![b'x'; 3 << 20];
    let bytes = masked_text(&large);
    let (written, message) = tokio::join!(peer.write_all(&bytes), reader.next());
    written.unwrap();
    assert_eq!(message.unwrap(), ReadEvent::Message(large.into()));

    assert!(poll_and_drop(&mut reader).is_pending());
    assert_eq!(reader.buffer_capacity(), 0);

    peer.write_all(&masked_text(b"small")[..5]).await.unwrap();
    assert!(poll_and_drop(&mut reader).is_pending());
    assert!(reader.buffer_capacity() < 64, "{}", reader.buffer_capacity());
}

#[tokio::test]
async fn memory_for_an_announced_length_is_not_allocated_before_its_bytes_arrive() {
    let (mut peer, ours) = tokio::io::duplex(1 << 20);
    let mut reader = Reader::new(ours, Framing::WebSocketServer, Bytes::new(), LIMITS);
    let bytes = masked_text(&vec![b'x'; LIMITS.message_bytes]);
    // The header of the frame, which announces the length, has 14 bytes.
    peer.write_all(&bytes[..14]).await.unwrap();
    assert!(poll_and_drop(&mut reader).is_pending());
    assert_eq!(reader.buffer_capacity(), 0);
    peer.write_all(&bytes[14..100_000]).await.unwrap();
    assert!(poll_and_drop(&mut reader).is_pending());
    assert!(reader.buffer_capacity() <= 1 << 20, "{}", reader.buffer_capacity());
}

#[tokio::test]
async fn an_overlong_line_is_reported_before_its_end_and_the_rest_is_not_kept() {
    let (mut peer, ours) = tokio::io::duplex(1 << 20);
    let mut reader = Reader::new(ours, Framing::Lines, Bytes::new(), MessageLimits { message_bytes: 10 });
    peer.write_all(b"12345678901").await.unwrap();
    assert_eq!(reader.next().await.unwrap(), ReadEvent::TooLarge { prefix: Bytes::from_static(b"12345678901") });
    peer.write_all(&[b'x'; 500_000]).await.unwrap();
    assert!(poll_and_drop(&mut reader).is_pending());
    assert_eq!(reader.buffer_capacity(), 0);
    peer.write_all(b"\r\n1234567890\r\n").await.unwrap();
    assert_eq!(reader.next().await.unwrap(), ReadEvent::Message(Bytes::from_static(b"1234567890")));
}

#[test]
fn wait_for_end_returns_at_the_end_and_keeps_the_messages_before_it() {
    let source = PiecewiseSource::cut(b"one\ntwo\n", &[3]);
    let mut reader = Reader::new(source, Framing::Lines, Bytes::new(), LIMITS);
    block_on(async {
        reader.wait_for_end(1024).await;
        for message in ["one", "two"] {
            assert_eq!(reader.next().await.unwrap(), ReadEvent::Message(message.into()));
        }
        assert_eq!(reader.next().await.unwrap(), ReadEvent::Closed(None));
    });
}

#[test]
fn wait_for_end_keeps_few_bytes_of_a_peer_that_goes_on_sending() {
    const MOST_BYTES: usize = 16 * 1024;
    let line = [vec![b'x'; 1 << 20], b"\n".to_vec()].concat();
    let mut reader = Reader::new(PiecewiseSource::cut(&line, &[1 << 20]), Framing::Lines, Bytes::new(), LIMITS);
    block_on(async {
        let waited = tokio::time::timeout(std::time::Duration::ZERO, reader.wait_for_end(MOST_BYTES));
        assert!(waited.await.is_err(), "the peer has not ended its side");
        assert!(reader.buffer.bytes.len() < 3 * MOST_BYTES, "{} bytes", reader.buffer.bytes.len());
        assert_eq!(reader.next().await.unwrap(), ReadEvent::Message(line[..1 << 20].to_vec().into()));
    });
}
