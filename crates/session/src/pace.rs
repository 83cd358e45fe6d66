//! When to let a busy stream gather before it is read again.
//!
//! A process that writes a little all the time, and a reader that takes it all the time, wake each other up for every few
//! kilobytes, and everybody behind them too: most of the machine is then spent on waking. So a stream that is fast and was
//! emptied rests for a moment. One that is slow never does: its output goes out at once.

use std::time::{Duration, Instant};

/// A stream that brings this much within [`WINDOW`] is fast. No person reads that.
const FAST_BYTES: usize = 256 << 10;
/// How far back counts.
const WINDOW: Duration = Duration::from_millis(2);
/// How long a fast stream rests, in which it does not fill the largest pipe.
const REST: Duration = Duration::from_micros(300);

/// How fast a stream has been lately.
#[derive(Debug, Default)]
pub struct Pace {
    window: Option<(Instant, usize)>,
}

impl Pace {
    /// A stream was read until it was empty and brought `bytes`. When to read it next, if not as soon as there is something.
    pub fn emptied(&mut self, bytes: usize, now: Instant) -> Option<Instant> {
        let (since, before) = match self.window {
            Some((since, before)) if now.saturating_duration_since(since) < WINDOW => (since, before),
            _ => (now, 0),
        };
        let brought = before + bytes;
        if brought < FAST_BYTES {
            self.window = Some((since, brought));
            return None;
        }
        // What comes during the rest counts as one read, which shows by itself whether the stream is still fast.
        self.window = None;
        Some(now + REST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1 << 10;

    #[test]
    fn a_slow_stream_never_rests() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        for turn in 0..10_000 {
            let now = start + Duration::from_millis(turn);
            assert_eq!(pace.emptied(64 * KIB, now), None, "64 MiB a second, turn {turn}");
        }
    }

    #[test]
    fn a_burst_does_not_rest_before_it_is_large() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        assert_eq!(pace.emptied(255 * KIB, now), None);
        assert_eq!(pace.emptied(KIB, now), Some(now + REST));
    }

    #[test]
    fn a_fast_stream_rests_again_and_again() {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        for _ in 0..1000 {
            now = pace.emptied(300 * KIB, now).expect("it is fast");
        }
    }

    #[test]
    fn a_stream_that_has_become_slow_is_read_at_once() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        let rested = pace.emptied(1024 * KIB, now).unwrap();
        assert_eq!(pace.emptied(10, rested), None);
        assert_eq!(pace.emptied(10, rested + Duration::from_micros(10)), None);
    }
}
