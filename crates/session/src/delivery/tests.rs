//! Tests of which events a delivery sends to each reader, and for which readers the process waits.

use std::time::Duration;

use proptest::prelude::*;
use protocol::ExitResources;

use super::*;

const FIRST: ConnectionNumber = ConnectionNumber(1);
const SECOND: ConnectionNumber = ConnectionNumber(2);
const WATCHER: ConnectionNumber = ConnectionNumber(3);
const EXIT: LoggedExit =
    LoggedExit { code: 7, sandbox_denied: false, timed_out: false, resources: ExitResources::NONE };
const HOLD: Duration = Duration::from_secs(25);
const NOTHING: [u64; 0] = [];

fn limits(retain_bytes: usize) -> LogLimits {
    LogLimits { retain_bytes, max_chunk_bytes: 4, ..LogLimits::default() }
}

/// The delivery of a process whose start over [`FIRST`] was answered.
fn start(started_as: StartedAs, retain_bytes: usize) -> Delivery {
    let mut delivery = Delivery::new(limits(retain_bytes), Resend::Unacknowledged, started_as);
    delivery.connect(FIRST);
    delivery.note_answer_queued(FIRST);
    delivery
}

/// The process writes `text`. Returns how many bytes the log dropped that no reader had acknowledged.
fn write(delivery: &mut Delivery, text: &str) -> u64 {
    let mut buffer = text.as_bytes().to_vec();
    buffer.resize(text.len() * 3, 0);
    delivery.append(Stream::Stdout, &mut buffer, text.len())
}

/// Sends all events that a reader may be sent now. Returns their sequence numbers.
fn send(delivery: &mut Delivery, connection: ConnectionNumber) -> Vec<u64> {
    let mut sent = Vec::new();
    while let Polled::Events(batch) = delivery.poll(connection, 1) {
        assert_eq!(batch.has_more, delivery.has_events_for(connection));
        sent.extend(batch.events.iter().map(LogEvent::seq));
    }
    sent
}

fn allowed_bytes(delivery: &Delivery, now: Instant) -> usize {
    delivery.allowed_output_bytes(MemoryPressure::Normal, now)
}

#[test]
fn events_follow_the_answer_to_the_start() {
    let mut delivery = Delivery::new(limits(100), Resend::Unacknowledged, StartedAs::Followed);
    delivery.connect(FIRST);
    write(&mut delivery, "text");
    assert_eq!(send(&mut delivery, FIRST), NOTHING);
    delivery.note_answer_queued(FIRST);
    assert_eq!(send(&mut delivery, FIRST), [1]);
    delivery.exit(EXIT);
    delivery.close();
    assert!(!delivery.is_sent_or_paused());
    assert_eq!(send(&mut delivery, FIRST), [2, 3]);
    assert!(delivery.is_sent_or_paused());
}

#[test]
fn a_batch_ends_at_its_budget_and_says_whether_more_follows() {
    let mut delivery = start(StartedAs::Followed, 100);
    for text in ["aaaa", "bbbb", "cccc"] {
        write(&mut delivery, text);
    }
    let budget = 2 * (4 + CHUNK_OVERHEAD_BYTES);
    let Polled::Events(batch) = delivery.poll(FIRST, budget) else { panic!("there are events") };
    assert_eq!((batch.events.len(), batch.last_seq(), batch.output_bytes, batch.has_more), (2, 2, budget, true));
    delivery.exit(EXIT);
    delivery.close();
    let Polled::Events(batch) = delivery.poll(FIRST, usize::MAX) else { panic!("there are events") };
    assert_eq!((batch.last_seq(), batch.has_more), (5, false));
    assert!(matches!(delivery.poll(FIRST, usize::MAX), Polled::Nothing));
}

