//! Decides when a connection pings its peer, and when a silent peer counts as lost. The rules for signs of life are in
//! [`session::PeerLiveness`]; this file only decides when they are checked.

use std::time::{Duration, Instant};

use super::goodbye::FLUSH_PATIENCE;
use crate::config::Config;
use crate::outbound::Outbound;

/// The result of [`PeerTimer::check`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerState {
    /// The connection goes on.
    MayBeAlive,
    /// The peer had a ping to answer or its last messages to read, and has shown no sign of life for too long.
    TimedOut,
}

/// The two deadlines of a connection: its next ping, and the time at which its peer counts as lost.
pub(super) struct PeerTimer<'a> {
    outbound: &'a Outbound,
    ping_interval: Duration,
    pong_deadline: Duration,
    next_ping: Instant,
    /// Bytes that had been received at the last check.
    received_bytes: u64,
    /// When the close frame was queued, at shutdown.
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

    /// The time at which [`Self::check`] is to be called. It may become earlier with each message that is sent.
    pub(super) fn due_at(&self) -> Instant {
        self.given_up_at().map_or(self.next_ping, |at| at.min(self.next_ping))
    }

    pub(super) fn goodbye_is_queued(&self) -> bool {
        self.goodbye_queued_at.is_some()
    }

    /// The close frame was queued. From now on the peer only has to read the last messages, so it counts as lost sooner.
    pub(super) fn note_goodbye(&mut self, now: Instant) {
        self.goodbye_queued_at = Some(now);
    }

    /// Sends a ping if it is due, and checks whether the peer has shown a sign of life in time.
    pub(super) fn check(&mut self, received_bytes: u64, now: Instant) -> PeerState {
        // A peer that is sending a long message cannot answer a ping, but its bytes are a sign of life.
        if received_bytes != self.received_bytes {
            self.received_bytes = received_bytes;
            self.outbound.note_received();
        }
        if self.given_up_at().is_some_and(|at| at <= now) {
            return PeerState::TimedOut;
        }
        if self.next_ping <= now {
            self.next_ping = now + self.ping_interval;
            if self.outbound.framing.supports_ping() {
                self.outbound.ping();
            }
        }
        PeerState::MayBeAlive
    }

    /// The time at which the peer counts as lost. None: the peer owes no sign of life now.
    fn given_up_at(&self) -> Option<Instant> {
        match self.goodbye_queued_at {
            Some(at) => Some(self.outbound.given_up_if_silent_since(at, FLUSH_PATIENCE)),
            None => self.outbound.given_up_at(self.pong_deadline),
        }
    }
}
