//! Tests of how a client learns that a process has ended, and of how many reads it needs in each case.

use bytes::Bytes;
use protocol::{Base64Bytes, ExitResources, OutputChunk, Stream};

use super::*;

fn output() -> Event {
    Event::Output { stream: Stream::Stdout, chunk: Bytes::from_static(b"x") }
}

fn exited(sandbox_denied: Option<bool>) -> Event {
    Event::Exited(Exit {
        code: 3,
        sandbox_denied,
        sandbox_denials: Vec::new(),
        timed_out: false,
        resources: ExitResources::NONE,
    })
}

fn answer(chunks: std::ops::Range<u64>, next_seq: u64) -> ReadResult {
    let chunk = |seq| OutputChunk { seq, stream: Stream::Stdout, chunk: Base64Bytes(b"x".to_vec()) };
    ReadResult {
        chunks: chunks.map(chunk).collect(),
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

#[test]
fn a_complete_stream_needs_no_read() {
    let mut completion = Completion::default();
    for (seq, event) in [(1, output()), (2, output()), (3, exited(Some(false))), (4, output())] {
        assert_eq!(completion.handle_event(seq, &event), CompletionStep::Take);
        assert_eq!(completion.handle_event(seq, &event), CompletionStep::Skip, "the second time");
    }
    assert!(!completion.is_closed());
    assert_eq!(completion.handle_event(5, &Event::Closed), CompletionStep::Take);
    assert_eq!((completion.last(), completion.is_closed()), (5, true));
    assert_eq!(
        completion.exit(),
        Some(Exit {
            code: 3,
            sandbox_denied: Some(false),
            sandbox_denials: Vec::new(),
            timed_out: false,
            resources: ExitResources::NONE
        })
    );
    assert_eq!(completion.handle_event(6, &output()), CompletionStep::Skip, "no event follows the close");
}

#[test]
fn an_exit_that_reports_a_denial_needs_no_read() {
    let mut completion = Completion::default();
    assert_eq!(completion.handle_event(1, &exited(Some(true))), CompletionStep::Take);
    assert_eq!(completion.handle_event(2, &Event::Closed), CompletionStep::Take);
    assert_eq!(completion.exit().and_then(|exit| exit.sandbox_denied), Some(true));
}

#[test]
fn an_exit_that_does_not_say_whether_the_sandbox_denied_something_needs_one_read() {
    let mut completion = Completion::default();
    assert_eq!(completion.handle_event(1, &output()), CompletionStep::Take);
    assert_eq!(completion.handle_event(2, &exited(None)), CompletionStep::Read { after: 1 });
    assert_eq!((completion.last(), completion.exit()), (1, None), "the event is discarded");
    completion.handle_read(&ReadResult { exited: true, exit_code: Some(3), sandbox_denied: true, ..answer(0..0, 3) });
    assert_eq!(
        completion.exit(),
        Some(Exit {
            code: 3,
            sandbox_denied: Some(true),
            sandbox_denials: Vec::new(),
            timed_out: false,
            resources: ExitResources::NONE
        })
    );
    assert_eq!(completion.handle_event(2, &exited(None)), CompletionStep::Skip);
    assert_eq!(completion.handle_event(3, &Event::Closed), CompletionStep::Take);
}

#[test]
fn output_before_the_first_pushed_event_is_read_once() {
    let mut completion = Completion::default();
    assert_eq!(completion.handle_event(769, &output()), CompletionStep::Read { after: 0 });
    completion.handle_read(&answer(1..1025, 1025));
    let repeated: Vec<_> = (769..1025).map(|seq| completion.handle_event(seq, &output())).collect();
    assert!(repeated.iter().all(|step| *step == CompletionStep::Skip), "no event is taken twice");
    assert_eq!(completion.handle_event(1025, &exited(Some(false))), CompletionStep::Take);
    assert_eq!(completion.handle_event(1026, &Event::Closed), CompletionStep::Take);
}

#[test]
fn a_client_that_missed_events_reads_after_the_last_that_it_knows() {
    let mut completion = Completion::after(7);
    assert_eq!(completion.handle_event(7, &output()), CompletionStep::Skip);
    assert_eq!(completion.handle_lag(), CompletionStep::Read { after: 7 });
    let end = ReadResult { exited: true, exit_code: Some(0), closed: true, timed_out: true, ..answer(8..9, 11) };
    completion.handle_read(&end);
    assert_eq!((completion.last(), completion.is_closed()), (10, true));
    assert_eq!(
        completion.exit(),
        Some(Exit {
            code: 0,
            sandbox_denied: Some(false),
            sandbox_denials: Vec::new(),
            timed_out: true,
            resources: ExitResources::NONE
        })
    );
    assert_eq!(completion.handle_event(10, &Event::Closed), CompletionStep::Skip);
}

#[test]
fn an_answer_without_an_exit_code_closes_the_process_without_an_exit() {
    let mut completion = Completion::after(4);
    let failure = Some("exec-server transport disconnected".to_owned());
    completion.handle_read(&ReadResult { exited: true, closed: true, failure, ..answer(0..0, 5) });
    assert_eq!((completion.exit(), completion.is_closed()), (None, true));
}

#[test]
fn an_answer_that_is_older_than_the_known_events_changes_nothing() {
    let mut completion = Completion::after(9);
    completion.handle_read(&answer(3..5, 5));
    assert_eq!(completion.last(), 9);
}

#[test]
fn a_page_before_the_last_does_not_close_the_process() {
    let mut completion = Completion::default();
    let ended = |page| ReadResult { exited: true, exit_code: Some(3), closed: true, exit_seq: Some(5), ..page };
    assert_eq!(completion.handle_read(&ended(answer(1..3, 3))), CompletionStep::Read { after: 2 });
    assert!(!completion.is_closed());
    assert_eq!(completion.handle_read(&ended(answer(3..5, 5))), CompletionStep::Read { after: 4 });
    assert_eq!(completion.handle_read(&ended(answer(0..0, 7))), CompletionStep::Take);
    assert_eq!((completion.last(), completion.is_closed()), (6, true));
}

#[test]
fn the_largest_sequence_number_does_not_overflow() {
    let mut completion = Completion::after(u64::MAX);
    assert_eq!(completion.handle_event(u64::MAX, &output()), CompletionStep::Skip);
    completion.handle_read(&answer(0..0, 0));
    completion.handle_read(&answer(0..0, u64::MAX));
    assert_eq!(completion.last(), u64::MAX);
}
