//! Kills trees reliably. A *hunt* kills or signals all processes in a [`Scope`]. It works in passes: each pass takes a *census*, which is a
//! list of all processes of the machine, and signals the processes in scope. Passes are repeated until a census finds none. A tree that
//! forks faster than its processes can be killed is first stopped as a whole (`SIGSTOP`) and then killed.
//!
//! All active hunts share each census, so that killing many trees at once costs little more than killing one. This module does not know who
//! asked for a hunt. Start with [`Hunts`]; [`Hunt::decide`] says whether a hunt goes on after a pass.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::children::{any_has_ended, children, own_session};
use crate::error::{SurvivalReason, Survivors};
use crate::membership::{Census, CensusProcess, Membership, covers, find_nested_servers};
use crate::orphaned_sessions::OrphanedSessions;
use crate::procfs;
use crate::rlimit;
use crate::signal_process::{SignalResult, first_ended, signal_process};
use crate::tag::{Scope, ServerInstance, Tag};

/// An ordinary tree is gone after two passes. A tree that still has new members after this many forks faster than it is killed.
const PASSES_BEFORE_STOPPING: usize = 3;
/// No hunt times out before its second pass, however long a pass takes on a busy machine: only the second pass can see that the processes
/// which the first pass has killed are gone.
const MIN_PASSES: usize = 2;
/// The longest wait for signalled processes to end before the next pass looks for new ones.
const MAX_WAIT: Duration = Duration::from_millis(100);
/// The wait before the next pass when a hunt is stopping its tree, or is not finished but has no signalled process to wait for.
const RETRY_WAIT: Duration = Duration::from_millis(1);
/// The most pidfds that a pass keeps to wait for signalled processes. In a larger tree, a later pass waits for the rest.
const MAX_PIDFDS: usize = 128;

/// Kills all processes in scope and all processes in `orphaned_sessions`. Returns when they have ended; some may be left as zombies that
/// their parents have not reaped.
pub(crate) fn kill(scope: Scope, orphaned_sessions: OrphanedSessions, timeout: Duration) -> Result<(), Survivors> {
    let mut hunts = Hunts::default();
    hunts.add(Hunt { orphaned_sessions, ..Hunt::new(scope, HuntPurpose::Kill { timeout }) }, ());
    loop {
        if let Some(((), result)) = hunts.pass().finished.pop() {
            return result;
        }
        hunts.wait_for_next_pass(None);
    }
}

/// Reaps the children of this process that have ended and that no code waits for; see [`crate::children`]. Makes one system call for each
/// leader whose `Child` was dropped, and one more if no child has ended.
pub(crate) fn reap_unclaimed_children() -> io::Result<()> {
    children().reap_dropped_leaders();
    if !children().adopts_orphans() || !any_has_ended() {
        return Ok(());
    }
    let own_pid = rustix::process::getpid();
    let mut ended = Vec::new();
    procfs::each_process(|pid| {
        if procfs::stat(pid).ok().flatten().is_some_and(|stat| is_ended_child(&stat, own_pid)) {
            ended.push(pid);
        }
    })?;
    children().reap_all_unclaimed(&ended);
    Ok(())
}

fn is_ended_child(stat: &procfs::Stat, own_pid: Pid) -> bool {
    stat.has_ended() && stat.parent == own_pid.as_raw_nonzero().get()
}

/// The hunts that are not finished. Each has a value `T` that stands for its requester.
pub(crate) struct Hunts<T> {
    active: Vec<ActiveHunt<T>>,
    last_pass_took: Duration,
}

struct ActiveHunt<T> {
    hunt: Hunt,
    requester: T,
    /// Pidfds of processes that the last pass has signalled and that have not ended.
    waits_for: Vec<OwnedFd>,
    /// The next pass should come after [`RETRY_WAIT`]: the hunt is stopping its tree, or it has no process to wait for.
    retry_soon: bool,
}

