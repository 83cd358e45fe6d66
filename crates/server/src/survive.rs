//! Catches panics of futures and calls, so that the caller can clean up or start again. The panic hook has already logged the panic.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

/// Runs a future to its end. Returns None if the future panicked.
pub(crate) async fn survive<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(poll) => poll.map(Some),
        Err(_) => Poll::Ready(None),
    })
    .await
}

/// Runs a call. Returns None if the call panicked.
pub(crate) fn survive_call<T>(call: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(call)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_returned_as_none() {
        assert_eq!(survive(async { 7 }).await, Some(7));
        let panicking = async {
            tokio::task::yield_now().await;
            panic!("on purpose");
        };
        assert_eq!(survive(panicking).await, None::<()>);
        assert_eq!(survive_call(|| 7), Some(7));
        assert_eq!(survive_call(|| panic!("on purpose")), None::<()>);
    }
}
