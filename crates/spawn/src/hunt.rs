//! Kills trees reliably. A *tree* is a process that the server has started, and its descendants. A *hunt* kills or
//! signals all processes in a [`Scope`]: one tree, all trees of a client's session, or all trees of a server. It
//! works in passes: each pass lists all processes of the machine and signals those in scope. To kill, passes are
//! repeated until one finds no process. A tree that forks faster than its processes can be killed is first stopped as
//! a whole (`SIGSTOP`) and then killed.
//!
//! All active hunts share each pass, so that killing many trees at once costs little more than killing one. This module does not know who
//! asked for a hunt. Start with [`Hunts`]. The parts: `pass` lists and signals, and `decision` says whether a hunt goes on after a pass.

mod decision;
mod pass;

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::process::Pid;

use crate::children::children;
use crate::error::{SurvivalReason, Survivors};
use crate::orphaned_sessions::OrphanedSessions;
use crate::signal_process::wait_for_any_end;
use crate::tag::Scope;
use decision::Decision;
pub(crate) use decision::{Hunt, HuntPurpose};
use pass::{HuntPass, PassResult, run_pass};

/// The longest wait for signalled processes to end before the next pass looks for new ones.
const MAX_WAIT: Duration = Duration::from_millis(100);
/// The wait before the next pass when a hunt is stopping its tree, or is not finished but has no signalled process to wait for.
const RETRY_WAIT: Duration = Duration::from_millis(1);

/// Kills all processes in scope and all processes in `orphaned_sessions`. Returns when they have ended, or with an
/// error after the timeout. Some may be left as zombies that their parents have not reaped.
pub(crate) fn kill(scope: Scope, orphaned_sessions: OrphanedSessions, timeout: Duration) -> Result<(), Survivors> {
    let mut hunts = Hunts::default();
    let hunt = Hunt::new(scope, HuntPurpose::Kill { timeout }).with_orphaned_sessions(orphaned_sessions);
    hunts.add(hunt, ());
    loop {
        if let Some(((), result)) = hunts.pass().finished.pop() {
            return result;
        }
        hunts.wait_for_next_pass(None);
    }
}

/// The hunts that are not finished. Each has a value `T` that stands for its requester.
pub(crate) struct Hunts<T> {
    active: Vec<ActiveHunt<T>>,
    last_pass_took: Duration,
}

struct ActiveHunt<T> {
    hunt: Hunt,
    requester: T,
    /// Pidfds of processes that the last pass has signalled and that have not ended. Not of all, because a pass keeps
    /// a limited number of pidfds.
    waits_for: Vec<OwnedFd>,
    /// The next pass should come after [`RETRY_WAIT`]: the hunt is stopping its tree, or it has no process to wait
    /// for and the limit of pidfds is not the reason.
    retry_soon: bool,
}

/// The result of one pass for all hunts.
pub(crate) struct PassSummary<T> {
    /// The requesters and results of the hunts that are finished.
    pub(crate) finished: Vec<(T, Result<(), Survivors>)>,
    /// Children of this process that have ended. The caller must reap those that no code waits for.
    pub(crate) ended_children: Vec<Pid>,
}

impl<T> Default for Hunts<T> {
    fn default() -> Self {
        Self { active: Vec::new(), last_pass_took: Duration::ZERO }
    }
}

impl<T> Hunts<T> {
    pub(crate) fn add(&mut self, hunt: Hunt, requester: T) {
        self.active.push(ActiveHunt { hunt, requester, waits_for: Vec::new(), retry_soon: false });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.active.is_empty()
    }

