//! Two ends connected by a simulated network on virtual time, which loses, repeats and reorders frames and replaces
//! sockets; and single rules of an end.

use proptest::prelude::*;

use super::*;
use crate::handshake::{ExecutorHandshake, HarnessHandshake};
use crate::limits::MAX_FRAME_BYTES;
use crate::prologue::StreamBinding;
use crate::public_key::RelayIdentity;
use crate::unacknowledged::FIRST_RETRY;

/// Two ends after their handshake, harness first.
fn pair(features: [Features; 2], now: Instant) -> [RelayStream; 2] {
    let binding = StreamBinding { environment_id: "e", registration_id: "r", stream_id: "s" };
    let (harness, executor) = (RelayIdentity::generate().unwrap(), RelayIdentity::generate().unwrap());
    let (waiting, first) = HarnessHandshake::begin(&harness, &executor.public_key(), binding, "grant").unwrap();
    let (second, at_executor) = ExecutorHandshake::read(&executor, binding, &first).unwrap().accept().unwrap();
    let at_harness = waiting.finish(&second).unwrap();
    [RelayStream::new("s", at_harness, features[1], now), RelayStream::new("s", at_executor, features[0], now)]
}

const OURS: [Features; 2] = [Features::ACKNOWLEDGES; 2];

fn frames(end: &mut RelayStream, now: Instant) -> Vec<Frame> {
    std::iter::from_fn(|| end.next_frame(now)).collect()
}

/// The frame with the tag that `by` would give it.
fn signed(frame: Frame, by: &RelayStream) -> Frame {
    Frame { ack_tag: by.channel.sent_acks.tag(acknowledgement(&frame)), ..frame }
}

fn read_all(end: &mut RelayStream, now: Instant) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some(piece) = end.read(now).unwrap() {
        bytes.extend_from_slice(&piece);
    }
    bytes
}

fn deliver(frames: Vec<Frame>, to: &mut RelayStream, now: Instant) {
    for frame in frames {
        to.handle(Frame::decode(frame.encode().into()).unwrap(), now).unwrap();
    }
}

/// The bytes that an end writes in the simulation: the byte at each offset is known.
fn pattern(from: u64, length: usize) -> Vec<u8> {
    (from..from + length as u64).map(|offset| (offset.wrapping_mul(2_654_435_761) >> 7) as u8).collect()
}

/// What may happen in the simulation.
#[derive(Clone, Debug)]
enum Step {
    /// An end writes.
    Write(usize, usize),
    /// Frames of an end are put on the way.
    Send(usize),
    /// A number of frames on the way to an end arrive.
    Deliver(usize, usize),
    /// The frame at a place on the way to an end is lost.
    Lose(usize, usize),
    /// The frame at a place on the way to an end arrives a second time.
    Repeat(usize, usize),
    /// Two frames on the way to an end change places.
    Swap(usize, usize),
    /// The socket of an end is lost, with what was on the way in both directions. The relay may tell the other end.
    LoseSocket(usize, bool),
    /// An end gets a new socket, if it has none.
    ReplaceSocket(usize),
    /// This end changes to another route. Frames that are on their way over the old route still arrive.
    ChangeRoute(usize),
    /// The relay says that the socket of the peer is lost, although it is not.
    FalseAlarm(usize),
    /// The application at an end takes what has arrived.
    Read(usize),
    /// Some milliseconds pass.
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let end = 0_usize..2;
    prop_oneof![
        4 => (end.clone(), 1_usize..200_000).prop_map(|(end, bytes)| Step::Write(end, bytes)),
        8 => end.clone().prop_map(Step::Send),
        8 => (end.clone(), 1_usize..8).prop_map(|(end, count)| Step::Deliver(end, count)),
        2 => (end.clone(), 0_usize..8).prop_map(|(end, place)| Step::Lose(end, place)),
        1 => (end.clone(), 0_usize..8).prop_map(|(end, place)| Step::Repeat(end, place)),
        1 => (end.clone(), 0_usize..8).prop_map(|(end, place)| Step::Swap(end, place)),
        1 => (end.clone(), any::<bool>()).prop_map(|(end, is_told)| Step::LoseSocket(end, is_told)),
        2 => end.clone().prop_map(Step::ReplaceSocket),
        2 => end.clone().prop_map(Step::ChangeRoute),
        1 => end.clone().prop_map(Step::FalseAlarm),
        6 => end.prop_map(Step::Read),
        3 => (1_u64..600).prop_map(Step::Wait),
    ]
}

