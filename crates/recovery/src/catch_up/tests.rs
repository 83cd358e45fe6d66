//! Tests of which events an answer to `process/read` adds, and of which answers are refused.

use protocol::{Base64Bytes, ExitResources, OutputChunk, Stream};

use super::*;
use crate::order::OrderLimits;

const EXIT: Exit = Exit {
    code: 7,
    sandbox_denied: Some(false),
    sandbox_denials: Vec::new(),
    timed_out: false,
    resources: ExitResources::NONE,
};

fn output(text: &str) -> Event {
    Event::Output { stream: Stream::Stdout, chunk: Bytes::from(text.to_owned()) }
}

/// An `EventOrder` that has handed out these events.
fn order_after(events: &[Event]) -> EventOrder {
    let mut order = EventOrder::default();
    for (seq, event) in (1..).zip(events) {
        order.handle_event(seq, event.clone()).unwrap();
        order.poll_event().unwrap();
    }
    order
}

/// The answer about a process that runs.
fn running<const N: usize>(chunks: [(u64, &str); N], next_seq: u64) -> ReadResult {
    let chunk = |(seq, text): (u64, &str)| OutputChunk {
        seq,
        stream: Stream::Stdout,
        chunk: Base64Bytes(text.as_bytes().to_vec()),
    };
    ReadResult {
        chunks: chunks.into_iter().map(chunk).collect(),
        next_seq,
        exited: false,
        exit_code: None,
        closed: false,
        failure: None,
        sandbox_denied: false,
        sandbox_denials: Vec::new(),
        oldest_seq: None,
        exit_seq: None,
        timed_out: false,
        usage: None,
        limit_reached: None,
        gap: false,
        dropped_bytes: None,
        partial: false,
    }
}

/// The answer about a process that has exited, from a server without the capability `readGaps`: it does not say the
/// number of the exit.
fn exited<const N: usize>(chunks: [(u64, &str); N], next_seq: u64) -> ReadResult {
    ReadResult { exited: true, exit_code: Some(7), ..running(chunks, next_seq) }
}

/// As [`exited`], about a process that is closed.
fn closed<const N: usize>(chunks: [(u64, &str); N], next_seq: u64) -> ReadResult {
    ReadResult { closed: true, ..exited(chunks, next_seq) }
}

fn drain(order: &mut EventOrder) -> Vec<(u64, Event)> {
    std::iter::from_fn(|| order.poll_event()).collect()
}

#[test]
fn output_that_was_missed_is_added_once() {
    let mut order = order_after(&[output("a")]);
    order.handle_read(running([(1, "a"), (2, "b"), (3, "c")], 4), 1).unwrap();
    assert!(!order.has_hole(), "an event that was handed out is not kept again");
    order.handle_event(2, output("b")).unwrap();
    assert_eq!(drain(&mut order), [(2, output("b")), (3, output("c"))]);
    order.handle_event(3, output("c")).unwrap();
    order.handle_read(running([(2, "b"), (3, "c")], 4), 3).unwrap();
    assert_eq!(drain(&mut order), []);
}

#[test]
fn an_answer_with_nothing_new_changes_nothing() {
    let mut order = order_after(&[output("a"), output("b")]);
    for answer in [running([], 3), running([], 0), running([(1, "a")], 2), exited([], 2)] {
        order.handle_read(answer, 2).unwrap();
    }
    assert_eq!((drain(&mut order), order.last()), (vec![], 2));
}

#[test]
fn a_process_can_be_closed_without_an_exit_code() {
    for answer in [running([], 1), ReadResult { exited: true, ..running([], 1) }] {
        let mut order = EventOrder::default();
        order.handle_read(ReadResult { closed: true, ..answer }, 0).unwrap();
        assert_eq!(drain(&mut order), [(1, Event::Closed)]);
    }
}

