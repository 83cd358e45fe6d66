//! What a hunt decides after each pass: whether it is finished, which signal the next pass sends, and when it gives up. A hunt kills or
//! signals all processes in a [`Scope`]; these processes are its *members*. The values here make no system calls; `pass` fills in the
//! [`PassFindings`]. Start with [`Hunt::decide`].

use std::collections::HashSet;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::error::{SurvivalReason, Survivors};
use crate::membership::CensusProcess;
use crate::orphaned_sessions::OrphanedSessions;
use crate::tag::{Scope, ServerInstance};

/// An ordinary tree is gone after two passes. If the pass with this number, or a later one, still finds new
/// processes, the tree forks faster than it is killed, and the hunt stops the whole tree (`SIGSTOP`) before it kills
/// it.
const PASSES_BEFORE_STOPPING: usize = 3;

/// No hunt times out before its second pass, however long a pass takes on a busy machine: only the second pass can see that the processes
/// which the first pass has killed are gone.
const MIN_PASSES: usize = 2;

/// What a hunt does with the processes in its scope.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HuntPurpose {
    /// Kill them, and any new ones, until none is left. The timeout starts with the first pass.
    Kill { timeout: Duration },
    /// Signal those that the first successful pass finds.
    Signal(Signal),
}

/// The state of one hunt. Its scope is one tree, all trees of a client's session, or all trees of a server.
pub(crate) struct Hunt {
    pub(super) scope: Scope,
    purpose: HuntPurpose,
    stage: HuntStage,
    pub(super) orphaned_sessions: OrphanedSessions,
    /// Other servers that run inside the tree. Their processes are members too.
    pub(super) nested_servers: HashSet<ServerInstance>,
    /// Members that earlier passes have signalled.
    signalled_before: HashSet<Pid>,
    /// How many passes have begun, failed ones included.
    passes_begun: usize,
    /// How many passes have succeeded in listing all processes.
    passes_completed: usize,
    /// None before the first pass, and for signals.
    deadline: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HuntStage {
    /// Members get `SIGKILL`. `passes` counts the passes since the hunt began or its tree was stopped.
    Killing { passes: usize },
    /// Members get `SIGSTOP`, until a pass finds all of them stopped and no new one. From then on none of them can fork.
    /// After the timeout, the hunt kills them without waiting for that.
    Stopping,
}

/// What one pass has found and done for one hunt.
#[derive(Default)]
pub(super) struct PassFindings {
    /// Members that had not ended when the processes were listed.
    pub(super) alive: Vec<CensusProcess>,
    /// Members that this user may not signal.
    pub(super) refused: HashSet<Pid>,
    pub(super) signalled: HashSet<Pid>,
    /// More processes may be left than this pass has signalled, so the hunt must not end with it.
    pub(super) is_incomplete: bool,
}

/// What happens to a hunt after a pass.
#[derive(Debug)]
pub(super) enum Decision {
    /// Another pass is needed.
    Continue,
    Finish(Result<(), Survivors>),
}

impl Hunt {
    pub(crate) fn new(scope: Scope, purpose: HuntPurpose) -> Self {
        Self {
            scope,
            purpose,
            stage: HuntStage::Killing { passes: 0 },
            orphaned_sessions: OrphanedSessions::default(),
            nested_servers: HashSet::new(),
            signalled_before: HashSet::new(),
            passes_begun: 0,
            passes_completed: 0,
            deadline: None,
        }
    }

    /// All processes in `orphaned_sessions` are members too. These are kernel sessions (`setsid`) of a server that
    /// has ended.
    pub(super) fn with_orphaned_sessions(self, orphaned_sessions: OrphanedSessions) -> Self {
        Self { orphaned_sessions, ..self }
    }

    /// A pass begins. The first one starts the timeout, so that waiting in the queue does not count.
    pub(super) fn begin_pass(&mut self, now: Instant) {
        if let (None, HuntPurpose::Kill { timeout }) = (self.deadline, self.purpose) {
            self.deadline = Some(now + timeout);
        }
        self.passes_begun += 1;
    }

    /// Whether no pass of this hunt has listed all processes yet.
    pub(super) fn is_new(&self) -> bool {
        self.passes_completed == 0
    }