/// Two ends, and the frames on the way to each.
struct Simulation {
    ends: [RelayStream; 2],
    on_the_way: [VecDeque<Vec<u8>>; 2],
    has_socket: [bool; 2],
    written: [u64; 2],
    read: [u64; 2],
    now: Instant,
}

impl Simulation {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            ends: pair(OURS, now),
            on_the_way: Default::default(),
            has_socket: [true; 2],
            written: [0; 2],
            read: [0; 2],
            now,
        }
    }

    /// Returns how many frames the end has sent.
    fn send(&mut self, end: usize) -> usize {
        let sent = frames(&mut self.ends[end], self.now);
        let count = sent.len();
        for frame in sent {
            let bytes = frame.encode();
            assert!(bytes.len() <= MAX_FRAME_BYTES);
            // The relay drops frames for an end that has no socket.
            if self.has_socket[1 - end] {
                self.on_the_way[1 - end].push_back(bytes);
            }
        }
        count
    }

    fn deliver(&mut self, end: usize, count: usize) {
        for _ in 0..count {
            let Some(bytes) = self.on_the_way[end].pop_front() else { return };
            self.ends[end].handle(Frame::decode(bytes.into()).unwrap(), self.now).unwrap();
        }
    }

    fn read(&mut self, end: usize) {
        let bytes = read_all(&mut self.ends[end], self.now);
        assert_eq!(bytes, pattern(self.read[end], bytes.len()), "end {end} at {}", self.read[end]);
        self.read[end] += bytes.len() as u64;
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Write(end, bytes) => {
                // A careful application writes no more than the stream can keep.
                let bytes = bytes.min(self.ends[end].writable_records().saturating_sub(1) * MAX_RECORD_BYTES);
                self.ends[end].write(&pattern(self.written[end], bytes)).unwrap();
                self.written[end] += bytes as u64;
            }
            Step::Send(end) => {
                self.send(end);
            }
            Step::Deliver(end, count) => self.deliver(end, count),
            Step::Lose(end, place) => drop(self.on_the_way[end].remove(place)),
            Step::Repeat(end, place) => {
                if let Some(frame) = self.on_the_way[end].get(place).cloned() {
                    self.on_the_way[end].push_back(frame);
                }
            }
            Step::Swap(end, place) => {
                if place + 1 < self.on_the_way[end].len() {
                    self.on_the_way[end].swap(place, place + 1);
                }
            }
            Step::LoseSocket(end, is_told) => {
                self.ends[end].socket_lost(self.now).unwrap();
                assert!(self.ends[end].next_frame(self.now).is_none());
                self.has_socket[end] = false;
                self.on_the_way.iter_mut().for_each(VecDeque::clear);
                if is_told {
                    self.take(&Step::FalseAlarm(1 - end));
                }
            }
            Step::ReplaceSocket(end) => {
                if !self.has_socket[end] {
                    self.has_socket[end] = true;
                    self.ends[end].socket_replaced(self.now);
                }
            }
            Step::ChangeRoute(end) => {
                if self.has_socket[end] {
                    self.ends[end].socket_replaced(self.now);
                }
            }
            Step::FalseAlarm(end) => {
                if self.has_socket[end] {
                    let alarm = Frame::new("s", FrameBody::Reset { reason: PEER_LOST.to_owned() });
                    self.ends[end].handle(alarm, self.now).unwrap();
                }
            }
            Step::Read(end) => self.read(end),
            Step::Wait(milliseconds) => self.now += Duration::from_millis(milliseconds),
        }
        for (end, (written, acknowledged)) in [0, 1].map(|end| (end, self.ends[end].progress())) {
            assert_eq!(written, self.written[end]);
            // What is acknowledged has arrived at the other end.
            let arrived = self.read[1 - end] + self.ends[1 - end].waiting_bytes() as u64;
            assert!(acknowledged <= arrived, "{acknowledged} of {written} acknowledged, {arrived} arrived");
            let waiting = self.ends[end].incoming.received() - self.ends[end].incoming.taken();
            assert!(waiting <= CREDIT_RECORDS, "{waiting} records wait for the application");
        }
    }

    /// A network without faults, until nothing is left to do. Time passes only until the next deadline of an end.
    fn settle(&mut self) {
        for end in [0, 1] {
            self.take(&Step::ReplaceSocket(end));
        }
        for _ in 0..500 {
            let mut sent = 0;
            for end in [0, 1] {
                sent += self.send(end);
                self.deliver(1 - end, usize::MAX);
                self.read(1 - end);
                self.ends[end].check(self.now).unwrap();
            }
            if (0..2).all(|end| self.ends[end].progress() == (self.read[1 - end], self.read[1 - end])) {
                assert_eq!(self.written, [self.read[1], self.read[0]]);
                return;
            }
            if sent == 0 {
                self.now = self.ends.iter().filter_map(RelayStream::deadline).min().unwrap().max(self.now);
            }
        }
        panic!("written {:?}, read {:?}", self.written, self.read);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Nothing is lost, repeated or altered, whatever the network does, and in the end everything has arrived and is
    /// acknowledged.
    #[test]
    fn every_byte_arrives_once_and_in_order(steps in proptest::collection::vec(step(), 0..300)) {
        let mut simulation = Simulation::new();
        for step in &steps {
            simulation.take(step);
        }
        simulation.settle();
    }
}

