//! Tasks and calls that must not end by a panic without anybody noticing.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

/// Runs a future to its end. None if it panicked, of which the log tells; the caller then cleans up or begins again.
pub(crate) async fn survive<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(poll) => poll.map(Some),
        Err(_) => Poll::Ready(None),
    })
    .await
}

/// The same for a call.
pub(crate) fn survive_call<T>(call: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(call)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_an_outcome() {
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
