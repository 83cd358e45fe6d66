//! When a connection pings its peer, and when it gives up a peer that is silent. The rules for signs of life are in
//! [`session::PeerLiveness`]; this file only says when to look at them.

use std::time::{Duration, Instant};

use super::goodbye::FLUSH_PATIENCE;
use crate::config::Config;
use crate::outbound::Outbound;

/// Whether a connection goes on after a look at its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerState {
    MayBeThere,
    /// The peer was asked, and has shown no sign of life for too long.
    GivenUp,
}

/// The two deadlines of a connection: its next ping, and the moment at which its peer is given up.
pub(super) struct PeerTimer<'a> {
    outbound: &'a Outbound,
    ping_interval: Duration,
    pong_deadline: Duration,
    next_ping: Instant,
    /// Bytes that had been received at the last look.
    received_bytes: u64,
    /// At shutdown: when the goodbye was queued behind everything that is still to be sent.
    goodbye_queued_at: Option<Instant>,
}

impl<'a> PeerTimer<'a> {
    pub(super) fn new(outbound: &'a Outbound, config: &Config, received_bytes: u64) -> Self {
        Self {
            outbound,
            ping_interval: config.ping_interval,
            pong_deadline: config.pong_deadline,
            next_ping: Instant::now() + config.ping_interval,
            received_bytes,
            goodbye_queued_at: None,
        }
    }

    /// When [`Self::check`] is to be called. May become earlier with each message that is sent.
    pub(super) fn due_at(&self) -> Instant {
        self.given_up_at().map_or(self.next_ping, |at| at.min(self.next_ping))
    }

    pub(super) fn goodbye_is_queued(&self) -> bool {
        self.goodbye_queued_at.is_some()
    }

    /// From now on the peer only has to read what is left, so it is given up sooner.
    pub(super) fn note_goodbye(&mut self, now: Instant) {
        self.goodbye_queued_at = Some(now);
    }

    /// Sends a ping if it is time for one, and says whether the peer is still waited for.
    pub(super) fn check(&mut self, received_bytes: u64, now: Instant) -> PeerState {
        // A peer in the middle of a long message cannot answer a ping, but it is there.
        if received_bytes != self.received_bytes {
            self.received_bytes = received_bytes;
            self.outbound.note_received();
        }
        if self.given_up_at().is_some_and(|at| at <= now) {
            return PeerState::GivenUp;
        }
        if self.next_ping <= now {
            self.next_ping = now + self.ping_interval;
            if self.outbound.framing.supports_ping() {
                self.outbound.ping();
            }
        }
        PeerState::MayBeThere
    }

    fn given_up_at(&self) -> Option<Instant> {
        match self.goodbye_queued_at {
            Some(at) => Some(self.outbound.given_up_since(at, FLUSH_PATIENCE)),
            None => self.outbound.given_up_at(self.pong_deadline),
        }
    }
}
