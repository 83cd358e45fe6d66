//! When somebody must look again at a thing whose time may still change. One look is under way at a time, however often
//! the time changes, so that looks far in the future do not pile up.

use std::time::Instant;

/// The next look that is under way.
#[derive(Clone, Copy, Debug, Default)]
pub struct NextLook(Option<Instant>);

impl NextLook {
    /// Something is due. Returns when to look for it, unless a look is under way that is not later; whoever looks too
    /// early asks again.
    pub fn ask(&mut self, due: Instant, now: Instant) -> Option<Instant> {
        if self.0.is_some_and(|look| now < look && look <= due) {
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
    fn one_look_is_under_way_at_a_time() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut look = NextLook::default();
        assert_eq!(look.ask(at(10), at(0)), Some(at(10)));
        assert_eq!(look.ask(at(12), at(2)), None, "it comes early and asks again");
        assert_eq!(look.ask(at(5), at(2)), Some(at(5)), "it would come too late");
        assert_eq!(look.ask(at(12), at(5)), Some(at(12)), "it has come");
    }
}
