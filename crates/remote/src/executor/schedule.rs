//! How long an executor waits before it connects to the relay again, as a value.

use std::time::Duration;

use recovery::{Backoff, Chance};

use crate::dial::DialRemedy;

/// The waits after a connection that has held. They stay short for a while, because harnesses wait.
const WAITS: Backoff = Backoff { first: Duration::from_millis(40), longest: Duration::from_secs(30) };

/// So many of the first waits are as short as the first one.
const SHORT_WAITS: u32 = 40;

/// A connection that has ended before this time, and was not used, counts as a failure. Without this rule two executors
/// with the same id would take the id from each other again and again without a pause.
const HELD: Duration = Duration::from_secs(10);

/// A relay that accepts and closes is not called more often than after this time.
const DISPLACED_WAITS: Backoff = Backoff { first: Duration::from_millis(500), longest: Duration::from_secs(30) };

/// Waits before a further attempt to register.
const REGISTER_WAITS: Backoff = Backoff { first: Duration::from_millis(500), longest: Duration::from_secs(30) };

/// After this many failed attempts to connect, the executor asks the registry for another URL after each further
/// failure: the relay at the old URL may be gone for good.
const DIALS_BEFORE_NEW_URL: u32 = SHORT_WAITS;

/// What a connection was used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionUse {
    /// The executor had no streams.
    Idle,
    /// The executor has streams, but no frame of a stream has arrived. The harnesses wait, so the next wait is as short
    /// as after a failed attempt to connect.
    Awaited,
    /// Frames of streams have arrived, so the connection was useful.
    Carried,
}

/// Counts the failures since the last success, from which the next wait follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RedialSchedule {
    failed_dials: u32,
    short_connections: u32,
    failed_registrations: u32,
    renewed_urls: u32,
    /// The wait that the service has asked for in its last refusal. Zero if it has asked for none.
    asked_wait: Duration,
    is_url_refused: bool,
}

impl RedialSchedule {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// An attempt to connect to the relay has failed.
    pub(super) fn dial_failed(&mut self, remedy: DialRemedy) {
        self.asked_wait = Duration::ZERO;
        self.is_url_refused = remedy == DialRemedy::NewUrl;
        match remedy {
            DialRemedy::SameUrl => self.failed_dials = self.failed_dials.saturating_add(1),
            DialRemedy::Later(wait) => self.asked_wait = wait,
            DialRemedy::NewUrl => {}
        }
    }

    /// Whether to ask the registry for another URL.
    pub(super) fn needs_new_url(&self) -> bool {
        self.is_url_refused || self.failed_dials > DIALS_BEFORE_NEW_URL
    }

    /// The executor was registered again.
    pub(super) fn url_renewed(&mut self) {
        self.failed_registrations = 0;
        self.renewed_urls = self.renewed_urls.saturating_add(1);
    }

    /// An attempt to register has failed. `asked_wait` is the wait that the registry has asked for.
    pub(super) fn registration_failed(&mut self, asked_wait: Option<Duration>) {
        self.failed_registrations = self.failed_registrations.saturating_add(1);
        self.asked_wait = asked_wait.unwrap_or_default();
    }

    /// A connection to the relay has ended after the time `held`.
    pub(super) fn connection_ended(&mut self, held: Duration, connection_use: ConnectionUse) {
        // An executor that loses its id to another executor gets a new URL each time. After a new URL a short
        // connection therefore counts as unused, even if frames have arrived on it.
        let connection_use = if self.renewed_urls > 0 { ConnectionUse::Idle } else { connection_use };
        *self = match connection_use {
            _ if held >= HELD => Self::default(),
            ConnectionUse::Carried => Self::default(),
            ConnectionUse::Awaited => Self {
                failed_dials: self.failed_dials.saturating_add(1),
                asked_wait: Duration::ZERO,
                is_url_refused: false,
                ..*self
            },
            ConnectionUse::Idle => {
                Self { short_connections: self.short_connections.saturating_add(1), ..Self::default() }
            }
        };
    }