#[test]
fn a_full_log_makes_the_process_wait_for_acknowledgements() {
    let (mut delivery, now) = (start(StartedAs::Followed, 8), Instant::now());
    write(&mut delivery, "aaaa");
    write(&mut delivery, "bbbb");
    assert_eq!((send(&mut delivery, FIRST), allowed_bytes(&delivery, now)), (vec![1, 2], 0));
    delivery.acknowledge(SECOND, 2);
    assert_eq!(allowed_bytes(&delivery, now), 0, "another connection cannot acknowledge");
    delivery.acknowledge(FIRST, 1);
    assert_eq!(allowed_bytes(&delivery, now), 4);
    delivery.acknowledge(FIRST, 99);
    assert_eq!(allowed_bytes(&delivery, now), 8);
    write(&mut delivery, "cccc");
    delivery.acknowledge(FIRST, 1);
    assert_eq!(allowed_bytes(&delivery, now), 4, "an event that did not exist was not acknowledged");
}

#[test]
fn memory_pressure_always_allows_a_process_some_output() {
    let (mut delivery, now) = (start(StartedAs::Followed, 1 << 20), Instant::now());
    let allowed = MemoryPressure::ALWAYS_ALLOWED_BYTES;
    assert!(delivery.allowed_output_bytes(MemoryPressure::High, now) > 0);
    delivery.append(Stream::Stdout, &mut vec![0; 3 * allowed], allowed);
    assert_eq!(delivery.allowed_output_bytes(MemoryPressure::High, now), 0);
    assert!(allowed_bytes(&delivery, now) > 0);
}

#[test]
fn a_lost_client_is_waited_for_until_the_hold_ends() {
    let (mut delivery, now) = (start(StartedAs::Followed, 8), Instant::now());
    write(&mut delivery, "aaaa");
    delivery.detach(FIRST, Departure::Lost, now + HOLD);
    assert_eq!(allowed_bytes(&delivery, now + HOLD - Duration::from_nanos(1)), 4);
    assert_eq!(allowed_bytes(&delivery, now + HOLD), usize::MAX);
    delivery.attach(SECOND);
    assert_eq!(allowed_bytes(&delivery, now + HOLD), 4, "the client has reconnected, and may still need the output");
}

#[test]
fn a_client_that_said_goodbye_is_not_waited_for() {
    let (mut delivery, now) = (start(StartedAs::Followed, 8), Instant::now());
    delivery.detach(FIRST, Departure::Goodbye, now + HOLD);
    assert_eq!(allowed_bytes(&delivery, now), usize::MAX);
    delivery.attach(SECOND);
    assert_eq!(allowed_bytes(&delivery, now), usize::MAX, "the client has not asked for events yet");
    delivery.read(SECOND, 0, None, None);
    assert_eq!(allowed_bytes(&delivery, now), 8);
}

#[test]
fn a_process_that_was_started_paused_waits_only_while_its_client_is_connected() {
    let (mut delivery, now) = (start(StartedAs::Paused, 8), Instant::now());
    write(&mut delivery, "aaaa");
    assert_eq!((send(&mut delivery, FIRST), allowed_bytes(&delivery, now)), (vec![], 4));
    assert!(delivery.owes_events());
    delivery.detach(FIRST, Departure::Lost, now + HOLD);
    assert_eq!((allowed_bytes(&delivery, now), delivery.owes_events()), (usize::MAX, false));
}

#[test]
fn the_first_read_after_a_resume_says_what_the_client_has() {
    let (mut delivery, now) = (start(StartedAs::Followed, 100), Instant::now());
    for text in ["aaaa", "bbbb", "cccc"] {
        write(&mut delivery, text);
    }
    assert_eq!(send(&mut delivery, FIRST), [1, 2, 3]);
    delivery.detach(FIRST, Departure::Lost, now + HOLD);
    delivery.attach(SECOND);
    assert_eq!(send(&mut delivery, SECOND), NOTHING, "no event is sent before the read");
    let answer = delivery.read(SECOND, 1, Some(4), None);
    assert_eq!((answer.page.chunks[0].seq, answer.page.next_seq, answer.catches_up), (2, 3, true));
    assert_eq!(send(&mut delivery, SECOND), NOTHING, "no event overtakes the answer");
    delivery.note_answer_queued(SECOND);
    assert_eq!(send(&mut delivery, SECOND), [3]);
    assert!(!delivery.read(SECOND, 0, None, None).catches_up, "only the first read says what the client has");
    assert_eq!(allowed_bytes(&delivery, now), 100 - 8);
}