#[test]
fn a_close_without_a_number_takes_a_missing_exit_from_the_answer() {
    let mut order = order_after(&[output("a")]);
    order.handle_read(closed([], 2), 1).unwrap();
    assert_eq!(drain(&mut order), [(2, Event::Exited(EXIT)), (3, Event::Closed)]);
}

#[test]
fn an_answer_fills_the_hole_before_a_pushed_event() {
    let mut order = order_after(&[output("a")]);
    order.handle_event(5, output("e")).unwrap();
    order.handle_read(running([(2, "b"), (3, "c"), (4, "d")], 5), 1).unwrap();
    let texts = ["b", "c", "d", "e"].map(output);
    assert_eq!(drain(&mut order), (2..).zip(texts).collect::<Vec<_>>());
}

#[test]
fn the_number_of_an_exit_is_taken_from_the_answer() {
    let mut order = EventOrder::default();
    let answer = ReadResult { exit_seq: Some(2), timed_out: true, ..closed([(1, "a"), (3, "late")], 5) };
    order.handle_read(answer, 0).unwrap();
    let exit = Event::Exited(Exit { timed_out: true, ..EXIT });
    assert_eq!(drain(&mut order), [(1, output("a")), (2, exit), (3, output("late")), (4, Event::Closed)]);
}

#[test]
fn an_exit_without_a_number_gets_the_number_of_the_missing_event() {
    for (answer, seq) in [
        (exited([(2, "b"), (3, "c")], 4), 1),
        (exited([(1, "a"), (3, "c")], 4), 2),
        (exited([(1, "a"), (2, "b")], 4), 3),
        (closed([(1, "a"), (3, "c")], 5), 2),
        (closed([(1, "a"), (2, "b")], 5), 3),
    ] {
        let mut order = EventOrder::default();
        order.handle_read(answer, 0).unwrap();
        let events = drain(&mut order);
        assert_eq!(events.iter().position(|(_, event)| *event == Event::Exited(EXIT)), Some(seq - 1));
    }
}

#[test]
fn an_answer_is_refused_if_more_than_the_exit_is_missing() {
    for answer in [exited([(2, "b")], 4), exited([], 3), closed([(2, "b")], 5), closed([(3, "c")], 6)] {
        let through = answer.next_seq - 1;
        assert_eq!(EventOrder::default().handle_read(answer, 0), Err(CatchUpError::NotRetained(through)));
    }
}

#[test]
fn an_answer_is_refused_if_the_missing_event_cannot_be_the_exit() {
    let error = order_after(&[output("a"), Event::Exited(EXIT)]).handle_read(exited([(4, "d")], 5), 1).unwrap_err();
    assert_eq!(error.to_string(), "process events are no longer retained while recovering through sequence 4");
    assert_eq!(order_after(&[]).handle_read(running([(2, "b")], 3), 0), Err(CatchUpError::NotRetained(2)));

    let mut pending = EventOrder::default();
    pending.handle_event(3, Event::Exited(EXIT)).unwrap();
    assert_eq!(pending.handle_read(exited([(1, "a")], 4), 0), Err(CatchUpError::NotRetained(3)));
}

#[test]
fn output_with_the_number_of_the_close_is_refused() {
    let error = EventOrder::default().handle_read(closed([(2, "b")], 3), 0).unwrap_err();
    assert_eq!(error.to_string(), "process close sequence 2 conflicts with recovered output");

    let mut pushed = order_after(&[Event::Exited(EXIT)]);
    pushed.handle_event(3, output("c")).unwrap();
    assert_eq!(pushed.handle_read(closed([(2, "b")], 4), 0), Err(CatchUpError::CloseConflict(3)));
}

#[test]
fn output_beyond_the_end_of_the_answer_is_refused() {
    let error = EventOrder::default().handle_read(running([(1, "a"), (9, "z")], 2), 0).unwrap_err();
    assert_eq!(error, CatchUpError::BeyondEnd { seq: 9, through: 1 });
}

