//! The deadline of a request. It applies to everything the request waits for.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::error::RequestFailure;

/// The time at which a request fails if its response is not complete. None: never.
#[derive(Clone, Copy)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    /// The deadline of a request that begins now. Never, if the timeout is `None` or too long for the clock.
    pub(crate) fn after(timeout: Option<Duration>) -> Self {
        Self(timeout.and_then(|timeout| Instant::now().checked_add(timeout)))
    }

    /// Waits for a future. Fails at the deadline.
    pub(crate) async fn within<T>(self, future: impl Future<Output = T>) -> Result<T, RequestFailure> {
        let Some(deadline) = self.0 else { return Ok(future.await) };
        // Checked first, because `timeout_at` does not look at the clock if the future is ready at once.
        if deadline <= Instant::now() {
            return Err(RequestFailure::timeout());
        }
        timeout_at(deadline, future).await.map_err(|_| RequestFailure::timeout())
    }
}
