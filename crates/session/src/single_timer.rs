//! A timer whose deadline may move while the timer is in the heap of the janitor, the server's task for delayed work.
//! A deadline that moves to a later time adds no timer to the heap, so that timers do not pile up there: the old
//! timer fires before the deadline, and then a new timer is set. Only a deadline that moves to an earlier time adds a
//! timer at once.

use std::time::Instant;

/// The time at which the timer fires that was put into the heap last. By default there is no timer.
#[derive(Clone, Copy, Debug, Default)]
pub struct SingleTimer(Option<Instant>);

impl SingleTimer {
    /// The deadline is `due` from now on. Returns the time at which a new timer must fire, which the caller puts into
    /// the heap. `None` if the timer in the heap fires no later than `due`. When a timer fires before the deadline,
    /// the caller calls this again.
    pub fn set(&mut self, due: Instant, now: Instant) -> Option<Instant> {
        if self.0.is_some_and(|fires| now < fires && fires <= due) {
            return None;
        }
        self.0 = Some(due);
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_timer_is_set_only_if_none_fires_early_enough() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut timer = SingleTimer::default();
        assert_eq!(timer.set(at(10), at(0)), Some(at(10)));
        assert_eq!(timer.set(at(12), at(2)), None, "the timer fires early and is set again then");
        assert_eq!(timer.set(at(5), at(2)), Some(at(5)), "the timer would fire too late");
        assert_eq!(timer.set(at(12), at(5)), Some(at(12)), "the timer has fired");
    }
}
