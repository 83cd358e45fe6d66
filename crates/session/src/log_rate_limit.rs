//! How many lines a log gets of an event that strangers can cause as often as they like. It writes nothing itself.

use std::time::{Duration, Instant};

/// Lets a few lines through in each stretch of time and counts the rest.
#[derive(Debug)]
pub struct LogBound {
    lines: u32,
    per: Duration,
    began: Option<Instant>,
    written: u32,
    left_out: u64,
}

impl LogBound {
    /// At most `lines` lines in each stretch of `per`.
    pub const fn new(lines: u32, per: Duration) -> Self {
        Self { lines, per, began: None, written: 0, left_out: 0 }
    }

    /// The event has happened. Returns how many earlier ones were left out if a line may be written now, or `None` if this one is left out
    /// as well.
    pub fn handle_event(&mut self, now: Instant) -> Option<u64> {
        if self.began.is_none_or(|began| now.saturating_duration_since(began) >= self.per) {
            (self.began, self.written) = (Some(now), 0);
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
    fn a_flood_is_a_few_lines_and_a_number() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut bound = LogBound::new(2, Duration::from_secs(10));
        assert_eq!([0, 0, 1, 9].map(|second| bound.handle_event(at(second))), [Some(0), Some(0), None, None]);
        assert_eq!([10, 11, 12].map(|second| bound.handle_event(at(second))), [Some(2), Some(0), None]);
        assert_eq!(bound.handle_event(at(100)), Some(1));
    }
}
