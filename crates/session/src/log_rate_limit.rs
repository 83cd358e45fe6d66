//! Limits the log lines about an event that an unknown peer can cause as often as it likes. The value writes no lines itself.

use std::time::{Duration, Instant};

/// Allows a number of log lines in each period, and counts the events for which no line was written.
#[derive(Debug)]
pub struct LogRateLimit {
    lines: u32,
    period: Duration,
    period_began: Option<Instant>,
    /// Lines that were written in this period.
    written: u32,
    /// Events since the last line.
    left_out: u64,
}

impl LogRateLimit {
    /// Allows at most `lines` lines in each period of length `period`.
    pub const fn new(lines: u32, period: Duration) -> Self {
        Self { lines, period, period_began: None, written: 0, left_out: 0 }
    }

    /// The event has happened. `None` if no line may be written about it. Otherwise returns for how many events since the last line no line
    /// was written.
    pub fn handle_event(&mut self, now: Instant) -> Option<u64> {
        if self.period_began.is_none_or(|began| now.saturating_duration_since(began) >= self.period) {
            (self.period_began, self.written) = (Some(now), 0);
        }
        if self.written == self.lines {
            self.left_out += 1;
            return None;
        }
        self.written += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_limit_are_counted() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut limit = LogRateLimit::new(2, Duration::from_secs(10));
        assert_eq!([0, 0, 1, 9].map(|second| limit.handle_event(at(second))), [Some(0), Some(0), None, None]);
        assert_eq!([10, 11, 12].map(|second| limit.handle_event(at(second))), [Some(2), Some(0), None]);
        assert_eq!(limit.handle_event(at(100)), Some(1));
    }
}
