//! Writing to a process: into a bounded queue at once where there is room, in wire order always.

use std::sync::Arc;

use bytes::Bytes;
use protocol::WriteId;
use session::{OfferResult, StdinQueue};
use spawn::{ChildInput, WriteOutcome};
use tokio::sync::OwnedMutexGuard;

use super::Process;
use crate::budget::BudgetShare;

/// How much is written to a process before others get their turn.
const TURN_BYTES: usize = 256 << 10;

/// A queue, its share of what may wait in all, and where it leads.
pub(crate) struct StdinFeed {
    queue: StdinQueue,
    share: BudgetShare,
    /// Gone when nothing more will be written.
    input: Option<ChildInput>,
}

impl StdinFeed {
    pub(crate) fn new(queue: StdinQueue, share: BudgetShare, input: Option<ChildInput>) -> Self {
        Self { queue, share, input }
    }

    fn change<T>(&mut self, change: impl FnOnce(&mut StdinQueue) -> T) -> T {
        let result = change(&mut self.queue);
        self.share.set(self.queue.waiting_bytes());
        result
    }

    fn offer(&mut self, id: Option<&WriteId>, bytes: &Bytes) -> OfferResult {
        // An answer that it was taken cannot be called back, so the process is asked first whether it can read.
        if self.input.as_ref().is_none_or(ChildInput::reader_gone) {
            self.change(StdinQueue::close);
        }
        let room = self.share.room();
        self.change(|queue| queue.offer(id, bytes, room))
    }

    /// Writes what the process takes now. The bytes leave the queue only when the kernel has them. Returns how many.
    fn feed(&mut self) -> usize {
        let mut written = 0;
        while written < TURN_BYTES {
            let (Some(input), Some(front)) = (&self.input, self.queue.front()) else { break };
            match input.try_write(front) {
                Ok(WriteOutcome::Wrote(count)) => {
                    written += count;
                    self.change(|queue| queue.advance(count));
                }
                Ok(WriteOutcome::WouldBlock) => break,
                Ok(WriteOutcome::Closed) | Err(_) => self.change(StdinQueue::close),
            }
        }
        written
    }
}

impl Process {
    /// Takes a write if there is room for it now. What the process can take at once it gets at once; the actor is only
    /// needed for the rest.
    pub(crate) fn offer(&self, id: Option<&WriteId>, bytes: &Bytes) -> OfferResult {
        let mut stdin = self.stdin.lock();
        let offer = stdin.offer(id, bytes);
        if offer == OfferResult::Accepted {
            stdin.feed();
        }
        if offer == OfferResult::Closed || stdin.queue.front().is_some() || stdin.queue.is_closed() {
            self.wake_task();
        }
        offer
    }

    /// Takes a write, waiting for room. Later writes wait behind `_lane`.
    pub(crate) async fn offer_when_there_is_room(
        self: Arc<Self>,
        id: Option<WriteId>,
        bytes: Bytes,
        _lane: OwnedMutexGuard<()>,
    ) -> OfferResult {
        loop {
            let room = self.stdin_room.notified();
            tokio::pin!(room);
            room.as_mut().enable();
            match self.offer(id.as_ref(), &bytes) {
                OfferResult::Full => room.await,
                taken => return taken,
            }
        }
    }

    /// Ends stdin after what waits: a pipe is closed, a terminal gets its end-of-file character and stays open.
    pub(crate) fn end_stdin(&self) {
        match self.with_terminal(spawn::Pty::eof_byte) {
            Some(eof) => self.stdin.lock().change(|queue| queue.push([eof])),
            None => self.stdin.lock().change(StdinQueue::end),
        }
        self.wake_task();
    }

    /// The process can take no more.
    pub(crate) fn close_stdin(&self) {
        let mut stdin = self.stdin.lock();
        stdin.change(StdinQueue::close);
        stdin.input = None;
        drop(stdin);
        self.stdin_room.notify_waiters();
    }

    pub(crate) fn has_input(&self) -> bool {
        self.stdin.lock().queue.front().is_some()
    }

    /// The descriptor to wait for. Closed, as soon as nothing more will be written.
    pub(crate) fn input(&self) -> Option<ChildInput> {
        let mut stdin = self.stdin.lock();
        if stdin.queue.is_finished() {
            stdin.input = None;
        }
        stdin.input.clone()
    }

    /// Writes what the process takes now.
    pub(crate) fn feed(&self) {
        let written = self.stdin.lock().feed();
        if written > 0 {
            self.stdin_room.notify_waiters();
        }
    }
}
