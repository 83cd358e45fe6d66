//! The time of day, which decides whether a token has expired. Tests use a clock of their own. Start with
//! [`WallClock`].

use std::fmt;
use std::time::{Duration, SystemTime};

/// Tells the time of day. Expiry is compared with this clock and not with a monotonic one, because a monotonic clock
/// stops while the machine sleeps.
pub trait WallClock: Send + Sync + fmt::Debug {
    /// The time now.
    fn now(&self) -> SystemTime;
}

/// The clock of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl WallClock for SystemClock {
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }
}

/// The whole seconds since 1970. Zero for an earlier time.
pub(crate) fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// The time this many seconds after the beginning of 1970. `None` if the system cannot express it.
pub(crate) fn from_unix_seconds(seconds: u64) -> Option<SystemTime> {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

/// The time in UTC as RFC 3339 in whole seconds, for example `2026-08-22T05:54:43Z`.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    let seconds = unix_seconds(time);
    let (year, month, day) = civil_date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Year, month and day of a day in the Gregorian calendar. Day 0 is the first of January 1970.
///
/// Years are counted from the first of March, so that the leap day is the last day of a year. 400 years have always
/// the same number of days.
fn civil_date(day: u64) -> (u64, u64, u64) {
    const DAYS_OF_400_YEARS: u64 = 146_097;
    // Day 0 of this count is the first of March of the year 0.
    let day = day + 719_468;
    let (era, day) = (day / DAYS_OF_400_YEARS, day % DAYS_OF_400_YEARS);
    let year = (day - day / 1460 + day / 36_524 - day / (DAYS_OF_400_YEARS - 1)) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // Five months from March on have 153 days together, and so have the next five.
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + next_year, month, day)
}

#[cfg(test)]
pub(crate) mod fake {
    use parking_lot::Mutex;

    use super::*;

    /// A clock that a test sets.
    #[derive(Debug)]
    pub(crate) struct FakeClock(Mutex<SystemTime>);

    impl FakeClock {
        pub(crate) fn at(seconds: u64) -> Self {
            Self(Mutex::new(from_unix_seconds(seconds).unwrap()))
        }

        pub(crate) fn set(&self, seconds: u64) {
            *self.0.lock() = from_unix_seconds(seconds).unwrap();
        }
    }

    impl WallClock for FakeClock {
        fn now(&self) -> SystemTime {
            *self.0.lock()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_in_utc_with_whole_seconds() {
        // The expected texts come from `date --utc --date=@SECONDS +%FT%TZ`.
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_787_378_083, "2026-08-22T05:54:43Z"),
            (1_798_761_599, "2026-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            let time = from_unix_seconds(seconds).unwrap() + Duration::from_millis(999);
            assert_eq!(rfc3339(time), text);
        }
    }
}
