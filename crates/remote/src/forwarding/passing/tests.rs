//! In these tests the test itself is both the harness and the destination. Both connections are in memory.

use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::task::JoinHandle;
use transport::{MessageLimits, PeerLabel, ProofOfReceipt, in_memory};

use super::*;

/// A forwarded stream in memory, with its harness end and its destination end.
struct Ends {
    harness: MessageStream,
    destination: MessageStream,
    leaving: CancellationToken,
    passing: JoinHandle<()>,
}

/// Starts a task that passes messages between two new ends.
fn forwarded() -> Ends {
    let (from_harness, harness) = in_memory(MessageLimits::default());
    let (destination, to_destination) = in_memory(MessageLimits::default());
    let leaving = CancellationToken::new();
    let token = leaving.clone();
    let passing = tokio::spawn(async move { pass(from_harness, to_destination, &token).await });
    Ends { harness, destination, leaving, passing }
}

async fn send(stream: &mut MessageStream, message: &[u8]) {
    let mut bytes = Vec::new();
    stream.framing.frame(&mut bytes, message.len(), |out| out.extend_from_slice(message));
    stream.writer.write_all(&bytes).await.unwrap();
}

async fn send_close(stream: &mut MessageStream, code: u16, reason: &str) {
    let mut bytes = Vec::new();
    stream.framing.close(&mut bytes, code, reason);
    stream.writer.write_all(&bytes).await.unwrap();
}

async fn next(stream: &mut MessageStream) -> ReadEvent {
    stream.reader.next().await.unwrap()
}

fn closed(code: u16, reason: &str) -> ReadEvent {
    ReadEvent::Closed(Some(CloseReason { code, reason: reason.to_owned() }))
}

#[tokio::test]
async fn messages_pass_both_ways_as_they_are() {
    let mut ends = forwarded();
    for message in [&b"\xff\x00 no JSON and no UTF-8"[..], b"line\nbreak", &[7; 1_000_000]] {
        let (from, to) = (&mut ends.harness, &mut ends.destination);
        assert_eq!(tokio::join!(send(from, message), next(to)).1, ReadEvent::Message(message.to_vec().into()));
        assert_eq!(tokio::join!(send(to, message), next(from)).1, ReadEvent::Message(message.to_vec().into()));
    }
}

#[tokio::test]
async fn an_empty_message_of_the_harness_passes_and_one_of_the_destination_ends_the_stream() {
    let mut ends = forwarded();
    send(&mut ends.harness, b"").await;
    assert_eq!(next(&mut ends.destination).await, ReadEvent::Message(Bytes::new()));
    send(&mut ends.destination, b"").await;
    assert!(
        matches!(next(&mut ends.harness).await, ReadEvent::Closed(Some(reason)) if reason.code == PROTOCOL_ERROR)
    );
    assert!(matches!(next(&mut ends.destination).await, ReadEvent::Closed(Some(_))));
}

#[tokio::test]
async fn a_message_of_9_mib_reaches_the_destination_in_frames_of_at_most_8_mib() {
    let (from_harness, mut harness) = in_memory(MessageLimits::default());
    let (mut raw, near) = tokio::io::duplex(64 * 1024);
    let (read, write) = tokio::io::split(near);
    let (framing, limits) = (Framing::WebSocketClient, MessageLimits::default());
    let near = MessageStream::new(read, write, framing, ProofOfReceipt::Pong, PeerLabel::new("raw"), limits);
    let passing = tokio::spawn(async move { pass(from_harness, near, &CancellationToken::new()).await });
    let message = vec![1; 9 << 20];
    let reading = async {
        // The header has 10 bytes, and 4 more for the mask.
        let mut header = [0; 14];
        let mut headers = Vec::new();
        for length in [8_u64 << 20, 1 << 20] {
            raw.read_exact(&mut header).await.unwrap();
            headers.push((header[0], header[1], u64::from_be_bytes(*header[2..].first_chunk().unwrap())));
            let mut payload = vec![0; usize::try_from(length).unwrap()];
            raw.read_exact(&mut payload).await.unwrap();
        }
        headers
    };
    let ((), headers) = tokio::join!(send(&mut harness, &message), reading);
    assert_eq!(headers, [(0x02, 0xff, 8 << 20), (0x80, 0xff, 1 << 20)]);
    passing.abort();
}

#[tokio::test]
async fn a_line_break_in_a_message_becomes_a_space_only_for_a_destination_of_lines() {
    let message = Bytes::from_static(b"{\n\"a\":1\n}");
    assert_eq!(fitting(message.clone(), Framing::Lines), &b"{ \"a\":1 }"[..]);
    assert_eq!(fitting(message.clone(), Framing::BinaryWebSocketClient), message);
}

#[tokio::test]
async fn the_last_messages_of_the_destination_arrive_before_its_close() {
    let mut ends = forwarded();
    let reply = vec![9; 128 * 1024];
    let sending = async {
        send(&mut ends.destination, &reply).await;
        send_close(&mut ends.destination, 4001, "taken over").await;
    };
    assert_eq!(tokio::join!(sending, next(&mut ends.harness)).1, ReadEvent::Message(reply.clone().into()));
    assert_eq!(next(&mut ends.harness).await, closed(4001, "taken over"));
    assert_eq!(next(&mut ends.destination).await, closed(4001, "taken over"), "the close is acknowledged");
    ends.passing.await.unwrap();
}

