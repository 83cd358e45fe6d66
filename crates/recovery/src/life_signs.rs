//! When a connection that says nothing counts as lost. A slow peer, a busy peer and a dead peer are silent alike; only the dead one stays
//! silent when it is pinged.

use std::time::{Duration, Instant};

/// How long a server may be silent by default. A dead connection is noticed within this time, so that together with the two seconds
/// that a server gives the old connection, and with the resume, events flow again within twelve seconds. A pong has half of it, which
/// is long for any network that a person would call working.
pub const DEFAULT_SILENCE_TIMEOUT: Duration = Duration::from_secs(8);

/// What to do about the silence of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// Nothing yet.
    Bearable,
    /// Ask for a sign of life.
    Ping,
    /// Give the connection up.
    TooLong,
}

/// Follows the signs of life of one peer.
#[derive(Debug)]
pub struct LifeSigns {
    timeout: Duration,
    last: Instant,
    /// The peer was pinged since the last sign.
    is_pinged: bool,
}

impl LifeSigns {
    /// The connection was just made. It is never given up before its peer has been silent for `timeout`.
    pub fn new(timeout: Duration, now: Instant) -> Self {
        Self { timeout, last: now, is_pinged: false }
    }

    /// Something happened that only a living peer brings about: bytes came from it, or the transport was full and took bytes again. That a
    /// transport takes bytes without having been full is no sign: the kernel takes some for a dead peer too.
    pub fn handle_sign(&mut self, at: Instant) {
        if at > self.last {
            self.last = at;
            self.is_pinged = false;
        }
    }

    /// Looks at the time; to be called when [`poll_timeout`](Self::poll_timeout) says so, after the latest sign was told.
    pub fn handle_timeout(&mut self, now: Instant) -> Silence {
        let silent_for = now.saturating_duration_since(self.last);
        if self.is_pinged && silent_for >= self.timeout {
            return Silence::TooLong;
        }
        if !self.is_pinged && silent_for >= self.timeout / 2 {
            self.is_pinged = true;
            // A look that comes late, on a machine that slept, does not take from the time for the answer.
            let latest = now.checked_sub(self.timeout / 2).unwrap_or(self.last);
            self.last = self.last.max(latest);
            return Silence::Ping;
        }
        Silence::Bearable
    }

    /// When to look next.
    pub fn poll_timeout(&self) -> Instant {
        // A timeout without end is one that nobody will see the end of.
        const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
        let timeout = self.timeout.min(CENTURY);
        self.last + if self.is_pinged { timeout } else { timeout / 2 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn a_silent_peer_is_pinged_and_then_given_up() {
        let start = Instant::now();
        let mut signs = LifeSigns::new(seconds(8), start);
        assert_eq!(signs.poll_timeout(), start + seconds(4));
        assert_eq!(signs.handle_timeout(start + seconds(3)), Silence::Bearable);
        assert_eq!(signs.handle_timeout(start + seconds(4)), Silence::Ping);
        assert_eq!(signs.poll_timeout(), start + seconds(8));
        assert_eq!(signs.handle_timeout(start + seconds(7)), Silence::Bearable, "one ping is enough");
        assert_eq!(signs.handle_timeout(start + seconds(8)), Silence::TooLong);
    }

    #[test]
    fn every_sign_starts_the_time_anew() {
        let start = Instant::now();
        let mut signs = LifeSigns::new(seconds(8), start);
        assert_eq!(signs.handle_timeout(start + seconds(4)), Silence::Ping);
        signs.handle_sign(start + seconds(7));
        assert_eq!(signs.handle_timeout(start + seconds(8)), Silence::Bearable);
        assert_eq!(signs.poll_timeout(), start + seconds(11));
        // The same sign told again, or an older one, is none.
        signs.handle_sign(start + seconds(7));
        signs.handle_sign(start + seconds(1));
        assert_eq!(signs.handle_timeout(start + seconds(11)), Silence::Ping);
        assert_eq!(signs.handle_timeout(start + seconds(15)), Silence::TooLong);
    }

    #[test]
    fn nobody_is_given_up_without_time_to_answer() {
        let start = Instant::now();
        let mut signs = LifeSigns::new(seconds(8), start);
        // This machine was asleep.
        assert_eq!(signs.handle_timeout(start + seconds(1000)), Silence::Ping);
        assert_eq!(signs.handle_timeout(start + seconds(1001)), Silence::Bearable);
        assert_eq!(signs.poll_timeout(), start + seconds(1004));
        assert_eq!(signs.handle_timeout(start + seconds(1004)), Silence::TooLong);
    }

    #[test]
    fn a_timeout_without_end_is_no_panic() {
        let start = Instant::now();
        let mut signs = LifeSigns::new(Duration::MAX, start);
        assert!(signs.poll_timeout() > start + seconds(1_000_000_000));
        assert_eq!(signs.handle_timeout(start + seconds(1_000_000)), Silence::Bearable);
    }
}
