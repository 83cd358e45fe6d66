//! Tests of the event log: sequence numbers have no holes, no event comes twice, and no output is lost within the
//! limits.

use super::*;
use proptest::prelude::*;

const EXIT: LoggedExit =
    LoggedExit { code: 7, sandbox_denied: false, timed_out: false, resources: ExitResources::NONE };

fn log() -> EventLog {
    EventLog::new(LogLimits::default())
}

fn drain(log: &mut EventLog, cursor: &mut u64) -> Vec<LogEvent> {
    let mut events = Vec::new();
    while let Some(event) = log.next_event(*cursor) {
        *cursor = event.seq();
        events.push(event);
    }
    events
}

fn output(seq: u64, stream: Stream, text: &'static str) -> LogEvent {
    LogEvent::Output(Chunk { seq, stream, bytes: Bytes::from_static(text.as_bytes()) })
}

#[test]
fn a_large_chunk_is_read_in_parts() {
    let mut log = log();
    log.append(Stream::Stdout, b"0123456789");
    log.exit(EXIT);
    let mut known = PartOfChunk::default();
    let mut parts = Vec::new();
    loop {
        let page = log.read_part(0, 4, known);
        let chunk = &page.chunks[0];
        parts.push(String::from_utf8(chunk.bytes.to_vec()).unwrap());
        known = PartOfChunk { seq: chunk.seq, offset: known.offset + chunk.bytes.len() as u64 };
        assert_eq!(page.next_seq, if page.is_partial { chunk.seq } else { chunk.seq + 1 });
        if !page.is_partial {
            break;
        }
    }
    assert_eq!(parts, ["0123", "4567", "89"]);
    // If the log does not have the chunk that the client knows in part, the offset is ignored and chunks are returned whole.
    let page = log.read_part(0, 100, PartOfChunk { seq: 7, offset: 5 });
    assert_eq!((&page.chunks[0].bytes[..], page.is_partial), (&b"0123456789"[..], false));
}

#[test]
fn events_come_in_order_with_exit_before_late_output() {
    let mut log = log();
    log.append(Stream::Stdout, b"a");
    log.append(Stream::Stderr, b"b");
    log.exit(EXIT);
    log.append(Stream::Stdout, b"late");
    log.close();
    assert_eq!(
        drain(&mut log, &mut 0),
        [
            output(1, Stream::Stdout, "a"),
            output(2, Stream::Stderr, "b"),
            LogEvent::Exited { seq: 3, exit: EXIT },
            output(4, Stream::Stdout, "late"),
            LogEvent::Closed { seq: 5 },
        ]
    );
    assert_eq!(log.read(0, None).next_seq, 6);
}

#[test]
fn output_is_split_so_that_no_chunk_exceeds_the_largest_size() {
    let limits =
        LogLimits { retain_bytes: 1 << 20, retain_chunks: 1000, max_chunk_bytes: 1 << 10, ..LogLimits::default() };
    let mut log = EventLog::new(limits);
    log.append(Stream::Stdout, &[0; 2500]);
    log.append_owned(Stream::Stdout, vec![0; 100 << 10]);
    let page = log.read(0, None);
    assert!(page.chunks.iter().all(|chunk| chunk.bytes.len() <= 1 << 10));
    assert_eq!(page.chunks.iter().map(|chunk| chunk.bytes.len()).sum::<usize>(), 2500 + (100 << 10));
}

#[test]
fn output_is_merged_into_a_chunk_until_a_reader_has_seen_it() {
    let mut log = log();
    let mut cursor = 0;
    log.append(Stream::Stdout, b"a");
    log.append(Stream::Stdout, b"b");
    assert_eq!(drain(&mut log, &mut cursor), [output(1, Stream::Stdout, "ab")]);
    log.append(Stream::Stdout, b"c");
    assert_eq!(drain(&mut log, &mut cursor), [output(2, Stream::Stdout, "c")]);
    log.append(Stream::Stdout, b"d");
    assert_eq!(log.read(0, None).chunks.len(), 3);
    log.append(Stream::Stdout, b"e");
    assert_eq!(
        drain(&mut log, &mut cursor),
        [output(3, Stream::Stdout, "d"), output(4, Stream::Stdout, "e")],
        "a chunk that was read does not grow"
    );
}

#[test]
fn a_page_has_at_least_one_chunk_even_if_it_exceeds_the_limit() {
    let mut log = log();
    for text in [&b"aaaa"[..], b"bb", b"c"] {
        log.append(Stream::Stdout, text);
        log.seal();
    }
    let mut sizes = |after, max| {
        let page = log.read(after, max);
        (page.chunks.iter().map(|chunk| chunk.bytes.len()).collect::<Vec<_>>(), page.next_seq)
    };
    assert_eq!(sizes(0, Some(1)), (vec![4], 2));
    assert_eq!(sizes(0, Some(0)), (vec![4], 2));
    assert_eq!(sizes(0, Some(6)), (vec![4, 2], 3));
    assert_eq!(sizes(0, Some(7)), (vec![4, 2, 1], 4));
    assert_eq!(sizes(3, Some(7)), (vec![], 4));
    assert_eq!(sizes(1, None), (vec![2, 1], 4));
}

