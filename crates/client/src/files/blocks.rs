//! A window of operations that each read or write one block of a file. Several operations are in flight at the same
//! time, and their results are taken in the order in which they were begun. The operations need no task: all of them
//! make progress while the caller waits for the first result.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::FileSystemError;

/// An operation that reads or writes one block.
pub(super) type BlockFuture<T> = Pin<Box<dyn Future<Output = Result<T, FileSystemError>> + Send>>;

/// The block operations whose results were not taken yet.
pub(super) struct BlockWindow<T> {
    operations: VecDeque<BlockOperation<T>>,
}

enum BlockOperation<T> {
    Running(BlockFuture<T>),
    Done(Result<T, FileSystemError>),
}

impl<T> Default for BlockWindow<T> {
    fn default() -> Self {
        Self { operations: VecDeque::new() }
    }
}

impl<T> BlockWindow<T> {
    pub(super) fn len(&self) -> usize {
        self.operations.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Begins an operation after the others.
    pub(super) fn begin(&mut self, block: BlockFuture<T>, cx: &mut Context<'_>) {
        let mut operation = BlockOperation::Running(block);
        operation.poll_once(cx);
        self.operations.push_back(operation);
    }

    /// Waits for the result of the first operation. Returns `None` if the window is empty.
    pub(super) fn poll_first(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<T, FileSystemError>>> {
        self.operations.iter_mut().for_each(|operation| operation.poll_once(cx));
        match self.operations.pop_front() {
            Some(BlockOperation::Done(result)) => Poll::Ready(Some(result)),
            Some(running) => {
                self.operations.push_front(running);
                Poll::Pending
            }
            None => Poll::Ready(None),
        }
    }

    /// Waits until at most `most` operations are left. Fails with the first error of an operation.
    pub(super) fn poll_down_to(&mut self, most: usize, cx: &mut Context<'_>) -> Poll<Result<(), FileSystemError>> {
        while self.len() > most {
            if let Some(result) = ready!(self.poll_first(cx)) {
                result?;
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Abandons all operations.
    pub(super) fn clear(&mut self) {
        self.operations.clear();
    }
}

impl<T> BlockOperation<T> {
    fn poll_once(&mut self, cx: &mut Context<'_>) {
        if let Self::Running(block) = self
            && let Poll::Ready(result) = block.as_mut().poll(cx)
        {
            *self = Self::Done(result);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::sync::oneshot;

    use super::*;

    fn block(receiver: oneshot::Receiver<u8>) -> BlockFuture<u8> {
        Box::pin(async { receiver.await.map_err(|_| FileSystemError::invalid_input("gone")) })
    }

    #[tokio::test]
    async fn blocks_come_in_order_whichever_is_done_first() {
        let mut window = BlockWindow::default();
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..3).map(|_| oneshot::channel()).unzip();
        let mut receivers = receivers.into_iter();
        poll_fn(|cx| {
            receivers.by_ref().for_each(|receiver| window.begin(block(receiver), cx));
            Poll::Ready(())
        })
        .await;
        for (number, sender) in senders.into_iter().enumerate().rev() {
            sender.send(number as u8).unwrap();
        }
        for expected in 0..3 {
            let first = poll_fn(|cx| window.poll_first(cx)).await;
            assert_eq!(first, Some(Ok(expected)));
        }
        assert!(poll_fn(|cx| window.poll_first(cx)).await.is_none());
    }
}
