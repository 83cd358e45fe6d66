//! How long an executor waits before it connects to the relay again, as a value.

use std::time::Duration;

use recovery::{Backoff, Chance};

/// The waits after a connection that has held. They stay short for a while, because harnesses wait.
const WAITS: Backoff = Backoff { first: Duration::from_millis(40), longest: Duration::from_secs(30) };

/// So many of the first waits are as short as the first one.
const SHORT_WAITS: u32 = 40;

/// A connection that has held for less than this counts as a failure. Otherwise two executors that displace each other
/// would do so without end.
const HELD: Duration = Duration::from_secs(10);

/// A relay that accepts and closes is not called more often than after this time.
const DISPLACED_WAITS: Backoff = Backoff { first: Duration::from_millis(500), longest: Duration::from_secs(30) };

/// Waits before a further attempt to register.
const REGISTER_WAITS: Backoff = Backoff { first: Duration::from_millis(500), longest: Duration::from_secs(30) };

/// Counts the failures since the last success, from which the next wait follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RedialSchedule {
    failed_dials: u32,
    short_connections: u32,
    failed_registrations: u32,
    renewed_urls: u32,
}

impl RedialSchedule {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// The relay could not be reached, or refused for now.
    pub(super) fn dial_failed(&mut self) {
        self.failed_dials = self.failed_dials.saturating_add(1);
    }

    /// The executor was registered again, because the relay did not accept its URL.
    pub(super) fn url_renewed(&mut self) {
        self.failed_registrations = 0;
        self.renewed_urls = self.renewed_urls.saturating_add(1);
    }

    /// A connection has ended after this time.
    pub(super) fn connection_ended(&mut self, held: Duration) {
        let short_connections = if held < HELD { self.short_connections.saturating_add(1) } else { 0 };
        *self = Self { short_connections, ..Self::default() };
    }

    /// The wait after a failed attempt to register.
    pub(super) fn after_failure(&mut self, chance: Chance) -> Duration {
        self.failed_registrations = self.failed_registrations.saturating_add(1);
        REGISTER_WAITS.after(self.failed_registrations, chance)
    }

    /// The wait before the next attempt to connect.
    pub(super) fn wait(&self, chance: Chance) -> Duration {
        let failed = self.failed_dials.saturating_sub(SHORT_WAITS).max(1);
        // The first short connection, and the first new URL, may have been an accident.
        let displaced = self.short_connections.max(self.renewed_urls).saturating_sub(2);
        WAITS.after(failed, chance).max(DISPLACED_WAITS.after(displaced, chance))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: f64 = 1.0;

    fn wait(schedule: &RedialSchedule) -> u128 {
        schedule.wait(Chance::new(MOST)).as_millis()
    }

    #[test]
    fn a_relay_that_is_away_is_called_often_at_first_and_then_rarely() {
        let mut schedule = RedialSchedule::new();
        schedule.connection_ended(HELD);
        let mut total = Duration::ZERO;
        for _ in 0..SHORT_WAITS {
            schedule.dial_failed();
            assert!(wait(&schedule) <= 40);
            total += schedule.wait(Chance::new(MOST));
        }
        assert!(total >= Duration::from_secs(1));
        for _ in 0..20 {
            schedule.dial_failed();
        }
        assert!((29_000..=30_000).contains(&wait(&schedule)));
        schedule.connection_ended(HELD);
        assert!(wait(&schedule) <= 40);
    }

    #[test]
    fn two_executors_that_displace_each_other_slow_down() {
        let mut schedule = RedialSchedule::new();
        let mut waits = Vec::new();
        for _ in 0..12 {
            schedule.connection_ended(Duration::from_millis(3));
            schedule.url_renewed();
            waits.push(wait(&schedule));
        }
        assert!(waits[0] <= 40 && waits.is_sorted() && *waits.last().unwrap() > 20_000, "{waits:?}");
    }

    #[test]
    fn attempts_to_register_slow_down_until_one_succeeds() {
        let mut schedule = RedialSchedule::new();
        let chance = Chance::new(0.0);
        let waits: Vec<_> = (0..9).map(|_| schedule.after_failure(chance).as_millis()).collect();
        assert_eq!(waits, [250, 500, 1000, 2000, 4000, 8000, 15_000, 15_000, 15_000]);
        schedule.url_renewed();
        assert_eq!(schedule.after_failure(chance).as_millis(), 250);
    }
}
