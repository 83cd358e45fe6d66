//! The event log of a process together with how far the attached connection has been told.

use session::{ConnectionNumber, EventLog, Page, PartOfChunk};

use super::Dialect;
use crate::retention::Retained;

/// Whether events go to the attached connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushing {
    /// An observer has started the process. The attached client has not asked for its events, neither by a read nor by `process/flow`.
    Unasked,
    /// The session was resumed and the client has not yet said up to where it knows: events would only repeat or
    /// overtake what its first read brings.
    AwaitingRead,
    /// The answer to the start, or to that read, is not on its way yet.
    Answering,
    /// As they come.
    On,
}

/// What the attached client asked for with `process/flow`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Nothing.
    Free,
    /// Events wait.
    Paused,
    /// They waited and go on now, so some may not be on their way yet.
    Released,
}

/// Whose reading a process waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Follower {
    /// Nobody has asked for its output, or the client that did has said goodbye. It never waits.
    Nobody,
    /// The client that started it paused, which may release it as long as it is connected.
    Starter,
    /// A client that is sent its events, also while that client reconnects.
    Client,
}

/// How a connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Departure {
    /// Its client may be on its way back.
    Lost,
    /// Its client has closed it in order, and so does not wait for anything.
    Goodbye,
}

/// What a process said and who has heard it.
pub(crate) struct Journal {
    pub(crate) log: EventLog,
    /// The last event handed to a connection.
    pub(crate) sent: u64,
    pub(crate) pushing: Pushing,
    pub(crate) flow: Flow,
    /// Who is told. A connection whose session was taken over may still be writing; it must not swallow events.
    pub(crate) listener: Option<ConnectionNumber>,
    /// Whether output waits for its follower; otherwise the oldest is dropped to make room.
    pub(crate) hold: bool,
    pub(crate) follower: Follower,
    retained: Retained,
    /// Whether events can be told from ones sent before.
    repeats: bool,
    /// Bytes sent of stdout and stderr, for the cap of the legacy family.
    pub(crate) legacy_sent: [u64; 2],
}

impl Journal {
    pub(crate) fn new(log: EventLog, retained: Retained, dialect: Dialect, follower: Follower) -> Self {
        Self {
            log,
            sent: 0,
            pushing: if follower == Follower::Nobody { Pushing::Unasked } else { Pushing::Answering },
            flow: if follower == Follower::Starter { Flow::Paused } else { Flow::Free },
            listener: None,
            hold: true,
            follower,
            retained,
            repeats: dialect == Dialect::Current,
            legacy_sent: [0; 2],
        }
    }

    /// Whether the process waits for a reader when what is retained is full.
    fn waits(&self) -> bool {
        self.hold && self.follower != Follower::Nobody
    }

    /// How many bytes may be read from the process now. None of them would push out what the client still needs.
    pub(crate) fn room(&self) -> usize {
        if !self.waits() {
            return usize::MAX;
        }
        if self.retained.is_tight() && self.log.occupied_by_unacknowledged() >= Retained::FAIR_MINIMUM {
            return 0;
        }
        self.log.room()
    }

    /// Appends what was read into `buffer`, and leaves a buffer to read into next. Returns how many bytes that nobody
    /// may ever have seen were dropped for it.
    pub(crate) fn append(&mut self, stream: protocol::Stream, buffer: &mut Vec<u8>, count: usize) -> u64 {
        let dropped = self.log.dropped_bytes();
        let safe = self.log.total_bytes() - self.log.unacknowledged_bytes() as u64;
        if count >= buffer.len() / 2 {
            let size = buffer.len();
            let next = self.log.take_spare().unwrap_or_default();
            let mut full = std::mem::replace(buffer, next);
            buffer.resize(size, 0);
            full.truncate(count);
            self.log.append_owned(stream, full);
        } else {
            self.log.append(stream, &buffer[..count]);
        }
        self.account();
        self.log.dropped_bytes().saturating_sub(dropped.max(safe))
    }

    /// Tells the shared account how much this log holds now.
    pub(crate) fn account(&mut self) {
        self.retained.set(self.log.occupied_bytes());
    }