#[test]
fn a_close_that_was_pushed_meanwhile_is_not_doubled() {
    let mut order = EventOrder::default();
    order.handle_event(3, Event::Closed).unwrap();
    order.handle_read(closed([(1, "a")], 4), 0).unwrap();
    assert_eq!(drain(&mut order), [(1, output("a")), (2, Event::Exited(EXIT)), (3, Event::Closed)]);
    order.handle_read(closed([(1, "a")], 4), 1).unwrap();
    assert_eq!(drain(&mut order), []);
}

#[test]
fn a_pushed_exit_learns_from_the_answer_whether_the_sandbox_denied_something() {
    let denial = |pushed, answer: ReadResult| {
        let mut order = EventOrder::default();
        order.handle_event(2, Event::Exited(Exit { sandbox_denied: pushed, ..EXIT })).unwrap();
        order.handle_read(answer, 0).unwrap();
        match drain(&mut order).as_slice() {
            [_, (2, Event::Exited(exit))] => exit.sandbox_denied,
            other => panic!("{other:?}"),
        }
    };
    let denied = || ReadResult { sandbox_denied: true, ..exited([(1, "a")], 3) };
    assert_eq!(denial(None, denied()), Some(true));
    assert_eq!(denial(Some(false), denied()), Some(true));
    assert_eq!(denial(Some(true), exited([(1, "a")], 3)), Some(true));
    assert_eq!(denial(None, exited([(1, "a")], 3)), Some(false));
    assert_eq!(
        denial(None, running([(1, "a")], 2)),
        None,
        "the answer is older than the exit and cannot know of a denial"
    );
}

#[test]
fn an_exit_without_a_code_is_refused_only_if_the_exit_is_missing() {
    let without_code = |answer| ReadResult { exit_code: None, ..answer };
    assert_eq!(EventOrder::default().handle_read(without_code(exited([], 2)), 0), Err(CatchUpError::ExitUnknown));
    let mut order = order_after(&[Event::Exited(EXIT)]);
    order.handle_read(without_code(closed([], 3)), 0).unwrap();
    assert_eq!(drain(&mut order), [(2, Event::Closed)]);
}

#[test]
fn a_gap_reports_how_many_bytes_are_lost() {
    let gap = |answer| ReadResult { gap: true, dropped_bytes: Some(10), oldest_seq: Some(4), ..answer };
    let error = order_after(&[output("abc")]).handle_read(gap(running([(4, "d")], 5)), 3).unwrap_err();
    assert_eq!(error, CatchUpError::OutputLost { through: 4, lost_bytes: Some(7) });
    assert_eq!(
        error.to_string(),
        "process events are no longer retained while recovering through sequence 4: 7 bytes of output are lost"
    );

    let unknown = ReadResult { dropped_bytes: None, ..gap(running([(4, "d")], 5)) };
    let error = order_after(&[]).handle_read(unknown, 0).unwrap_err();
    assert!(error.to_string().ends_with("4: an unknown number of bytes of output are lost"), "{error}");

    let exit = ReadResult { exit_seq: Some(5), ..gap(closed([(4, "d")], 7)) };
    let error = order_after(&[output("abc")]).handle_read(exit, 3).unwrap_err();
    assert_eq!(error, CatchUpError::OutputLost { through: 6, lost_bytes: Some(7) });
}

#[test]
fn pushed_output_that_waits_does_not_count_as_lost() {
    let gap = |oldest_seq| ReadResult { gap: true, dropped_bytes: Some(10), oldest_seq, ..running([(5, "e")], 6) };
    let mut order = order_after(&[output("abc")]);
    order.handle_event(4, output("dd")).unwrap();
    order.handle_event(5, output("e")).unwrap();
    let lost_bytes = Some(10 - 3 - 2);
    assert_eq!(order.handle_read(gap(Some(5)), 3), Err(CatchUpError::OutputLost { through: 5, lost_bytes }));

    let mut order = order_after(&[output("abc")]);
    order.handle_event(4, output("dd")).unwrap();
    let nothing_left = ReadResult { chunks: vec![], ..gap(None) };
    assert_eq!(order.handle_read(nothing_left, 3), Err(CatchUpError::OutputLost { through: 5, lost_bytes }));
}

