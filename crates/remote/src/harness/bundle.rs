//! Asks the registry for a bundle, and says how long failures on the way to a connection are retried: an executor whose
//! socket was lost needs a moment to return.

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

/// The time that is left for all attempts to connect, and the number of failures so far.
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
            self.pause(HarnessError::Registry(error)).await?;
        }
    }

    /// Waits after a failure until the next attempt. Returns the failure if there is no further attempt.
    pub(super) async fn pause(&mut self, error: HarnessError) -> Result<(), HarnessError> {
        let wait = self.wait_after_failure(error.is_retryable(), error.wait(), Instant::now(), chance());
        let Some(wait) = wait else { return Err(error) };
        tracing::debug!(%error, "another attempt to connect follows");
        tokio::time::sleep(wait).await;
        Ok(())
    }

    /// How long to wait before the next attempt: at least `asked`, the wait that the service has asked for. None: there
    /// is no further attempt.
    fn wait_after_failure(
        &mut self,
        is_retryable: bool,
        asked: Option<Duration>,
        now: Instant,
        chance: Chance,
    ) -> Option<Duration> {
        self.failed += 1;
        let wait = WAITS.after(self.failed, chance).max(asked.unwrap_or_default());
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
        while let Some(wait) = budget.wait_after_failure(true, None, now, Chance::new(0.0)) {
            now += wait;
            waits.push(wait.as_millis());
        }
        assert_eq!(waits[..5], [100, 200, 400, 800, 1000]);
        assert!(now - begin <= BUDGET && now - begin > BUDGET - WAITS.longest);
        let after_failure = |is_retryable, asked: Option<u64>| {
            let asked = asked.map(Duration::from_secs);
            BundleBudget::begin(now).wait_after_failure(is_retryable, asked, now, Chance::new(0.0))
        };
        assert_eq!(after_failure(false, None), None);
        assert_eq!(after_failure(true, Some(3)), Some(Duration::from_secs(3)));
        assert_eq!(after_failure(true, Some(60)), None, "a wait beyond the budget is not made");
    }
}