#[test]
fn events_of_an_answer_that_was_refused_are_sent_as_notifications() {
    let mut delivery = start(StartedAs::Followed, 100);
    for text in ["aaaa", "bbbb", "cccc"] {
        write(&mut delivery, text);
    }
    assert_eq!(send(&mut delivery, FIRST), [1, 2, 3]);
    delivery.attach(SECOND);
    assert!(delivery.read(SECOND, 1, None, None).catches_up);
    delivery.note_answer_refused(SECOND);
    assert_eq!(send(&mut delivery, SECOND), [2, 3]);
}

#[test]
fn a_read_that_gets_a_part_of_a_chunk_does_not_catch_up() {
    let mut delivery = start(StartedAs::Followed, 100);
    write(&mut delivery, "aaaa");
    delivery.attach(SECOND);
    let part = delivery.read(SECOND, 0, Some(3), Some(PartOfChunk::default()));
    assert!(part.page.is_partial && !part.catches_up);
    let rest = delivery.read(SECOND, 0, Some(3), Some(PartOfChunk { seq: 1, offset: 3 }));
    assert!(!rest.page.is_partial && rest.catches_up);
}

#[test]
fn a_client_that_does_not_read_is_sent_unacknowledged_events_or_only_unsent_ones_with_resend_never() {
    for (resend, expected) in [(Resend::Unacknowledged, vec![2, 3]), (Resend::Never, vec![3])] {
        let mut delivery = Delivery::new(limits(100), resend, StartedAs::Followed);
        delivery.connect(FIRST);
        delivery.note_answer_queued(FIRST);
        write(&mut delivery, "aaaa");
        write(&mut delivery, "bbbb");
        assert_eq!(send(&mut delivery, FIRST), [1, 2]);
        delivery.acknowledge(FIRST, 1);
        write(&mut delivery, "cccc");
        delivery.attach(SECOND);
        delivery.push_without_read(FIRST);
        assert_eq!(send(&mut delivery, SECOND), NOTHING, "the late timer of another connection changes nothing");
        delivery.push_without_read(SECOND);
        assert_eq!(send(&mut delivery, SECOND), expected);
    }
}

#[test]
fn a_process_does_not_wait_for_output_that_is_never_sent_again() {
    let (mut delivery, now) = (Delivery::new(limits(8), Resend::Never, StartedAs::Followed), Instant::now());
    delivery.connect(FIRST);
    delivery.note_answer_queued(FIRST);
    write(&mut delivery, "aaaa");
    write(&mut delivery, "bbbb");
    assert_eq!((send(&mut delivery, FIRST), allowed_bytes(&delivery, now)), (vec![1, 2], 0));
    delivery.attach(SECOND);
    delivery.push_without_read(SECOND);
    assert_eq!(allowed_bytes(&delivery, now), 8, "no acknowledgement of the output can come any more");
}

#[test]
fn a_client_that_reconnects_is_not_sent_events_of_a_process_that_an_observer_started() {
    let (mut delivery, now) = (start(StartedAs::Unrequested, 8), Instant::now());
    write(&mut delivery, "aaaa");
    delivery.detach(FIRST, Departure::Lost, now + HOLD);
    delivery.attach(SECOND);
    delivery.push_without_read(SECOND);
    assert_eq!((send(&mut delivery, SECOND), allowed_bytes(&delivery, now)), (vec![], usize::MAX));
    assert!(delivery.read(SECOND, 0, None, None).catches_up);
}

