//! Decides how long we wait after the server was asked to end a process, or to pass a signal on to it. This module
//! knows no server and has no clock: the caller tells it what has happened, and when.

use std::time::Duration;

use tokio::time::Instant;

use crate::commands::signals::FatalSignal;

/// How long a server may take to end a process, or to answer that it has passed a signal on. By default, our server
/// tries for the same time to kill a process before it reports that it cannot.
pub(crate) const END_PATIENCE: Duration = Duration::from_secs(10);

/// The longest wait if the server keeps sending events of the process. Over a slow connection, output from before the
/// end may come for a while. But if the process prints for ever and the server does not end it, we must not wait for
/// ever.
const LONGEST_END_PATIENCE: Duration = Duration::from_secs(60);

/// The reason why the server was asked to end a process, or to pass a signal on to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndReason {
    /// We got this signal, and the server passes it on to the process. The process may ignore the signal, so we wait
    /// only for the answer of the server.
    Passed(FatalSignal),
    /// We got this signal. The server cannot pass it on, so it ends the process instead.
    Replaced(FatalSignal),
    /// The time that `--timeout` gives is over.
    TimeOver,
}

/// The wait for the end of one process, or for the answer that it has got a signal. There is no wait at first.
#[derive(Debug, Default)]
pub(crate) struct EndWait {
    pending: Option<PendingEnd>,
}

#[derive(Clone, Copy, Debug)]
struct PendingEnd {
    reason: EndReason,
    /// When the server was asked, or later, when the reader of our output was last found stuck.
    since: Instant,
    give_up_at: Instant,
}

impl EndWait {
    /// Begins the wait. The caller asks the server to end the process, or to pass a signal on.
    pub(crate) fn begin(&mut self, reason: EndReason, now: Instant) {
        self.pending = Some(PendingEnd { reason, since: now, give_up_at: now + END_PATIENCE });
    }

    /// Handles the answer of the server. If a signal was only passed on, the wait is over; otherwise an exit must
    /// follow.
    pub(crate) fn handle_answer(&mut self) {
        if matches!(self.pending, Some(PendingEnd { reason: EndReason::Passed(_), .. })) {
            self.pending = None;
        }
    }

    /// Handles an event of the process. If there is a wait, the server gets more time, up to
    /// [`LONGEST_END_PATIENCE`].
    pub(crate) fn handle_event(&mut self, now: Instant) {
        if let Some(pending) = &mut self.pending {
            pending.give_up_at = (now + END_PATIENCE).min(pending.since + LONGEST_END_PATIENCE);
        }
    }

    /// Handles that the reader of our output is stuck, which delays the process. If there is a wait, its time begins
    /// again.
    pub(crate) fn handle_stuck_output(&mut self, now: Instant) {
        if let Some(pending) = &mut self.pending {
            *pending = PendingEnd { since: now, give_up_at: now + END_PATIENCE, ..*pending };
        }
    }

    /// The time that the server was given for the whole wait, rounded down to seconds.
    pub(crate) fn patience(&self) -> Duration {
        let given = self.pending.map(|pending| pending.give_up_at - pending.since);
        Duration::from_secs(given.unwrap_or_default().as_secs())
    }

    /// Ends the wait, because the process has exited.
    pub(crate) fn handle_exit(&mut self) {
        self.pending = None;
    }

    /// Whether we wait for an answer or an exit.
    pub(crate) fn is_waiting(&self) -> bool {
        self.pending.is_some()
    }

    /// When to give up the wait; `None` while there is none.
    pub(crate) fn give_up_at(&self) -> Option<Instant> {
        self.pending.map(|pending| pending.give_up_at)
    }

    /// Why the server was asked; `None` while there is no wait.
    pub(crate) fn reason(&self) -> Option<EndReason> {
        self.pending.map(|pending| pending.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::signals::TERMINATE;

    #[test]
    fn the_wait_for_a_signal_that_was_passed_on_ends_with_the_answer() {
        let (mut wait, now) = (EndWait::default(), Instant::now());
        wait.begin(EndReason::Passed(TERMINATE), now);
        assert_eq!(wait.give_up_at(), Some(now + END_PATIENCE));
        wait.handle_answer();
        assert!(!wait.is_waiting());
    }

    #[test]
    fn the_wait_for_a_process_that_the_server_has_to_end_lasts_until_the_exit_and_each_event_prolongs_it() {
        for reason in [EndReason::Replaced(TERMINATE), EndReason::TimeOver] {
            let (mut wait, now) = (EndWait::default(), Instant::now());
            wait.begin(reason, now);
            wait.handle_answer();
            let later = now + Duration::from_secs(3);
            wait.handle_event(later);
            assert_eq!((wait.give_up_at(), wait.reason()), (Some(later + END_PATIENCE), Some(reason)));
            assert_eq!(wait.patience(), Duration::from_secs(13));
            wait.handle_exit();
            assert!(!wait.is_waiting());
        }
    }

    #[test]
    fn a_process_that_keeps_printing_is_given_up_unless_our_own_output_is_stuck() {
        let (mut wait, begun) = (EndWait::default(), Instant::now());
        wait.begin(EndReason::TimeOver, begun);
        let print = |wait: &mut EndWait, seconds: std::ops::Range<u64>| {
            seconds.for_each(|second| wait.handle_event(begun + Duration::from_secs(second)));
        };
        print(&mut wait, 0..3600);
        assert_eq!(wait.give_up_at(), Some(begun + LONGEST_END_PATIENCE));
        let restarted = begun + Duration::from_secs(3600);
        wait.handle_stuck_output(restarted);
        assert_eq!(wait.give_up_at(), Some(restarted + END_PATIENCE));
        print(&mut wait, 3600..7200);
        assert_eq!(wait.give_up_at(), Some(restarted + LONGEST_END_PATIENCE));
    }
}
