//! Relays that lose, repeat, reorder, truncate and alter frames, or mix up streams.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use relay::{Frame, FrameBody};
use testkit::TestService;
use testkit::service::{Direction, Operation};

use crate::support::{TestExecutor, connect, exchange, receive};

/// Exchanges messages while the relay replaces each frame with the frames that `weather` returns, from the handshake
/// on. All messages must arrive.
async fn exchange_in(mut weather: impl FnMut(Direction, &Bytes) -> Vec<Bytes> + Send + 'static) {
    let service = TestService::start().await;
    let executor = TestExecutor::start(&service).await;
    service.filter_frames(move |direction, message| weather(direction, message));
    let (mut connection, mut at_executor) = connect(&service, &executor).await;
    for _ in 0..3 {
        exchange(&mut connection.stream, &mut at_executor).await;
    }
    assert_eq!(service.count(Operation::Validate), 1, "there was one handshake");
    assert_eq!(executor.host.notes(), ["registered", "dialled"], "the socket was kept");
}

fn is_handshake(message: &Bytes) -> bool {
    matches!(Frame::decode(message.clone()).unwrap().body, FrameBody::Handshake(_))
}

/// Pseudo-random numbers that are the same in every run.
struct Dice(u64);

impl Dice {
    /// True in `percent` of 100 cases.
    fn happens(&mut self, percent: u64) -> bool {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % 100 < percent
    }
}

#[tokio::test]
async fn a_relay_that_sends_every_frame_three_times_is_no_problem() {
    exchange_in(|_, message| vec![message.clone(); 3]).await;
}

#[tokio::test]
async fn copies_of_old_frames_are_no_problem() {
    let mut earlier: Vec<(Direction, Bytes)> = Vec::new();
    exchange_in(move |direction, message| {
        earlier.push((direction, message.clone()));
        let copy = earlier.iter().step_by(3).rev().find(|(to, _)| *to == direction).map(|(_, copy)| copy.clone());
        copy.into_iter().chain([message.clone()]).collect()
    })
    .await;
}

#[tokio::test]
async fn frames_in_another_order_are_no_problem() {
    let mut kept: [VecDeque<Bytes>; 2] = Default::default();
    let mut dice = Dice(1);
    exchange_in(move |direction, message| {
        // The handshake has one message in each direction, which nothing can overtake.
        if is_handshake(message) {
            return vec![message.clone()];
        }
        let kept = &mut kept[usize::from(direction == Direction::ToHarness)];
        kept.push_back(message.clone());
        if dice.happens(10) && kept.len() < 12 {
            return Vec::new();
        }
        kept.drain(..).rev().collect()
    })
    .await;
}

#[tokio::test]
async fn lost_and_truncated_frames_are_sent_again() {
    let mut dice = Dice(2);
    exchange_in(move |_, message| {
        if is_handshake(message) {
            return vec![message.clone()];
        }
        if dice.happens(4) {
            return Vec::new();
        }
        if dice.happens(4) { vec![message.slice(..message.len() - 1)] } else { vec![message.clone()] }
    })
    .await;
}

/// Alters one record in this direction after the stream was used, and expects that only this stream ends.
async fn alter_one_record(direction: Direction, alter: impl Fn(&mut Frame) + Send + 'static) {
    let service = TestService::start().await;
    let executor = TestExecutor::start(&service).await;
    let (mut connection, mut at_executor) = connect(&service, &executor).await;
    let (mut neighbour, mut neighbour_at_executor) = connect(&service, &executor).await;
    exchange(&mut connection.stream, &mut at_executor).await;
    service.capture();
    let was_altered = Arc::new(AtomicBool::new(false));
    let done = Arc::clone(&was_altered);
    service.filter_frames(move |to, message| {
        let mut frame = Frame::decode(message.clone()).unwrap();
        if to == direction && matches!(frame.body, FrameBody::Data { .. }) && !done.swap(true, Ordering::Relaxed) {
            alter(&mut frame);
            return vec![frame.encode().into()];
        }
        vec![message.clone()]
    });
    let (sender, receiver) = match direction {
        Direction::ToExecutor => (&mut connection.stream, &mut at_executor),
        Direction::ToHarness => (&mut at_executor, &mut connection.stream),
    };
    assert!(crate::support::send(sender, b"message").await);
    assert_eq!(receive(receiver).await, None, "the end that gets the record ends the stream");
    assert!(was_altered.load(Ordering::Relaxed));
    match direction {
        Direction::ToExecutor => drop(at_executor),
        Direction::ToHarness => drop(connection),
    }
    let is_reset = || {
        let captured = service.captured();
        captured.iter().any(|frame| {
            matches!(Frame::decode(frame.bytes.clone()).map(|frame| frame.body), Ok(FrameBody::Reset { .. }))
        })
    };
    testkit::eventually("the other end is told", || is_reset().then_some(())).await;
    // The other stream goes on, and a new stream can be made.
    exchange(&mut neighbour.stream, &mut neighbour_at_executor).await;
    let (mut another, mut another_at_executor) = connect(&service, &executor).await;
    exchange(&mut another.stream, &mut another_at_executor).await;
}

#[tokio::test]
async fn a_changed_bit_in_a_record_ends_that_stream() {
    for direction in [Direction::ToExecutor, Direction::ToHarness] {
        alter_one_record(direction, |frame| {
            let FrameBody::Data { record, .. } = &mut frame.body else { return };
            let mut bytes = record.to_vec();
            bytes[0] ^= 0x10;
            *record = bytes.into();
        })
        .await;
    }
}

#[tokio::test]
async fn a_record_that_was_cut_ends_that_stream() {
    alter_one_record(Direction::ToExecutor, |frame| {
        let FrameBody::Data { record, .. } = &mut frame.body else { return };
        *record = record.slice(..3);
    })
    .await;
}

#[tokio::test]
async fn a_forged_acknowledgement_ends_that_stream() {
    alter_one_record(Direction::ToHarness, |frame| frame.ack += 1).await;
}

#[tokio::test]
async fn frames_for_another_stream_are_not_for_this_one() {
    let service = TestService::start().await;
    let executor = TestExecutor::start(&service).await;
    let (mut first, mut first_at_executor) = connect(&service, &executor).await;
    let (mut second, mut second_at_executor) = connect(&service, &executor).await;
    let ids = Arc::new(Mutex::new(Vec::<String>::new()));
    // The relay sends each frame for a harness a second time, with the id of the other stream.
    service.filter_frames(move |direction, message| {
        let frame = Frame::decode(message.clone()).unwrap();
        let mut ids = ids.lock();
        if !ids.contains(&frame.stream_id) {
            ids.push(frame.stream_id.clone());
        }
        let other = ids.iter().find(|id| **id != frame.stream_id).cloned();
        match (direction, other) {
            (Direction::ToHarness, Some(other)) => {
                vec![Frame { stream_id: other, ..frame }.encode().into(), message.clone()]
            }
            _ => vec![message.clone()],
        }
    });
    for _ in 0..2 {
        exchange(&mut first.stream, &mut first_at_executor).await;
        exchange(&mut second.stream, &mut second_at_executor).await;
    }
}
