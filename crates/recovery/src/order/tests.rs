//! Tests with events that come in any order and any number of times, up to the limits.

use bytes::Bytes;
use protocol::{ExitResources, Stream};

use super::*;
use crate::event::Exit;

fn output(size: usize) -> Event {
    Event::Output { stream: Stream::Stdout, chunk: Bytes::from(vec![b'x'; size]) }
}

fn exited() -> Event {
    Event::Exited(Exit {
        code: 0,
        sandbox_denied: Some(false),
        sandbox_denials: Vec::new(),
        timed_out: false,
        resources: ExitResources::NONE,
    })
}

fn drain(order: &mut EventOrder) -> Vec<(u64, Event)> {
    std::iter::from_fn(|| order.poll_event()).collect()
}

fn drain_numbers(order: &mut EventOrder) -> Vec<u64> {
    drain(order).iter().map(|(seq, _)| *seq).collect()
}

#[test]
fn events_are_handed_out_in_the_order_of_their_numbers() {
    let mut order = EventOrder::default();
    for (seq, event) in [(4, Event::Closed), (1, output(1)), (3, exited()), (2, output(2))] {
        order.handle_event(seq, event.clone()).unwrap();
        order.handle_event(seq, event).unwrap();
        assert_eq!(order.has_hole(), seq == 4, "after event {seq}: there is a hole only while event 1 is missing");
    }
    assert_eq!(drain(&mut order), [(1, output(1)), (2, output(2)), (3, exited()), (4, Event::Closed)]);
    assert_eq!((order.last(), order.is_closed(), order.has_hole()), (4, true, false));
}

#[test]
fn no_event_is_handed_out_twice_or_before_a_missing_event() {
    let mut order = EventOrder::default();
    order.handle_event(1, output(1)).unwrap();
    assert_eq!(drain_numbers(&mut order), [1]);
    order.handle_event(1, output(1)).unwrap();
    order.handle_event(0, output(1)).unwrap();
    assert_eq!((drain(&mut order), order.has_hole()), (vec![], false));
    order.handle_event(3, output(1)).unwrap();
    assert_eq!((drain(&mut order), order.has_hole()), (vec![], true));
}

#[test]
fn no_event_follows_the_close() {
    let mut order = EventOrder::default();
    order.handle_event(3, output(9)).unwrap();
    order.handle_event(2, Event::Closed).unwrap();
    order.handle_event(1, exited()).unwrap();
    assert_eq!(drain_numbers(&mut order), [1, 2]);
    order.handle_event(3, output(1)).unwrap();
    order.handle_event(4, output(2 << 20)).unwrap();
    order.handle_unnumbered_close();
    assert_eq!((drain(&mut order), order.has_hole()), (vec![], false));
}

#[test]
fn skipped_events_are_not_handed_out_and_do_not_count_towards_the_limits() {
    let mut order = EventOrder::new(OrderLimits { events: 3, bytes: 8 });
    for seq in [4, 5, 7] {
        order.handle_event(seq, output(1)).unwrap();
    }
    order.skip(5);
    assert_eq!((order.last(), order.poll_event()), (5, None));
    order.handle_event(6, output(2)).unwrap();
    assert_eq!((order.poll_event(), order.poll_event()), (Some((6, output(2))), Some((7, output(1)))));
    order.skip(3);
    assert_eq!(order.last(), 7, "no event is handed out twice");
    order.handle_event(9, output(8)).unwrap();
}

#[test]
fn an_event_order_that_begins_after_an_event_ignores_that_event() {
    let mut order = EventOrder::after(5, OrderLimits::default());
    order.handle_event(5, output(1)).unwrap();
    order.handle_event(6, output(1)).unwrap();
    assert_eq!(drain_numbers(&mut order), [6]);
}

