//! Keeps track of which events the peer of one connection has certainly received. An event is output or the end of a
//! process; the events of a process are numbered.
//!
//! The protocol has no acknowledgements, but a WebSocket peer answers pings in order: a pong proves that everything
//! sent before its ping was read. So the server sends a numbered ping at the latest after [`STRETCH_BYTES`] of
//! output, and retains the output until the pong to a later ping has come. Output that a broken
//! connection has lost can then be read again. On other transports, a finished flush proves that the peer has
//! received the output ([`Receipts::flushed`]). [`Receipts`] does not know frames and does not read the clock. `K`
//! identifies a process.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::time::Instant;

/// Bytes of output between two pings.
const STRETCH_BYTES: usize = 64 << 10;

/// A ping also follows each quarter of a full log, the output that a process may retain. So a process whose log is
/// full never waits for a ping that was not sent.
const PINGS_PER_FULL_LOG: usize = 4;

/// Bytes of answers between two pings. A slow peer answers a ping late if megabytes of answers were sent before that ping. With a ping
/// after each such stretch, even a slow peer sends pongs regularly. For a fast peer, so few pings cost next to nothing.
const ANSWER_STRETCH_BYTES: usize = 1 << 20;

/// Pings that may wait for their pongs. A further ping replaces the newest waiting ping, and its pong then counts for both. So the memory
/// for a peer that never answers pings is bounded.
pub const MAX_WAITING_PINGS: usize = 256;

/// The events that were sent over one connection and for which there is no proof that the peer has received them.
#[derive(Debug)]
pub struct Receipts<K> {
    /// Bytes of output after which a ping follows.
    stretch_limit: usize,
    last_ping: u64,
    last_pong: u64,
    /// Bytes of output since the last ping.
    output_bytes: usize,
    /// Bytes of answers since the last ping.
    answer_bytes: usize,
    /// The last event of each process that was sent since the last ping.
    since_ping: HashMap<K, u64>,
    waiting: VecDeque<Ping<K>>,
}

#[derive(Debug)]
struct Ping<K> {
    number: u64,
    /// When the server decided to ping. The transport may accept the ping much later.
    wanted_at: Instant,
    /// For each process, the last event that was sent before this ping and after the ping before it.
    covers: Vec<(K, u64)>,
}

impl<K: Eq + Hash> Receipts<K> {
    /// A new connection, on a server whose processes retain `retain_bytes` of output each.
    pub fn new(retain_bytes: usize) -> Self {
        Self {
            stretch_limit: STRETCH_BYTES.min(retain_bytes / PINGS_PER_FULL_LOG),
            last_ping: 0,
            last_pong: 0,
            output_bytes: 0,
            answer_bytes: 0,
            since_ping: HashMap::new(),
            waiting: VecDeque::new(),
        }
    }

    /// Events of a process up to `through` were sent. Returns whether a ping should follow.
    pub fn sent(&mut self, process: K, through: u64, output_bytes: usize) -> bool {
        self.since_ping.insert(process, through);
        self.output_bytes += output_bytes;
        self.output_bytes >= self.stretch_limit
    }

    /// An answer of `bytes` bytes was sent. Returns whether a ping should follow.
    pub fn answer_sent(&mut self, bytes: usize) -> bool {
        self.answer_bytes += bytes;
        self.answer_bytes >= ANSWER_STRETCH_BYTES
    }

    /// Notes that a ping is sent now, which the server decided to send at `wanted_at`. Returns the payload of the
    /// ping.
    pub fn ping(&mut self, mut wanted_at: Instant) -> [u8; 8] {
        self.last_ping += 1;
        self.output_bytes = 0;
        self.answer_bytes = 0;
        if self.waiting.len() >= MAX_WAITING_PINGS
            && let Some(youngest) = self.waiting.pop_back()
        {
            wanted_at = youngest.wanted_at;
            for (process, through) in youngest.covers {
                // If there is an entry already, it is of later events.
                self.since_ping.entry(process).or_insert(through);
            }
        }
        let covers = self.since_ping.drain().collect();
        // A map that many processes have enlarged does not keep its memory.
        if self.since_ping.capacity() > 64 {
            self.since_ping = HashMap::new();
        }
        self.waiting.push_back(Ping { number: self.last_ping, wanted_at, covers });
        self.last_ping.to_be_bytes()
    }

    /// The peer sent a pong. Returns the processes with the last event that the peer has therefore received. A
    /// process can occur more than once; its last entry has the latest event. `None` if the pong proves nothing new:
    /// no ping had this payload, or that ping or a later one was answered before.
    pub fn pong(&mut self, payload: &[u8]) -> Option<Vec<(K, u64)>> {
        let number = <[u8; 8]>::try_from(payload).map(u64::from_be_bytes).ok()?;
        if number > self.last_ping || number <= self.last_pong {
            return None;
        }
        self.last_pong = number;
        let mut received = Vec::new();
        while self.waiting.front().is_some_and(|ping| ping.number <= number) {
            received.extend(self.waiting.pop_front().into_iter().flat_map(|ping| ping.covers));
        }
        Some(received)
    }

