//! Asking a future once, without waiting.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// The future's value if it is there already. If not, the future has taken its place in whatever queue it waits in,
/// which is how wire order becomes the order of waiting.
pub(super) fn poll_once<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}
