//! Whether the peer of a connection is slow, stalled or gone. Knows no pings and no sockets: the caller says when it asked the
//! peer, what arrived and what the transport took, and is told when to give the peer up.

use std::time::{Duration, Instant};

/// The kernel lets a writer go on when a third of its buffer is free again. A peer that needed a while for that third needs
/// three times as long for the whole buffer, and a ping may be at the end of it.
const THIRDS_OF_A_BUFFER: u32 = 3;

/// How much longer than the deadline a slow peer is waited for, in deadlines: a peer that stops in the middle must be given up
/// some time, however slow it was before.
const LONGEST_ALLOWANCE: u32 = 3;

/// The signs of life of one peer.
#[derive(Debug)]
pub struct PeerLiveness {
    last_sign: Instant,
    /// Since when the transport takes no more bytes; none while it does.
    blocked_since: Option<Instant>,
    /// How long the peer will need for what the transport has taken, at the speed it has shown.
    drain_allowance: Duration,
}

impl PeerLiveness {
    /// A peer that has just connected.
    pub fn new(now: Instant) -> Self {
        Self { last_sign: now, blocked_since: None, drain_allowance: Duration::ZERO }
    }

    /// Bytes came from the peer. While writes are blocked this proves nothing: a peer that sends and never reads would otherwise
    /// keep its answers waiting for ever.
    pub fn bytes_arrived(&mut self, now: Instant) {
        if self.blocked_since.is_none() {
            self.last_sign = now;
        }
    }

    /// The peer answered a ping, so it has read everything up to it. `nothing_is_open`: it was the last ping that waited for an
    /// answer.
    pub fn ping_answered(&mut self, nothing_is_open: bool, now: Instant) {
        self.last_sign = now;
        if nothing_is_open {
            self.drain_allowance = Duration::ZERO;
        }
    }

    /// The transport takes no more bytes for now.
    pub fn writes_blocked(&mut self, now: Instant) {
        self.blocked_since.get_or_insert(now);
    }

    /// The transport takes bytes again, so the peer has taken some. Bytes that are taken without a wait before prove nothing: they
    /// fit into the buffers of this machine.
    pub fn writes_resumed(&mut self, now: Instant) {
        if let Some(since) = self.blocked_since.take() {
            self.last_sign = now;
            self.drain_allowance = now.saturating_duration_since(since).saturating_mul(THIRDS_OF_A_BUFFER);
        }
    }

    /// When a peer that was asked at `asked` is given up if it shows no further sign of life.
    pub fn given_up_at(&self, asked: Instant, deadline: Duration) -> Instant {
        let allowance = self.drain_allowance.min(deadline.saturating_mul(LONGEST_ALLOWANCE));
        asked.max(self.last_sign) + deadline + allowance
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(20);

    /// A moment so many seconds after the peer has connected.
    struct Clock(Instant);

    impl Clock {
        fn at(&self, seconds: u64) -> Instant {
            self.0 + Duration::from_secs(seconds)
        }
    }

    fn connected() -> (Clock, PeerLiveness) {
        let now = Instant::now();
        (Clock(now), PeerLiveness::new(now))
    }

    #[test]
    fn a_silent_peer_is_given_up_one_deadline_after_it_was_asked() {
        let (clock, peer) = connected();
        assert_eq!(peer.given_up_at(clock.at(25), DEADLINE), clock.at(45));
    }

    #[test]
    fn bytes_and_answers_are_signs_of_life() {
        let (clock, mut peer) = connected();
        peer.bytes_arrived(clock.at(30));
        assert_eq!(peer.given_up_at(clock.at(25), DEADLINE), clock.at(50));
        peer.ping_answered(false, clock.at(40));
        assert_eq!(peer.given_up_at(clock.at(25), DEADLINE), clock.at(60));
    }

    #[test]
    fn bytes_of_a_peer_that_reads_nothing_prove_nothing() {
        let (clock, mut peer) = connected();
        peer.writes_blocked(clock.at(10));
        for second in 11..40 {
            peer.writes_blocked(clock.at(second));
            peer.bytes_arrived(clock.at(second));
        }
        assert_eq!(peer.given_up_at(clock.at(25), DEADLINE), clock.at(45));
        peer.ping_answered(false, clock.at(41));
        assert_eq!(peer.given_up_at(clock.at(25), DEADLINE), clock.at(61), "an answer proves that it reads");
    }

    #[test]
    fn a_write_that_goes_on_is_a_sign_of_life_and_one_that_never_waited_is_none() {
        let (clock, mut peer) = connected();
        peer.writes_resumed(clock.at(30));
        assert_eq!(peer.given_up_at(clock.at(25), DEADLINE), clock.at(45));
        peer.writes_blocked(clock.at(30));
        peer.writes_resumed(clock.at(31));
        assert_eq!(peer.given_up_at(clock.at(25), DEADLINE), clock.at(31 + 20 + 3));
    }

    #[test]
    fn a_slow_peer_has_time_for_all_that_the_kernel_holds_until_it_has_answered() {
        let (clock, mut peer) = connected();
        // A third of the buffer took nine seconds, so the rest may take 27.
        peer.writes_blocked(clock.at(1));
        peer.writes_resumed(clock.at(10));
        assert_eq!(peer.given_up_at(clock.at(5), DEADLINE), clock.at(10 + 27 + 20));
        peer.ping_answered(true, clock.at(38));
        assert_eq!(peer.given_up_at(clock.at(60), DEADLINE), clock.at(80), "it has caught up");
    }

    #[test]
    fn however_slow_a_peer_was_it_is_given_up_in_the_end() {
        let (clock, mut peer) = connected();
        peer.writes_blocked(clock.at(0));
        peer.writes_resumed(clock.at(1000));
        assert_eq!(peer.given_up_at(clock.at(1000), DEADLINE), clock.at(1000 + 20 + 60));
    }
}
