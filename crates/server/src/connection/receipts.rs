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
    sent_at: Instant,
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

    /// The payload of the ping that now goes out.
    pub(crate) fn ping(&self) -> [u8; 8] {
        let mut state = self.state.lock();
        state.last_number += 1;
        state.stretch_bytes = 0;
        let covers = state.stretch.drain().map(|(_, sent)| sent).collect();
        if state.stretch.capacity() > 64 {
            state.stretch = HashMap::new();
        }
        let number = state.last_number;
        state.waiting.push_back(Ping { number, sent_at: Instant::now(), covers });
        number.to_be_bytes()
    }

    /// The peer answered.
    pub(crate) fn pong(&self, payload: &[u8]) {
        let Ok(number) = <[u8; 8]>::try_from(payload).map(u64::from_be_bytes) else { return };
        let mut received = Vec::new();
        {
            let mut state = self.state.lock();
            // A number that was never sent proves nothing.
            if number > state.last_number {
                return;
            }
            state.last_answer = state.last_answer.max(number);
            while state.waiting.front().is_some_and(|ping| ping.number <= number) {
                received.extend(state.waiting.pop_front().into_iter().flat_map(|ping| ping.covers));
            }
        }
        acknowledge(received);
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

    /// When the oldest ping was sent that has no answer.
    pub(crate) fn oldest_question(&self) -> Option<Instant> {
        self.state.lock().waiting.front().map(|ping| ping.sent_at)
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
