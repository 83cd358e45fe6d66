//! The one deadline of a request: whatever is waited for, it ends then.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::error::RequestFailure;

/// When a request must be over, if ever.
#[derive(Clone, Copy)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    /// A time that no clock reaches is none.
    pub(crate) fn after(timeout: Option<Duration>) -> Self {
        Self(timeout.and_then(|timeout| Instant::now().checked_add(timeout)))
    }

    pub(crate) async fn within<T>(self, future: impl Future<Output = T>) -> Result<T, RequestFailure> {
        let Some(deadline) = self.0 else { return Ok(future.await) };
        // Looked at first, because a future that is ready at once never lets the timer be asked.
        if deadline <= Instant::now() {
            return Err(RequestFailure::timeout());
        }
        timeout_at(deadline, future).await.map_err(|_| RequestFailure::timeout())
    }
}