    /// The hunt gives up after this time; see [`Self::has_timed_out`]. None before the first pass, and for signals.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// The signal that the members get in the current pass.
    pub(super) fn signal(&self) -> Signal {
        match (self.purpose, self.stage) {
            (HuntPurpose::Signal(signal), _) => signal,
            (HuntPurpose::Kill { .. }, HuntStage::Killing { .. }) => Signal::KILL,
            (HuntPurpose::Kill { .. }, HuntStage::Stopping) => Signal::STOP,
        }
    }

    pub(super) fn is_kill(&self) -> bool {
        matches!(self.purpose, HuntPurpose::Kill { .. })
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stage == HuntStage::Stopping
    }

    /// Whether the hunt must give up. A hunt that only signals has no deadline: it tries again if its first pass
    /// fails, and gives up if the second pass fails too.
    pub(super) fn has_timed_out(&self, now: Instant) -> bool {
        self.passes_begun >= MIN_PASSES && self.deadline.is_none_or(|deadline| now >= deadline)
    }

    /// Decides after a pass that has listed all processes. If the hunt goes on, this sets the stage of the next pass.
    pub(super) fn decide(&mut self, findings: &PassFindings, now: Instant) -> Decision {
        self.passes_completed += 1;
        let newly_signalled = findings.signalled.iter().filter(|pid| self.signalled_before.insert(**pid)).count();
        if !self.is_kill() {
            return Decision::Finish(Ok(()));
        }
        match &mut self.stage {
            HuntStage::Stopping => {
                let all_stopped =
                    newly_signalled == 0 && findings.alive.iter().all(|process| process.stat.is_stopped());
                if all_stopped || self.has_timed_out(now) {
                    self.stage = HuntStage::Killing { passes: 0 };
                }
                Decision::Continue
            }
            HuntStage::Killing { passes } => {
                *passes += 1;
                let is_forking = *passes >= PASSES_BEFORE_STOPPING && newly_signalled > 0;
                if findings.is_clear() {
                    return Decision::Finish(Ok(()));
                }
                if findings.only_refused_are_left() {
                    return Decision::Finish(Err(findings.survivors(SurvivalReason::NotPermitted)));
                }
                if self.has_timed_out(now) {
                    return Decision::Finish(Err(findings.survivors(SurvivalReason::TimedOut)));
                }
                if is_forking {
                    self.stage = HuntStage::Stopping;
                }
                Decision::Continue
            }
        }
    }
}

impl PassFindings {
    /// Whether no member is left. A member that was signalled may have forked before it ended, and only the next pass can find the new
    /// process.
    fn is_clear(&self) -> bool {
        self.alive.is_empty() && self.signalled.is_empty() && !self.is_incomplete
    }

    /// Whether this user may signal none of the members that are left.
    fn only_refused_are_left(&self) -> bool {
        self.signalled.is_empty()
            && !self.alive.is_empty()
            && self.alive.iter().all(|process| self.refused.contains(&process.pid))
    }