    /// The wait before the next attempt to connect or to register.
    pub(super) fn wait(&self, chance: Chance) -> Duration {
        let failed = self.failed_dials.saturating_sub(SHORT_WAITS).max(1);
        // The first short connection, and the first new URL, may have been an accident.
        let displaced = self.short_connections.max(self.renewed_urls).saturating_sub(2);
        // A random time is added to the wait that the service has asked for, so that not all executors return at once.
        let spread = Backoff { first: self.asked_wait / 5, longest: self.asked_wait };
        let asked = self.asked_wait + spread.after(1, chance);
        let registered = REGISTER_WAITS.after(self.failed_registrations, chance);
        WAITS.after(failed, chance).max(DISPLACED_WAITS.after(displaced, chance)).max(registered).max(asked)
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
        schedule.connection_ended(HELD, ConnectionUse::Idle);
        let mut total = Duration::ZERO;
        for _ in 0..SHORT_WAITS {
            schedule.dial_failed(DialRemedy::SameUrl);
            assert!(!schedule.needs_new_url());
            assert!(wait(&schedule) <= 40);
            total += schedule.wait(Chance::new(MOST));
        }
        assert!(total >= Duration::from_secs(1));
        for _ in 0..20 {
            schedule.dial_failed(DialRemedy::SameUrl);
            assert!(schedule.needs_new_url(), "the relay may be gone for good");
        }
        assert!((29_000..=30_000).contains(&wait(&schedule)));
        schedule.connection_ended(HELD, ConnectionUse::Idle);
        assert!(wait(&schedule) <= 40);
    }

    #[test]
    fn two_executors_that_displace_each_other_slow_down() {
        let mut schedule = RedialSchedule::new();
        let mut waits = Vec::new();
        for number in 0..12 {
            // A harness may be quick enough to send frames before the other executor takes the id.
            let connection_use = [ConnectionUse::Idle, ConnectionUse::Awaited, ConnectionUse::Carried][number % 3];
            schedule.connection_ended(Duration::from_millis(3), connection_use);
            schedule.url_renewed();
            waits.push(wait(&schedule));
        }
        assert!(waits[0] <= 40 && waits.is_sorted() && *waits.last().unwrap() > 20_000, "{waits:?}");
    }

    #[test]
    fn connections_that_harnesses_use_are_replaced_at_once_however_often_they_are_lost() {
        let end = |schedule: &mut RedialSchedule, connection_use| {
            schedule.connection_ended(Duration::from_millis(3), connection_use);
            wait(schedule)
        };
        let mut schedule = RedialSchedule::new();
        for _ in 0..500 {
            assert!(end(&mut schedule, ConnectionUse::Awaited) <= 40);
            assert!(end(&mut schedule, ConnectionUse::Carried) <= 40);
        }
        // The waits grow for a relay that accepts and closes, although harnesses wait.
        let waits: Vec<_> = (0..60).map(|_| end(&mut schedule, ConnectionUse::Awaited)).collect();
        assert!(waits[..SHORT_WAITS as usize].iter().all(|wait| *wait <= 40) && waits[59] >= 29_000, "{waits:?}");
        // The waits grow earlier if no harness waits.
        let mut schedule = RedialSchedule::new();
        let waits: Vec<_> = (0..4).map(|_| end(&mut schedule, ConnectionUse::Idle)).collect();
        assert!(waits[3] >= 500, "{waits:?}");
    }

    #[test]
    fn attempts_to_register_slow_down_until_one_succeeds() {
        let mut schedule = RedialSchedule::new();
        let fail = |schedule: &mut RedialSchedule| {
            schedule.dial_failed(DialRemedy::NewUrl);
            assert!(schedule.needs_new_url());
            schedule.registration_failed(None);
            schedule.wait(Chance::new(0.0)).as_millis()
        };
        let waits: Vec<_> = (0..9).map(|_| fail(&mut schedule)).collect();
        assert_eq!(waits, [250, 500, 1000, 2000, 4000, 8000, 15_000, 15_000, 15_000]);
        schedule.url_renewed();
        assert_eq!(fail(&mut schedule), 250);
    }

    #[test]
    fn a_service_that_has_too_much_to_do_is_left_alone_as_long_as_it_asks() {
        let mut schedule = RedialSchedule::new();
        schedule.dial_failed(DialRemedy::Later(Duration::from_secs(7)));
        assert!(!schedule.needs_new_url() && (7000..=8400).contains(&wait(&schedule)));
        schedule.registration_failed(Some(Duration::from_secs(9)));
        assert!((9000..=10_800).contains(&wait(&schedule)));
        schedule.dial_failed(DialRemedy::SameUrl);
        assert!(wait(&schedule) <= 500);
    }
}
