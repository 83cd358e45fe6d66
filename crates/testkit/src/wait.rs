//! Waiting for something to become true, instead of for time to pass.

use std::time::{Duration, Instant};

/// Longer than anything here takes on a loaded machine; reached only by a failing test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// How often to look.
const INTERVAL: Duration = Duration::from_millis(5);

/// Waits until `look` finds something.
pub async fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    eventually_async(what, async || look()).await
}

/// Waits until `look` finds something.
pub async fn eventually_async<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "still not true after {PATIENCE:?}: {what}");
        tokio::time::sleep(INTERVAL).await;
    }
}
