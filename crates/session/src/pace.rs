//! Decides when the server waits before it reads a fast stream of a process again.
//!
//! If a process writes and the server reads without a pause, they wake each other up for every few kilobytes, and so do all tasks on
//! the way to the client: most of the CPU time goes into wake-ups. So after a fast stream was emptied, the server waits for a moment
//! before it reads that stream again. A slow stream is never delayed.

use std::time::{Duration, Instant};

/// A stream that brings this many bytes within [`WINDOW`] is fast: 128 MiB a second, far more than a person reads.
const FAST_BYTES: usize = 256 << 10;
/// The time over which bytes are counted.
const WINDOW: Duration = Duration::from_millis(2);
/// How long the server waits before it reads a fast stream again. A process that writes 3 GB a second does not fill a
/// pipe of 1 MiB, the size that the server sets for fast streams, within this time.
const PAUSE: Duration = Duration::from_micros(300);

/// The recent speed of one stream.
#[derive(Debug, Default)]
pub struct Pace {
    /// When the current window began, and how many bytes were read since. `None` if no window has begun.
    window: Option<(Instant, usize)>,
}

impl Pace {
    /// The stream was read until it was empty, and `bytes` were read. Returns the time before which the stream must not be read again.
    /// `None` if it may be read as soon as it has output.
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
        // After the pause, the output of the whole pause is read at once. Its amount shows whether the stream is still fast, so earlier
        // reads no longer count.
        self.window = None;
        Some(now + PAUSE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1 << 10;

    #[test]
    fn a_slow_stream_is_never_delayed() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        for millisecond in 0..10_000 {
            let now = start + Duration::from_millis(millisecond);
            assert_eq!(pace.emptied(64 * KIB, now), None, "64 MiB a second, after {millisecond} ms");
        }
    }

    #[test]
    fn a_burst_is_delayed_only_when_it_is_large() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        assert_eq!(pace.emptied(255 * KIB, now), None);
        assert_eq!(pace.emptied(KIB, now), Some(now + PAUSE));
    }

    #[test]
    fn a_fast_stream_is_delayed_after_every_read() {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        for _ in 0..1000 {
            now = pace.emptied(300 * KIB, now).expect("the stream is fast");
        }
    }

    #[test]
    fn a_stream_that_has_become_slow_is_not_delayed() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        let after_pause = pace.emptied(1024 * KIB, now).unwrap();
        assert_eq!(pace.emptied(10, after_pause), None);
        assert_eq!(pace.emptied(10, after_pause + Duration::from_micros(10)), None);
    }
}