#[test]
fn only_output_exit_and_close_answer_a_waiting_read() {
    let mut log = log();
    assert!(!log.has_news_after(0));
    log.append(Stream::Stdout, b"a");
    assert!(log.has_news_after(0));
    assert!(!log.has_news_after(1));
    log.exit(EXIT);
    assert!(log.has_news_after(1));
    assert!(!log.has_news_after(2), "a read after the exit waits for late output or the close");
    log.close();
    assert!(log.has_news_after(2));
    assert!(log.has_news_after(99));
}

#[test]
fn the_number_of_chunks_is_limited() {
    let mut log = EventLog::new(LogLimits { retain_chunks: 50_000, ..LogLimits::default() });
    for n in 0..50_010u64 {
        log.append(if n % 2 == 0 { Stream::Stdout } else { Stream::Stderr }, b"x");
    }
    log.seal();
    log.append(Stream::Pty, b"y");
    let page = log.read(0, None);
    assert_eq!((page.chunks.len(), page.gap), (50_000, true));
    // In an answer each chunk is an object with three members, which counts as four JSON values.
    assert!(page.chunks.len() * 4 + 16 < protocol::MAX_VALUES);
}

#[test]
fn appendable_bytes_are_the_limit_minus_the_unacknowledged_output() {
    let mut log =
        EventLog::new(LogLimits { retain_bytes: 10, retain_chunks: 100, max_chunk_bytes: 4, ..LogLimits::default() });
    log.append(Stream::Stdout, b"aaaa");
    log.append(Stream::Stdout, b"bbbb");
    assert_eq!(log.appendable_bytes(Acknowledged::default()), 2);
    let first = log.acknowledged_through(1);
    assert_eq!(log.appendable_bytes(first), 6);
    log.append(Stream::Stdout, b"cccc");
    assert_eq!((log.appendable_bytes(first), log.oldest_seq()), (2, Some(2)));
    assert_eq!(log.appendable_bytes(log.acknowledged_through(3)), 10);
}

#[test]
fn large_buffers_are_kept_as_they_are_and_used_again() {
    let mut log = EventLog::new(LogLimits {
        retain_bytes: 2 * LARGE_BYTES + 1,
        retain_chunks: 100,
        max_chunk_bytes: LARGE_BYTES,
        ..LogLimits::default()
    });
    log.append(Stream::Stdout, b"small");
    log.append_owned(Stream::Stdout, vec![1; LARGE_BYTES]);
    log.append_owned(Stream::Stdout, b"!".to_vec());
    assert_eq!(log.take_spare(), None);
    let page = log.read(0, None);
    assert_eq!(page.chunks.iter().map(|chunk| chunk.bytes.len()).collect::<Vec<_>>(), [5, LARGE_BYTES, 1]);
    drop(page);
    log.append_owned(Stream::Stderr, vec![2; LARGE_BYTES]);
    assert_eq!(log.take_spare().map(|buffer| buffer.len()), None, "only the small chunk was dropped");
    log.append_owned(Stream::Stderr, vec![3; LARGE_BYTES]);
    assert_eq!(log.take_spare(), Some(vec![1; LARGE_BYTES]));
    assert_eq!((log.retained_bytes(), log.total_bytes()), (2 * LARGE_BYTES + 1, 3 * LARGE_BYTES as u64 + 6));
}

#[test]
fn shrinking_drops_the_oldest_chunks() {
    let mut log = EventLog::new(LogLimits {
        retain_bytes: 100,
        retain_chunks: 100,
        max_chunk_bytes: 4,
        ..LogLimits::default()
    });
    for _ in 0..5 {
        log.append(Stream::Stdout, b"abcd");
    }
    let chunk = 4 + CHUNK_OVERHEAD_BYTES;
    assert_eq!(log.occupied_bytes(), 5 * chunk);
    let known = log.acknowledged_through(3);
    assert_eq!((log.unacknowledged_bytes(known), log.occupied_by_unacknowledged(known)), (8, 2 * chunk));
    assert_eq!(log.acknowledged_bytes(known), 12);
    assert_eq!(log.shrink_to(2 * chunk + 1), 3 * chunk);
    assert_eq!((log.retained_bytes(), log.dropped_bytes(), log.oldest_seq()), (8, 12, Some(4)));
    assert!(log.read(2, None).gap);
    assert!(!log.read(3, None).gap);
    log.shrink_to(0);
    assert_eq!((log.has_event_after(2), log.next_event(2)), (false, None), "no event is left to send");
}

#[derive(Clone, Debug)]
enum LogStep {
    Append(Stream, Vec<u8>),
    /// The client is sent this many events, or fewer if there are fewer.
    SendEvents(usize),
    /// A read with this `after` and `max_bytes`.
    Read(u64, Option<u64>),
    /// The client acknowledges all events that it was sent.
    Acknowledge,
    Exit,
}

