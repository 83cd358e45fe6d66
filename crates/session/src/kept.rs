//! Closed processes of a session that its client wants to find again: which of them stay, and for how long.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::NextLook;

/// Closed processes that are kept beyond the time every closed process has, the one that closed first in front.
#[derive(Debug)]
pub struct KeptProcesses<P> {
    kept: VecDeque<(Instant, P)>,
    limit: usize,
    look: NextLook,
}

impl<P> KeptProcesses<P> {
    /// Keeps at most `limit` of them.
    pub fn new(limit: usize) -> Self {
        Self { kept: VecDeque::new(), limit, look: NextLook::default() }
    }

    /// Keeps one that closed at `closed`. Returns the one that has to go for it.
    pub fn keep(&mut self, process: P, closed: Instant) -> Option<P> {
        let place = self.kept.partition_point(|(earlier, _)| *earlier <= closed);
        self.kept.insert(place, (closed, process));
        if self.kept.len() > self.limit { self.take_oldest() } else { None }
    }

    /// The one that closed first has to go.
    pub fn take_oldest(&mut self) -> Option<P> {
        self.kept.pop_front().map(|(_, process)| process)
    }

    /// Those that closed `keep` ago or earlier have to go.
    pub fn take_expired(&mut self, keep: Duration, now: Instant) -> Vec<P> {
        let count = self.kept.partition_point(|(closed, _)| *closed + keep <= now);
        self.kept.drain(..count).map(|(_, process)| process).collect()
    }

    /// When the caller must look again, unless it does so anyway.
    pub fn next_look(&mut self, keep: Duration, now: Instant) -> Option<Instant> {
        let (closed, _) = self.kept.front()?;
        self.look.ask(*closed + keep, now)
    }

    /// The session is over.
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
    fn each_is_kept_for_its_time() {
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
    fn beyond_the_limit_the_one_that_closed_first_goes() {
        let start = Instant::now();
        let mut kept = KeptProcesses::new(2);
        assert_eq!(kept.keep("third", start + SECOND * 2), None);
        assert_eq!(kept.keep("first", start), None);
        assert_eq!(kept.keep("second", start + SECOND), Some("first"), "whatever order they are handed over in");
        assert_eq!((kept.take_oldest(), kept.take_oldest()), (Some("second"), Some("third")));
    }

    #[test]
    fn one_look_is_asked_for_at_a_time() {
        let start = Instant::now();
        let mut kept = KeptProcesses::new(8);
        assert_eq!(kept.next_look(KEEP, start), None, "nothing is kept");
        kept.keep("first", start);
        assert_eq!(kept.next_look(KEEP, start), Some(start + KEEP));
        kept.keep("second", start + SECOND);
        assert_eq!(kept.next_look(KEEP, start + SECOND), None);
        let sooner = KEEP / 2;
        assert_eq!(kept.next_look(sooner, start + SECOND), Some(start + sooner), "the client wants less");
        assert_eq!(kept.take_expired(sooner, start + sooner), ["first"]);
        assert_eq!(kept.next_look(sooner, start + sooner), Some(start + SECOND + sooner));
        assert_eq!(kept.next_look(KEEP, start + sooner), None, "the client wants more: the look comes early");
        assert_eq!(kept.next_look(KEEP, start + SECOND + sooner), Some(start + SECOND + KEEP));
    }
}
