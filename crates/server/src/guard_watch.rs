//! Starts the next guard when one was killed.

use std::time::{Duration, Instant};

use session::LogRateLimit;
use spawn::Spawner;

use crate::starter::Starter;

/// How long after the start of a guard the next one may be started. Also how often a guard is looked for while none can be started or
/// watched.
const GUARD_PAUSE: Duration = Duration::from_secs(1);

/// A guard that cannot be started is tried again after each pause.
const LOST_GUARD_LINES: LogRateLimit = LogRateLimit::new(1, Duration::from_secs(60));

/// Watches the guard, for ever, and starts the next one at once. A server that is killed without a guard leaves its processes behind.
pub(crate) async fn keep_guard(spawner: &Spawner, starter: &Starter) {
    let mut lost_guard_log = LOST_GUARD_LINES;
    loop {
        // An error means that the guard cannot be watched now; then it is looked at after each pause.
        let _ended_or_unwatched = spawner.wait_for_guard_end().await;
        if spawner.needs_guard()
            && let Some(Err(error)) = starter.ensure_guard().await
            && let Some(left_out) = lost_guard_log.handle_event(Instant::now())
        {
            let times = left_out + 1;
            tracing::error!("the guard is gone and cannot be started again, tried {times} times: {error}");
        }
        tokio::time::sleep(GUARD_PAUSE).await;
    }
}
