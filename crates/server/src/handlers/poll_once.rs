//! Polls a future once, without waiting.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// The output of the future, if it is ready at once. Otherwise a future that waits for a fair lock has entered the queue of the lock. So
/// requests that are polled once when they arrive get the lock in the order of their arrival.
pub(super) fn poll_once<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}
