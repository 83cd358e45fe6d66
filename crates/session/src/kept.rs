//! Closed processes that a session keeps for as long as its client has asked, so that the client can still read their output. Every closed
//! process is kept for a short time; this value decides which are kept longer, and until when. `P` is a process.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::SingleTimer;

/// The closed processes that are kept, ordered by the time at which they were closed.
#[derive(Debug)]
pub struct KeptProcesses<P> {
    kept: VecDeque<(Instant, P)>,
    limit: usize,
    timer: SingleTimer,
}

impl<P> KeptProcesses<P> {
    /// Keeps at most `limit` processes.
    pub fn new(limit: usize) -> Self {
        Self { kept: VecDeque::new(), limit, timer: SingleTimer::default() }
    }

    /// Keeps a process that was closed at `closed`. Beyond the limit, returns the process that was closed first, which the caller forgets.
    pub fn keep(&mut self, process: P, closed: Instant) -> Option<P> {
        let index = self.kept.partition_point(|(earlier, _)| *earlier <= closed);
        self.kept.insert(index, (closed, process));
        if self.kept.len() > self.limit { self.take_oldest() } else { None }
    }

    /// Removes and returns the process that was closed first.
    pub fn take_oldest(&mut self) -> Option<P> {
        self.kept.pop_front().map(|(_, process)| process)
    }

    /// Removes and returns all processes that were closed `keep` ago or earlier.
    pub fn take_expired(&mut self, keep: Duration, now: Instant) -> Vec<P> {
        let count = self.kept.partition_point(|(closed, _)| *closed + keep <= now);
        self.kept.drain(..count).map(|(_, process)| process).collect()
    }

    /// When the caller must call [`take_expired`](Self::take_expired) next. `None` if nothing is kept, or if the caller has a timer that
    /// fires no later (see [`SingleTimer`]).
    pub fn next_timer(&mut self, keep: Duration, now: Instant) -> Option<Instant> {
        let (closed, _) = self.kept.front()?;
        self.timer.set(*closed + keep, now)
    }

    /// Drops all processes, because the session has ended.
    pub fn clear(&mut self) {
        self.kept = VecDeque::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEEP: Duration = Duration::from_secs(3600);
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn each_process_is_kept_for_the_given_time() {
        let start = Instant::now();
        let mut kept = KeptProcesses::new(8);
        assert_eq!(kept.keep("first", start), None);
        assert_eq!(kept.keep("second", start + SECOND), None);
        assert!(kept.take_expired(KEEP, start + KEEP - Duration::from_nanos(1)).is_empty());
        assert_eq!(kept.take_expired(KEEP, start + KEEP), ["first"]);
        assert_eq!(kept.take_expired(KEEP, start + KEEP + SECOND), ["second"]);
        assert_eq!(kept.take_oldest(), None);
    }

    #[test]
    fn beyond_the_limit_the_process_that_was_closed_first_is_dropped() {
        let start = Instant::now();
        let mut kept = KeptProcesses::new(2);
        assert_eq!(kept.keep("third", start + SECOND * 2), None);
        assert_eq!(kept.keep("first", start), None);
        assert_eq!(kept.keep("second", start + SECOND), Some("first"), "the order of the calls does not matter");
        assert_eq!((kept.take_oldest(), kept.take_oldest()), (Some("second"), Some("third")));
    }

    #[test]
    fn one_timer_is_set_at_a_time() {
        let start = Instant::now();
        let mut kept = KeptProcesses::new(8);
        assert_eq!(kept.next_timer(KEEP, start), None, "no process is kept");
        kept.keep("first", start);
        assert_eq!(kept.next_timer(KEEP, start), Some(start + KEEP));
        kept.keep("second", start + SECOND);
        assert_eq!(kept.next_timer(KEEP, start + SECOND), None);
        let sooner = KEEP / 2;
        assert_eq!(
            kept.next_timer(sooner, start + SECOND),
            Some(start + sooner),
            "the client asks for a shorter time"
        );
        assert_eq!(kept.take_expired(sooner, start + sooner), ["first"]);
        assert_eq!(kept.next_timer(sooner, start + sooner), Some(start + SECOND + sooner));
        assert_eq!(
            kept.next_timer(KEEP, start + sooner),
            None,
            "the client asks for a longer time, so the timer fires early"
        );
        assert_eq!(kept.next_timer(KEEP, start + SECOND + sooner), Some(start + SECOND + KEEP));
    }
}
