//! Writing to the stdin of a process. Writes go into a bounded queue, in the order in which the client sent them. Bytes that the process
//! can take at once are written at once; the process task writes the others when the process reads.

use std::sync::Arc;

use bytes::Bytes;
use protocol::WriteId;
use session::{OfferResult, StdinQueue};
use spawn::{ChildInput, WriteOutcome};
use tokio::sync::OwnedMutexGuard;

use super::Process;
use crate::budget::BudgetShare;

/// Bytes that are written to a process before other tasks may run.
const BATCH_BYTES: usize = 256 << 10;

/// The stdin of a process with the queue in front of it.
pub(crate) struct QueuedStdin {
    queue: StdinQueue,
    /// Bytes in the queue, counted against `--max-queued-stdin-total`.
    share: BudgetShare,
    /// None when nothing more will be written.
    input: Option<ChildInput>,
}

impl QueuedStdin {
    pub(crate) fn new(queue: StdinQueue, share: BudgetShare, input: Option<ChildInput>) -> Self {
        Self { queue, share, input }
    }

    fn change<T>(&mut self, change: impl FnOnce(&mut StdinQueue) -> T) -> T {
        let result = change(&mut self.queue);
        self.share.set(self.queue.waiting_bytes());
        result
    }

    fn offer(&mut self, id: Option<&WriteId>, bytes: &Bytes) -> OfferResult {
        // The client is told at once that its write was accepted. So the check whether the process still reads its stdin comes first.
        if self.input.as_ref().is_none_or(ChildInput::reader_gone) {
            self.change(StdinQueue::close);
        }
        let room = self.share.room();
        self.change(|queue| queue.offer(id, bytes, room))
    }

    /// Writes as many queued bytes as the process takes now, and returns their number. Bytes leave the queue only after the kernel has
    /// taken them.
    fn write_queued(&mut self) -> usize {
        let mut written = 0;
        while written < BATCH_BYTES {
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
    /// Queues a write if the queue has room now, and writes the bytes that the process takes at once. The process
    /// task is woken only if bytes are left or stdin is closed.
    pub(crate) fn offer(&self, id: Option<&WriteId>, bytes: &Bytes) -> OfferResult {
        let mut stdin = self.stdin.lock();
        let offer = stdin.offer(id, bytes);
        if offer == OfferResult::Accepted {
            stdin.write_queued();
        }
        if offer == OfferResult::Closed || stdin.queue.front().is_some() || stdin.queue.refuses_writes() {
            self.wake_task();
        }
        offer
    }

    /// Waits until the queue has room for a write, and queues the write. Meanwhile `_guard`, the guard of
    /// `stdin_lock`, keeps later writes waiting.
    pub(crate) async fn offer_when_there_is_room(
        self: Arc<Self>,
        id: Option<WriteId>,
        bytes: Bytes,
        _guard: OwnedMutexGuard<()>,
    ) -> OfferResult {
        loop {
            let room = self.stdin_room.notified();
            tokio::pin!(room);
            room.as_mut().enable();
            match self.offer(id.as_ref(), &bytes) {
                OfferResult::Full => room.await,
                decided => return decided,
            }
        }
    }

    /// Ends stdin after the queued bytes: a pipe is closed, a terminal gets its end-of-file character and stays open.
    pub(crate) fn end_stdin(&self) {
        match self.with_terminal(spawn::Pty::eof_byte) {
            Some(eof) => self.stdin.lock().change(|queue| queue.push([eof])),
            None => self.stdin.lock().change(StdinQueue::end),
        }
        self.wake_task();
    }

    /// Closes stdin and drops queued bytes, because the process reads no more.
    pub(crate) fn close_stdin(&self) {
        let mut stdin = self.stdin.lock();
        stdin.change(StdinQueue::close);
        stdin.input = None;
        drop(stdin);
        self.stdin_room.notify_waiters();
    }

    /// Whether bytes wait to be written.
    pub(crate) fn has_queued_stdin(&self) -> bool {
        self.stdin.lock().queue.front().is_some()
    }

    /// The descriptor to which the queued bytes are written. It is closed, and None returned, when nothing more will be written.
    pub(crate) fn input(&self) -> Option<ChildInput> {
        let mut stdin = self.stdin.lock();
        if stdin.queue.is_finished() {
            stdin.input = None;
        }
        stdin.input.clone()
    }

    /// Writes as many queued bytes as the process takes now.
    pub(crate) fn write_queued_stdin(&self) {
        let written = self.stdin.lock().write_queued();
        if written > 0 {
            self.stdin_room.notify_waiters();
        }
    }
}
