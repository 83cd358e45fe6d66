//! Writing to a process: into a bounded queue at once where there is room, in wire order always.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use protocol::WriteId;
use session::{Offer, StdinQueue};
use spawn::{Input, ReaderWatch, WriteOutcome};
use tokio::sync::OwnedMutexGuard;

use super::Process;
use crate::retention::Retained;

/// How much is written to a process before others get their turn.
const TURN_BYTES: usize = 256 << 10;

/// How often a write that waits for other processes to read theirs looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A queue, and its share of what may wait in all.
pub(crate) struct Stdin {
    queue: StdinQueue,
    share: Retained,
}

impl Stdin {
    pub(crate) fn new(queue: StdinQueue, share: Retained) -> Self {
        Self { queue, share }
    }

    fn change<T>(&mut self, change: impl FnOnce(&mut StdinQueue) -> T) -> T {
        let result = change(&mut self.queue);
        self.share.set(self.queue.waiting_bytes());
        result
    }

    fn offer(&mut self, id: Option<&WriteId>, bytes: &Bytes) -> Offer {
        let room = self.share.room();
        self.change(|queue| queue.offer(id, bytes, room))
    }
}

impl Drop for Stdin {
    fn drop(&mut self) {
        self.share.set(0);
    }
}

impl Process {
    /// Takes a write if there is room for it now. One that the process can no longer read is refused, so it is asked
    /// first: an answer that it was taken cannot be called back.
    pub(crate) fn offer(&self, id: Option<&WriteId>, bytes: &Bytes) -> Offer {
        if self.stdin_reader.as_ref().is_some_and(ReaderWatch::reader_gone) {
            self.close_stdin();
        }
        let offer = self.stdin.lock().offer(id, bytes);
        if offer == Offer::Accepted {
            self.poke();
        }
        offer
    }

    /// Takes a write, waiting for room. Later writes wait behind `_lane`.
    pub(crate) async fn offer_when_there_is_room(
        self: Arc<Self>,
        id: Option<WriteId>,
        bytes: Bytes,
        _lane: OwnedMutexGuard<()>,
    ) -> Offer {
        loop {
            let room = self.stdin_room.notified();
            tokio::pin!(room);
            room.as_mut().enable();
            match self.offer(id.as_ref(), &bytes) {
                Offer::Full => {
                    let _ = tokio::time::timeout(LOOK_AGAIN, room).await;
                }
                taken => return taken,
            }
        }
    }

    /// Ends stdin after what waits: a pipe is closed, a terminal gets its end-of-file character and stays open.
    pub(crate) fn end_stdin(&self) {
        match self.with_terminal(spawn::Pty::eof_byte) {
            Some(eof) => self.stdin.lock().change(|queue| queue.push(&[eof])),
            None => self.stdin.lock().change(|queue| queue.end_with(&[])),
        }
        self.poke();
    }

    /// The process can take no more.
    pub(super) fn close_stdin(&self) {
        self.stdin.lock().change(StdinQueue::close);
        self.stdin_room.notify_waiters();
    }

    pub(super) fn has_input(&self) -> bool {
        self.stdin.lock().queue.front().is_some()
    }

    /// Whether the descriptor can be closed.
    pub(super) fn input_finished(&self) -> bool {
        self.stdin.lock().queue.is_finished()
    }

    /// Writes what the process takes now. The bytes leave the queue only when the kernel has them.
    pub(super) fn feed(&self, input: &Input) {
        let mut written = 0;
        while written < TURN_BYTES {
            let Some(front) = self.stdin.lock().queue.front().cloned() else { break };
            match input.try_write(&front) {
                Ok(WriteOutcome::Wrote(count)) => {
                    written += count;
                    self.stdin.lock().change(|queue| queue.advance(count));
                }
                Ok(WriteOutcome::WouldBlock) => break,
                Ok(WriteOutcome::Closed) | Err(_) => {
                    self.close_stdin();
                    break;
                }
            }
        }
        if written > 0 {
            self.stdin_room.notify_waiters();
        }
    }
}
