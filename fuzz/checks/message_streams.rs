//! Checks that must succeed for any received bytes, for the two decoders of message streams: WebSocket frames and
//! lines. The fuzz targets `websocket` and `lines` and the test that replays their corpora use these checks. The
//! checks use only the public API of `transport`, without a runtime.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use transport::{Framing, MessageLimits, MessageStream, PeerLabel, ReadEvent};

/// Capacity of the byte stream between the two ends, in bytes. The input is sent in pieces of at most this size.
const PIPE_BYTES: usize = 64 * 1024;
/// Longest prefix that a reader returns of a message over the limit, in bytes.
const PREFIX_BYTES: usize = 1024;

/// How a stream ended, with the text of the error if there was one.
#[derive(Debug, PartialEq)]
enum DecoderEnd {
    Closed(Option<(u16, String)>),
    Failed(String),
}

/// Everything that a reader returned.
#[derive(Debug, PartialEq)]
struct Decoded {
    events: Vec<ReadEvent>,
    end: DecoderEnd,
}

/// Checks the WebSocket decoder. The first three bytes of the input are settings: the role (lowest bit), the limit
/// for messages in steps of 16 bytes, and the size of the pieces in which the other bytes of the input arrive.
pub(crate) fn check_websocket(input: &[u8]) {
    let Some((&[role, limit, piece], wire)) = input.split_first_chunk() else { return };
    let is_server = role & 1 == 0;
    let limit = usize::from(limit) * 16;
    let decode = |wire: &[u8], limit: usize, piece: usize| {
        let (server, client) = transport::in_memory(MessageLimits { message_bytes: limit });
        if is_server { decode(server, client, wire, piece) } else { decode(client, server, wire, piece) }
    };
    let decoded = decode(wire, limit, usize::from(piece).max(1));
    assert_eq!(decoded, decode(wire, limit, PIPE_BYTES), "the result depends on how the bytes are split");
    check_sizes(&decoded.events, limit);

    let sender = if is_server { Framing::WebSocketClient } else { Framing::WebSocketServer };
    let again = decode(&encode(sender, &decoded.events), limit, PIPE_BYTES);
    let messages: Vec<ReadEvent> =
        decoded.events.into_iter().filter(|event| !matches!(event, ReadEvent::TooLarge { .. })).collect();
    assert_eq!(
        again,
        Decoded { events: messages, end: DecoderEnd::Closed(None) },
        "an encoded message is not decoded to itself"
    );
}

/// Checks the line decoder. The first two bytes of the input are settings: the limit for messages and the size of the
/// pieces in which the other bytes of the input arrive, both in bytes.
pub(crate) fn check_lines(input: &[u8]) {
    let Some((&[limit, piece], wire)) = input.split_first_chunk() else { return };
    let limit = usize::from(limit);
    let expected: Vec<ReadEvent> =
        wire.split(|byte| *byte == b'\n').filter_map(|line| event_of_line(line, limit)).collect();
    for piece in [usize::from(piece).max(1), PIPE_BYTES] {
        let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
        let [ours, theirs] = [ours, theirs].map(|io| {
            let (read, write) = tokio::io::split(io);
            transport::lines(read, write, PeerLabel::new("memory"), MessageLimits { message_bytes: limit })
        });
        let decoded = decode(ours, theirs, wire, piece);
        assert_eq!(decoded.end, DecoderEnd::Closed(None));
        check_sizes(&decoded.events, limit);
        let events: Vec<ReadEvent> =
            decoded.events.into_iter().map(|event| with_common_prefix(event, limit)).collect();
        assert_eq!(events, expected, "pieces of {piece} bytes");
    }
}

/// The event that the reader must return for one line, which is given without its newline. None for a blank line.
fn event_of_line(line: &[u8], limit: usize) -> Option<ReadEvent> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.len() > limit {
        return Some(with_common_prefix(ReadEvent::TooLarge { prefix: line.to_vec().into() }, limit));
    }
    (!line.trim_ascii().is_empty()).then(|| ReadEvent::Message(line.to_vec().into()))
}

/// Cuts the prefix of a line over the limit, so that events can be compared. The reader returns a prefix that is
/// longer than the limit, or has [`PREFIX_BYTES`]; how much longer depends on the pieces in which the line arrives.
fn with_common_prefix(event: ReadEvent, limit: usize) -> ReadEvent {
    match event {
        ReadEvent::TooLarge { mut prefix } => {
            assert!(prefix.len() > limit.min(PREFIX_BYTES - 1), "the prefix ends before the limit");
            prefix.truncate((limit + 1).min(PREFIX_BYTES));
            ReadEvent::TooLarge { prefix }
        }
        other => other,
    }
}

fn check_sizes(events: &[ReadEvent], limit: usize) {
    for event in events {
        match event {
            ReadEvent::Message(message) => assert!(message.len() <= limit, "a message is longer than the limit"),
            ReadEvent::TooLarge { prefix } => assert!(prefix.len() <= PREFIX_BYTES, "a prefix is too long"),
            ReadEvent::Ping(payload) | ReadEvent::Pong(payload) => assert!(payload.len() <= 125),
            ReadEvent::Closed(_) => {}
        }
    }
}

/// Encodes the messages and control frames. Messages over the limit are left out, because only their prefix is known.
fn encode(framing: Framing, events: &[ReadEvent]) -> Vec<u8> {
    let mut out = Vec::new();
    for event in events {
        match event {
            ReadEvent::Message(message) => {
                framing.frame(&mut out, message.len(), |out| out.extend_from_slice(message));
            }
            ReadEvent::Ping(payload) => assert!(framing.ping(&mut out, payload)),
            ReadEvent::Pong(payload) => assert!(framing.pong(&mut out, payload)),
            ReadEvent::TooLarge { .. } | ReadEvent::Closed(_) => {}
        }
    }
    out
}

/// Sends `wire` from `theirs` to `ours` in pieces of `piece` bytes, then ends the byte stream. Each piece is decoded
/// before the next piece is sent.
fn decode(mut ours: MessageStream, mut theirs: MessageStream, wire: &[u8], piece: usize) -> Decoded {
    let mut events = Vec::new();
    for piece in wire.chunks(piece) {
        let Poll::Ready(written) = poll_once(theirs.writer.write_all(piece)) else {
            panic!("the reader has left bytes unread")
        };
        written.expect("both ends exist");
        if let Some(end) = read_available(&mut ours, &mut events) {
            return Decoded { events, end };
        }
    }
    assert!(poll_once(theirs.writer.shutdown()).is_ready());
    let end = read_available(&mut ours, &mut events).expect("the byte stream has ended");
    assert_eq!(
        poll_once(ours.reader.next()).map(Result::ok),
        Poll::Ready(Some(ReadEvent::Closed(None))),
        "the end is final"
    );
    Decoded { events, end }
}

/// Reads until the reader waits for more bytes, or until the end.
fn read_available(stream: &mut MessageStream, events: &mut Vec<ReadEvent>) -> Option<DecoderEnd> {
    loop {
        match poll_once(stream.reader.next()) {
            Poll::Pending => return None,
            Poll::Ready(Ok(ReadEvent::Closed(reason))) => {
                return Some(DecoderEnd::Closed(reason.map(|reason| (reason.code, reason.reason))));
            }
            Poll::Ready(Ok(event)) => events.push(event),
            Poll::Ready(Err(error)) => return Some(DecoderEnd::Failed(error.to_string())),
        }
    }
}

fn poll_once<T>(future: impl Future<Output = T>) -> Poll<T> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}