#[test]
fn a_displaced_connection_cannot_change_the_delivery_to_its_successor() {
    let (mut delivery, now) = (start(StartedAs::Followed, 8), Instant::now());
    write(&mut delivery, "aaaa");
    delivery.attach(SECOND);
    let answer = delivery.read(FIRST, 1, None, None);
    assert!(!answer.catches_up && answer.page.chunks.is_empty());
    delivery.note_answer_queued(FIRST);
    delivery.acknowledge(FIRST, 1);
    delivery.pause(FIRST);
    delivery.detach(FIRST, Departure::Goodbye, now);
    assert_eq!(
        (send(&mut delivery, FIRST), send(&mut delivery, SECOND), allowed_bytes(&delivery, now)),
        (vec![], vec![], 4)
    );
    assert!(delivery.read(SECOND, 0, None, None).catches_up);
}

#[test]
fn output_that_the_old_client_has_acknowledged_is_kept_for_a_client_that_takes_over() {
    let (mut delivery, now) = (start(StartedAs::Followed, 8), Instant::now());
    write(&mut delivery, "aaaa");
    write(&mut delivery, "bbbb");
    assert_eq!(send(&mut delivery, FIRST), [1, 2]);
    delivery.acknowledge(FIRST, 2);
    delivery.attach(SECOND);
    assert!(delivery.read(SECOND, 0, Some(4), None).catches_up);
    assert_eq!(allowed_bytes(&delivery, now), 0);
    let reclaimed = delivery.reclaim(ReclaimStep::Acknowledged, 0, MemoryPressure::High, now);
    assert_eq!(reclaimed.bytes, 0);
    delivery.note_answer_queued(SECOND);
    assert_eq!(send(&mut delivery, SECOND), [2]);
}

#[test]
fn events_of_a_paused_process_are_sent_when_the_client_resumes_it() {
    let (mut delivery, now) = (start(StartedAs::Followed, 8), Instant::now());
    write(&mut delivery, "aaaa");
    delivery.pause(FIRST);
    assert!(delivery.is_sent_or_paused() && delivery.owes_events());
    assert_eq!((send(&mut delivery, FIRST), allowed_bytes(&delivery, now)), (vec![], 4));
    delivery.resume(FIRST);
    assert!(delivery.owes_events(), "the event is not sent yet");
    assert_eq!(send(&mut delivery, FIRST), [1]);
    assert!(!delivery.owes_events());
}

#[test]
fn unsent_events_are_owed_to_a_client_that_follows_and_is_connected() {
    let (mut delivery, now) = (start(StartedAs::Followed, 100), Instant::now());
    write(&mut delivery, "aaaa");
    delivery.exit(EXIT);
    delivery.close();
    delivery.poll(FIRST, 1);
    assert!(delivery.owes_events(), "the exit and the close are not sent yet");
    delivery.detach(FIRST, Departure::Lost, now + HOLD);
    assert!(!delivery.owes_events(), "nobody is connected");
    delivery.attach(SECOND);
    assert!(delivery.owes_events(), "the server still waits for the first read");
    delivery.push_without_read(SECOND);
    assert_eq!(send(&mut delivery, SECOND), [1, 2, 3]);
    assert!(!delivery.owes_events());

    let mut unrequested = start(StartedAs::Unrequested, 100);
    write(&mut unrequested, "aaaa");
    assert!(!unrequested.owes_events());
    unrequested.pause(FIRST);
    assert!(unrequested.owes_events(), "a client that pauses a process wants its events later");
}

#[test]
fn output_that_the_client_was_never_sent_is_missed_when_it_is_discarded() {
    let discarded = |started_as, sends| {
        let mut delivery = start(started_as, 100);
        write(&mut delivery, "aaaa");
        delivery.close();
        if sends {
            send(&mut delivery, FIRST);
        }
        delivery.detach(FIRST, Departure::Lost, Instant::now());
        delivery.discard()
    };
    let bytes = 4 + CHUNK_OVERHEAD_BYTES;
    assert_eq!(discarded(StartedAs::Followed, false), Reclaimed { bytes, missed_bytes: 4 });
    assert_eq!(discarded(StartedAs::Followed, true), Reclaimed { bytes, missed_bytes: 0 });
    assert_eq!(discarded(StartedAs::Unrequested, false), Reclaimed { bytes, missed_bytes: 0 });
}

