//! The waits of a client between its attempts to connect. There is no wait before the first attempt; the later waits
//! double up to a limit. A part of each wait is random, so that the clients of a server that was restarted do not all
//! come back at the same moment.

use std::time::Duration;

/// A random number in [0, 1), drawn by the caller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chance(f64);

impl Chance {
    /// A number outside of [0, 1) is clamped; NaN and infinity become 0.
    pub fn new(number: f64) -> Self {
        if number.is_finite() { Self(number.clamp(0.0, 1.0 - f64::EPSILON)) } else { Self(0.0) }
    }
}

/// The waits between attempts to connect. They double from `first` up to `longest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Upper bound of the wait before the second attempt. The default is 10 ms.
    pub first: Duration,
    /// Upper bound of every wait. The default is 100 ms.
    pub longest: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_millis(10), longest: Duration::from_millis(100) }
    }
}

impl Backoff {
    /// The wait after this many failed attempts in a row. `chance` 0 gives half of the upper bound; a `chance` near 1
    /// gives nearly the whole upper bound.
    pub fn after(&self, failed_attempts: u32, chance: Chance) -> Duration {
        let Some(doublings) = failed_attempts.checked_sub(1) else { return Duration::ZERO };
        let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
        let full = self.first.saturating_mul(factor).min(self.longest);
        full / 2 + (full / 2).mul_f64(chance.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_attempt_does_not_wait_and_later_waits_double_up_to_the_longest() {
        let backoff = Backoff { first: Duration::from_millis(500), longest: Duration::from_secs(5) };
        let most = |failed| backoff.after(failed, Chance::new(1.0)).as_millis();
        let least = |failed| backoff.after(failed, Chance::new(0.0)).as_millis();
        assert_eq!((0..7).map(least).collect::<Vec<_>>(), [0, 250, 500, 1000, 2000, 2500, 2500]);
        assert_eq!((0..7).map(most).collect::<Vec<_>>(), [0, 500, 1000, 2000, 4000, 5000, 5000]);
        assert_eq!(least(u32::MAX), 2500);
    }

    #[test]
    fn the_longest_durations_do_not_overflow() {
        let forever = Backoff { first: Duration::MAX, longest: Duration::MAX };
        assert!(forever.after(1, Chance::new(1.0)) > forever.after(1, Chance::new(0.0)));
    }

    #[test]
    fn chance_is_never_outside_its_range() {
        for number in [f64::NAN, f64::INFINITY, -3.0, 7.0] {
            assert!((0.0..1.0).contains(&Chance::new(number).0));
        }
    }
}