#[test]
fn a_record_is_sent_again_as_the_same_ciphertext() {
    let mut now = Instant::now();
    let [mut harness, _] = pair(OURS, now);
    harness.write(b"hello").unwrap();
    let first = frames(&mut harness, now);
    assert_eq!(frames(&mut harness, now + FIRST_RETRY - Duration::from_millis(1)), []);
    now += FIRST_RETRY;
    let again = frames(&mut harness, now);
    assert_eq!((first.len(), &again), (1, &first));
    harness.socket_lost(now).unwrap();
    harness.socket_replaced(now);
    let after_resume = frames(&mut harness, now);
    assert_eq!(after_resume[0].body, FrameBody::Resume { next_seq: 0 });
    assert_eq!(after_resume[1..], first);
}

#[test]
fn a_missing_record_is_sent_again_when_a_record_three_numbers_later_has_arrived() {
    let now = Instant::now();
    let [mut harness, mut executor] = pair(OURS, now);
    for text in ["a", "b", "c", "d"] {
        harness.write(text.as_bytes()).unwrap();
    }
    let mut sent = frames(&mut harness, now);
    let lost = sent.remove(0);
    let last = sent.pop().unwrap();
    deliver(sent, &mut executor, now);
    let answer = frames(&mut executor, now);
    assert_eq!((answer.len(), answer[0].ack, answer[0].ack_bits), (1, 0, 0b11));
    deliver(answer, &mut harness, now);
    assert_eq!(frames(&mut harness, now), [], "the relay may have changed the order");
    deliver(vec![last], &mut executor, now);
    let answer = frames(&mut executor, now);
    assert_eq!((answer[0].ack, answer[0].ack_bits), (0, 0b111));
    deliver(answer.clone(), &mut harness, now);
    let again = frames(&mut harness, now);
    assert_eq!(again.iter().map(|frame| &frame.body).collect::<Vec<_>>(), [&lost.body]);
    // The same acknowledgement a second time repeats nothing.
    deliver(answer, &mut harness, now);
    assert_eq!(frames(&mut harness, now), []);
    deliver(again, &mut executor, now);
    assert_eq!(read_all(&mut executor, now), b"abcd");
}

#[test]
fn a_stream_that_makes_no_progress_or_is_not_resumed_fails() {
    let now = Instant::now();
    let [mut harness, mut executor] = pair(OURS, now);
    harness.write(b"x").unwrap();
    let _lost = frames(&mut harness, now);
    // The relay passes heartbeats on and drops the record.
    let later = now + PROGRESS_LIMIT - Duration::from_millis(1);
    for time in [now + HEARTBEAT_AFTER, later] {
        harness.handle(signed(Frame::new("s", FrameBody::Heartbeat), &executor), time).unwrap();
        harness.check(time).unwrap();
    }
    assert_eq!(harness.check(now + PROGRESS_LIMIT), Err(StreamFailure::Stalled));
    // Repeating that the peer is away does not prolong the wait.
    let away = || Frame::new("s", FrameBody::Reset { reason: PEER_LOST.to_owned() });
    executor.handle(away(), now).unwrap();
    executor.handle(away(), later).unwrap();
    assert_eq!(executor.deadline(), Some(now + HEARTBEAT_WHILE_AWAY));
    assert_eq!(executor.check(now + RESUME_LIMIT), Err(StreamFailure::SocketLost));
    executor.socket_lost(now).unwrap();
    executor.socket_replaced(later);
    executor.check(now + RESUME_LIMIT).unwrap();
}

