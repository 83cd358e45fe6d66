//! How long we wait for the end of a process after the server was asked to end it. It knows no server and has no clock: its methods are told
//! what happened, and when.

use std::time::Duration;

use tokio::time::Instant;

use crate::commands::signals::FatalSignal;

/// How long a server may take to end a process, or to answer that it has passed a signal on. Our server gives up on a process that cannot be
/// killed after the same time.
pub(crate) const END_PATIENCE: Duration = Duration::from_secs(10);

/// The longest wait if the server keeps sending events of the process. Over a slow connection, output from before the end may come for a
/// while, but a server that does not end a process that prints for ever must not keep us.
const LONGEST_END_PATIENCE: Duration = Duration::from_secs(60);

/// Why the server was asked to end a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndReason {
    /// The process gets the signal that we got. The process may ignore the signal, so we wait only for the answer of the server.
    Passed(FatalSignal),
    /// The server cannot pass this signal on and ends the process instead.
    Replaced(FatalSignal),
    /// The time that `--timeout` gives is over.
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
    /// When the server was asked, or when our own stuck output last delayed the process.
    since: Instant,
    give_up_at: Instant,
}

impl EndWait {
    /// The server is asked to end the process, or to pass a signal on.
    pub(crate) fn ask(&mut self, reason: EndReason, now: Instant) {
        self.pending = Some(PendingEnd { reason, since: now, give_up_at: now + END_PATIENCE });
    }

    /// The server has answered. An exit must follow, unless the signal was only passed on.
    pub(crate) fn handle_answer(&mut self) {
        if matches!(self.pending, Some(PendingEnd { reason: EndReason::Passed(_), .. })) {
            self.pending = None;
        }
    }

    /// An event of the process has come: the server gets more time, up to a limit.
    pub(crate) fn renew(&mut self, now: Instant) {
        if let Some(pending) = &mut self.pending {
            pending.give_up_at = (now + END_PATIENCE).min(pending.since + LONGEST_END_PATIENCE);
        }
    }

    /// The reader of our output is stuck, which delays the process: the server gets the whole time again.
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
    fn a_signal_that_was_passed_on_is_done_with_its_answer() {
        let (mut wait, now) = (EndWait::default(), Instant::now());
        wait.ask(EndReason::Passed(TERMINATE), now);
        assert_eq!(wait.give_up_at(), Some(now + END_PATIENCE));
        wait.handle_answer();
        assert!(!wait.is_waiting());
    }

    #[test]
    fn a_process_that_the_server_was_to_end_is_waited_for_until_it_exits() {
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
    fn a_process_that_keeps_printing_is_given_up_unless_our_own_output_is_stuck() {
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
