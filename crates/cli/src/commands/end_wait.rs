//! How long we wait for a process that the server was asked to end. It knows no server and no clock: what happens is told, with the time.

use std::time::Duration;

use tokio::time::Instant;

use super::signals::Deadly;

/// How long a server may take to end a process, or to answer that it has passed a signal on. As long as ours needs until it gives up on a
/// process that cannot be killed.
pub(crate) const END_PATIENCE: Duration = Duration::from_secs(10);

/// How long a server may take at most while it goes on to send events of the process. Output from before the end may come for a while over
/// a slow connection, but a server that does not end a process which prints for ever must not keep us.
const LONGEST_END_PATIENCE: Duration = Duration::from_secs(60);

/// Why a process is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndReason {
    /// The process gets the same signal as we did. Whether it ends is its own affair; only the answer is waited for.
    Passed(Deadly),
    /// The server cannot pass this signal on and ends the process instead.
    Replaced(Deadly),
    /// Its time is over.
    TimeOver,
}

/// The wait for the end of one process.
#[derive(Debug, Default)]
pub(crate) struct EndWait {
    pending: Option<PendingEnd>,
}

#[derive(Clone, Copy, Debug)]
struct PendingEnd {
    reason: EndReason,
    /// When the server was asked, or when our own output held the process up last.
    since: Instant,
    give_up_at: Instant,
}

impl EndWait {
    /// The server is asked to end the process, or to pass a signal on.
    pub(crate) fn ask(&mut self, reason: EndReason, now: Instant) {
        self.pending = Some(PendingEnd { reason, since: now, give_up_at: now + END_PATIENCE });
    }

    /// The server has answered. After that an exit must follow, unless the signal was only passed on.
    pub(crate) fn handle_answer(&mut self) {
        if matches!(self.pending, Some(PendingEnd { reason: EndReason::Passed(_), .. })) {
            self.pending = None;
        }
    }

    /// Something was heard of the process: the server gets more time, up to a limit.
    pub(crate) fn renew(&mut self, now: Instant) {
        if let Some(pending) = &mut self.pending {
            pending.give_up_at = (now + END_PATIENCE).min(pending.since + LONGEST_END_PATIENCE);
        }
    }

    /// Our own output holds the process up: the server gets the whole time again.
    pub(crate) fn hold_up(&mut self, now: Instant) {
        if let Some(pending) = &mut self.pending {
            *pending = PendingEnd { since: now, give_up_at: now + END_PATIENCE, ..*pending };
        }
    }

    /// How long the server was given, in whole seconds.
    pub(crate) fn patience(&self) -> Duration {
        let given = self.pending.map(|pending| pending.give_up_at - pending.since);
        Duration::from_secs(given.unwrap_or_default().as_secs())
    }

    /// The process has exited.
    pub(crate) fn handle_exit(&mut self) {
        self.pending = None;
    }

    /// Whether the server still owes us something.
    pub(crate) fn is_waiting(&self) -> bool {
        self.pending.is_some()
    }

    /// When to give up, unless something happens before.
    pub(crate) fn give_up_at(&self) -> Option<Instant> {
        self.pending.map(|pending| pending.give_up_at)
    }

    /// Why the process was to end.
    pub(crate) fn reason(&self) -> Option<EndReason> {
        self.pending.map(|pending| pending.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::super::signals::TERMINATE;
    use super::*;

    #[test]
    fn a_signal_that_was_passed_on_is_done_with_its_answer() {
        let (mut wait, now) = (EndWait::default(), Instant::now());
        wait.ask(EndReason::Passed(TERMINATE), now);
        assert_eq!(wait.give_up_at(), Some(now + END_PATIENCE));
        wait.handle_answer();
        assert!(!wait.is_waiting());
    }

    #[test]
    fn a_process_that_was_to_be_ended_is_waited_for_until_it_exits() {
        for reason in [EndReason::Replaced(TERMINATE), EndReason::TimeOver] {
            let (mut wait, now) = (EndWait::default(), Instant::now());
            wait.ask(reason, now);
            wait.handle_answer();
            let later = now + Duration::from_secs(3);
            wait.renew(later);
            assert_eq!((wait.give_up_at(), wait.reason()), (Some(later + END_PATIENCE), Some(reason)));
            assert_eq!(wait.patience(), Duration::from_secs(13));
            wait.handle_exit();
            assert!(!wait.is_waiting());
        }
    }

    #[test]
    fn a_process_that_prints_on_is_given_up_unless_we_hold_it_up_ourselves() {
        let (mut wait, begun) = (EndWait::default(), Instant::now());
        wait.ask(EndReason::TimeOver, begun);
        let print = |wait: &mut EndWait, seconds: std::ops::Range<u64>| {
            seconds.for_each(|second| wait.renew(begun + Duration::from_secs(second)));
        };
        print(&mut wait, 0..3600);
        assert_eq!(wait.give_up_at(), Some(begun + LONGEST_END_PATIENCE));
        let held_up = begun + Duration::from_secs(3600);
        wait.hold_up(held_up);
        assert_eq!(wait.give_up_at(), Some(held_up + END_PATIENCE));
        print(&mut wait, 3600..7200);
        assert_eq!(wait.give_up_at(), Some(held_up + LONGEST_END_PATIENCE));
    }
}