    /// Reports the members that are alive. If there are none, reports those that were signalled, because they may have forked before they
    /// ended.
    fn survivors(&self, reason: SurvivalReason) -> Survivors {
        let alive: Vec<Pid> = self.alive.iter().map(|process| process.pid).collect();
        let left = if alive.is_empty() { self.signalled.iter().copied().collect() } else { alive };
        Survivors { pids: left.iter().map(|pid| pid.as_raw_nonzero().get().unsigned_abs()).collect(), reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procfs::Stat;
    use crate::tag::ServerInstance;

    const TIMEOUT: Duration = Duration::from_secs(10);

    fn kill_hunt() -> Hunt {
        let everything = Scope::Everything(ServerInstance::unused(&HashSet::new()));
        Hunt::new(everything, HuntPurpose::Kill { timeout: TIMEOUT })
    }

    fn pid(number: i32) -> Pid {
        Pid::from_raw(number).unwrap()
    }

    fn process(number: i32, state: u8) -> CensusProcess {
        CensusProcess { pid: pid(number), tag: None, stat: Stat { state, ..Stat::running(1, number) } }
    }

    /// The findings of a pass that has signalled these processes. `state` is their state letter in `/proc`, such as
    /// `T` for stopped.
    fn findings(state: u8, numbers: &[i32]) -> PassFindings {
        PassFindings {
            alive: numbers.iter().map(|number| process(*number, state)).collect(),
            signalled: numbers.iter().map(|number| pid(*number)).collect(),
            ..PassFindings::default()
        }
    }

    fn run_pass(hunt: &mut Hunt, now: Instant, findings: &PassFindings) -> Decision {
        hunt.begin_pass(now);
        hunt.decide(findings, now)
    }

    #[test]
    fn a_hunt_ends_when_a_complete_pass_finds_nothing() {
        let now = Instant::now();
        let mut hunt = kill_hunt();
        assert!(matches!(run_pass(&mut hunt, now, &findings(b'S', &[20, 21])), Decision::Continue));
        let incomplete = PassFindings { is_incomplete: true, ..PassFindings::default() };
        assert!(matches!(run_pass(&mut hunt, now, &incomplete), Decision::Continue));
        assert!(matches!(run_pass(&mut hunt, now, &PassFindings::default()), Decision::Finish(Ok(()))));
    }

    #[test]
    fn a_signal_is_sent_in_one_pass() {
        let everything = Scope::Everything(ServerInstance::unused(&HashSet::new()));
        let mut hunt = Hunt::new(everything, HuntPurpose::Signal(Signal::TERM));
        assert_eq!(hunt.signal(), Signal::TERM);
        assert!(matches!(run_pass(&mut hunt, Instant::now(), &findings(b'S', &[20])), Decision::Finish(Ok(()))));
    }

    #[test]
    fn a_tree_that_keeps_forking_is_stopped_and_then_killed() {
        let now = Instant::now();
        let mut hunt = kill_hunt();
        for number in [20, 21, 22] {
            assert_eq!(hunt.signal(), Signal::KILL);
            assert!(matches!(run_pass(&mut hunt, now, &findings(b'S', &[number])), Decision::Continue));
        }
        assert_eq!(hunt.signal(), Signal::STOP);
        run_pass(&mut hunt, now, &findings(b'T', &[22, 23]));
        assert_eq!(hunt.signal(), Signal::STOP, "23 is new and may have forked before it was stopped");
        run_pass(&mut hunt, now, &findings(b'S', &[22, 23]));
        assert_eq!(hunt.signal(), Signal::STOP, "the processes have not stopped yet");
        run_pass(&mut hunt, now, &findings(b'T', &[22, 23]));
        assert_eq!(hunt.signal(), Signal::KILL);
    }

    #[test]
    fn a_tree_that_ends_slowly_is_not_stopped() {
        let now = Instant::now();
        let mut hunt = kill_hunt();
        for _ in 0..10 {
            run_pass(&mut hunt, now, &findings(b'D', &[20]));
            assert_eq!(hunt.signal(), Signal::KILL);
        }
    }

    #[test]
    fn a_hunt_times_out_in_its_second_pass_at_the_earliest() {
        let now = Instant::now();
        let mut hunt = kill_hunt();
        hunt.begin_pass(now);
        assert!(matches!(hunt.decide(&findings(b'S', &[20]), now + 2 * TIMEOUT), Decision::Continue));
        let Decision::Finish(Err(survivors)) = run_pass(&mut hunt, now + 2 * TIMEOUT, &findings(b'S', &[20])) else {
            panic!("the hunt must give up")
        };
        assert_eq!(survivors.pids, [20]);
        assert!(matches!(survivors.reason, SurvivalReason::TimedOut));
    }

    #[test]
    fn a_hunt_ends_when_only_processes_of_other_users_are_left() {
        let mut hunt = kill_hunt();
        let refused =
            PassFindings { refused: HashSet::from([pid(20)]), signalled: HashSet::new(), ..findings(b'S', &[20]) };
        let Decision::Finish(Err(survivors)) = run_pass(&mut hunt, Instant::now(), &refused) else {
            panic!("the hunt must give up")
        };
        assert_eq!(survivors.pids, [20]);
        assert!(matches!(survivors.reason, SurvivalReason::NotPermitted));
    }
}