    /// A client asked what came after `after`. True if it is the first read after a resume, which says up to where the
    /// client knows: pushing goes on after the answer, which [`answered`](Self::answered) tells. Who lets the process
    /// wait only looks: another client of the session may still need what is looked at. And who has just lost the session
    /// says nothing about its successor.
    ///
    /// A reader that gets only a part of a chunk is still awaited: a link that does not carry the chunk at once would break over the
    /// events that follow it.
    pub(crate) fn read(
        &mut self,
        reader: ConnectionNumber,
        after: u64,
        max_bytes: Option<u64>,
        known: Option<PartOfChunk>,
    ) -> (Page, bool) {
        let page = match known {
            Some(known) => self.log.read_part(after, max_bytes.unwrap_or(u64::MAX), known),
            None => self.log.read(after, max_bytes),
        };
        let is_awaited =
            matches!(self.pushing, Pushing::AwaitingRead | Pushing::Unasked) && self.listener == Some(reader);
        let may_catch_up = is_awaited && self.flow != Flow::Paused;
        if may_catch_up {
            self.log.acknowledge(after.min(self.log.next_seq() - 1));
        }
        let catches_up = may_catch_up && !page.is_partial;
        if catches_up {
            self.pushing = Pushing::Answering;
            self.follower = Follower::Client;
            self.sent = page.next_seq - 1;
        }
        (page, catches_up)
    }

    /// The answer to the start, or to the first read, is queued, so events cannot overtake it.
    pub(crate) fn answered(&mut self) {
        if self.pushing == Pushing::Answering {
            self.pushing = Pushing::On;
        }
    }

    /// The client did not say up to where it knows. What it may not have got is sent again; numbers tell it what is new,
    /// except in the legacy family, which has none.
    pub(crate) fn give_up_waiting(&mut self) {
        if self.pushing == Pushing::AwaitingRead {
            self.pushing = Pushing::On;
            self.follower = Follower::Client;
            if self.repeats {
                self.sent = self.sent.min(self.log.acknowledged_seq());
            }
        }
    }

    /// A connection has taken the session up. Until it reads, or has been there for a while, it follows nothing that it did not follow
    /// before.
    pub(crate) fn attach(&mut self, listener: ConnectionNumber) {
        self.hold = true;
        self.listener = Some(listener);
        self.flow = Flow::Free;
        self.pushing = Pushing::AwaitingRead;
        if self.follower == Follower::Starter {
            self.follower = Follower::Nobody;
        }
    }

    /// The attached client lets events that waited go on.
    pub(crate) fn release(&mut self) {
        self.follower = Follower::Client;
        if self.pushing == Pushing::Unasked {
            self.pushing = Pushing::On;
        }
        if self.flow == Flow::Paused {
            self.flow = Flow::Released;
        }
    }

    /// The attached connection has ended. What it has not taken yet is for the next one.
    pub(crate) fn detach(&mut self, departure: Departure) {
        self.listener = None;
        self.flow = Flow::Free;
        if departure == Departure::Goodbye || self.follower == Follower::Starter {
            self.follower = Follower::Nobody;
        }
    }

    /// Whether the connection has something to send.
    pub(crate) fn has_push(&self) -> bool {
        self.pushing == Pushing::On && self.flow != Flow::Paused && self.log.has_event_after(self.sent)
    }

    /// Whether something is left that waits, or has waited, because the client asked for it. It was promised to come.
    pub(crate) fn owes_what_waited(&self) -> bool {
        self.flow != Flow::Free && self.log.has_event_after(self.sent)
    }
}

/// What was given back.
pub(crate) struct Given {
    pub(crate) bytes: usize,
    /// Of those, how many the client may never have had.
    pub(crate) missed: u64,
}

/// In the order of how little it hurts.
impl Journal {
    pub(crate) fn give_back_what_was_sent(&mut self, _: usize) -> Given {
        if self.log.is_closed() && !self.log.has_event_after(self.sent) {
            self.shrink_to(0)
        } else {
            self.shrink_to(usize::MAX)
        }
    }

    pub(crate) fn give_back_what_is_known(&mut self, share: usize) -> Given {
        self.shrink_to(share.max(self.log.occupied_by_unacknowledged()))
    }

    /// What is held for a client that is there stays: its process waits instead. A process that has closed cannot wait, but what its client
    /// is about to be sent stays too, as long as all journals together hold no more than twice what they may.
    pub(crate) fn give_back_anything(&mut self, share: usize) -> Given {
        let is_being_sent = self.flow != Flow::Paused && self.log.has_event_after(self.sent);
        let stays = self.waits() && (!self.log.is_closed() || (is_being_sent && !self.retained.is_exhausted()));
        self.shrink_to(if stays { usize::MAX } else { share })
    }

