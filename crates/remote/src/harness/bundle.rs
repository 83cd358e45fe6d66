//! Asks the registry for a bundle, and retries for a while: an executor whose socket was lost needs a moment to return.

use std::time::{Duration, Instant};

use recovery::{Backoff, Chance};
use relay::RelayPublicKey;

use super::error::HarnessError;
use crate::chance::chance;
use crate::registry::{ConnectBundle, Registry};

/// All attempts together, from the first one.
const BUDGET: Duration = Duration::from_secs(14);

/// Longest time for one request to the registry.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(6);

/// The waits between two attempts. The first is short, because most executors are back at once.
const WAITS: Backoff = Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(2) };

/// The time that is left for bundles.
pub(super) struct BundleBudget {
    ends: Instant,
    failed: u32,
}

impl BundleBudget {
    pub(super) fn begin(now: Instant) -> Self {
        Self { ends: now + BUDGET, failed: 0 }
    }

    pub(super) async fn fetch(
        &mut self,
        registry: &Registry,
        key: &RelayPublicKey,
    ) -> Result<ConnectBundle, HarnessError> {
        loop {
            let left = self.ends.saturating_duration_since(Instant::now());
            let error = match registry.connect(key, REQUEST_TIMEOUT.min(left)).await {
                Ok(bundle) => return Ok(bundle),
                Err(error) => error,
            };
            let Some(wait) = self.wait_after_failure(error.is_retryable(), Instant::now(), chance()) else {
                return Err(HarnessError::Registry(error));
            };
            tracing::debug!(%error, "the registry is asked again");
            tokio::time::sleep(wait).await;
        }
    }

    /// How long to wait before the next attempt. None: there is no further attempt.
    fn wait_after_failure(&mut self, is_retryable: bool, now: Instant, chance: Chance) -> Option<Duration> {
        self.failed += 1;
        let wait = WAITS.after(self.failed, chance);
        (is_retryable && now + wait < self.ends).then_some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_that_may_pass_are_retried_until_the_time_is_over() {
        let mut now = Instant::now();
        let begin = now;
        let mut budget = BundleBudget::begin(now);
        let mut waits = Vec::new();
        while let Some(wait) = budget.wait_after_failure(true, now, Chance::new(0.0)) {
            now += wait;
            waits.push(wait.as_millis());
        }
        assert_eq!(waits[..5], [100, 200, 400, 800, 1000]);
        assert!(now - begin <= BUDGET && now - begin > BUDGET - WAITS.longest);
        assert_eq!(BundleBudget::begin(now).wait_after_failure(false, now, Chance::new(0.0)), None);
    }
}
