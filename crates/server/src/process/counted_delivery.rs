//! The delivery of one process, with the memory of its log counted against what all processes may retain together.

use std::time::Instant;

use session::{Delivery, MemoryPressure, ReclaimStep, Reclaimed};

use crate::budget::BudgetShare;

pub(crate) struct CountedDelivery {
    delivery: Delivery,
    retained: BudgetShare,
}

impl CountedDelivery {
    pub(crate) fn new(delivery: Delivery, retained: BudgetShare) -> Self {
        Self { delivery, retained }
    }

    /// Changes the delivery, and counts what its log holds afterwards.
    pub(super) fn change<T>(&mut self, change: impl FnOnce(&mut Delivery) -> T) -> T {
        let result = change(&mut self.delivery);
        self.retained.set(self.delivery.log().occupied_bytes());
        result
    }

    pub(super) fn room(&self) -> usize {
        self.delivery.room(self.pressure(), Instant::now())
    }

    pub(super) fn reclaim(&mut self, step: ReclaimStep, share: usize) -> Reclaimed {
        let pressure = self.pressure();
        self.change(|delivery| delivery.reclaim(step, share, pressure, Instant::now()))
    }

    fn pressure(&self) -> MemoryPressure {
        if self.retained.is_exhausted() {
            MemoryPressure::Extreme
        } else if self.retained.is_tight() {
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

    /// Bytes of memory that this test has now.
    fn resident_bytes() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
    }

    #[test]
    fn output_in_single_bytes_is_counted_with_the_memory_that_it_occupies() {
        // With a limit of zero, everything that is held is excess.
        let budget = Budget::new(0);
        let before = resident_bytes();
        let deliveries: Vec<_> = (0..10)
            .map(|_| {
                let delivery = Delivery::new(LogLimits::default(), Resend::Unacknowledged, StartedAs::Followed);
                let mut counted = CountedDelivery::new(delivery, budget.account());
                for turn in 0..60_000 {
                    let stream = if turn % 2 == 0 { Stream::Stdout } else { Stream::Stderr };
                    counted.change(|delivery| delivery.append(stream, &mut vec![b'x', 0, 0], 1));
                }
                // A read makes each chunk shared, which takes a little more memory.
                let reader = session::ConnectionNumber(1);
                let answer = counted.change(|delivery| delivery.read(reader, 0, None, None));
                assert!(answer.page.chunks.len() >= 49_999);
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
