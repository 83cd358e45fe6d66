//! Closed processes that a session keeps for as long as its client has asked, so that the client can still read their output. Every closed
//! process is kept for a short time; this value decides which are kept longer, and until when. `P` is a process. The caller says which
//! processes may be forgotten: not those with events that a connected client must still be sent.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::SingleTimer;

/// Shortest interval at which the server checks whether a closed process whose time is over may be forgotten by now.
pub const UNSENT_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The closed processes that are kept, ordered by the time at which they were closed.
#[derive(Debug)]
pub struct KeptProcesses<P> {
    kept: VecDeque<(Instant, P)>,
    limit: usize,
    timer: SingleTimer,
}

impl<P> KeptProcesses<P> {
    /// Keeps at most `limit` processes, not counting those that may not be forgotten.
    pub fn new(limit: usize) -> Self {
        Self { kept: VecDeque::new(), limit, timer: SingleTimer::default() }
    }

    /// Keeps a process that was closed at `closed`. Beyond the limit, returns the process that was closed first of those that may be
    /// forgotten. The caller forgets it.
    pub fn keep(&mut self, process: P, closed: Instant, may_forget: impl Fn(&P) -> bool) -> Option<P> {
        let index = self.kept.partition_point(|(earlier, _)| *earlier <= closed);
        self.kept.insert(index, (closed, process));
        if self.kept.len() > self.limit { self.take_oldest(may_forget) } else { None }
    }

    /// Removes and returns the process that was closed first of those that may be forgotten.
    pub fn take_oldest(&mut self, may_forget: impl Fn(&P) -> bool) -> Option<P> {
        let index = self.kept.iter().position(|(_, process)| may_forget(process))?;
        self.kept.remove(index).map(|(_, process)| process)
    }

    /// Removes and returns all processes that were closed `keep` ago or earlier and may be forgotten.
    pub fn take_expired(&mut self, keep: Duration, now: Instant, may_forget: impl Fn(&P) -> bool) -> Vec<P> {
        let count = self.kept.partition_point(|(closed, _)| *closed + keep <= now);
        let later = self.kept.split_off(count);
        let (expired, needed) = self.kept.drain(..).partition::<Vec<_>, _>(|(_, process)| may_forget(process));
        self.kept = needed.into_iter().chain(later).collect();
        expired.into_iter().map(|(_, process)| process).collect()
    }

    /// When the caller must call [`take_expired`](Self::take_expired) next. `None` if nothing is kept, or if the caller has a timer that
    /// fires no later (see [`SingleTimer`]).
    pub fn next_timer(&mut self, keep: Duration, now: Instant) -> Option<Instant> {
        let (closed, _) = self.kept.front()?;
        let expires = *closed + keep;
        self.timer.set(if expires <= now { now + UNSENT_CHECK_INTERVAL } else { expires }, now)
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

    /// All events of every process were sent.
    fn all(_: &&str) -> bool {
        true
    }

    #[test]
    fn each_process_is_kept_for_the_given_time() {
        let start = Instant::now();
        let mut kept = KeptProcesses::new(8);
        assert_eq!(kept.keep("first", start, all), None);
        assert_eq!(kept.keep("second", start + SECOND, all), None);
        assert!(kept.take_expired(KEEP, start + KEEP - Duration::from_nanos(1), all).is_empty());
        assert_eq!(kept.take_expired(KEEP, start + KEEP, all), ["first"]);
        assert_eq!(kept.take_expired(KEEP, start + KEEP + SECOND, all), ["second"]);
        assert_eq!(kept.take_oldest(all), None);
    }

    #[test]
    fn beyond_the_limit_the_process_that_was_closed_first_is_dropped() {
        let start = Instant::now();
        let mut kept = KeptProcesses::new(2);
        assert_eq!(kept.keep("third", start + SECOND * 2, all), None);
        assert_eq!(kept.keep("first", start, all), None);
        assert_eq!(kept.keep("second", start + SECOND, all), Some("first"), "the order of the calls does not matter");
        assert_eq!((kept.take_oldest(all), kept.take_oldest(all)), (Some("second"), Some("third")));
    }

    #[test]
    fn a_process_with_unsent_events_is_kept_beyond_limit_and_time() {
        let start = Instant::now();
        let mut kept = KeptProcesses::new(1);
        let others = |process: &&str| *process != "unsent";
        assert_eq!(kept.keep("unsent", start, others), None);
        assert_eq!(kept.keep("second", start + SECOND, others), Some("second"));
        assert_eq!(kept.take_oldest(others), None);
        let late = start + KEEP + SECOND;
        kept.keep("later", late, |_| false);
        assert!(kept.take_expired(KEEP, late, others).is_empty());
        assert_eq!(kept.next_timer(KEEP, late), Some(late + UNSENT_CHECK_INTERVAL), "the time is over already");
        assert_eq!(kept.take_expired(KEEP, late, all), ["unsent"]);
        assert_eq!(kept.take_oldest(all), Some("later"));
    }

    #[test]
    fn one_timer_is_set_at_a_time() {
        let start = Instant::now();
        let mut kept = KeptProcesses::new(8);
        assert_eq!(kept.next_timer(KEEP, start), None, "no process is kept");
        kept.keep("first", start, all);
        assert_eq!(kept.next_timer(KEEP, start), Some(start + KEEP));
        kept.keep("second", start + SECOND, all);
        assert_eq!(kept.next_timer(KEEP, start + SECOND), None);
        let sooner = KEEP / 2;
        assert_eq!(
            kept.next_timer(sooner, start + SECOND),
            Some(start + sooner),
            "the client asks for a shorter time"
        );
        assert_eq!(kept.take_expired(sooner, start + sooner, all), ["first"]);
        assert_eq!(kept.next_timer(sooner, start + sooner), Some(start + SECOND + sooner));
        assert_eq!(
            kept.next_timer(KEEP, start + sooner),
            None,
            "the client asks for a longer time, so the timer fires early"
        );
        assert_eq!(kept.next_timer(KEEP, start + SECOND + sooner), Some(start + SECOND + KEEP));
    }
}