#[test]
fn output_that_is_too_large_is_refused_whether_or_not_it_is_the_next_event() {
    let mut order = EventOrder::default();
    let error = order.handle_event(2, output((1 << 20) + 1)).unwrap_err();
    assert_eq!(error.to_string(), "process event exceeds 1048576 bytes");
    assert_eq!(order.handle_event(1, output((1 << 20) + 1)), Err(OrderError::EventTooLarge(1 << 20)));
    order.handle_event(2, output(1 << 20)).unwrap();
    order.handle_event(1, output(1 << 20)).unwrap();
    assert_eq!(drain_numbers(&mut order), [1, 2]);
}

#[test]
fn waiting_events_are_limited_in_number_but_the_next_event_is_always_accepted() {
    let mut order = EventOrder::default();
    for seq in 2..258 {
        order.handle_event(seq, output(0)).unwrap();
    }
    let error = order.handle_event(258, output(0)).unwrap_err();
    assert_eq!(error.to_string(), "process event reorder buffer exceeds 256 entries");
    assert_eq!(
        order.handle_event(258, Event::Closed),
        Err(OrderError::TooManyEvents(256)),
        "the limit counts a close too"
    );
    order.handle_event(100, output(0)).unwrap();
    order.handle_event(1, output(0)).unwrap();
    assert_eq!(drain_numbers(&mut order), (1..258).collect::<Vec<_>>());
}

#[test]
fn waiting_events_are_limited_in_bytes_but_the_next_event_is_always_accepted() {
    let mut order = EventOrder::default();
    order.handle_event(2, output(1 << 19)).unwrap();
    order.handle_event(3, output(1 << 19)).unwrap();
    let error = order.handle_event(4, output(1)).unwrap_err();
    assert_eq!(error.to_string(), "process event reorder buffer exceeds 1048576 bytes");
    order.handle_event(4, exited()).unwrap();
    order.handle_event(1, output(1 << 20)).unwrap();
    assert_eq!(drain_numbers(&mut order), [1, 2, 3, 4]);
    order.handle_event(6, output(1 << 20)).unwrap();
    assert!(order.has_hole(), "events that were handed out do not count");
}

#[test]
fn an_unnumbered_close_is_handed_out_after_all_other_events() {
    let mut order = EventOrder::default();
    order.handle_event(1, output(1)).unwrap();
    order.handle_event(3, exited()).unwrap();
    order.handle_unnumbered_close();
    order.handle_unnumbered_close();
    assert_eq!(drain_numbers(&mut order), [1]);
    order.handle_event(2, output(1)).unwrap();
    assert_eq!(drain(&mut order), [(2, output(1)), (3, exited()), (4, Event::Closed)]);
    assert!(order.is_closed());
}

#[test]
fn an_unnumbered_close_waits_for_an_exit_that_comes_later() {
    let mut order = EventOrder::default();
    order.handle_event(1, output(1)).unwrap();
    assert_eq!(drain_numbers(&mut order), [1]);
    order.handle_unnumbered_close();
    assert_eq!(drain(&mut order), []);
    order.handle_event(3, exited()).unwrap();
    assert_eq!(drain(&mut order), []);
    order.handle_event(2, output(1)).unwrap();
    assert_eq!(drain(&mut order), [(2, output(1)), (3, exited()), (4, Event::Closed)]);
}

#[test]
fn an_unnumbered_close_does_not_wait_for_an_exit_that_may_have_been_skipped() {
    let mut order = EventOrder::after(5, OrderLimits::default());
    order.handle_unnumbered_close();
    assert_eq!(drain(&mut order), [(6, Event::Closed)]);
}

#[test]
fn the_largest_sequence_number_does_not_overflow() {
    let mut order = EventOrder::default();
    order.handle_event(u64::MAX, exited()).unwrap();
    order.handle_unnumbered_close();
    assert_eq!((drain(&mut order), order.has_hole()), (vec![], true));
    order.handle_event(1, output(1)).unwrap();
    assert_eq!(drain_numbers(&mut order), [1]);

    let mut last = EventOrder::after(u64::MAX - 1, OrderLimits::default());
    last.handle_event(u64::MAX, exited()).unwrap();
    last.handle_unnumbered_close();
    assert_eq!(drain_numbers(&mut last), [u64::MAX]);
    assert!(!last.has_hole());
}
