//! The input that waits to be written to the stdin of one process: bounded, in order, and each write accepted once.
//! The queue does no IO: the caller writes [`StdinQueue::front`] to the process, and reports with
//! [`StdinQueue::advance`] how much was written.

use std::collections::VecDeque;

use bytes::{Buf as _, Bytes};
use protocol::WriteId;

use crate::WriteIds;

/// Memory of a waiting write beside its bytes: its entry in the queue and what the allocator adds. If the overhead did not count, writes of
/// single bytes would occupy sixty times as much memory as the limit allows.
const WRITE_OVERHEAD_BYTES: usize = 64;

/// The writes to the stdin of one process that the process has not taken yet.
#[derive(Debug)]
pub struct StdinQueue {
    waiting: VecDeque<Bytes>,
    waiting_bytes: usize,
    limit_bytes: usize,
    ids: WriteIds,
    state: StdinQueueState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StdinQueueState {
    Open,
    /// No write is accepted any more; waiting writes are still written.
    Ending,
    /// The process can take no more input.
    Closed,
}

/// The result of [`StdinQueue::offer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfferResult {
    /// The write waits in the queue. A write of no bytes is not queued; for such a write, this says that stdin is
    /// open and that no write with this id was accepted before.
    Accepted,
    /// A write with this id was accepted before, so this write is ignored.
    Repeated,
    /// The queue is full. The caller must offer the write again when the queue has room.
    Full,
    /// The limit for the queues of all processes together is reached.
    TotalLimitReached,
    /// The process takes no more input.
    Closed,
}

impl StdinQueue {
    /// A queue for `limit_bytes` bytes of memory. The limit does not apply to a write into the empty queue.
    pub fn new(limit_bytes: usize) -> Self {
        Self {
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            limit_bytes,
            ids: WriteIds::default(),
            state: StdinQueueState::Open,
        }
    }

    /// The queue of a process without stdin.
    pub fn closed() -> Self {
        Self { state: StdinQueueState::Closed, ..Self::new(0) }
    }

    /// Offers a write. Bytes with the same id are queued once. `room` is the number of bytes that the queues of all
    /// processes together still accept. The id is remembered in the same step in which the bytes are queued, so a
    /// remembered id always means that its bytes were queued.
    pub fn offer(&mut self, id: Option<&WriteId>, bytes: &Bytes, room: usize) -> OfferResult {
        if id.is_some_and(|id| self.ids.contains(id)) {
            return OfferResult::Repeated;
        }
        if self.state != StdinQueueState::Open {
            return OfferResult::Closed;
        }
        // A client sends a write of no bytes to learn whether an earlier write with this id was accepted. The id is
        // not remembered, so that the client can then send that write.
        if bytes.is_empty() {
            return OfferResult::Accepted;
        }
        if self.waiting_bytes > 0 && self.waiting_bytes + bytes.len() + WRITE_OVERHEAD_BYTES > self.limit_bytes {
            return OfferResult::Full;
        }
        if bytes.len() > room {
            return OfferResult::TotalLimitReached;
        }
        if let Some(id) = id {
            self.ids.remember(id);
        }
        self.enqueue(bytes.clone());
        OfferResult::Accepted
    }

    /// The client closes the stdin of the process. No write is accepted any more; waiting writes are still written.
    pub fn end(&mut self) {
        if self.state == StdinQueueState::Open {
            self.state = StdinQueueState::Ending;
        }
    }

    /// Adds bytes that the server itself writes, such as the end-of-file character of a terminal. A full queue
    /// ignores these bytes, because the process does not read its input anyway. So does a queue that accepts no more
    /// writes.
    pub fn push(&mut self, bytes: impl AsRef<[u8]>) {
        if self.state == StdinQueueState::Open && self.waiting_bytes < self.limit_bytes.max(1) {
            self.enqueue(Bytes::copy_from_slice(bytes.as_ref()));
        }
    }

    /// The process can take no more input. Waiting writes are dropped.
    pub fn close(&mut self) {
        self.state = StdinQueueState::Closed;
        self.waiting = VecDeque::new();
        self.waiting_bytes = 0;
    }

    /// Bytes of memory that the waiting writes occupy, overhead included.
    pub fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// The bytes to write next.
    pub fn front(&self) -> Option<&Bytes> {
        self.waiting.front()
    }