fn step() -> impl Strategy<Value = LogStep> {
    let stream = prop_oneof![Just(Stream::Stdout), Just(Stream::Stderr)];
    prop_oneof![
        4 => (stream, proptest::collection::vec(any::<u8>(), 1..40)).prop_map(|(stream, bytes)| LogStep::Append(stream, bytes)),
        3 => (0usize..4).prop_map(LogStep::SendEvents),
        1 => (0u64..20, proptest::option::of(0u64..60)).prop_map(|(after, max)| LogStep::Read(after, max)),
        1 => Just(LogStep::Acknowledge),
        1 => Just(LogStep::Exit),
    ]
}

fn bytes_of(events: &[LogEvent], stream: Stream) -> Vec<u8> {
    let chunks = events.iter().filter_map(|event| match event {
        LogEvent::Output(chunk) if chunk.stream == stream => Some(chunk.bytes.as_ref()),
        _ => None,
    });
    chunks.collect::<Vec<_>>().concat()
}

proptest! {
    #[test]
    fn output_that_the_log_has_room_for_is_sent_once_and_in_order(steps in proptest::collection::vec(step(), 0..60)) {
        let mut log = EventLog::new(LogLimits { retain_bytes: 120, retain_chunks: 20, max_chunk_bytes: 50, ..LogLimits::default() });
        let (mut cursor, mut seen, mut known) = (0, Vec::new(), Acknowledged::default());
        let mut model: [(Stream, Vec<u8>); 2] = [(Stream::Stdout, vec![]), (Stream::Stderr, vec![])];
        let mut exited = false;
        for step in steps {
            match step {
                // As in the server, output is appended only while the log has room beside the unacknowledged output.
                LogStep::Append(stream, bytes) if log.appendable_bytes(known) >= bytes.len() => {
                    log.append(stream, &bytes);
                    model.iter_mut().find(|(written_to, _)| *written_to == stream).unwrap().1.extend(bytes);
                }
                LogStep::Append(..) => {}
                LogStep::SendEvents(count) => for _ in 0..count {
                    let Some(event) = log.next_event(cursor) else { break };
                    prop_assert_eq!(event.seq(), cursor + 1, "the sequence numbers have no hole");
                    cursor = event.seq();
                    seen.push(event);
                },
                LogStep::Read(after, max) => {
                    let page = log.read(after, max);
                    prop_assert!(page.chunks.iter().all(|chunk| chunk.seq > after));
                    prop_assert!(page.chunks.windows(2).all(|pair| pair[0].seq < pair[1].seq));
                    if let (Some(max), [_, _, ..]) = (max, page.chunks.as_slice()) {
                        prop_assert!(page.chunks.iter().map(|chunk| chunk.bytes.len() as u64).sum::<u64>() <= max);
                    }
                }
                LogStep::Acknowledge => known = log.acknowledged_through(cursor),
                LogStep::Exit if !exited => { exited = true; log.exit(EXIT); }
                LogStep::Exit => {}
            }
            prop_assert!(log.retained_bytes() <= 120);
        }
        log.close();
        seen.extend(drain(&mut log, &mut cursor));
        prop_assert_eq!(seen.iter().map(LogEvent::seq).collect::<Vec<_>>(), (1..=cursor).collect::<Vec<_>>());
        for (stream, bytes) in &model {
            prop_assert_eq!(&bytes_of(&seen, *stream), bytes);
        }
        prop_assert_eq!(cursor + 1, log.next_seq());
    }

    #[test]
    fn without_a_client_the_newest_output_stays(writes in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..60), 1..40)) {
        let mut log = EventLog::new(LogLimits { retain_bytes: 100, retain_chunks: 10, max_chunk_bytes: 30, ..LogLimits::default() });
        let all = writes.concat();
        for bytes in &writes {
            log.append(Stream::Pty, bytes);
        }
        let page = log.read(0, None);
        let kept: Vec<u8> = page.chunks.iter().flat_map(|chunk| chunk.bytes.to_vec()).collect();
        prop_assert!(all.ends_with(&kept));
        prop_assert_eq!(kept.len() as u64 + log.dropped_bytes(), all.len() as u64);
        prop_assert_eq!(page.gap, log.dropped_bytes() > 0);
    }
}

#[test]
fn a_page_is_limited_by_its_output_and_the_overhead_of_each_chunk() {
    let limits = LogLimits { max_page_bytes: 2 * (1 + CHUNK_OVERHEAD_BYTES), ..LogLimits::default() };
    let mut log = EventLog::new(limits);
    for stream in [Stream::Stdout, Stream::Stderr, Stream::Stdout] {
        log.append(stream, b"x");
    }
    log.close();
    let page = |log: &mut EventLog, after| {
        let page = log.read(after, None);
        (page.chunks.len(), page.next_seq)
    };
    assert_eq!(page(&mut log, 0), (2, 3));
    assert_eq!(page(&mut log, 2), (1, 5), "a page to the end covers the close");
}
