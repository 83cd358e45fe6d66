//! The records that this end has encrypted and that the peer has not acknowledged, in the order of their numbers. It
//! decides which record is sent next, and which one again. A record is sent again as the same ciphertext: its number is
//! the nonce of its encryption, so a second text under this number would reveal both.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::limits::CREDIT_RECORDS;

/// If no acknowledgement moves forward for this time, everything that the peer is not known to have is sent again.
/// Sockets lose nothing while they last, so this is rare, and the time is long. It is doubled for each further attempt.
pub(crate) const FIRST_RETRY: Duration = Duration::from_secs(2);

/// Longest time between two attempts.
const LONGEST_RETRY: Duration = Duration::from_secs(8);

/// A record counts as lost if a record at least this many numbers later has arrived. Relays may change the order of a few
/// frames.
const REORDER_TOLERANCE: usize = 3;

/// What is known about one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecordState {
    /// It has to be sent. `because_later_arrived`: for the second time, because a later record has arrived. This happens
    /// once; after that only the retry repeats it.
    ToSend { because_later_arrived: bool },
    /// It is on its way, for the reason that it was sent for.
    Sent { because_later_arrived: bool },
    /// The peer has it, but an earlier record is missing there.
    ReceivedEarly,
}

/// A record that was not sent on the present socket.
const FIRST_TIME: RecordState = RecordState::ToSend { because_later_arrived: false };

#[derive(Debug)]
struct KeptRecord {
    ciphertext: Bytes,
    /// How many bytes this end had written when the record ended.
    written_through: u64,
    state: RecordState,
}

/// The peer has acknowledged a record that was never sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NeverSent;

/// The sending half of a stream whose peer acknowledges.
#[derive(Debug)]
pub(crate) struct UnacknowledgedRecords {
    records: VecDeque<KeptRecord>,
    /// Number of the first of `records`. All earlier records are acknowledged.
    first: u64,
    /// The number after the last record that was ever sent.
    sent_end: u64,
    /// The number after the last record that the peer can take.
    credit: u64,
    /// One entry for each record that has arrived at the peer and is not known to be decrypted there: how many bytes
    /// this end had written up to the end of that record.
    arrived: VecDeque<u64>,
    /// How many of the written bytes the peer has decrypted.
    decrypted_bytes: u64,
    /// When everything is sent again. None: nothing is on its way.
    retry_at: Option<Instant>,
    retry_pause: Duration,
    /// Since when no acknowledgement has moved forward. None: nothing is on its way.
    waiting_since: Option<Instant>,
}

impl UnacknowledgedRecords {
    /// Nothing was written yet. The peer can take `credit` records.
    pub(crate) fn new(credit: u64) -> Self {
        Self {
            records: VecDeque::new(),
            first: 0,
            sent_end: 0,
            credit,
            arrived: VecDeque::new(),
            decrypted_bytes: 0,
            retry_at: None,
            retry_pause: FIRST_RETRY,
            waiting_since: None,
        }
    }

    /// How many records are kept.
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// How many of the written bytes the peer has decrypted.
    pub(crate) fn decrypted_bytes(&self) -> u64 {
        self.decrypted_bytes
    }

    /// When [`Self::next`] may return a record although nothing has happened.
    pub(crate) fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Since when no acknowledgement has moved forward. None: nothing is on its way.
    pub(crate) fn waiting_since(&self) -> Option<Instant> {
        self.waiting_since
    }

    /// Adds the next record. `written_through`: how many bytes this end has written, those of the record included.
    pub(crate) fn push(&mut self, ciphertext: Bytes, written_through: u64) {
        self.records.push_back(KeptRecord { ciphertext, written_through, state: FIRST_TIME });
    }

    /// The peer accepts records below number `credit`. So it has decrypted all records below `credit` -
    /// [`CREDIT_RECORDS`]. Call this after [`Self::acknowledge`] for the same frame.
    pub(crate) fn grant(&mut self, credit: u64) {
        self.credit = self.credit.max(credit);
        let decrypted = self.credit.saturating_sub(CREDIT_RECORDS);
        let first_arrived = self.first - self.arrived.len() as u64;
        let count = decrypted.saturating_sub(first_arrived).min(self.arrived.len() as u64);
        if let Some(written_through) = self.arrived.drain(..count as usize).next_back() {
            self.decrypted_bytes = written_through;
        }
    }

    /// The next record to send, with its number.
    pub(crate) fn next(&mut self, now: Instant) -> Option<(u64, Bytes)> {
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_pause = (self.retry_pause * 2).min(LONGEST_RETRY);
            self.repeat_all();
        }
        let index = self.next_index()?;
        let number = self.first + index as u64;
        self.sent_end = self.sent_end.max(number + 1);
        self.retry_at.get_or_insert(now + self.retry_pause);
        self.waiting_since.get_or_insert(now);
        let record = &mut self.records[index];
        if let RecordState::ToSend { because_later_arrived } = record.state {
            record.state = RecordState::Sent { because_later_arrived };
        }
        Some((number, record.ciphertext.clone()))
    }

    /// Whether a record has to be sent and the peer can take it.
    pub(crate) fn has_next(&self) -> bool {
        self.next_index().is_some()
    }

    fn next_index(&self) -> Option<usize> {
        let is_to_send = |record: &KeptRecord| matches!(record.state, RecordState::ToSend { .. });
        let index = self.records.iter().position(is_to_send)?;
        (self.first + (index as u64) < self.credit).then_some(index)
    }

    /// The socket was replaced: what was on its way may be lost.
    pub(crate) fn send_again(&mut self) {
        self.retry_pause = FIRST_RETRY;
        self.waiting_since = None;
        self.repeat_all();
    }

    fn repeat_all(&mut self) {
        self.retry_at = None;
        for (index, record) in self.records.iter_mut().enumerate() {
            // The first record is missing at the peer, whatever the bits of an acknowledgement have said.
            if index == 0 || record.state != RecordState::ReceivedEarly {
                record.state = FIRST_TIME;
            }
        }
    }

    /// The peer has received all records below `received`, and those that `bits` names: bit i is the record
    /// `received + 1 + i`. An acknowledgement that is older than another one says nothing new.
    pub(crate) fn acknowledge(&mut self, received: u64, bits: u32, now: Instant) -> Result<(), NeverSent> {
        if received > self.sent_end {
            return Err(NeverSent);
        }
        let Some(count) = received.checked_sub(self.first) else { return Ok(()) };
        if count > 0 {
            self.arrived.extend(self.records.drain(..count as usize).map(|record| record.written_through));
            self.first = received;
            self.retry_pause = FIRST_RETRY;
            let is_waiting = self.sent_end > self.first;
            self.retry_at = is_waiting.then(|| now + FIRST_RETRY);
            self.waiting_since = is_waiting.then_some(now);
        }
        let sent_count = (self.sent_end - self.first) as usize;
        let mut last_received = 0;
        for index in (1..sent_count.min(33)).filter(|index| bits >> (index - 1) & 1 == 1) {
            self.records[index].state = RecordState::ReceivedEarly;
            last_received = index;
        }
        for record in self.records.iter_mut().take((last_received + 1).saturating_sub(REORDER_TOLERANCE)) {
            if record.state == (RecordState::Sent { because_later_arrived: false }) {
                record.state = RecordState::ToSend { because_later_arrived: true };
            }
        }
        Ok(())
    }

    /// The records that are acknowledged are below this number.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }
}