#[test]
fn a_peer_that_ignores_its_credit_is_not_kept_waiting_data_for() {
    let now = Instant::now();
    let [mut ours, mut theirs] = pair([Features::ACKNOWLEDGES, Features::NONE], now);
    // An end that forgets what it has sent sends everything at once.
    ours.write(&vec![0; MAX_WAITING_BYTES + MAX_RECORD_BYTES]).unwrap();
    let sent: Vec<_> = frames(&mut ours, now).into_iter().map(|frame| signed(frame, &ours)).collect();
    let dropped = sent[CREDIT_RECORDS as usize].clone();
    for frame in sent.iter().cloned() {
        theirs.handle(frame, now).unwrap();
    }
    assert_eq!(theirs.incoming.received(), CREDIT_RECORDS);
    let _read = read_all(&mut theirs, now);
    theirs.handle(dropped, now).unwrap();
    assert_eq!(theirs.incoming.received(), CREDIT_RECORDS + 1);
    // Credit means nothing to a peer of the published protocol, so the stream fails.
    let [mut reference, mut ours] = pair([Features::NONE; 2], now);
    reference.write(&vec![0; MAX_WAITING_BYTES + MAX_RECORD_BYTES]).unwrap();
    let failure = frames(&mut reference, now).into_iter().find_map(|frame| ours.handle(frame, now).err());
    assert_eq!(failure, Some(StreamFailure::Overrun));
    let too_long = FrameBody::Data { seq: 0, record: vec![0; MAX_NOISE_BYTES + 1].into() };
    let [mut ours, theirs] = pair(OURS, now);
    assert_eq!(ours.handle(signed(Frame::new("s", too_long), &theirs), now), Err(RecordFailure::Length.into()));
}

#[test]
fn the_last_records_of_a_stream_are_sent_and_then_writing_fails() {
    let now = Instant::now();
    let [mut harness, _] = pair([Features::NONE; 2], now);
    harness.channel.sealer.skip_to(u32::MAX - 1);
    harness.write(b"last").unwrap();
    assert_eq!(harness.write(b"too much"), Err(RecordFailure::Exhausted.into()));
}

#[test]
fn an_acknowledgement_is_sent_with_a_record_or_alone_after_a_moment() {
    let now = Instant::now();
    let [mut harness, mut executor] = pair(OURS, now);
    harness.write(b"request").unwrap();
    deliver(frames(&mut harness, now), &mut executor, now);
    assert_eq!(frames(&mut executor, now), []);
    assert_eq!(executor.deadline(), Some(now + ACK_DELAY));
    executor.write(b"answer").unwrap();
    let answer = frames(&mut executor, now);
    assert_eq!((answer.len(), answer[0].ack), (1, 1));
    deliver(answer, &mut harness, now);
    assert_eq!(harness.progress(), (7, 0), "the request has arrived, and nobody has read it");
    assert_eq!(read_all(&mut executor, now), b"request");
    assert_eq!(executor.deadline(), Some(now + ACK_DELAY));
    deliver(frames(&mut executor, now + ACK_DELAY), &mut harness, now);
    assert_eq!(harness.progress(), (7, 7));
    let later = frames(&mut harness, now + ACK_DELAY);
    assert_eq!((later.len(), later[0].ack, &later[0].body), (1, 1, &FrameBody::Ack));
}

#[test]
fn an_end_that_does_not_read_stops_its_peer_and_reading_lets_it_go_on() {
    let now = Instant::now();
    let [mut harness, mut executor] = pair(OURS, now);
    for _ in 0..100 {
        executor.write(b"x").unwrap();
    }
    let sent = frames(&mut executor, now);
    assert_eq!(sent.len() as u64, CREDIT_RECORDS);
    assert_eq!(executor.writable_records(), 0);
    deliver(sent, &mut harness, now);
    deliver(frames(&mut harness, now), &mut executor, now);
    assert_eq!(frames(&mut executor, now), [], "everything has arrived, and nothing was taken");
    assert_eq!(read_all(&mut harness, now).len() as u64, CREDIT_RECORDS);
    deliver(frames(&mut harness, now), &mut executor, now);
    assert_eq!(frames(&mut executor, now).len() as u64, 100 - CREDIT_RECORDS);
}