#[tokio::test]
async fn the_last_messages_of_the_harness_arrive_before_its_close() {
    let mut ends = forwarded();
    let request = vec![9; 128 * 1024];
    let sending = async {
        send(&mut ends.harness, &request).await;
        send_close(&mut ends.harness, NORMAL, "").await;
    };
    assert_eq!(tokio::join!(sending, next(&mut ends.destination)).1, ReadEvent::Message(request.clone().into()));
    assert_eq!(next(&mut ends.destination).await, closed(NORMAL, ""));
    ends.passing.await.unwrap();
}

#[tokio::test]
async fn a_lost_end_ends_the_other_one() {
    let mut ends = forwarded();
    drop(ends.harness);
    assert_eq!(next(&mut ends.destination).await, ReadEvent::Closed(None), "as if the client's connection was lost");
    ends.passing.await.unwrap();

    let mut ends = forwarded();
    drop(ends.destination);
    assert_eq!(next(&mut ends.harness).await, closed(INTERNAL_ERROR, DESTINATION_LOST));
    ends.passing.await.unwrap();
}

#[tokio::test]
async fn a_ping_of_the_destination_is_answered_by_the_harness() {
    let mut ends = forwarded();
    let mut bytes = Vec::new();
    ends.destination.framing.ping(&mut bytes, b"receipt-1");
    ends.destination.writer.write_all(&bytes).await.unwrap();
    assert_eq!(next(&mut ends.harness).await, ReadEvent::Ping(Bytes::from_static(b"receipt-1")));
    bytes.clear();
    ends.harness.framing.pong(&mut bytes, b"receipt-1");
    ends.harness.writer.write_all(&bytes).await.unwrap();
    assert_eq!(next(&mut ends.destination).await, ReadEvent::Pong(Bytes::from_static(b"receipt-1")));
}

#[tokio::test(start_paused = true)]
async fn a_silent_destination_is_pinged_and_lost_if_it_does_not_answer() {
    let mut ends = forwarded();
    let began = Instant::now();
    for answered in 1..=3 {
        let ping = next(&mut ends.destination).await;
        assert_eq!(ping, ReadEvent::Ping(Bytes::from_static(OUR_PING)));
        assert_eq!(began.elapsed().as_secs(), answered * PING_AFTER.as_secs());
        let mut pong = Vec::new();
        ends.destination.framing.pong(&mut pong, OUR_PING);
        ends.destination.writer.write_all(&pong).await.unwrap();
    }
    assert!(
        matches!(next(&mut ends.harness).await, ReadEvent::Closed(Some(reason)) if reason.code == INTERNAL_ERROR)
    );
    assert_eq!(began.elapsed().as_secs(), 3 * PING_AFTER.as_secs() + LOST_AFTER.as_secs());
}

#[tokio::test(start_paused = true)]
async fn a_harness_that_does_not_read_slows_the_destination_down_and_gets_everything_later() {
    const MESSAGES: usize = 100;
    let mut ends = forwarded();
    let message = vec![5; 64 * 1024];
    let mut sent = 0;
    // The paused clock advances whenever all tasks wait.
    let stopped = tokio::time::timeout(2 * LOST_AFTER, async {
        while sent < MESSAGES {
            send(&mut ends.destination, &message).await;
            sent += 1;
        }
    });
    stopped.await.unwrap_err();
    assert!(sent * message.len() < 2 << 20, "{sent} messages were taken");
    // A part of the message that was cut off is in the buffer of the connection to the destination, so nothing can
    // follow it.
    for _ in 0..sent {
        assert_eq!(next(&mut ends.harness).await, ReadEvent::Message(message.clone().into()));
    }
    assert!(!ends.passing.is_finished(), "a harness that does not read is no silent destination");
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_does_not_read_slows_the_harness_down_and_its_loss_is_noticed() {
    let mut ends = forwarded();
    let message = vec![5; 64 * 1024];
    let mut sent = 0;
    let stopped = tokio::time::timeout(Duration::from_secs(10), async {
        while sent < 1000 {
            send(&mut ends.harness, &message).await;
            sent += 1;
        }
    });
    stopped.await.unwrap_err();
    assert!(sent * message.len() < 2 << 20, "{sent} messages were taken");
    drop(ends.harness);
    ends.passing.await.unwrap();
}

#[tokio::test]
async fn both_ends_learn_that_the_forwarder_leaves() {
    let mut ends = forwarded();
    ends.leaving.cancel();
    let expected = closed(GOING_AWAY, "the forwarder is shutting down");
    assert_eq!(next(&mut ends.harness).await, expected);
    assert_eq!(next(&mut ends.destination).await, expected);
    ends.passing.await.unwrap();
}

#[tokio::test]
async fn a_message_over_the_limit_ends_the_stream_with_a_reason() {
    let limits = MessageLimits { message_bytes: 1000 };
    let (from_harness, mut harness) = in_memory(limits);
    let (mut destination, to_destination) = in_memory(MessageLimits::default());
    let passing = tokio::spawn(async move { pass(from_harness, to_destination, &CancellationToken::new()).await });
    send(&mut harness, &[1; 2000]).await;
    assert_eq!(next(&mut harness).await, closed(TOO_LARGE, MESSAGE_TOO_LARGE));
    assert_eq!(next(&mut destination).await, closed(TOO_LARGE, MESSAGE_TOO_LARGE));
    passing.await.unwrap();
}