#[test]
fn a_gap_that_pushed_events_fill_is_no_error() {
    let mut order = order_after(&[output("a")]);
    order.handle_event(2, output("b")).unwrap();
    let answer = ReadResult { gap: true, dropped_bytes: Some(2), oldest_seq: Some(3), ..running([(3, "c")], 4) };
    order.handle_read(answer, 1).unwrap();
    assert_eq!(drain(&mut order), [(2, output("b")), (3, output("c"))]);
}

#[test]
fn a_page_before_the_last_does_not_close_the_process() {
    let ended = |page| ReadResult { exit_seq: Some(3), ..page };
    let mut order = EventOrder::default();
    order.handle_read(ended(closed([(1, "a")], 2)), 0).unwrap();
    assert_eq!(drain(&mut order), [(1, output("a"))]);
    order.handle_read(ended(exited([(2, "b")], 3)), 1).unwrap();
    assert_eq!(drain(&mut order), [(2, output("b"))]);
    order.handle_read(ended(closed([(4, "late")], 5)), 2).unwrap();
    assert_eq!(drain(&mut order), [(3, Event::Exited(EXIT)), (4, output("late"))]);
    order.handle_read(ended(closed([(3, "b"), (4, "late")], 5)), 6).unwrap();
    assert_eq!((drain(&mut order), order.is_closed()), (vec![], false), "pushed events may overtake a page");
    order.handle_event(5, Event::Closed).unwrap();
    assert_eq!(drain(&mut order), [(5, Event::Closed)]);
}

#[test]
fn a_close_that_an_answer_does_not_number_gets_the_number_after_the_exit() {
    let mut exit_missed = order_after(&[output("a")]);
    exit_missed.handle_read(closed([], 3), 1).unwrap();
    assert_eq!(drain(&mut exit_missed), [(2, Event::Exited(EXIT)), (3, Event::Closed)]);

    let mut exit_waits = order_after(&[]);
    exit_waits.handle_event(2, Event::Exited(EXIT)).unwrap();
    exit_waits.handle_read(closed([(1, "a")], 3), 0).unwrap();
    assert_eq!(drain(&mut exit_waits), [(1, output("a")), (2, Event::Exited(EXIT)), (3, Event::Closed)]);

    let mut only_close_missed = order_after(&[output("a"), Event::Exited(EXIT)]);
    only_close_missed.handle_read(closed([], 3), 1).unwrap();
    assert_eq!(drain(&mut only_close_missed), [(3, Event::Closed)]);
}

#[test]
fn a_client_that_starts_after_the_exit_gets_no_exit() {
    let mut order = EventOrder::after(5, OrderLimits::default());
    order.handle_read(closed([(6, "late")], 8), 0).unwrap();
    assert_eq!(drain(&mut order), [(6, output("late")), (7, Event::Closed)]);
    let mut order = EventOrder::after(5, OrderLimits::default());
    order.handle_read(ReadResult { exit_seq: Some(4), ..closed([(6, "late")], 8) }, 0).unwrap();
    assert_eq!(drain(&mut order), [(6, output("late")), (7, Event::Closed)]);
}

#[test]
fn the_largest_sequence_number_does_not_overflow() {
    let mut order = EventOrder::after(u64::MAX - 3, OrderLimits::default());
    for seq in [u64::MAX - 2, u64::MAX - 1, u64::MAX] {
        order.handle_event(seq, output("x")).unwrap();
    }
    order.handle_read(running([], u64::MAX), 0).unwrap();
    assert_eq!(drain(&mut order).len(), 3);
    order.handle_read(running([], u64::MAX), 0).unwrap();
    let error = EventOrder::default().handle_read(closed([(1, "a")], u64::MAX), 0).unwrap_err();
    assert_eq!(error, CatchUpError::NotRetained(u64::MAX - 1));
}