/// The result of one pass for all hunts.
pub(crate) struct PassSummary<T> {
    /// The requesters and results of the hunts that are finished.
    pub(crate) finished: Vec<(T, Result<(), Survivors>)>,
    /// Children of this process that have ended. The caller must have the unclaimed ones among them reaped.
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

    /// Takes one census, signals the members of every hunt, and removes the hunts that are finished.
    pub(crate) fn pass(&mut self) -> PassSummary<T> {
        let began = Instant::now();
        self.active.iter_mut().for_each(|active| active.hunt.begin(began));
        let census = take_census(&mut self.active);
        let now = Instant::now();
        self.last_pass_took = now - began;
        let mut ended_children = Vec::new();
        let decisions: Vec<_> = match census {
            Ok(CensusResult { passes, ended }) => {
                ended_children = ended;
                self.active.drain(..).zip(passes).map(|(active, pass)| active.after_pass(pass, now)).collect()
            }
            Err(error) => self.active.drain(..).map(|active| active.after_failed_census(&error, now)).collect(),
        };
        let mut finished = Vec::new();
        for decision in decisions {
            match decision {
                Ok(active) => self.active.push(active),
                Err(result) => finished.push(result),
            }
        }
        PassSummary { finished, ended_children }
    }

    /// Waits until the next pass should begin: when all signalled processes have ended, at the first deadline of a hunt, or after
    /// [`MAX_WAIT`] ([`RETRY_WAIT`] if a hunt must retry soon).
    ///
    /// When the processes of one hunt have ended, or `wake` is readable, the next pass begins earlier: as soon as the wait has lasted as
    /// long as the last pass. So one slow tree does not delay other hunts, and many quick trees share a pass.
    pub(crate) fn wait_for_next_pass(&mut self, wake: Option<BorrowedFd<'_>>) {
        let now = Instant::now();
        let retry_soon = self.active.iter().any(|active| active.retry_soon);
        let longest = if retry_soon { RETRY_WAIT } else { MAX_WAIT };
        let deadlines = self.active.iter().filter_map(|active| active.hunt.deadline);
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
            let ended = first_ended(&pidfds, wake, latest);
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
    /// Returns the hunt if it goes on, and otherwise its requester and its result as the error.
    fn after_pass(mut self, pass: HuntPass, now: Instant) -> Result<Self, (T, Result<(), Survivors>)> {
        if let Some(result) = self.hunt.decide(&pass, now) {
            return Err((self.requester, result));
        }
        self.retry_soon = self.hunt.is_stopping() || (pass.pidfds.is_empty() && !pass.reached_max_pidfds);
        self.waits_for = pass.pidfds;
        Ok(self)
    }

    /// Like [`Self::after_pass`], when no census could be taken. The usual cause is a lack of descriptors or memory, which can pass.
    /// Killing the process groups of known leaders frees some.
    fn after_failed_census(mut self, error: &io::Error, now: Instant) -> Result<Self, (T, Result<(), Survivors>)> {
        if matches!(self.hunt.purpose, HuntPurpose::Kill { .. }) {
            children().kill_groups(&self.hunt.scope);
        }
        if self.hunt.has_timed_out(now) {
            let reason = SurvivalReason::ProcUnreadable(io::Error::new(error.kind(), error.to_string()));
            return Err((self.requester, Err(Survivors { pids: Vec::new(), reason })));
        }
        self.retry_soon = true;
        self.waits_for.clear();
        Ok(self)
    }
}

/// What a hunt does with the processes in its scope.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HuntPurpose {
    /// Kill them, and any new ones, until none is left. The timeout starts with the first pass.
    Kill { timeout: Duration },
    /// Signal those that the first census finds.
    Signal(Signal),
}

