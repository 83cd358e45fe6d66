//! Dropping output of one process when the logs of all processes together occupy too much memory. The server knows the total and chooses
//! the processes; this module decides which output each process may lose.

use std::time::Instant;

use super::Delivery;

/// How much memory the logs of all processes occupy, compared with the limit for all of them together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryPressure {
    /// The logs are within the limit.
    Normal,
    /// The logs exceed the limit. A process that waits for a reader does so even if its own log is not full.
    High,
    /// The logs exceed twice the limit. Output of closed processes may be dropped although it is about to be sent.
    Extreme,
}

impl MemoryPressure {
    /// Memory that unacknowledged output of one process may occupy under any pressure. With less, the process would make no progress.
    pub const ALWAYS_ALLOWED_BYTES: usize = 64 << 10;
}

/// Which output may be dropped. The server goes through the steps in this order until the logs are within the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReclaimStep {
    /// Output that the client has acknowledged. A running process keeps `share_bytes` of it (see
    /// [`Delivery::reclaim`]), a closed process nothing.
    Acknowledged,
    /// All output of a closed process whose client was sent every event. While a receipt may still come, the output
    /// is dropped only under extreme pressure.
    SentAndClosed,
    /// Any output beyond the `share_bytes` of the process, unless the process waits for a client that needs the output.
    Anything,
}

/// What [`Delivery::reclaim`] or [`Delivery::discard`] has dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reclaimed {
    /// Bytes of memory that were freed.
    pub bytes: usize,
    /// Bytes of dropped output that no reader has acknowledged.
    pub missed_bytes: u64,
}

impl Delivery {
    /// Drops output to free memory. In the steps `Acknowledged` and `Anything` the process keeps `share_bytes` of
    /// memory.
    pub fn reclaim(
        &mut self,
        step: ReclaimStep,
        share_bytes: usize,
        pressure: MemoryPressure,
        now: Instant,
    ) -> Reclaimed {
        let client = &self.client;
        let kept_bytes = match step {
            ReclaimStep::Acknowledged => {
                let share_bytes = if self.log.is_closed() { 0 } else { share_bytes };
                Some(share_bytes.max(self.log.occupied_by_unacknowledged(client.acknowledged)))
            }
            ReclaimStep::SentAndClosed => {
                let is_sent = self.log.is_closed() && !self.has_unsent_events(client);
                (is_sent && !self.is_needed(pressure, now)).then_some(0)
            }
            ReclaimStep::Anything => (!self.is_needed(pressure, now)).then_some(share_bytes),
        };
        kept_bytes.map_or(Reclaimed { bytes: 0, missed_bytes: 0 }, |bytes| self.shrink_to(bytes))
    }

    /// Drops all output that the log retains, because the process is forgotten. The client misses output only if it
    /// has asked for the events of the process and was not sent all of them.
    pub fn discard(&mut self) -> Reclaimed {
        let is_missed = self.is_requested() && self.has_unsent_events(&self.client);
        let reclaimed = self.shrink_to(0);
        if is_missed { reclaimed } else { Reclaimed { missed_bytes: 0, ..reclaimed } }
    }

    /// Whether the steps `SentAndClosed` and `Anything` must not drop output of this process. A running process that
    /// waits for its client adds no output, so its output stays. The output of a closed process stays while it is being
    /// sent and until its receipt has come, unless the pressure is extreme.
    fn is_needed(&self, pressure: MemoryPressure, now: Instant) -> bool {
        let client = &self.client;
        let is_being_delivered = if self.has_unsent_events(client) {
            !client.is_paused()
        } else {
            self.log.unacknowledged_bytes(client.acknowledged) > 0
        };
        client.makes_process_wait(now)
            && (!self.log.is_closed() || is_being_delivered && pressure != MemoryPressure::Extreme)
    }

    fn shrink_to(&mut self, kept_bytes: usize) -> Reclaimed {
        let safe_bytes = self.dropped_or_acknowledged_bytes();
        let bytes = self.log.shrink_to(kept_bytes);
        Reclaimed { bytes, missed_bytes: self.log.dropped_bytes().saturating_sub(safe_bytes) }
    }
}