    /// Runs one pass for all hunts and removes the hunts that are finished.
    pub(crate) fn pass(&mut self) -> PassSummary<T> {
        let began = Instant::now();
        let mut hunts: Vec<&mut Hunt> = self.active.iter_mut().map(|active| &mut active.hunt).collect();
        hunts.iter_mut().for_each(|hunt| hunt.begin_pass(began));
        let result = run_pass(&mut hunts);
        let now = Instant::now();
        self.last_pass_took = now - began;
        let mut summary = PassSummary { finished: Vec::new(), ended_children: Vec::new() };
        let active = self.active.iter_mut();
        let decisions: Vec<Decision> = match result {
            Ok(PassResult { hunt_passes, ended_children }) => {
                summary.ended_children = ended_children;
                active.zip(hunt_passes).map(|(active, pass)| active.after_pass(pass, now)).collect()
            }
            Err(error) => active.map(|active| active.after_failed_pass(&error, now)).collect(),
        };
        for (active, decision) in std::mem::take(&mut self.active).into_iter().zip(decisions) {
            match decision {
                Decision::Continue => self.active.push(active),
                Decision::Finish(result) => summary.finished.push((active.requester, result)),
            }
        }
        summary
    }

    /// Waits until the next pass should begin, which is at the earliest of these times:
    /// - the last process that any hunt waits for has ended;
    /// - a hunt reaches its deadline;
    /// - [`MAX_WAIT`] has passed, or [`RETRY_WAIT`] if a hunt must retry soon;
    /// - the wait has lasted as long as the last pass, and either the last process that one hunt waits for has ended
    ///   or `wake` is readable.
    ///
    /// By the last rule a slow tree does not delay other hunts, and many quick trees share a pass.
    pub(crate) fn wait_for_next_pass(&mut self, wake: Option<BorrowedFd<'_>>) {
        let now = Instant::now();
        let retry_soon = self.active.iter().any(|active| active.retry_soon);
        let longest = if retry_soon { RETRY_WAIT } else { MAX_WAIT };
        let deadlines = self.active.iter().filter_map(|active| active.hunt.deadline());
        let until = deadlines.chain([now + longest]).min().unwrap_or(now);
        let earliest = now + self.last_pass_took;
        let mut wake = wake;
        let mut pass_is_wanted = false;
        loop {
            let latest = if pass_is_wanted { until.min(earliest) } else { until };
            if self.active.iter().all(|active| active.waits_for.is_empty()) && (!retry_soon || pass_is_wanted) {
                return;
            }
            if Instant::now() >= latest {
                return;
            }
            let pidfds: Vec<&OwnedFd> = self.active.iter().flat_map(|active| &active.waits_for).collect();
            let ended = wait_for_any_end(&pidfds, wake, latest);
            if ended.woken {
                wake = None;
                pass_is_wanted = true;
            }
            let mut index = 0;
            for active in &mut self.active {
                let had_any = !active.waits_for.is_empty();
                active.waits_for.retain(|_| {
                    index += 1;
                    !ended.indices.contains(&(index - 1))
                });
                pass_is_wanted |= had_any && active.waits_for.is_empty();
            }
        }
    }
}

impl<T> ActiveHunt<T> {
    fn after_pass(&mut self, pass: HuntPass, now: Instant) -> Decision {
        let decision = self.hunt.decide(&pass.findings, now);
        self.retry_soon = self.hunt.is_stopping() || (pass.pidfds.is_empty() && !pass.reached_max_pidfds);
        self.waits_for = pass.pidfds;
        decision
    }

    /// Like [`Self::after_pass`], when the processes could not be listed. The usual cause is a lack of descriptors or memory, which may be
    /// temporary. Killing the process groups of known leaders (the processes that a `Spawner` has started) frees some descriptors and
    /// memory.
    fn after_failed_pass(&mut self, error: &io::Error, now: Instant) -> Decision {
        if self.hunt.is_kill() {
            children().kill_groups(&self.hunt.scope);
        }
        if self.hunt.has_timed_out(now) {
            let reason = SurvivalReason::ProcUnreadable(io::Error::new(error.kind(), error.to_string()));
            return Decision::Finish(Err(Survivors { pids: Vec::new(), reason }));
        }
        self.retry_soon = true;
        self.waits_for.clear();
        Decision::Continue
    }
}