#[test]
fn a_peer_that_never_acknowledges_gets_each_record_once_and_nothing_else() {
    let now = Instant::now();
    let [mut ours, mut theirs] = pair([Features::ACKNOWLEDGES, Features::NONE], now);
    ours.write(b"one").unwrap();
    let sent = frames(&mut ours, now);
    assert_eq!(sent.len(), 1);
    assert_eq!((sent[0].ack, sent[0].ack_bits, sent[0].credit), (0, 0, 0));
    assert_eq!((ours.progress(), ours.can_resume(), ours.deadline()), ((3, 3), false, None));
    assert_eq!(frames(&mut ours, now + 10 * SILENCE_LIMIT), []);
    ours.check(now + 10 * SILENCE_LIMIT).unwrap();
    deliver(sent.into_iter().map(|frame| signed(frame, &ours)).collect(), &mut theirs, now);
    assert_eq!(read_all(&mut theirs, now), b"one");
    // Resume, heartbeat, acknowledgement and credit of such a peer are ignored.
    for body in [FrameBody::Resume { next_seq: 9 }, FrameBody::Heartbeat, FrameBody::Ack] {
        let frame = Frame { ack: 5, ack_bits: 7, credit: 1, ..Frame::new("s", body) };
        ours.handle(frame, now).unwrap();
        assert_eq!(frames(&mut ours, now), []);
    }
    assert_eq!(ours.socket_lost(now), Err(StreamFailure::SocketLost));
}

#[test]
fn a_gap_of_a_peer_that_never_acknowledges_ends_the_stream_when_the_window_is_full() {
    let now = Instant::now();
    let [mut ours, mut theirs] = pair([Features::NONE, Features::NONE], now);
    for _ in 0..66 {
        theirs.write(b"x").unwrap();
    }
    let mut sent = frames(&mut theirs, now);
    sent.remove(0);
    let last = sent.pop().unwrap();
    deliver(sent, &mut ours, now);
    assert_eq!(ours.handle(last, now), Err(StreamFailure::Gap));
}

#[test]
fn acknowledgements_of_what_was_never_sent_end_the_stream() {
    let now = Instant::now();
    let [mut harness, executor] = pair(OURS, now);
    harness.write(b"not sent").unwrap();
    let lie = signed(Frame { ack: 1, ..Frame::new("s", FrameBody::Ack) }, &executor);
    assert_eq!(harness.handle(lie, now), Err(StreamFailure::Acknowledgement));
}

#[test]
fn a_relay_cannot_make_acknowledgements() {
    let now = Instant::now();
    let alterations: [fn(&mut Frame); 5] = [
        |frame| frame.ack += 1,
        |frame| frame.ack_bits ^= 1,
        |frame| frame.credit += 1,
        |frame| frame.ack_tag ^= 1,
        |frame| frame.ack_tag = 0,
    ];
    for alter in alterations {
        let [mut harness, mut executor] = pair(OURS, now);
        harness.write(b"x").unwrap();
        harness.write(b"y").unwrap();
        let mut sent = frames(&mut harness, now);
        sent.pop();
        deliver(sent, &mut executor, now);
        let mut answer = frames(&mut executor, now + ACK_DELAY).remove(0);
        alter(&mut answer);
        assert_eq!(harness.handle(answer, now), Err(StreamFailure::Acknowledgement));
    }
}

#[test]
fn a_record_that_the_relay_has_made_up_does_not_count_as_received() {
    let now = Instant::now();
    let [mut harness, mut executor] = pair(OURS, now);
    harness.write(b"true").unwrap();
    frames(&mut harness, now);
    let mut invented = signed(Frame::new("s", FrameBody::Data { seq: 0, record: vec![7; 20].into() }), &harness);
    invented.credit = CREDIT_RECORDS as u32;
    deliver(vec![signed(invented, &harness)], &mut executor, now);
    // The record has arrived, so the sender may drop its copy. But nobody has read the record.
    deliver(frames(&mut executor, now + ACK_DELAY), &mut harness, now);
    assert_eq!(harness.progress(), (4, 0));
    assert_eq!(executor.read(now), Err(StreamFailure::Record(RecordFailure::Altered)));
}

#[test]
fn a_resume_that_comes_late_repeats_nothing_that_was_acknowledged() {
    let now = Instant::now();
    let [mut harness, mut executor] = pair(OURS, now);
    harness.write(b"x").unwrap();
    deliver(frames(&mut harness, now), &mut executor, now);
    deliver(frames(&mut executor, now + ACK_DELAY), &mut harness, now);
    let late = signed(Frame::new("s", FrameBody::Resume { next_seq: 0 }), &executor);
    harness.handle(late, now).unwrap();
    let answer = frames(&mut harness, now);
    assert_eq!(answer.iter().map(|frame| &frame.body).collect::<Vec<_>>(), [&FrameBody::Ack]);
}