#[test]
fn a_read_by_a_client_that_has_paused_acknowledges_nothing() {
    let (mut delivery, now) = (start(StartedAs::Followed, 8), Instant::now());
    write(&mut delivery, "aaaa");
    delivery.attach(SECOND);
    delivery.pause(SECOND);
    let answer = delivery.read(SECOND, 1, None, None);
    assert_eq!((answer.catches_up, allowed_bytes(&delivery, now)), (false, 4));
}

#[test]
fn events_of_a_process_that_an_observer_started_are_sent_to_a_client_that_asks() {
    let now = Instant::now();
    let unrequested = || {
        let mut delivery = start(StartedAs::Unrequested, 8);
        write(&mut delivery, "aaaa");
        delivery.push_without_read(FIRST);
        assert_eq!((send(&mut delivery, FIRST), allowed_bytes(&delivery, now)), (vec![], usize::MAX));
        delivery
    };
    let mut resumed = unrequested();
    resumed.resume(FIRST);
    assert_eq!((send(&mut resumed, FIRST), allowed_bytes(&resumed, now)), (vec![1], 4));
    let mut read = unrequested();
    assert!(read.read(FIRST, 0, None, None).catches_up);
    assert_eq!(allowed_bytes(&read, now), 4);
}

#[test]
fn at_shutdown_all_events_are_sent_and_pauses_are_ignored() {
    let now = Instant::now();
    let mut paused = start(StartedAs::Paused, 8);
    write(&mut paused, "aaaa");
    paused.finish();
    paused.pause(FIRST);
    assert_eq!((send(&mut paused, FIRST), allowed_bytes(&paused, now)), (vec![1], 4));
    let mut resumed = start(StartedAs::Followed, 8);
    write(&mut resumed, "aaaa");
    resumed.attach(SECOND);
    resumed.finish();
    assert_eq!(send(&mut resumed, SECOND), [1]);
    let mut lost = start(StartedAs::Followed, 8);
    lost.detach(FIRST, Departure::Lost, now + HOLD);
    lost.finish();
    assert_eq!(allowed_bytes(&lost, now), usize::MAX);
}

#[test]
fn a_watcher_never_makes_the_process_wait_and_may_miss_output() {
    let (mut delivery, now) = (start(StartedAs::Unrequested, 8), Instant::now());
    write(&mut delivery, "aaaa");
    delivery.watch(WATCHER, 0);
    assert_eq!(send(&mut delivery, WATCHER), [1]);
    for text in ["bbbb", "cccc", "dddd"] {
        write(&mut delivery, text);
    }
    assert_eq!(allowed_bytes(&delivery, now), usize::MAX);
    assert_eq!(send(&mut delivery, WATCHER), [3, 4], "the missing number tells the watcher of the gap");
    delivery.resume(WATCHER);
    delivery.finish();
    assert_eq!(allowed_bytes(&delivery, now), 0, "the process waits for the client, which is connected");
    delivery.detach(WATCHER, Departure::Lost, now);
    delivery.exit(EXIT);
    assert_eq!(send(&mut delivery, WATCHER), NOTHING);
}

#[test]
fn each_reclaim_step_drops_only_the_output_that_it_allows() {
    let now = Instant::now();
    let missed_bytes =
        |delivery: &mut Delivery, pressure| delivery.reclaim(ReclaimStep::Anything, 0, pressure, now).missed_bytes;
    let chunk = 4 + CHUNK_OVERHEAD_BYTES;
    let mut delivery = start(StartedAs::Followed, 100);
    for text in ["aaaa", "bbbb", "cccc"] {
        write(&mut delivery, text);
    }
    delivery.poll(FIRST, 1);
    delivery.acknowledge(FIRST, 1);
    let high = MemoryPressure::High;
    assert_eq!(delivery.reclaim(ReclaimStep::SentAndClosed, 0, high, now).bytes, 0);
    let freed = delivery.reclaim(ReclaimStep::Acknowledged, 0, high, now);
    assert_eq!(freed, Reclaimed { bytes: chunk, missed_bytes: 0 });
    assert_eq!(delivery.reclaim(ReclaimStep::Anything, 0, high, now).bytes, 0, "the process waits instead");
    delivery.exit(EXIT);
    delivery.close();
    assert_eq!(missed_bytes(&mut delivery, high), 0, "the output is about to be sent");
    assert_eq!(missed_bytes(&mut delivery, MemoryPressure::Extreme), 8);
    assert_eq!(send(&mut delivery, FIRST), [4, 5]);
    assert_eq!(delivery.reclaim(ReclaimStep::SentAndClosed, 0, high, now).bytes, 0, "no output is left");
}

