//! Decides whether the peer of a connection is slow or lost. The value knows no frames and no sockets: the caller
//! reports when it sent a ping, when bytes arrived and when writes blocked, and learns when to close the connection.

use std::time::{Duration, Instant};

/// A blocked writer may continue when the peer has read a third of the kernel's send buffer. A ping may be at the end of that buffer, and
/// the peer needs three times as long to read all of it.
const THIRDS_OF_A_BUFFER: u32 = 3;

/// Upper bound of the extra time for a slow peer, as a multiple of the deadline. A peer that stops reading must be given up in the end,
/// however slow it was before.
const LONGEST_ALLOWANCE: u32 = 3;

/// When the peer of one connection last gave a sign of life, and how fast it reads.
#[derive(Debug)]
pub struct PeerLiveness {
    last_sign: Instant,
    /// Since when the transport accepts no bytes. `None` while it accepts bytes.
    blocked_since: Option<Instant>,
    /// How long the peer will need to read all bytes that the transport has accepted, at its speed so far.
    drain_allowance: Duration,
}

impl PeerLiveness {
    /// A peer that has just connected.
    pub fn new(now: Instant) -> Self {
        Self { last_sign: now, blocked_since: None, drain_allowance: Duration::ZERO }
    }

    /// Bytes came from the peer. While writes are blocked this does not count: a peer that sends and never reads would otherwise keep the
    /// connection open for ever.
    pub fn bytes_arrived(&mut self, now: Instant) {
        if self.blocked_since.is_none() {
            self.last_sign = now;
        }
    }

    /// The peer answered a ping, so it has read everything before that ping. `was_last` says that no other ping waits for its answer.
    pub fn ping_answered(&mut self, was_last: bool, now: Instant) {
        self.last_sign = now;
        if was_last {
            self.drain_allowance = Duration::ZERO;
        }
    }

    /// The transport accepts no bytes for now.
    pub fn writes_blocked(&mut self, now: Instant) {
        self.blocked_since.get_or_insert(now);
    }

    /// The transport accepts bytes. If writes were blocked before, this is a sign of life, because the peer has read some bytes. Otherwise
    /// it is none, because the bytes may only have filled the buffers of this machine.
    pub fn writes_resumed(&mut self, now: Instant) {
        if let Some(since) = self.blocked_since.take() {
            self.last_sign = now;
            self.drain_allowance = now.saturating_duration_since(since).saturating_mul(THIRDS_OF_A_BUFFER);
        }
    }

    /// When a peer that was pinged at `pinged` counts as lost if it gives no further sign of life.
    pub fn given_up_at(&self, pinged: Instant, deadline: Duration) -> Instant {
        let allowance = self.drain_allowance.min(deadline.saturating_mul(LONGEST_ALLOWANCE));
        pinged.max(self.last_sign) + deadline + allowance
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(20);

    /// Counts seconds from the moment at which the peer has connected.
    struct Clock(Instant);

    impl Clock {
        fn at(&self, seconds: u64) -> Instant {
            self.0 + Duration::from_secs(seconds)
        }
    }

    fn new_peer() -> (Clock, PeerLiveness) {
        let now = Instant::now();
        (Clock(now), PeerLiveness::new(now))
    }

    #[test]
    fn a_silent_peer_is_given_up_one_deadline_after_the_ping() {
        let (clock, peer) = new_peer();
        assert_eq!(peer.given_up_at(clock.at(25), DEADLINE), clock.at(45));
    }

    #[test]
    fn bytes_and_answers_are_signs_of_life() {
        let (clock, mut peer) = new_peer();
        peer.bytes_arrived(clock.at(30));
        assert_eq!(peer.given_up_at(clock.at(25), DEADLINE), clock.at(50));
        peer.ping_answered(false, clock.at(40));
        assert_eq!(peer.given_up_at(clock.at(25), DEADLINE), clock.at(60));
    }

    #[test]
    fn bytes_from_a_peer_that_does_not_read_are_no_sign_of_life() {
        let (clock, mut peer) = new_peer();
        peer.writes_blocked(clock.at(10));
        for second in 11..40 {
            peer.writes_blocked(clock.at(second));
            peer.bytes_arrived(clock.at(second));
        }
        assert_eq!(peer.given_up_at(clock.at(25), DEADLINE), clock.at(45));
        peer.ping_answered(false, clock.at(41));
        assert_eq!(peer.given_up_at(clock.at(25), DEADLINE), clock.at(61), "an answer proves that the peer reads");
    }

    #[test]
    fn a_write_is_a_sign_of_life_only_if_it_was_blocked_before() {
        let (clock, mut peer) = new_peer();
        peer.writes_resumed(clock.at(30));
        assert_eq!(peer.given_up_at(clock.at(25), DEADLINE), clock.at(45));
        peer.writes_blocked(clock.at(30));
        peer.writes_resumed(clock.at(31));
        assert_eq!(peer.given_up_at(clock.at(25), DEADLINE), clock.at(31 + 20 + 3));
    }

    #[test]
    fn a_slow_peer_gets_time_to_read_the_whole_buffer_of_the_kernel() {
        let (clock, mut peer) = new_peer();
        // A third of the buffer took nine seconds, so the whole buffer may take 27.
        peer.writes_blocked(clock.at(1));
        peer.writes_resumed(clock.at(10));
        assert_eq!(peer.given_up_at(clock.at(5), DEADLINE), clock.at(10 + 27 + 20));
        peer.ping_answered(true, clock.at(38));
        assert_eq!(peer.given_up_at(clock.at(60), DEADLINE), clock.at(80), "the peer has caught up");
    }

    #[test]
    fn the_extra_time_for_a_slow_peer_is_limited() {
        let (clock, mut peer) = new_peer();
        peer.writes_blocked(clock.at(0));
        peer.writes_resumed(clock.at(1000));
        assert_eq!(peer.given_up_at(clock.at(1000), DEADLINE), clock.at(1000 + 20 + 60));
    }
}
