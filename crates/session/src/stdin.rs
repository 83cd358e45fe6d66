//! What waits to be written to a process's stdin: bounded, in order, each write taken once.

use std::collections::VecDeque;

use bytes::{Buf as _, Bytes};
use protocol::WriteId;

use crate::WriteIds;

/// What keeping a write costs beside its bytes: its place in the queue and the allocator's share. A client that writes
/// single bytes must not get sixty times what is promised.
const WRITE_OVERHEAD_BYTES: usize = 64;

/// The queue in front of a process's stdin.
#[derive(Debug)]
pub struct StdinQueue {
    waiting: VecDeque<Bytes>,
    waiting_bytes: usize,
    limit: usize,
    ids: WriteIds,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// No more will come; what waits is still written.
    Ending,
    /// The process can take no more.
    Closed,
}

/// What became of a write that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// It waits in the queue.
    Accepted,
    /// It was taken before, under the same id, and is not taken again.
    Repeated,
    /// It must be offered again when there is room.
    Full,
    /// There is no room in all queues together.
    Crowded,
    /// Nobody will read it.
    Closed,
}

impl StdinQueue {
    /// A queue that holds at most `limit` bytes beside the write that filled it.
    pub fn new(limit: usize) -> Self {
        Self { waiting: VecDeque::new(), waiting_bytes: 0, limit, ids: WriteIds::default(), state: State::Open }
    }

    /// The queue of a process without stdin.
    pub fn closed() -> Self {
        Self { state: State::Closed, ..Self::new(0) }
    }

    /// Takes a write, once per id, if it also fits the `room` there is for all queues together. The id is remembered in
    /// the same step as the bytes are queued, so that no interruption can come between.
    pub fn offer(&mut self, id: Option<&WriteId>, bytes: &Bytes, room: usize) -> Offer {
        if id.is_some_and(|id| self.ids.contains(id)) {
            return Offer::Repeated;
        }
        if self.state != State::Open {
            return Offer::Closed;
        }
        // Nothing is written, so nothing is remembered: whoever wants to know whether a write was taken can ask as often as it likes.
        if bytes.is_empty() {
            return Offer::Accepted;
        }
        if self.waiting_bytes > 0 && self.waiting_bytes + bytes.len() + WRITE_OVERHEAD_BYTES > self.limit {
            return Offer::Full;
        }
        if bytes.len() > room {
            return Offer::Crowded;
        }
        if let Some(id) = id {
            self.ids.remember(id);
        }
        self.enqueue(bytes.clone());
        Offer::Accepted
    }

    /// No more will come; what waits is still written.
    pub fn end(&mut self) {
        if self.state == State::Open {
            self.state = State::Ending;
        }
    }

    /// Adds bytes of the server's own, such as the end-of-file character of a terminal. A full queue takes none: whoever
    /// reads so little will not miss it.
    pub fn push(&mut self, bytes: impl AsRef<[u8]>) {
        if self.state == State::Open && self.waiting_bytes < self.limit.max(1) {
            self.enqueue(Bytes::copy_from_slice(bytes.as_ref()));
        }
    }

    /// The process can take no more; what waits is dropped.
    pub fn close(&mut self) {
        self.state = State::Closed;
        self.waiting = VecDeque::new();
        self.waiting_bytes = 0;
    }

    /// Bytes that wait, with what keeping them costs.
    pub fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// The bytes to write next.
    pub fn front(&self) -> Option<&Bytes> {
        self.waiting.front()
    }

    /// So many bytes of the front were written.
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

    /// Everything is written and no more will come: the descriptor can be closed.
    pub fn is_finished(&self) -> bool {
        match self.state {
            State::Open => false,
            State::Ending => self.waiting.is_empty(),
            State::Closed => true,
        }
    }

    fn enqueue(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.waiting_bytes += bytes.len() + WRITE_OVERHEAD_BYTES;
            self.waiting.push_back(bytes);
        }
    }

    /// Whether writes are refused.
    pub fn is_closed(&self) -> bool {
        self.state != State::Open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(queue: &mut StdinQueue, id: &str, bytes: &'static str) -> Offer {
        queue.offer(Some(&WriteId::from(id)), &Bytes::from(bytes), usize::MAX)
    }

    #[test]
    fn a_repeated_write_is_written_once() {
        let mut queue = StdinQueue::new(100);
        assert_eq!(offer(&mut queue, "1", "ab"), Offer::Accepted);
        assert_eq!(offer(&mut queue, "1", "ab"), Offer::Repeated);
        queue.advance(1);
        assert_eq!(queue.front().unwrap(), "b");
        queue.advance(1);
        assert_eq!(queue.front(), None);
    }

    #[test]
    fn a_write_of_nothing_asks_whether_a_write_was_taken() {
        let mut queue = StdinQueue::new(1);
        assert_eq!(offer(&mut queue, "1", ""), Offer::Accepted);
        assert_eq!(offer(&mut queue, "1", ""), Offer::Accepted, "it was not remembered");
        assert_eq!(offer(&mut queue, "1", "ab"), Offer::Accepted);
        assert_eq!(offer(&mut queue, "1", ""), Offer::Repeated);
        assert_eq!(offer(&mut queue, "2", ""), Offer::Accepted, "a full queue has room for nothing");
        assert_eq!(queue.waiting_bytes(), 2 + WRITE_OVERHEAD_BYTES);
    }

    #[test]
    fn a_full_queue_refuses_without_remembering() {
        let mut queue = StdinQueue::new(3);
        assert_eq!(offer(&mut queue, "1", "abcdef"), Offer::Accepted, "an empty queue takes a write of any size");
        assert_eq!(offer(&mut queue, "2", "x"), Offer::Full);
        queue.push(b"!");
        queue.advance(6);
        assert_eq!(offer(&mut queue, "2", "x"), Offer::Accepted);
        assert_eq!(queue.front().unwrap(), "x");
    }

    #[test]
    fn a_write_must_fit_the_common_room_too() {
        let mut queue = StdinQueue::new(100);
        let (id, bytes) = (WriteId::from("1"), Bytes::from("abc"));
        assert_eq!(queue.offer(Some(&id), &bytes, 2), Offer::Crowded);
        assert_eq!(queue.offer(Some(&id), &bytes, 3), Offer::Accepted);
        assert_eq!(queue.offer(Some(&id), &bytes, 0), Offer::Repeated, "it was taken before");
        assert_eq!(queue.waiting_bytes(), 3 + WRITE_OVERHEAD_BYTES);
    }

    #[test]
    fn ends_after_what_waits_and_then_refuses() {
        let mut queue = StdinQueue::new(1000);
        offer(&mut queue, "1", "ab");
        queue.push(b"\x04");
        queue.end();
        assert!(!queue.is_finished());
        assert_eq!(offer(&mut queue, "2", "c"), Offer::Closed);
        assert_eq!(offer(&mut queue, "1", "ab"), Offer::Repeated, "it was taken before the end");
        queue.advance(2);
        queue.advance(1);
        assert!(queue.is_finished());
    }

    #[test]
    fn a_process_without_stdin_takes_nothing() {
        assert_eq!(offer(&mut StdinQueue::closed(), "1", "a"), Offer::Closed);
    }
}
