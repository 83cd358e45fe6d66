//! Ends that do not read what the other end sends. The unread data is bounded, and other streams are not delayed.

use relay::{CREDIT_RECORDS, Frame, FrameBody, MAX_RECORD_BYTES};
use testkit::TestService;
use testkit::service::Direction;
use transport::MessageStream;

use crate::support::{TestExecutor, connect, exchange, receive, send, within};

const MESSAGE_BYTES: usize = 500_000;

/// More messages than the window of a stream and the buffers of both ends hold.
const MESSAGES: usize = 40;

/// Bytes of records that the relay has seen in this direction.
fn passed(service: &TestService, direction: Direction) -> usize {
    let frames = service.captured();
    let records = frames.iter().filter(|frame| frame.direction == direction).map(|frame| {
        match Frame::decode(frame.bytes.clone()).map(|frame| frame.body) {
            Ok(FrameBody::Data { record, .. }) => record.len(),
            _ => 0,
        }
    });
    records.sum()
}

/// One end sends [`MESSAGES`] messages while the other end does not read. Then the other end reads all of them.
async fn send_to_an_end_that_does_not_read(direction: Direction) {
    let service = TestService::start().await;
    let executor = TestExecutor::start(&service).await;
    let (connection, at_executor) = connect(&service, &executor).await;
    let (mut neighbour, mut neighbour_at_executor) = connect(&service, &executor).await;
    service.capture();
    let (mut link, mut sender, mut reader): (_, MessageStream, MessageStream) = match direction {
        Direction::ToExecutor => (connection.link, connection.stream, at_executor),
        Direction::ToHarness => (connection.link, at_executor, connection.stream),
    };
    let mut sending = tokio::spawn(async move {
        for _ in 0..MESSAGES {
            assert!(send(&mut sender, &[7; MESSAGE_BYTES]).await);
        }
        sender
    });
    let window = CREDIT_RECORDS as usize * (MAX_RECORD_BYTES + 16);
    let is_full = || (passed(&service, direction) > window / 4 * 3).then_some(());
    testkit::eventually("the window is full", is_full).await;
    for _ in 0..10 {
        exchange(&mut neighbour.stream, &mut neighbour_at_executor).await;
    }
    assert!(!sending.is_finished(), "the sender waits");
    // The messages of the exchanges passed in the same direction, and some records may have been sent twice.
    let exchanged = 10 * 310_000;
    assert!(passed(&service, direction) < 2 * window + exchanged, "{}", passed(&service, direction));
    for _ in 0..MESSAGES {
        assert_eq!(receive(&mut reader).await.unwrap(), [7; MESSAGE_BYTES][..]);
    }
    let _sender = within("everything is sent", &mut sending).await.unwrap();
    let ended = tokio::time::timeout(std::time::Duration::ZERO, link.ended()).await;
    assert!(ended.is_err(), "the stream lives on");
}

#[tokio::test]
async fn a_harness_that_does_not_read_stops_its_own_stream_only() {
    send_to_an_end_that_does_not_read(Direction::ToHarness).await;
}

#[tokio::test]
async fn an_executor_that_does_not_read_stops_that_stream_only() {
    send_to_an_end_that_does_not_read(Direction::ToExecutor).await;
}

#[tokio::test]
async fn a_fast_stream_does_not_delay_another_one() {
    let service = TestService::start().await;
    let executor = TestExecutor::start(&service).await;
    let (mut fast, mut fast_at_executor) = connect(&service, &executor).await;
    let (mut other, mut other_at_executor) = connect(&service, &executor).await;
    let output = tokio::spawn(async move { while send(&mut fast_at_executor, &[7; 1 << 20]).await {} });
    assert!(receive(&mut fast.stream).await.is_some());
    service.capture();
    assert!(send(&mut other_at_executor, b"small").await);
    assert_eq!(receive(&mut other.stream).await.unwrap(), b"small"[..]);
    // The small message has arrived before the waiting output of the other stream, which nobody reads meanwhile.
    assert!(passed(&service, Direction::ToHarness) < 8 << 20);
    drop(fast);
    within("the output ends with its stream", output).await.unwrap();
}
