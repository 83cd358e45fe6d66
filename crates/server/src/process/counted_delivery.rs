//! The delivery of one process: its event log, and how far each reader of the log has got. The memory of the log is counted against the
//! limit for all processes together (`--retain-total-bytes`).

use std::time::Instant;

use session::{Delivery, MemoryPressure, ReclaimStep, Reclaimed};

use crate::budget::BudgetShare;

/// A delivery with its share of the memory for retained output.
pub(crate) struct CountedDelivery {
    delivery: Delivery,
    /// The bytes of memory that the log occupies.
    retained: BudgetShare,
}

impl CountedDelivery {
    pub(crate) fn new(delivery: Delivery, retained: BudgetShare) -> Self {
        Self { delivery, retained }
    }

    /// Changes the delivery, and then counts the memory that its log occupies.
    pub(super) fn change<T>(&mut self, change: impl FnOnce(&mut Delivery) -> T) -> T {
        let result = change(&mut self.delivery);
        self.retained.set(self.delivery.log().occupied_bytes());
        result
    }

    /// How many bytes of output may be appended now; see [`Delivery::allowed_output_bytes`].
    pub(super) fn allowed_output_bytes(&self) -> usize {
        self.delivery.allowed_output_bytes(self.pressure(), Instant::now())
    }

    /// Drops output to free memory; see [`Delivery::reclaim`]. `step` says which output may be dropped, and
    /// `share_bytes` is an equal part of the limit for all processes. A running process may keep more, because it must
    /// make progress.
    pub(super) fn reclaim(&mut self, step: ReclaimStep, share_bytes: usize) -> Reclaimed {
        let pressure = self.pressure();
        let is_closed = self.delivery.log().is_closed();
        let kept_bytes = if is_closed { share_bytes } else { share_bytes.max(MemoryPressure::ALWAYS_ALLOWED_BYTES) };
        self.change(|delivery| delivery.reclaim(step, kept_bytes, pressure, Instant::now()))
    }

    fn pressure(&self) -> MemoryPressure {
        if self.retained.is_over_twice_limit() {
            MemoryPressure::Extreme
        } else if self.retained.is_over_limit() {
            MemoryPressure::High
        } else {
            MemoryPressure::Normal
        }
    }
}

#[cfg(test)]
mod tests {
    use protocol::Stream;
    use session::{LogLimits, Resend, StartedAs};

    use super::*;
    use crate::budget::Budget;

    /// Resident memory of this test process now.
    fn resident_bytes() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
    }

    #[test]
    fn output_in_single_bytes_is_counted_with_the_memory_that_it_occupies() {
        // With a limit of zero, `excess` returns all bytes that are counted.
        let budget = Budget::new(0);
        let before = resident_bytes();
        let deliveries: Vec<_> = (0..10)
            .map(|_| {
                let delivery = Delivery::new(LogLimits::default(), Resend::Unacknowledged, StartedAs::Followed);
                let mut counted = CountedDelivery::new(delivery, budget.share());
                for number in 0..60_000 {
                    let stream = if number % 2 == 0 { Stream::Stdout } else { Stream::Stderr };
                    counted.change(|delivery| delivery.append(stream, &mut vec![b'x', 0, 0], 1));
                }
                // After a read, each chunk is shared with the answer, which takes a little more memory.
                let reader = session::ConnectionNumber(1);
                let answer = counted.change(|delivery| delivery.read(reader, 0, None, None));
                assert!(answer.page.chunks.len() >= 49_999, "the log retains up to 50,000 chunks");
                counted
            })
            .collect();
        let (grown, counted) = (resident_bytes() - before, budget.excess());
        assert!(counted >= grown / 10 * 9, "{counted} bytes are counted, {grown} are occupied");
        assert!(counted <= grown * 2, "{counted} bytes are counted, {grown} are occupied");
        drop(deliveries);
        assert_eq!(budget.excess(), 0);
    }
}
