//! Keeps a guard running. The guard is a separate process that kills the processes of clients if the server is killed.

use std::time::{Duration, Instant};

use session::LogRateLimit;
use spawn::Spawner;

use crate::starter::Starter;

/// Pause between two attempts to start a guard. If the server cannot wait for the end of the guard, it checks after
/// each pause whether the guard still runs.
const GUARD_PAUSE: Duration = Duration::from_secs(1);

/// At most one log line in 60 s about a guard that cannot be started, because each attempt would otherwise write one.
const LOST_GUARD_LINES: LogRateLimit = LogRateLimit::new(1, Duration::from_secs(60));

/// Waits for the end of the guard and starts another one, for ever. If the server is killed while no guard runs, the
/// processes of clients go on running.
pub(crate) async fn keep_guard(spawner: &Spawner, starter: &Starter) {
    let mut lost_guard_log = LOST_GUARD_LINES;
    loop {
        // An error says that the server cannot wait for the end of the guard, because it has no file descriptor left.
        // Then `needs_guard` is called after each pause.
        let _error_if_unwatchable = spawner.wait_for_guard_end().await;
        if spawner.needs_guard()
            && let Some(Err(error)) = starter.ensure_guard().await
            && let Some(unlogged) = lost_guard_log.handle_event(Instant::now())
        {
            // The failed attempts since the last line, with this one.
            let attempts = unlogged + 1;
            tracing::error!("the guard has ended and cannot be started again after {attempts} attempts: {error}");
        }
        tokio::time::sleep(GUARD_PAUSE).await;
    }
}
