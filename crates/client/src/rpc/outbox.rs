//! What waits to be written: frames one behind the other, taken by the writer as a whole.

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use transport::Framing;

/// Callers wait while more than this is queued. A message larger than it still goes out whole.
const FULL: usize = 1024 * 1024;

/// What is written in answer to the peer is not waited for, so it has a bound of its own.
const OVERFULL: usize = 128 * 1024 * 1024;

pub(super) struct Outbox {
    framing: Framing,
    queue: Mutex<Queue>,
    filled: Notify,
    drained: Notify,
    /// When the transport was full and took bytes again, for the last time.
    last_drained: Mutex<Instant>,
}

#[derive(Default)]
struct Queue {
    bytes: Vec<u8>,
    /// How much was taken in all, and so the position of the first byte of `bytes`.
    taken: u64,
    has_ended: bool,
    /// A close frame was queued: nothing more will be.
    is_closing: bool,
}

/// What the writer is to do.
pub(super) enum Batch {
    Write,
    /// After writing this, nothing follows.
    WriteLast,
}

impl Outbox {
    pub(super) fn new(framing: Framing) -> Self {
        Self {
            framing,
            queue: Mutex::default(),
            filled: Notify::new(),
            drained: Notify::new(),
            last_drained: Mutex::new(Instant::now()),
        }
    }

    /// Waits until there is room.
    pub(super) async fn has_room(&self) {
        loop {
            let drained = self.drained.notified();
            {
                let queue = self.queue.lock();
                if queue.bytes.len() < FULL || queue.has_ended {
                    return;
                }
            }
            drained.await;
        }
    }

    /// Queues a message; returns its position.
    pub(super) fn push(&self, message: &[u8]) -> u64 {
        self.append(|framing, bytes| framing.frame(bytes, message.len(), |out| out.extend_from_slice(message)))
    }

    pub(super) fn push_ping(&self) {
        self.append(|framing, bytes| {
            framing.ping(bytes, b"");
        });
    }

    /// Whether so much waits that the peer cannot be reading, whatever it sends.
    pub(super) fn is_overfull(&self) -> bool {
        self.queue.lock().bytes.len() > OVERFULL
    }

    pub(super) fn push_pong(&self, payload: &[u8]) {
        self.append(|framing, bytes| {
            framing.pong(bytes, payload);
        });
    }

    pub(super) fn push_close(&self) {
        self.append(|framing, bytes| framing.close(bytes, NORMAL_CLOSURE, ""));
        self.queue.lock().is_closing = true;
        self.filled.notify_one();
    }

    fn append(&self, frame: impl FnOnce(Framing, &mut Vec<u8>)) -> u64 {
        let mut queue = self.queue.lock();
        let position = queue.taken + queue.bytes.len() as u64;
        if !queue.has_ended && !queue.is_closing {
            frame(self.framing, &mut queue.bytes);
        }
        drop(queue);
        self.filled.notify_one();
        position
    }

    /// Whether the byte at this position was handed to the transport. Only after the end is a "no" final.
    pub(super) fn was_taken(&self, position: u64) -> bool {
        position < self.queue.lock().taken
    }

    /// Waits for something to write and swaps it into `batch`, which must be empty.
    pub(super) async fn take(&self, batch: &mut Vec<u8>) -> Batch {
        loop {
            {
                let mut queue = self.queue.lock();
                // After the end callers have been told that what was not taken was not sent.
                if !queue.has_ended && (!queue.bytes.is_empty() || queue.is_closing) {
                    std::mem::swap(&mut queue.bytes, batch);
                    queue.taken += batch.len() as u64;
                    self.drained.notify_waiters();
                    return if queue.is_closing { Batch::WriteLast } else { Batch::Write };
                }
            }
            self.filled.notified().await;
        }
    }

    /// The transport was full and has taken bytes again.
    pub(super) fn note_drained(&self) {
        *self.last_drained.lock() = Instant::now();
    }

    /// When that happened for the last time; at first, when the connection was made.
    pub(super) fn last_drained(&self) -> Instant {
        *self.last_drained.lock()
    }

    /// Gives back what a burst has allocated.
    pub(super) fn shrink_to(&self, capacity: usize) {
        self.queue.lock().bytes.shrink_to(capacity);
    }

    /// Nothing more is taken.
    pub(super) fn end(&self) {
        self.queue.lock().has_ended = true;
        self.drained.notify_waiters();
    }

    /// Whether messages can be kept alive by pings.
    pub(super) fn supports_ping(&self) -> bool {
        self.framing.supports_ping()
    }
}

const NORMAL_CLOSURE: u16 = 1000;