/// One tree, session or server whose processes are being killed or signalled.
pub(crate) struct Hunt {
    scope: Scope,
    purpose: HuntPurpose,
    stage: HuntStage,
    orphaned_sessions: OrphanedSessions,
    /// Other servers that run inside the tree. Their processes are members too.
    nested_servers: HashSet<ServerInstance>,
    /// Members that earlier passes have signalled.
    seen: HashSet<Pid>,
    /// Whether a census was taken for this hunt.
    has_census: bool,
    /// How many passes have begun.
    passes: usize,
    /// None before the first pass, and for signals.
    deadline: Option<Instant>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum HuntStage {
    /// Members get `SIGKILL`. `passes` counts the passes since the hunt began or its tree was stopped.
    Killing { passes: usize },
    /// Members get `SIGSTOP`, until a census finds all of them stopped and no new one. From then on none of them can fork.
    Stopping,
}

/// What one pass has found and done for one hunt.
#[derive(Default)]
struct HuntPass {
    /// Members that had not ended when the census was taken.
    alive: Vec<CensusProcess>,
    /// Members that this user may not signal.
    refused: HashSet<Pid>,
    signalled: HashSet<Pid>,
    /// Pidfds of signalled members, at most [`MAX_PIDFDS`] for all hunts together.
    pidfds: Vec<OwnedFd>,
    /// Some signalled members have no pidfd in `pidfds`, because of the limit.
    reached_max_pidfds: bool,
    /// The number of members that no earlier pass has signalled.
    new: usize,
    /// A process with a tag in scope was seen but not signalled, or a guard is being started. Only another pass can tell that nothing is
    /// left.
    needs_another_pass: bool,
}

impl Hunt {
    pub(crate) fn new(scope: Scope, purpose: HuntPurpose) -> Self {
        Self {
            scope,
            purpose,
            stage: HuntStage::Killing { passes: 0 },
            orphaned_sessions: OrphanedSessions::default(),
            nested_servers: HashSet::new(),
            seen: HashSet::new(),
            has_census: false,
            passes: 0,
            deadline: None,
        }
    }

    /// Begins a pass. The first one starts the timeout, so that waiting in the queue does not count.
    fn begin(&mut self, now: Instant) {
        if let (None, HuntPurpose::Kill { timeout }) = (self.deadline, self.purpose) {
            self.deadline = Some(now + timeout);
        }
        self.passes += 1;
    }

    fn signal(&self) -> Signal {
        match (self.purpose, self.stage) {
            (HuntPurpose::Signal(signal), _) => signal,
            (HuntPurpose::Kill { .. }, HuntStage::Killing { .. }) => Signal::KILL,
            (HuntPurpose::Kill { .. }, HuntStage::Stopping) => Signal::STOP,
        }
    }

    fn is_stopping(&self) -> bool {
        self.stage == HuntStage::Stopping
    }

    fn has_timed_out(&self, now: Instant) -> bool {
        self.passes >= MIN_PASSES && self.deadline.is_none_or(|deadline| now >= deadline)
    }

    /// Decides after a pass. Returns the result if the hunt is finished, and otherwise sets the stage for the next pass.
    fn decide(&mut self, pass: &HuntPass, now: Instant) -> Option<Result<(), Survivors>> {
        if matches!(self.purpose, HuntPurpose::Signal(_)) {
            return Some(Ok(()));
        }
        match &mut self.stage {
            HuntStage::Stopping => {
                let all_stopped = pass.new == 0 && pass.alive.iter().all(|process| process.stat.is_stopped());
                if all_stopped || self.has_timed_out(now) {
                    self.stage = HuntStage::Killing { passes: 0 };
                }
                None
            }
            HuntStage::Killing { passes } => {
                *passes += 1;
                let is_forking = *passes >= PASSES_BEFORE_STOPPING && pass.new > 0;
                if pass.is_clear() {
                    return Some(Ok(()));
                }
                if pass.is_refused() {
                    return Some(Err(pass.survivors(SurvivalReason::NotPermitted)));
                }
                if self.has_timed_out(now) {
                    return Some(Err(pass.survivors(SurvivalReason::TimedOut)));
                }
                if is_forking {
                    self.stage = HuntStage::Stopping;
                }
                None
            }
        }
    }

