//! Polls a future once, without waiting.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Returns the output of the future if it is ready at once, otherwise None. No task is woken when the future becomes
/// ready later. A future that waits for a fair lock enters the queue of the lock when it is polled first. So requests
/// that are polled once when they arrive get the lock in the order of their arrival.
pub(super) fn poll_once<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}