    fn shrink_to(&mut self, bytes: usize) -> Given {
        let before = (self.log.dropped_bytes(), self.log.total_bytes() - self.log.unacknowledged_bytes() as u64);
        let bytes = self.log.shrink_to(bytes);
        self.account();
        let missed = if self.log.has_event_after(self.sent) {
            self.log.dropped_bytes().saturating_sub(before.0.max(before.1))
        } else {
            0
        };
        Given { bytes, missed }
    }
}

#[cfg(test)]
mod tests {
    use session::LogLimits;

    use super::*;
    use crate::retention::Budget;

    const BEFORE: ConnectionNumber = ConnectionNumber(1);
    const NOW: ConnectionNumber = ConnectionNumber(2);

    /// One event, and a client that has come back and is expected to say what it knows.
    fn awaiting(reader: ConnectionNumber) -> Journal {
        let log = EventLog::new(LogLimits::default());
        let mut journal = Journal::new(log, Budget::new(1 << 20).account(), Dialect::Current, Follower::Client);
        journal.append(protocol::Stream::Stdout, &mut b"text".to_vec(), 4);
        (journal.pushing, journal.listener) = (Pushing::AwaitingRead, Some(reader));
        journal
    }

    /// Bytes of memory that this test has now.
    fn resident_bytes() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
    }

    #[test]
    fn output_in_single_bytes_is_accounted_for_with_what_it_occupies() {
        // A limit of nothing: all that is held is excess.
        let budget = Budget::new(0);
        let before = resident_bytes();
        let journals: Vec<_> = (0..10)
            .map(|_| {
                let log = EventLog::new(LogLimits::default());
                let mut journal = Journal::new(log, budget.account(), Dialect::Current, Follower::Client);
                for turn in 0..60_000 {
                    let stream = if turn % 2 == 0 { protocol::Stream::Stdout } else { protocol::Stream::Stderr };
                    journal.append(stream, &mut vec![b'x', 0, 0], 1);
                }
                // Whoever reads a chunk makes it shared, which costs a little more.
                assert!(journal.log.read(0, None).chunks.len() >= 49_999);
                journal
            })
            .collect();
        let (grown, accounted) = (resident_bytes() - before, budget.excess());
        assert!(accounted >= grown / 10 * 9, "{accounted} bytes are accounted for, {grown} are occupied");
        assert!(accounted <= grown * 2, "{accounted} bytes are accounted for, {grown} are occupied");
        drop(journals);
        assert_eq!(budget.excess(), 0);
    }

    #[test]
    fn the_first_read_of_who_is_attached_lets_events_go_on() {
        let mut journal = awaiting(NOW);
        assert!(journal.read(NOW, 1, None, None).1);
        journal.answered();
        assert_eq!((journal.pushing, journal.log.acknowledged_seq()), (Pushing::On, 1));
        assert!(!journal.read(NOW, 0, None, None).1, "only the first read says what is known");
    }

    #[test]
    fn a_late_read_of_who_was_replaced_says_nothing_about_its_successor() {
        let mut journal = awaiting(NOW);
        let (page, catches_up) = journal.read(BEFORE, 1, None, None);
        assert!(!catches_up && page.chunks.is_empty());
        journal.answered();
        assert_eq!((journal.pushing, journal.log.acknowledged_seq()), (Pushing::AwaitingRead, 0));
    }

    /// One event of a process that an observer has started.
    fn unasked() -> Journal {
        let log = EventLog::new(LogLimits::default());
        let mut journal = Journal::new(log, Budget::new(1 << 20).account(), Dialect::Current, Follower::Nobody);
        journal.append(protocol::Stream::Stdout, &mut b"text".to_vec(), 4);
        journal.listener = Some(NOW);
        journal.answered();
        journal
    }

    #[test]
    fn a_client_that_was_just_attached_does_not_follow_what_an_observer_starts() {
        let mut journal = unasked();
        journal.give_up_waiting();
        assert_eq!((journal.follower, journal.has_push()), (Follower::Nobody, false));
    }

    #[test]
    fn a_client_that_asks_for_events_of_what_an_observer_started_gets_them() {
        let mut journal = unasked();
        journal.release();
        assert_eq!((journal.follower, journal.has_push()), (Follower::Client, true));
        let mut journal = unasked();
        assert!(journal.read(NOW, 0, None, None).1, "a read asks for them too");
    }

    #[test]
    fn who_lets_the_process_wait_only_looks() {
        let mut journal = awaiting(NOW);
        journal.flow = Flow::Paused;
        let (page, catches_up) = journal.read(NOW, 0, None, None);
        assert!(!catches_up && page.chunks.len() == 1);
        assert_eq!((journal.pushing, journal.log.acknowledged_seq()), (Pushing::AwaitingRead, 0));
    }
}
