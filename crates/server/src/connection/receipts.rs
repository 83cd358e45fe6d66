//! Which events the peer is known to have received.
//!
//! The protocol has no acknowledgements, but a WebSocket peer answers pings in order: a pong proves that everything
//! sent before its ping was read. So a numbered ping follows every stretch of output, and output stays retained until
//! its pong is back. What a broken connection swallowed can then always be read again.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use crate::process::Process;

/// Output between two pings.
const STRETCH_BYTES: usize = 64 << 10;

/// How much of what a process retains may be sent before a ping follows, so that it never stands still waiting for one.
const STRETCH_OF_RETAINED: usize = 4;

/// Answers between two pings. A ping that waits behind megabytes of answers is answered late by a slow peer; one after each
/// stretch is answered as steadily as the peer reads. A fast peer hardly notices so few.
const ANSWER_STRETCH_BYTES: usize = 1 << 20;

/// Pings that may wait for their pongs. A further ping takes the place of the youngest and stands for both, so that a peer which
/// talks and never answers a ping costs no more than this.
const MAX_WAITING_PINGS: usize = 256;

/// Events sent and not yet known to be received.
pub(crate) struct Receipts {
    state: Mutex<State>,
    stretch_limit: usize,
}

#[derive(Default)]
struct State {
    last_number: u64,
    last_answer: u64,
    /// Output since the last ping.
    stretch_bytes: usize,
    /// Answers since the last ping.
    answer_bytes: usize,
    /// How far each process was sent since the last ping.
    stretch: HashMap<usize, Sent>,
    waiting: VecDeque<Ping>,
}

struct Sent {
    process: Arc<Process>,
    through: u64,
}

struct Ping {
    number: u64,
    /// When the server decided to ask, which can be long before the transport takes the ping.
    wanted_at: Instant,
    covers: Vec<Sent>,
}

impl Receipts {
    /// For processes that retain so much.
    pub(crate) fn new(retain_bytes: usize) -> Self {
        Self { state: Mutex::default(), stretch_limit: STRETCH_BYTES.min(retain_bytes / STRETCH_OF_RETAINED) }
    }

    /// Events up to `through` were sent. True if a ping should follow.
    pub(crate) fn sent(&self, process: &Arc<Process>, through: u64, output_bytes: usize, closed: bool) -> bool {
        let mut state = self.state.lock();
        if closed {
            // Nothing more is read from a closed process, so nobody waits for its receipt.
            state.stretch.remove(&address(process));
        } else {
            state
                .stretch
                .entry(address(process))
                .and_modify(|sent| sent.through = through)
                .or_insert_with(|| Sent { process: Arc::clone(process), through });
        }
        state.stretch_bytes += output_bytes;
        state.stretch_bytes >= self.stretch_limit
    }

    /// An answer of so many bytes was sent. True if a ping should follow.
    pub(crate) fn answer_sent(&self, bytes: usize) -> bool {
        let mut state = self.state.lock();
        state.answer_bytes += bytes;
        state.answer_bytes >= ANSWER_STRETCH_BYTES
    }

    /// The payload of the ping that now goes out and has been wanted since `wanted_at`.
    pub(crate) fn ping(&self, mut wanted_at: Instant) -> [u8; 8] {
        let mut state = self.state.lock();
        state.last_number += 1;
        state.stretch_bytes = 0;
        state.answer_bytes = 0;
        if state.waiting.len() >= MAX_WAITING_PINGS
            && let Some(youngest) = state.waiting.pop_back()
        {
            wanted_at = youngest.wanted_at;
            for sent in youngest.covers {
                // What was sent since then went further.
                state.stretch.entry(address(&sent.process)).or_insert(sent);
            }
        }
        let covers = state.stretch.drain().map(|(_, sent)| sent).collect();
        if state.stretch.capacity() > 64 {
            state.stretch = HashMap::new();
        }
        let number = state.last_number;
        state.waiting.push_back(Ping { number, wanted_at, covers });
        number.to_be_bytes()
    }

    /// The peer answered. False if that proves nothing: the number was never sent, or was answered before.
    pub(crate) fn pong(&self, payload: &[u8]) -> bool {
        let Ok(number) = <[u8; 8]>::try_from(payload).map(u64::from_be_bytes) else { return false };
        let mut received = Vec::new();
        {
            let mut state = self.state.lock();
            if number > state.last_number || number <= state.last_answer {
                return false;
            }
            state.last_answer = number;
            while state.waiting.front().is_some_and(|ping| ping.number <= number) {
                received.extend(state.waiting.pop_front().into_iter().flat_map(|ping| ping.covers));
            }
        }
        acknowledge(received);
        true
    }

    /// The number of the last ping sent.
    pub(crate) fn last_question(&self) -> u64 {
        self.state.lock().last_number
    }

    /// The number of the last ping answered.
    pub(crate) fn last_answer(&self) -> u64 {
        self.state.lock().last_answer
    }

    /// For a transport without pings: what the kernel took counts as received.
    pub(crate) fn all_sent(&self) {
        let mut state = self.state.lock();
        state.stretch_bytes = 0;
        let sent = state.stretch.drain().map(|(_, sent)| sent).collect::<Vec<_>>();
        drop(state);
        acknowledge(sent);
    }

    /// Since when the oldest ping that has no answer has been wanted.
    pub(crate) fn oldest_question(&self) -> Option<Instant> {
        self.state.lock().waiting.front().map(|ping| ping.wanted_at)
    }
}

/// Tells processes apart without comparing names; the `Arc` kept beside it keeps it from being used again.
fn address(process: &Arc<Process>) -> usize {
    Arc::as_ptr(process).addr()
}

fn acknowledge(received: Vec<Sent>) {
    for Sent { process, through } in received {
        process.journal(|journal| journal.log.acknowledge(through));
        process.poke();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receipts() -> Receipts {
        Receipts::new(1 << 20)
    }

    #[test]
    fn pings_of_a_peer_that_never_answers_do_not_pile_up() {
        let receipts = receipts();
        let first = Instant::now();
        let mut last = [0; 8];
        for _ in 0..10_000 {
            last = receipts.ping(first);
        }
        assert_eq!(receipts.state.lock().waiting.len(), MAX_WAITING_PINGS);
        assert_eq!(receipts.oldest_question(), Some(first));
        assert!(receipts.pong(&last), "the youngest stands for all that it replaced");
        assert_eq!(receipts.oldest_question(), None);
    }

    #[test]
    fn an_answer_counts_once_and_only_if_it_was_asked_for() {
        let receipts = receipts();
        let ping = receipts.ping(Instant::now());
        assert!(!receipts.pong(&2_u64.to_be_bytes()), "never sent");
        assert!(!receipts.pong(b"?"), "not one of ours");
        assert!(receipts.pong(&ping));
        assert!(!receipts.pong(&ping), "answered before");
    }

    #[test]
    fn a_ping_follows_each_stretch_of_answers() {
        let receipts = receipts();
        assert!(!receipts.answer_sent(ANSWER_STRETCH_BYTES - 1));
        assert!(receipts.answer_sent(1));
        receipts.ping(Instant::now());
        assert!(!receipts.answer_sent(1));
    }
}
