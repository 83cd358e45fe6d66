//! Decides when a connection without traffic counts as lost. A slow peer, a busy peer and a dead peer are all silent,
//! but only the dead peer does not answer a ping.

use std::time::{Duration, Instant};

/// How long a server may be silent by default before its connection counts as lost. The client pings the server after
/// half of this time, so the pong has the other half to arrive. When a client resumes its session over a new
/// connection, the server first gives the old connection two seconds to show that it is alive. So events flow again
/// about ten seconds after the loss, if the network works again by then.
pub const DEFAULT_SILENCE_TIMEOUT: Duration = Duration::from_secs(8);

/// What the caller does about the silence of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// The peer was heard recently enough: do nothing.
    Short,
    /// Send a ping.
    Ping,
    /// The peer did not answer the ping in time: the connection is lost.
    TooLong,
}

/// When the peer of one connection was last heard, and whether it was pinged since.
#[derive(Debug)]
pub struct LifeSigns {
    timeout: Duration,
    /// When the peer last gave a sign of life. After a ping that was sent late, half of the timeout before the ping.
    last_sign: Instant,
    /// The peer was pinged since the last sign of life.
    is_pinged: bool,
}

impl LifeSigns {
    /// The connection was just made. It is never given up before its peer has been silent for `timeout`.
    pub fn new(timeout: Duration, now: Instant) -> Self {
        Self { timeout, last_sign: now, is_pinged: false }
    }

    /// The peer gave a sign of life: bytes came from it, or a transport that was full accepts bytes again. A transport that accepts bytes
    /// without having been full proves nothing, because the kernel buffers some for a dead peer too.
    pub fn handle_sign(&mut self, at: Instant) {
        if at > self.last_sign {
            self.last_sign = at;
            self.is_pinged = false;
        }
    }

    /// Called at the time that [`poll_timeout`](Self::poll_timeout) has returned, after the latest sign of life was reported.
    pub fn handle_timeout(&mut self, now: Instant) -> Silence {
        let silent_for = now.saturating_duration_since(self.last_sign);
        if self.is_pinged && silent_for >= self.timeout {
            return Silence::TooLong;
        }
        if !self.is_pinged && silent_for >= self.timeout / 2 {
            self.is_pinged = true;
            // The timer may fire late, for example after the machine was suspended. The pong still has half of the timeout.
            let latest = now.checked_sub(self.timeout / 2).unwrap_or(self.last_sign);
            self.last_sign = self.last_sign.max(latest);
            return Silence::Ping;
        }
        Silence::Short
    }

    /// When to call [`handle_timeout`](Self::handle_timeout) next.
    pub fn poll_timeout(&self) -> Instant {
        // `Duration::MAX` would overflow an `Instant`.
        const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
        let timeout = self.timeout.min(CENTURY);
        self.last_sign + if self.is_pinged { timeout } else { timeout / 2 }
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
        assert_eq!(signs.handle_timeout(start + seconds(3)), Silence::Short);
        assert_eq!(signs.handle_timeout(start + seconds(4)), Silence::Ping);
        assert_eq!(signs.poll_timeout(), start + seconds(8));
        assert_eq!(signs.handle_timeout(start + seconds(7)), Silence::Short, "one ping is enough");
        assert_eq!(signs.handle_timeout(start + seconds(8)), Silence::TooLong);
    }

    #[test]
    fn every_sign_of_life_starts_the_timeout_again() {
        let start = Instant::now();
        let mut signs = LifeSigns::new(seconds(8), start);
        assert_eq!(signs.handle_timeout(start + seconds(4)), Silence::Ping);
        signs.handle_sign(start + seconds(7));
        assert_eq!(signs.handle_timeout(start + seconds(8)), Silence::Short);
        assert_eq!(signs.poll_timeout(), start + seconds(11));
        // A sign that was reported before, or an older one, changes nothing.
        signs.handle_sign(start + seconds(7));
        signs.handle_sign(start + seconds(1));
        assert_eq!(signs.handle_timeout(start + seconds(11)), Silence::Ping);
        assert_eq!(signs.handle_timeout(start + seconds(15)), Silence::TooLong);
    }

    #[test]
    fn a_pong_has_half_of_the_timeout_even_if_the_timer_fires_late() {
        let start = Instant::now();
        let mut signs = LifeSigns::new(seconds(8), start);
        // This machine was suspended.
        assert_eq!(signs.handle_timeout(start + seconds(1000)), Silence::Ping);
        assert_eq!(signs.handle_timeout(start + seconds(1001)), Silence::Short);
        assert_eq!(signs.poll_timeout(), start + seconds(1004));
        assert_eq!(signs.handle_timeout(start + seconds(1004)), Silence::TooLong);
    }

    #[test]
    fn an_infinite_timeout_does_not_panic() {
        let start = Instant::now();
        let mut signs = LifeSigns::new(Duration::MAX, start);
        assert!(signs.poll_timeout() > start + seconds(1_000_000_000));
        assert_eq!(signs.handle_timeout(start + seconds(1_000_000)), Silence::Short);
    }
}
