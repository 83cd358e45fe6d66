//! The frames of one connection that wait to be written, one after the other in one buffer. The writing task takes
//! the whole buffer at once.

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use transport::Framing;

/// Callers wait while at least this many bytes are queued. A single message may be larger.
const FULL_BYTES: usize = 1024 * 1024;

/// Answers to requests of the server, and pongs, are queued without waiting. The connection ends if more bytes than
/// this are queued after one of them.
const OVERFULL_BYTES: usize = 128 * 1024 * 1024;

pub(super) struct Outbox {
    framing: Framing,
    queue: Mutex<Queue>,
    /// Wakes the writing task: a frame was queued, or the connection is closing.
    filled: Notify,
    /// Wakes callers that wait for room: the writing task has taken the queue, or the connection has ended.
    drained: Notify,
    /// When a transport that was full last accepted bytes again. Until that happens, the time at which the outbox was
    /// made.
    last_write_resumed: Mutex<Instant>,
}

#[derive(Default)]
struct Queue {
    bytes: Vec<u8>,
    /// Number of bytes that the writing task has taken so far. This is the position of the first byte of `bytes`.
    taken: u64,
    /// The connection has ended.
    has_ended: bool,
    /// [`push_close`](Outbox::push_close) was called, so no further frame is queued.
    is_closing: bool,
}

/// Whether another batch of frames may follow this one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum BatchKind {
    NotLast,
    Last,
}

impl Outbox {
    pub(super) fn new(framing: Framing) -> Self {
        Self {
            framing,
            queue: Mutex::default(),
            filled: Notify::new(),
            drained: Notify::new(),
            last_write_resumed: Mutex::new(Instant::now()),
        }
    }

    /// Waits until fewer than `FULL_BYTES` bytes are queued, or the connection has ended.
    pub(super) async fn wait_for_room(&self) {
        loop {
            let drained = self.drained.notified();
            if self.has_room_now() {
                return;
            }
            drained.await;
        }
    }

    /// Whether fewer than `FULL_BYTES` bytes are queued, or the connection has ended.
    pub(super) fn has_room_now(&self) -> bool {
        let queue = self.queue.lock();
        queue.bytes.len() < FULL_BYTES || queue.has_ended
    }

    /// Queues a message of `length` bytes, which `write` appends to the queue.
    pub(super) fn push_written(&self, length: usize, write: impl FnOnce(&mut Vec<u8>)) {
        self.append(|framing, bytes| framing.frame(bytes, length, write));
    }

    /// Queues a message and returns its position, for [`was_taken`](Self::was_taken). A message is dropped if the
    /// connection has ended or is closing. `was_taken` then stays false for the position.
    pub(super) fn push(&self, message: &[u8]) -> u64 {
        self.append(|framing, bytes| framing.frame(bytes, message.len(), |out| out.extend_from_slice(message)))
    }

    pub(super) fn push_ping(&self) {
        self.append(|framing, bytes| {
            framing.ping(bytes, b"");
        });
    }

    /// Whether more than [`OVERFULL_BYTES`] are queued, which shows that the server does not read.
    pub(super) fn is_overfull(&self) -> bool {
        self.queue.lock().bytes.len() > OVERFULL_BYTES
    }

    pub(super) fn push_pong(&self, payload: &[u8]) {
        self.append(|framing, bytes| {
            framing.pong(bytes, payload);
        });
    }

    /// Queues a close frame, if the framing has one. No further frame is queued, and the next batch is the last.
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

    /// Whether the writing task has taken the byte at this position. After [`end`](Self::end), the answer no longer
    /// changes.
    pub(super) fn was_taken(&self, position: u64) -> bool {
        position < self.queue.lock().taken
    }

    /// Waits until frames are queued or the connection is closing, and swaps the queued frames into `batch`, which
    /// must be empty. Does not return after [`end`](Self::end).
    pub(super) async fn take(&self, batch: &mut Vec<u8>) -> BatchKind {
        loop {
            {
                let mut queue = self.queue.lock();
                // After the end, callers treat all messages that were not taken as not sent. So nothing is taken any
                // more.
                if !queue.has_ended && (!queue.bytes.is_empty() || queue.is_closing) {
                    std::mem::swap(&mut queue.bytes, batch);
                    queue.taken += batch.len() as u64;
                    self.drained.notify_waiters();
                    return if queue.is_closing { BatchKind::Last } else { BatchKind::NotLast };
                }
            }
            self.filled.notified().await;
        }
    }

    /// The transport was full and has accepted bytes again.
    pub(super) fn note_write_resumed(&self) {
        *self.last_write_resumed.lock() = Instant::now();
    }

    pub(super) fn last_write_resumed(&self) -> Instant {
        *self.last_write_resumed.lock()
    }

    /// Reduces the buffer to `capacity` bytes, if a burst of messages has made it larger.
    pub(super) fn shrink_to(&self, capacity: usize) {
        self.queue.lock().bytes.shrink_to(capacity);
    }

    /// The connection has ended: the writing task takes nothing any more.
    pub(super) fn end(&self) {
        self.queue.lock().has_ended = true;
        self.drained.notify_waiters();
    }

    /// Whether the transport has pings.
    pub(super) fn supports_ping(&self) -> bool {
        self.framing.supports_ping()
    }
}

/// The WebSocket close code of a connection that has done its work.
const NORMAL_CLOSURE: u16 = 1000;
