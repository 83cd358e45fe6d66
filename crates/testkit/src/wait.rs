//! Waits until a condition holds, instead of for a fixed time.

use std::time::{Duration, Instant};

/// Longer than any wait takes on a loaded machine. Reached only by a failing test.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Pause between two calls of `probe`.
const PROBE_INTERVAL: Duration = Duration::from_millis(5);

/// Calls `probe` until it returns a value, and returns that value. Panics after 30 s with `what`, which names the
/// condition.
pub async fn eventually<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    eventually_async(what, async || probe()).await
}

/// Like [`eventually`], with an async `probe`.
pub async fn eventually_async<T>(what: &str, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = probe().await {
            return found;
        }
        assert!(start.elapsed() < WAIT_TIMEOUT, "still not true after {WAIT_TIMEOUT:?}: {what}");
        tokio::time::sleep(PROBE_INTERVAL).await;
    }
}