#[test]
fn output_of_a_closed_process_stays_until_its_receipt_unless_the_pressure_is_extreme() {
    let now = Instant::now();
    let chunk = 4 + CHUNK_OVERHEAD_BYTES;
    let reclaim = |delivery: &mut Delivery, step, pressure, now| delivery.reclaim(step, chunk, pressure, now);
    let nothing = Reclaimed { bytes: 0, missed_bytes: 0 };
    let sent_and_closed = || {
        let mut delivery = start(StartedAs::Followed, 100);
        write(&mut delivery, "aaaa");
        delivery.close();
        assert_eq!(send(&mut delivery, FIRST), [1, 2]);
        delivery
    };
    let (high, extreme) = (MemoryPressure::High, MemoryPressure::Extreme);

    let mut connected = sent_and_closed();
    for step in [ReclaimStep::Acknowledged, ReclaimStep::SentAndClosed, ReclaimStep::Anything] {
        assert_eq!(reclaim(&mut connected, step, high, now), nothing, "{step:?}");
    }
    let missed = Reclaimed { bytes: chunk, missed_bytes: 4 };
    assert_eq!(reclaim(&mut connected, ReclaimStep::SentAndClosed, extreme, now), missed);

    let mut acknowledged = sent_and_closed();
    acknowledged.acknowledge(FIRST, 2);
    let received = Reclaimed { bytes: chunk, missed_bytes: 0 };
    assert_eq!(reclaim(&mut acknowledged, ReclaimStep::Acknowledged, high, now), received);

    let mut lost = sent_and_closed();
    lost.detach(FIRST, Departure::Lost, now + HOLD);
    assert_eq!(reclaim(&mut lost, ReclaimStep::SentAndClosed, high, now), nothing);
    assert_eq!(reclaim(&mut lost, ReclaimStep::SentAndClosed, high, now + HOLD), missed);
}

proptest! {
    /// A process that writes only as much as it may loses no output, however often its client is lost and reconnects
    /// within the hold.
    #[test]
    fn nothing_is_dropped_while_the_process_waits(
        steps in proptest::collection::vec((0_u8..8, 1_usize..9), 1..80),
    ) {
        let now = Instant::now();
        let mut delivery = start(StartedAs::Followed, 16);
        let mut connection = 1;
        let mut last_sent = 0;
        for (step, size) in steps {
            let reader = ConnectionNumber(connection);
            match step {
                0..=2 => {
                    let count = size.min(allowed_bytes(&delivery, now));
                    prop_assert_eq!(write(&mut delivery, &"x".repeat(count)), 0);
                }
                3 => if let Some(last) = send(&mut delivery, reader).last() { last_sent = *last },
                4 => delivery.acknowledge(reader, last_sent),
                5 => delivery.pause(reader),
                6 => delivery.resume(reader),
                _ => {
                    delivery.detach(reader, Departure::Lost, now + HOLD);
                    connection += 1;
                    let reader = ConnectionNumber(connection);
                    delivery.attach(reader);
                    let answer = delivery.read(reader, last_sent, None, None);
                    prop_assert!(!answer.page.gap && answer.catches_up);
                    last_sent = answer.page.next_seq - 1;
                    delivery.note_answer_queued(reader);
                }
            }
        }
    }
}