    /// The transport has flushed everything that was sent. The caller calls this only for transports where a flush
    /// proves that the peer has received the bytes. Returns the same as [`Self::pong`]. Pings stay unanswered,
    /// because a flush does not prove that the peer is alive.
    pub fn flushed(&mut self) -> Vec<(K, u64)> {
        self.output_bytes = 0;
        self.answer_bytes = 0;
        let before_some_ping = self.waiting.iter_mut().flat_map(|ping| ping.covers.drain(..));
        before_some_ping.chain(self.since_ping.drain()).collect()
    }

    /// The number of the last ping.
    pub fn last_ping(&self) -> u64 {
        self.last_ping
    }

    /// The number of the last ping that was answered; 0 if none was.
    pub fn last_pong(&self) -> u64 {
        self.last_pong
    }

    /// When the server decided to send the oldest ping that has no pong.
    pub fn oldest_unanswered(&self) -> Option<Instant> {
        self.waiting.front().map(|ping| ping.wanted_at)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn receipts() -> Receipts<&'static str> {
        Receipts::new(1 << 20)
    }

    #[test]
    fn a_pong_acknowledges_what_was_sent_before_its_ping_and_nothing_later() {
        let mut receipts = receipts();
        assert!(!receipts.sent("a", 3, 10));
        assert!(!receipts.sent("a", 4, 10));
        let first = receipts.ping(Instant::now());
        assert!(receipts.sent("a", 5, STRETCH_BYTES), "a ping follows each stretch of output");
        let second = receipts.ping(Instant::now());
        receipts.sent("b", 1, 10);
        assert_eq!(receipts.pong(&first), Some(vec![("a", 4)]));
        assert_eq!(receipts.pong(&second), Some(vec![("a", 5)]));
        assert_eq!(receipts.flushed(), [("b", 1)]);
    }

    #[test]
    fn a_flush_acknowledges_everything_and_answers_no_ping() {
        let mut receipts = receipts();
        receipts.sent("a", 3, 10);
        let wanted_at = Instant::now();
        let ping = receipts.ping(wanted_at);
        receipts.sent("b", 1, 10);
        assert_eq!(receipts.flushed(), [("a", 3), ("b", 1)]);
        assert_eq!(receipts.oldest_unanswered(), Some(wanted_at));
        assert_eq!(receipts.pong(&ping), Some(vec![]));
    }

    #[test]
    fn pings_to_a_peer_that_never_answers_do_not_pile_up() {
        let mut receipts = receipts();
        let start = Instant::now();
        let mut last = [0; 8];
        for through in 1..=10_000 {
            receipts.sent("a", through, 1);
            last = receipts.ping(start + Duration::from_secs(through));
        }
        let first_ping_at = start + Duration::from_secs(1);
        assert_eq!(receipts.waiting.len(), MAX_WAITING_PINGS);
        assert_eq!(receipts.oldest_unanswered(), Some(first_ping_at));
        let received = receipts.pong(&last).unwrap();
        assert_eq!(received.last(), Some(&("a", 10_000)), "the youngest ping stands for all that it replaced");
        assert_eq!(receipts.oldest_unanswered(), None);
    }

    #[test]
    fn a_ping_that_replaces_another_stands_for_both() {
        let mut receipts = receipts();
        let start = Instant::now();
        let mut last_kept = [0; 8];
        for _ in 1..MAX_WAITING_PINGS {
            last_kept = receipts.ping(start);
        }
        receipts.sent("a", 3, 1);
        receipts.sent("b", 1, 1);
        let replaced_at = start + Duration::from_secs(1);
        receipts.ping(replaced_at);
        receipts.sent("a", 4, 1);
        let replaces_it = receipts.ping(start + Duration::from_secs(2));
        receipts.pong(&last_kept);
        assert_eq!(receipts.oldest_unanswered(), Some(replaced_at), "the time of the first of the two pings counts");
        let mut received = receipts.pong(&replaces_it).unwrap();
        received.sort_unstable();
        assert_eq!(received, [("a", 4), ("b", 1)]);
    }

    #[test]
    fn a_pong_counts_once_and_only_if_its_ping_was_sent() {
        let mut receipts = receipts();
        let ping = receipts.ping(Instant::now());
        assert_eq!(receipts.pong(&2_u64.to_be_bytes()), None, "this ping was never sent");
        assert_eq!(receipts.pong(b"?"), None, "no ping has this payload");
        assert!(receipts.pong(&ping).is_some());
        assert_eq!(receipts.pong(&ping), None, "the ping was answered before");
    }

    #[test]
    fn a_ping_follows_each_stretch_of_answers() {
        let mut receipts = receipts();
        assert!(!receipts.answer_sent(ANSWER_STRETCH_BYTES - 1));
        assert!(receipts.answer_sent(1));
        receipts.ping(Instant::now());
        assert!(!receipts.answer_sent(1));
    }
}