    /// The first `written` bytes of [`front`](Self::front) were written to the process.
    pub fn advance(&mut self, written: usize) {
        let Some(front) = self.waiting.front_mut() else { return };
        let written = written.min(front.len());
        front.advance(written);
        self.waiting_bytes -= written;
        if front.is_empty() {
            self.waiting.pop_front();
            self.waiting_bytes -= WRITE_OVERHEAD_BYTES;
        }
    }

    /// Whether all input was written and no more is accepted, so that the descriptor can be closed.
    pub fn is_finished(&self) -> bool {
        match self.state {
            StdinQueueState::Open => false,
            StdinQueueState::Ending => self.waiting.is_empty(),
            StdinQueueState::Closed => true,
        }
    }

    fn enqueue(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.waiting_bytes += bytes.len() + WRITE_OVERHEAD_BYTES;
            self.waiting.push_back(bytes);
        }
    }

    /// Whether writes are no longer accepted.
    pub fn refuses_writes(&self) -> bool {
        self.state != StdinQueueState::Open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(queue: &mut StdinQueue, id: &str, bytes: &'static str) -> OfferResult {
        queue.offer(Some(&WriteId::from(id)), &Bytes::from(bytes), usize::MAX)
    }

    #[test]
    fn a_repeated_write_is_written_once() {
        let mut queue = StdinQueue::new(100);
        assert_eq!(offer(&mut queue, "1", "ab"), OfferResult::Accepted);
        assert_eq!(offer(&mut queue, "1", "ab"), OfferResult::Repeated);
        queue.advance(1);
        assert_eq!(queue.front().unwrap(), "b");
        queue.advance(1);
        assert_eq!(queue.front(), None);
    }

    #[test]
    fn a_write_of_no_bytes_asks_whether_a_write_was_accepted() {
        let mut queue = StdinQueue::new(1);
        assert_eq!(offer(&mut queue, "1", ""), OfferResult::Accepted);
        assert_eq!(offer(&mut queue, "1", ""), OfferResult::Accepted, "the id was not remembered");
        assert_eq!(offer(&mut queue, "1", "ab"), OfferResult::Accepted);
        assert_eq!(offer(&mut queue, "1", ""), OfferResult::Repeated);
        assert_eq!(offer(&mut queue, "2", ""), OfferResult::Accepted, "a full queue accepts a write of no bytes");
        assert_eq!(queue.waiting_bytes(), 2 + WRITE_OVERHEAD_BYTES);
    }

    #[test]
    fn a_full_queue_keeps_neither_refused_bytes_nor_their_id() {
        let mut queue = StdinQueue::new(3);
        assert_eq!(
            offer(&mut queue, "1", "abcdef"),
            OfferResult::Accepted,
            "an empty queue takes a write of any size"
        );
        assert_eq!(offer(&mut queue, "2", "x"), OfferResult::Full);
        queue.push(b"!");
        queue.advance(6);
        assert_eq!(offer(&mut queue, "2", "x"), OfferResult::Accepted);
        assert_eq!(queue.front().unwrap(), "x");
    }

    #[test]
    fn a_write_must_also_fit_the_limit_of_all_queues() {
        let mut queue = StdinQueue::new(100);
        let (id, bytes) = (WriteId::from("1"), Bytes::from("abc"));
        assert_eq!(queue.offer(Some(&id), &bytes, 2), OfferResult::TotalLimitReached);
        assert_eq!(queue.offer(Some(&id), &bytes, 3), OfferResult::Accepted);
        assert_eq!(queue.offer(Some(&id), &bytes, 0), OfferResult::Repeated, "the write was accepted before");
        assert_eq!(queue.waiting_bytes(), 3 + WRITE_OVERHEAD_BYTES);
    }

    #[test]
    fn an_ending_queue_keeps_waiting_input_and_refuses_new_writes() {
        let mut queue = StdinQueue::new(1000);
        offer(&mut queue, "1", "ab");
        queue.push(b"\x04");
        queue.end();
        assert!(!queue.is_finished());
        assert_eq!(offer(&mut queue, "2", "c"), OfferResult::Closed);
        assert_eq!(offer(&mut queue, "1", "ab"), OfferResult::Repeated, "the write was accepted before the end");
        queue.advance(2);
        queue.advance(1);
        assert!(queue.is_finished());
    }

    #[test]
    fn a_process_without_stdin_refuses_writes() {
        assert_eq!(offer(&mut StdinQueue::closed(), "1", "a"), OfferResult::Closed);
    }
}