    /// Finds other servers that run inside the tree. Their children have tags of those servers and not of this hunt, and are no longer
    /// descendants of the tree once such a server is killed.
    fn add_nested_servers(&mut self, members: &[CensusProcess], census: &Census) {
        let mut servers = find_nested_servers(members, census, self.scope.instance());
        // If another server has started this one, children without a tag inherit the tag of that outer server, which is not nested.
        if let (false, Some(outer)) = (servers.is_empty(), rlimit::own_tag()) {
            servers.remove(&outer.instance());
        }
        self.nested_servers.extend(servers);
    }
}

/// Finds the hunts that a tag belongs to, without a check of each hunt.
struct HuntsByTag {
    trees: HashMap<Tag, Vec<usize>>,
    /// Hunts for more than one tag, which are checked one by one.
    others: Vec<usize>,
}

impl HuntsByTag {
    fn new<T>(hunts: &[ActiveHunt<T>]) -> Self {
        let mut by_tag = Self { trees: HashMap::new(), others: Vec::new() };
        for (number, ActiveHunt { hunt, .. }) in hunts.iter().enumerate() {
            match hunt.scope {
                Scope::Tree(tag) if hunt.nested_servers.is_empty() => {
                    by_tag.trees.entry(tag).or_default().push(number);
                }
                _ => by_tag.others.push(number),
            }
        }
        by_tag
    }

