//! Thousands of unfinished handshakes, and relays that send endless frames which an end has to answer.

use std::time::Duration;

use bytes::Bytes;
use relay::{Frame, FrameBody};
use testkit::TestService;
use testkit::service::{Direction, Leg, Operation, RegistryAnswer};

use crate::raw_harness::RawHarness;
use crate::support::{TestExecutor, connect, exchange, harness, within};

/// How many handshakes are begun and never finished.
const HALF_OPEN: usize = 10_000;

fn resets(service: &TestService) -> usize {
    let is_reset =
        |bytes: &Bytes| Frame::decode(bytes.clone()).is_ok_and(|frame| matches!(frame.body, FrameBody::Reset { .. }));
    let frames = service.captured();
    frames.iter().filter(|frame| frame.direction == Direction::ToHarness && is_reset(&frame.bytes)).count()
}

#[tokio::test]
async fn ten_thousand_half_open_handshakes_are_refused_at_once_and_disturb_nobody() {
    let service = TestService::start().await;
    let executor = TestExecutor::start(&service).await;
    let (mut connection, mut at_executor) = connect(&service, &executor).await;
    // The registry never answers the questions about the harnesses of these handshakes.
    service.answer_next(Operation::Validate, HALF_OPEN, RegistryAnswer::Hang);
    let raw = RawHarness::dial(&service).await;
    service.capture();
    let first_messages: Vec<_> = (0..100).map(|number| raw.first_message(&number.to_string()).1).collect();
    let frames = (0..HALF_OPEN).map(|number| {
        // The first 100 messages are valid. The others repeat the last valid one with another stream id, so the
        // executor cannot read them. They are as long, and cost it as much work.
        let message = first_messages[number.min(first_messages.len() - 1)].clone();
        Bytes::from(Frame::new(number.to_string(), FrameBody::Handshake(message)).encode())
    });
    within("the executor takes all of them", service.inject_all(Leg::Executor, frames)).await;
    let refused = || (resets(&service) >= HALF_OPEN - 32).then_some(());
    testkit::eventually("all handshakes but 32 are refused", refused).await;
    assert!(service.count(Operation::Validate) <= 1 + 32, "the registry is asked about few");
    exchange(&mut connection.stream, &mut at_executor).await;
    assert!(!executor.host.notes().iter().any(|note| note.starts_with("reconnects")), "the socket was kept");
}

#[tokio::test]
async fn handshakes_that_cannot_be_read_disturb_nobody_for_long() {
    let service = TestService::start().await;
    let executor = TestExecutor::start(&service).await;
    let (mut connection, mut at_executor) = connect(&service, &executor).await;
    service.capture();
    let frames = (0..1000).map(|number| {
        let garbage = FrameBody::Handshake(vec![7; 3600].into());
        Bytes::from(Frame::new(format!("stranger {number}"), garbage).encode())
    });
    within("the executor takes all of them", service.inject_all(Leg::Executor, frames)).await;
    testkit::eventually("all of them are refused", || (resets(&service) >= 1000).then_some(())).await;
    assert_eq!(service.count(Operation::Validate), 1);
    exchange(&mut connection.stream, &mut at_executor).await;
    // Handshakes per second are limited, so a harness may be refused at first. It tries again.
    let mut other = within("another harness connects", async {
        loop {
            match harness(&service).connect().await {
                Ok(connection) => break connection,
                Err(failure) => assert!(failure.is_retryable(), "{failure}"),
            }
        }
    })
    .await;
    let (mut at_executor, _) = executor.accept().await;
    exchange(&mut other.stream, &mut at_executor).await;
}

#[tokio::test]
async fn no_reset_is_lost_while_the_relay_takes_none() {
    const STRANGERS: usize = 20_000;
    let service = TestService::start().await;
    let executor = TestExecutor::start(&service).await;
    let (mut connection, mut at_executor) = connect(&service, &executor).await;
    service.capture();
    service.stop_reading(Leg::Executor);
    let frames = (0..STRANGERS).map(|number| {
        let record = FrameBody::Data { seq: 0, record: vec![7; 20].into() };
        Bytes::from(Frame::new(format!("stranger {number} {}", "x".repeat(200)), record).encode())
    });
    let mut injecting = std::pin::pin!(service.inject_all(Leg::Executor, frames));
    // By now the executor has stopped reading, or the kernel has room for all resets.
    let is_done = tokio::time::timeout(Duration::from_millis(500), &mut injecting).await.is_ok();
    service.read_again(Leg::Executor);
    if !is_done {
        within("the executor takes all of them", injecting).await;
    }
    testkit::eventually("every stranger is refused", || (resets(&service) >= STRANGERS).then_some(())).await;
    assert_eq!(resets(&service), STRANGERS);
    exchange(&mut connection.stream, &mut at_executor).await;
}