#[test]
fn late_copies_of_the_first_frames_change_nothing() {
    let now = Instant::now();
    for mut end in pair(OURS, now).into_iter().chain(pair([Features::NONE; 2], now)) {
        for body in [FrameBody::Resume { next_seq: 0 }, FrameBody::Handshake("message".into())] {
            end.handle(Frame::new("s", body), now).unwrap();
        }
        assert_eq!((end.heard_frames(), frames(&mut end, now)), (0, Vec::new()), "it is not a sign of life either");
    }
}

#[test]
fn a_reset_ends_the_stream_unless_it_says_that_the_peer_is_away() {
    let now = Instant::now();
    let [mut harness, mut executor] = pair(OURS, now);
    executor.write(b"waits").unwrap();
    executor.handle(Frame::new("s", FrameBody::Reset { reason: PEER_LOST.to_owned() }), now).unwrap();
    assert_eq!(frames(&mut executor, now), []);
    harness.socket_lost(now).unwrap();
    harness.socket_replaced(now);
    deliver(frames(&mut harness, now), &mut executor, now);
    deliver(frames(&mut executor, now), &mut harness, now);
    assert_eq!(read_all(&mut harness, now), b"waits");
    let reset = |reason: &str| Frame::new("s", FrameBody::Reset { reason: reason.to_owned() });
    assert_eq!(executor.handle(reset("anything"), now), Err(StreamFailure::Reset));
    let [mut ours, _] = pair([Features::ACKNOWLEDGES, Features::NONE], now);
    assert_eq!(ours.handle(reset(PEER_LOST), now), Err(StreamFailure::Reset));
}

#[test]
fn a_silent_peer_is_asked_and_then_given_up() {
    let now = Instant::now();
    let [mut harness, mut executor] = pair(OURS, now);
    assert_eq!(harness.deadline(), Some(now + HEARTBEAT_AFTER));
    let question = frames(&mut harness, now + HEARTBEAT_AFTER);
    assert_eq!(question.iter().map(|frame| &frame.body).collect::<Vec<_>>(), [&FrameBody::Heartbeat]);
    harness.check(now + SILENCE_LIMIT - Duration::from_millis(1)).unwrap();
    assert_eq!(harness.check(now + SILENCE_LIMIT), Err(StreamFailure::Silent));
    // An answer keeps the stream alive.
    deliver(question, &mut executor, now + HEARTBEAT_AFTER);
    deliver(frames(&mut executor, now + HEARTBEAT_AFTER), &mut harness, now + HEARTBEAT_AFTER);
    harness.check(now + SILENCE_LIMIT).unwrap();
}

#[test]
fn an_altered_record_ends_the_stream_when_it_is_read() {
    let now = Instant::now();
    let [mut harness, mut executor] = pair(OURS, now);
    harness.write(b"hello").unwrap();
    let mut frame = frames(&mut harness, now).remove(0);
    let FrameBody::Data { record, .. } = &mut frame.body else { panic!("{frame:?}") };
    let mut altered = record.to_vec();
    altered[0] ^= 1;
    *record = altered.into();
    executor.handle(frame, now).unwrap();
    assert_eq!(executor.read(now), Err(StreamFailure::Record(RecordFailure::Altered)));
}

#[test]
fn only_frames_of_the_peer_are_proven() {
    let now = Instant::now();
    let [mut harness, executor] = pair(OURS, now);
    harness.write(b"x").unwrap();
    harness.socket_replaced(now);
    for frame in frames(&mut harness, now) {
        assert!(executor.is_proven(&frame));
        assert!(!harness.is_proven(&frame), "a frame that comes back proves nothing");
        assert!(!executor.is_proven(&Frame { ack: frame.ack + 1, ..frame.clone() }));
        assert!(!executor.is_proven(&Frame { ack_tag: 0, ..frame }));
    }
    let reset = Frame::new("s", FrameBody::Reset { reason: "closed".to_owned() });
    assert!(!executor.is_proven(&signed(reset, &harness)));

    let [mut harness, executor] = pair([Features::NONE; 2], now);
    harness.write(b"x").unwrap();
    assert!(!executor.is_proven(&harness.next_frame(now).unwrap()), "the published protocol has no proofs");
}