    fn covering<'a, T>(&'a self, tag: Tag, hunts: &'a [ActiveHunt<T>]) -> impl Iterator<Item = usize> + 'a {
        let is_covered = move |number: &usize| {
            hunts.get(*number).is_some_and(|ActiveHunt { hunt, .. }| covers(&hunt.scope, &hunt.nested_servers, tag))
        };
        let others = self.others.iter().copied().filter(is_covered);
        self.trees.get(&tag).into_iter().flatten().copied().chain(others)
    }
}

/// The result of one census.
struct CensusResult {
    /// One pass for each hunt, in the same order.
    passes: Vec<HuntPass>,
    /// Children of this process that have ended.
    ended: Vec<Pid>,
}

/// Takes one census for all hunts and signals the members of each.
fn take_census<T>(hunts: &mut [ActiveHunt<T>]) -> io::Result<CensusResult> {
    let own_pid = rustix::process::getpid();
    let mut passes: Vec<HuntPass> = hunts.iter().map(|_| HuntPass::default()).collect();
    // The other half is left for reading `/proc`.
    let mut pidfds_left = MAX_PIDFDS.min(rlimit::open_files() / 2);
    let by_tag = HuntsByTag::new(hunts);
    let own_instance = hunts.first().map(|active| active.hunt.scope.instance());
    let is_first_census = hunts.iter().any(|active| !active.hunt.has_census);
    let mut listed = Vec::new();
    procfs::each_process(|pid| {
        if pid == own_pid || children().is_guard(pid) {
            return;
        }
        let tag = rlimit::tag_of(pid);
        let mut is_covered = false;
        for number in tag.into_iter().flat_map(|tag| by_tag.covering(tag, hunts)) {
            let (Some(pass), Some(ActiveHunt { hunt, .. })) = (passes.get_mut(number), hunts.get(number)) else {
                continue;
            };
            is_covered = true;
            // The first census of a hunt must be complete before a process is killed, because descendants of a killed process get another
            // parent and can no longer be found by descent. In later passes, processes with a tag are signalled as soon as they are listed:
            // a process that forks and exits all the time has another process id by the end of the census.
            if hunt.has_census {
                pass.signal(pid, hunt.signal(), &mut pidfds_left, || rlimit::tag_of(pid) == tag);
            } else {
                pass.needs_another_pass = true;
            }
        }
        // On a server with a thousand processes most belong to other trees, and reading their `stat` is expensive. Only the first census of
        // a hunt does so, in case a process of this tree has given itself the tag of another tree.
        let is_in_other_tree = !is_covered && tag.is_some_and(|tag| Some(tag.instance()) == own_instance);
        if is_first_census || !is_in_other_tree {
            listed.push((pid, tag));
        }
    })?;
    listed.sort_unstable_by_key(|(pid, _)| pid.as_raw_nonzero());
    listed.dedup_by_key(|(pid, _)| *pid);
    let mut processes = Vec::with_capacity(listed.len());
    for (pid, tag) in listed {
        processes.extend(procfs::stat(pid)?.map(|stat| CensusProcess { pid, tag, stat }));
    }
    let (leaders, guard_is_starting, adopts_orphans) = {
        let children = children();
        // A guard may have been started during the listing.
        processes.retain(|process| !children.is_guard(process.pid));
        (children.sessions_by_tag(), children.guard_is_starting(), children.adopts_orphans())
    };
    let census = Census::new(processes);

    let all_sessions: HashSet<i32> = leaders.values().copied().collect();
    for (ActiveHunt { hunt, .. }, pass) in hunts.iter_mut().zip(&mut passes) {
        hunt.orphaned_sessions.handle_census(&census);
        // Only the next pass can tell the guard from the processes to kill.
        pass.needs_another_pass |= guard_is_starting && matches!(hunt.scope, Scope::Everything(_));
        let membership = Membership {
            scope: &hunt.scope,
            nested_servers: &hunt.nested_servers,
            own_pid,
            own_session: own_session(),
            sessions: sessions_in_scope(&hunt.scope, &leaders),
            all_sessions: &all_sessions,
            orphaned_sessions: &hunt.orphaned_sessions,
            adopts_orphans,
            guard_is_starting,
        };
        let members = membership.members(&census);
        for process in members.iter().filter(|process| !process.stat.has_ended()) {
            pass.signal(
                process.pid,
                hunt.signal(),
                &mut pidfds_left,
                || matches!(procfs::stat(process.pid), Ok(Some(stat)) if stat.started == process.stat.started),
            );
            pass.alive.push(*process);
        }
        pass.new = pass.signalled.iter().filter(|pid| hunt.seen.insert(**pid)).count();
        hunt.add_nested_servers(&members, &census);
        hunt.orphaned_sessions.handle_pass(procfs::ticks_since_boot());
        hunt.has_census = true;
    }
    let ended =
        census.processes().iter().filter(|process| is_ended_child(&process.stat, own_pid)).map(|process| process.pid);
    Ok(CensusResult { passes, ended: ended.collect() })
}

/// The sessions (in the sense of `setsid`) of the leaders in scope.
fn sessions_in_scope(scope: &Scope, leaders: &HashMap<Tag, i32>) -> HashSet<i32> {
    match scope {
        Scope::Tree(tag) => leaders.get(tag).copied().into_iter().collect(),
        _ => leaders.iter().filter(|(tag, _)| scope.contains(**tag)).map(|(_, session)| *session).collect(),
    }
}

impl HuntPass {
    /// Signals a process, unless this pass has already tried to.
    fn signal(&mut self, pid: Pid, signal: Signal, pidfds_left: &mut usize, is_same_process: impl FnOnce() -> bool) {
        if self.signalled.contains(&pid) || self.refused.contains(&pid) {
            return;
        }
        match signal_process(pid, signal, is_same_process) {
            SignalResult::Sent(pidfd) => {
                self.signalled.insert(pid);
                if *pidfds_left > 0 {
                    *pidfds_left -= 1;
                    self.pidfds.extend(pidfd);
                } else {
                    self.reached_max_pidfds = true;
                }
            }
            SignalResult::NotPermitted => {
                self.refused.insert(pid);
            }
            SignalResult::NotFound => {}
        }
    }

    /// Whether no member is left. A member that was signalled may have forked before it ended, which only the next pass can tell.
    fn is_clear(&self) -> bool {
        self.alive.is_empty() && self.signalled.is_empty() && !self.needs_another_pass
    }

    /// Whether this user may signal none of the members that are left.
    fn is_refused(&self) -> bool {
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
