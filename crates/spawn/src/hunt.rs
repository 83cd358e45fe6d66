//! Ending trees for certain: census, signal, wait, and again until a census finds nobody. A tree that makes processes faster than
//! they can be killed is stopped as a whole first and killed then.
//!
//! All hunts that are under way share each census of the machine, so that ending many trees at once costs little more than ending
//! one. Start with [`Hunts`]; what one hunt makes of a pass is decided in [`Hunt::judge`].

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::children::{children, own_session};
use crate::error::{SurvivalReason, Survivors};
use crate::family::{Census, Membership, Row, covers, servers_inside};
use crate::left_sessions::LeftSessions;
use crate::procfs;
use crate::rlimit;
use crate::strike::{Strike, first_ended, strike};
use crate::tag::{Instance, Scope, Tag};

/// An ordinary tree is gone after two passes; one that still has new members after this many is forking against us.
const PASSES_BEFORE_FREEZE: usize = 3;
/// No hunt is late before its second pass, however long a pass takes on a busy machine: only that one can see what the first
/// has killed.
const PASSES_BEFORE_LATE: usize = 2;
/// How long a pass waits for those it has killed before it looks for new ones.
const WAIT_BETWEEN_PASSES: Duration = Duration::from_millis(100);
/// When there is nothing to wait for but time.
const PAUSE: Duration = Duration::from_millis(1);
/// Bounds the descriptors that a pass holds; the rest of a larger tree is waited for by the next pass.
const PIDFDS_HELD: usize = 128;

/// Kills all processes in scope, and those in sessions that a server has left, and returns when they are gone; zombies that somebody
/// waits for are gone.
pub(crate) fn kill(scope: Scope, left_sessions: LeftSessions, patience: Duration) -> Result<(), Survivors> {
    let mut hunts = Hunts::default();
    hunts.add(Hunt { left_sessions, ..Hunt::new(scope, Purpose::Kill { patience }) }, ());
    loop {
        if let Some(((), result)) = hunts.pass().over.pop() {
            return result;
        }
        hunts.rest(None);
    }
}

/// Reaps the orphans among our children; see [`crate::children`].
pub(crate) fn reap_strangers() -> io::Result<()> {
    let own_pid = rustix::process::getpid();
    let mut ended = Vec::new();
    procfs::each_process(|pid| {
        if procfs::stat(pid).ok().flatten().is_some_and(|stat| is_ended_child(&stat, own_pid)) {
            ended.push(pid);
        }
    })?;
    children().reap_strangers(&ended);
    Ok(())
}

fn is_ended_child(stat: &procfs::Stat, own_pid: Pid) -> bool {
    stat.is_gone() && stat.parent == own_pid.as_raw_nonzero().get()
}

/// The hunts that are under way, each with a value of whoever asked for it.
pub(crate) struct Hunts<T> {
    under_way: Vec<Hunter<T>>,
    /// How long the last pass took.
    pass_took: Duration,
}

struct Hunter<T> {
    hunt: Hunt,
    asked_by: T,
    /// Those that the last pass has signalled and that have not ended.
    waits_for: Vec<OwnedFd>,
    /// There is nothing to wait for but time, and little of that.
    hurries: bool,
}

/// What a pass leaves to be done.
pub(crate) struct AfterPass<T> {
    /// The hunts that are over.
    pub(crate) over: Vec<(T, Result<(), Survivors>)>,
    /// Children of this process that have ended. Those that nobody waits for are to be reaped.
    pub(crate) ended_children: Vec<Pid>,
}

impl<T> Default for Hunts<T> {
    fn default() -> Self {
        Self { under_way: Vec::new(), pass_took: Duration::ZERO }
    }
}

impl<T> Hunts<T> {
    pub(crate) fn add(&mut self, hunt: Hunt, asked_by: T) {
        self.under_way.push(Hunter { hunt, asked_by, waits_for: Vec::new(), hurries: false });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Takes one census, signals for every hunt, and says which hunts are over.
    pub(crate) fn pass(&mut self) -> AfterPass<T> {
        let began = Instant::now();
        self.under_way.iter_mut().for_each(|hunter| hunter.hunt.begin(began));
        let looked = look(&mut self.under_way);
        let now = Instant::now();
        self.pass_took = now - began;
        let mut ended_children = Vec::new();
        let judged: Vec<_> = match looked {
            Ok(Look { passes, ended }) => {
                ended_children = ended;
                self.under_way.drain(..).zip(passes).map(|(hunter, pass)| hunter.after(pass, now)).collect()
            }
            Err(error) => self.under_way.drain(..).map(|hunter| hunter.unseen(&error, now)).collect(),
        };
        let mut over = Vec::new();
        for outcome in judged {
            match outcome {
                Ok(hunter) => self.under_way.push(hunter),
                Err(ended) => over.push(ended),
            }
        }
        AfterPass { over, ended_children }
    }

    /// Waits until another pass is worth its cost: all that were killed have ended; or those of one hunt have, or `wake` is readable,
    /// and it is as long ago as the last pass took, so that one slow tree delays nobody and many quick ones share a pass.
    pub(crate) fn rest(&mut self, wake: Option<BorrowedFd<'_>>) {
        let now = Instant::now();
        let hurries = self.under_way.iter().any(|hunter| hunter.hurries);
        let longest = if hurries { PAUSE } else { WAIT_BETWEEN_PASSES };
        let deadlines = self.under_way.iter().filter_map(|hunter| hunter.hunt.deadline);
        let until = deadlines.chain([now + longest]).min().unwrap_or(now);
        let worthwhile = now + self.pass_took;
        let mut wake = wake;
        let mut one_is_done = false;
        loop {
            let latest = if one_is_done { until.min(worthwhile) } else { until };
            if self.under_way.iter().all(|hunter| hunter.waits_for.is_empty()) && (!hurries || one_is_done) {
                return;
            }
            if Instant::now() >= latest {
                return;
            }
            let pidfds: Vec<&OwnedFd> = self.under_way.iter().flat_map(|hunter| &hunter.waits_for).collect();
            let ended = first_ended(&pidfds, wake, latest);
            if ended.woken {
                wake = None;
                one_is_done = true;
            }
            let mut number = 0;
            for hunter in &mut self.under_way {
                let had_any = !hunter.waits_for.is_empty();
                hunter.waits_for.retain(|_| {
                    number += 1;
                    !ended.numbers.contains(&(number - 1))
                });
                one_is_done |= had_any && hunter.waits_for.is_empty();
            }
        }
    }
}

impl<T> Hunter<T> {
    /// Goes on, or says how it ended.
    fn after(mut self, pass: Pass, now: Instant) -> Result<Self, (T, Result<(), Survivors>)> {
        if let Some(result) = self.hunt.judge(&pass, now) {
            return Err((self.asked_by, result));
        }
        self.hurries = self.hunt.is_freezing() || (pass.pidfds.is_empty() && !pass.had_more_than_it_holds);
        self.waits_for = pass.pidfds;
        Ok(self)
    }

    /// Most likely out of descriptors, which others may give back. Ending what is known gives some back, too.
    fn unseen(mut self, error: &io::Error, now: Instant) -> Result<Self, (T, Result<(), Survivors>)> {
        if matches!(self.hunt.purpose, Purpose::Kill { .. }) {
            children().kill_groups(&self.hunt.scope);
        }
        if self.hunt.is_late(now) {
            let reason = SurvivalReason::ProcUnreadable(io::Error::new(error.kind(), error.to_string()));
            return Err((self.asked_by, Err(Survivors { pids: Vec::new(), reason })));
        }
        self.hurries = true;
        self.waits_for.clear();
        Ok(self)
    }
}

/// What a hunt is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// Nobody is left at the end. The patience counts from the first pass.
    Kill { patience: Duration },
    /// One signal to everybody that one census finds.
    Signal(Signal),
}

/// One tree, session or server that is being ended or signalled.
pub(crate) struct Hunt {
    scope: Scope,
    purpose: Purpose,
    stage: Stage,
    left_sessions: LeftSessions,
    adopted: HashSet<Instance>,
    met: HashSet<Pid>,
    has_census: bool,
    passes: usize,
    /// None before the first pass.
    deadline: Option<Instant>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// So many passes have killed since the hunt began or its tree was stopped.
    Killing { passes: usize },
    /// Every member is stopped, until a census finds all of them stopped and no new one: from then on none can fork.
    Freezing,
}

/// What one pass over all processes found and did for one hunt.
#[derive(Default)]
struct Pass {
    /// Members that had not ended when they were looked at.
    living: Vec<Row>,
    refused: HashSet<Pid>,
    struck: HashSet<Pid>,
    pidfds: Vec<OwnedFd>,
    /// Some that were signalled have no pidfd here, because the pass holds enough of them.
    had_more_than_it_holds: bool,
    /// Members that no earlier pass has met.
    new: usize,
    /// A tag was seen and not acted on at once, or a guard is being started.
    sighted: bool,
}

impl Hunt {
    pub(crate) fn new(scope: Scope, purpose: Purpose) -> Self {
        Self {
            scope,
            purpose,
            stage: Stage::Killing { passes: 0 },
            left_sessions: LeftSessions::default(),
            adopted: HashSet::new(),
            met: HashSet::new(),
            has_census: false,
            passes: 0,
            deadline: None,
        }
    }

    /// Time runs from when there is somebody to work on it.
    fn begin(&mut self, now: Instant) {
        if let (None, Purpose::Kill { patience }) = (self.deadline, self.purpose) {
            self.deadline = Some(now + patience);
        }
        self.passes += 1;
    }

    fn signal(&self) -> Signal {
        match (self.purpose, self.stage) {
            (Purpose::Signal(signal), _) => signal,
            (Purpose::Kill { .. }, Stage::Killing { .. }) => Signal::KILL,
            (Purpose::Kill { .. }, Stage::Freezing) => Signal::STOP,
        }
    }

    fn is_freezing(&self) -> bool {
        self.stage == Stage::Freezing
    }

    fn is_late(&self, now: Instant) -> bool {
        self.passes >= PASSES_BEFORE_LATE && self.deadline.is_none_or(|deadline| now >= deadline)
    }

    /// Decides after a pass whether the hunt is over, and how the next pass goes about it if not.
    fn judge(&mut self, pass: &Pass, now: Instant) -> Option<Result<(), Survivors>> {
        if matches!(self.purpose, Purpose::Signal(_)) {
            return Some(Ok(()));
        }
        match &mut self.stage {
            Stage::Freezing => {
                let all_stopped = pass.new == 0 && pass.living.iter().all(|row| row.stat.is_stopped());
                if all_stopped || self.is_late(now) {
                    self.stage = Stage::Killing { passes: 0 };
                }
                None
            }
            Stage::Killing { passes } => {
                *passes += 1;
                let is_forking = *passes >= PASSES_BEFORE_FREEZE && pass.new > 0;
                if pass.is_clear() {
                    return Some(Ok(()));
                }
                if pass.is_stuck() {
                    return Some(Err(pass.survivors(SurvivalReason::NotPermitted)));
                }
                if self.is_late(now) {
                    return Some(Err(pass.survivors(SurvivalReason::TimedOut)));
                }
                if is_forking {
                    self.stage = Stage::Freezing;
                }
                None
            }
        }
    }

    /// If the tree runs a server of our kind, that one's children carry its tag and not ours, and lose the descent from the tree once it
    /// is dead.
    fn adopt_servers_inside(&mut self, members: &[Row], census: &Census) {
        let mut servers = servers_inside(members, census, self.scope.instance());
        if let (false, Some(outer)) = (servers.is_empty(), rlimit::own_tag()) {
            servers.remove(&outer.instance());
        }
        self.adopted.extend(servers);
    }
}

/// Which hunts a tag concerns, without asking each of them.
struct Interest {
    trees: HashMap<Tag, Vec<usize>>,
    /// Hunts for more than one tag.
    others: Vec<usize>,
}

impl Interest {
    fn new<T>(hunters: &[Hunter<T>]) -> Self {
        let mut interest = Self { trees: HashMap::new(), others: Vec::new() };
        for (number, Hunter { hunt, .. }) in hunters.iter().enumerate() {
            match hunt.scope {
                Scope::Tree(tag) if hunt.adopted.is_empty() => interest.trees.entry(tag).or_default().push(number),
                _ => interest.others.push(number),
            }
        }
        interest
    }

    fn covering<'a, T>(&'a self, tag: Tag, hunters: &'a [Hunter<T>]) -> impl Iterator<Item = usize> + 'a {
        let is_covered = move |number: &usize| {
            hunters.get(*number).is_some_and(|Hunter { hunt, .. }| covers(&hunt.scope, &hunt.adopted, tag))
        };
        let others = self.others.iter().copied().filter(is_covered);
        self.trees.get(&tag).into_iter().flatten().copied().chain(others)
    }
}

/// What one census has shown.
struct Look {
    /// What each hunt did with it.
    passes: Vec<Pass>,
    /// Children of this process that have ended.
    ended: Vec<Pid>,
}

/// Takes one census for all hunts.
fn look<T>(hunters: &mut [Hunter<T>]) -> io::Result<Look> {
    let own_pid = rustix::process::getpid();
    let mut passes: Vec<Pass> = hunters.iter().map(|_| Pass::default()).collect();
    // Looking needs descriptors as well.
    let mut pidfds_left = PIDFDS_HELD.min(rlimit::open_files() / 2);
    let interest = Interest::new(hunters);
    let own_instance = hunters.first().map(|hunter| hunter.hunt.scope.instance());
    let is_first_look = hunters.iter().any(|hunter| !hunter.hunt.has_census);
    let mut listed = Vec::new();
    procfs::each_process(|pid| {
        if pid == own_pid || children().is_guard(pid) {
            return;
        }
        let tag = rlimit::tag_of(pid);
        let mut is_covered = false;
        for number in tag.into_iter().flat_map(|tag| interest.covering(tag, hunters)) {
            let (Some(pass), Some(Hunter { hunt, .. })) = (passes.get_mut(number), hunters.get(number)) else {
                continue;
            };
            is_covered = true;
            // The first census of a hunt must be complete before anybody dies, as death ends descent. After it, those with a tag
            // are signalled the moment they are seen: one that forks and exits all the time is another process by the end of the
            // census.
            if hunt.has_census {
                pass.strike(pid, hunt.signal(), &mut pidfds_left, || rlimit::tag_of(pid) == tag);
            } else {
                pass.sighted = true;
            }
        }
        // On a server with a thousand processes most belong to other trees, and looking closer is what costs. The first
        // census does, in case one of ours has given itself the tag of another.
        let is_in_other_tree = !is_covered && tag.is_some_and(|tag| Some(tag.instance()) == own_instance);
        if is_first_look || !is_in_other_tree {
            listed.push((pid, tag));
        }
    })?;
    listed.sort_unstable_by_key(|(pid, _)| pid.as_raw_nonzero());
    listed.dedup_by_key(|(pid, _)| *pid);
    let mut rows = Vec::with_capacity(listed.len());
    for (pid, tag) in listed {
        rows.extend(procfs::stat(pid)?.map(|stat| Row { pid, tag, stat }));
    }
    let (leaders, guard_is_starting) = {
        let children = children();
        // One that was started meanwhile.
        rows.retain(|row| !children.is_guard(row.pid));
        (children.sessions_by_tag(), children.guard_is_starting())
    };
    let census = Census::new(rows);

    let all_sessions: HashSet<i32> = leaders.values().copied().collect();
    for (Hunter { hunt, .. }, pass) in hunters.iter_mut().zip(&mut passes) {
        hunt.left_sessions.handle_census(&census);
        // Only the next pass can tell a guard from what it has to end.
        pass.sighted |= guard_is_starting && matches!(hunt.scope, Scope::Everything(_));
        let membership = Membership {
            scope: &hunt.scope,
            adopted: &hunt.adopted,
            own_pid,
            own_session: own_session(),
            sessions: sessions(&hunt.scope, &leaders),
            all_sessions: &all_sessions,
            left_sessions: &hunt.left_sessions,
            guard_is_starting,
        };
        let members = membership.members(&census);
        for row in members.iter().filter(|row| !row.stat.is_gone()) {
            pass.strike(
                row.pid,
                hunt.signal(),
                &mut pidfds_left,
                || matches!(procfs::stat(row.pid), Ok(Some(stat)) if stat.started == row.stat.started),
            );
            pass.living.push(*row);
        }
        pass.new = pass.struck.iter().filter(|pid| hunt.met.insert(**pid)).count();
        hunt.adopt_servers_inside(&members, &census);
        hunt.left_sessions.handle_pass(procfs::ticks_since_boot());
        hunt.has_census = true;
    }
    let ended = census.rows().iter().filter(|row| is_ended_child(&row.stat, own_pid)).map(|row| row.pid);
    Ok(Look { passes, ended: ended.collect() })
}

/// The terminal sessions that the leaders in scope have made.
fn sessions(scope: &Scope, leaders: &HashMap<Tag, i32>) -> HashSet<i32> {
    match scope {
        Scope::Tree(tag) => leaders.get(tag).copied().into_iter().collect(),
        _ => leaders.iter().filter(|(tag, _)| scope.contains(**tag)).map(|(_, session)| *session).collect(),
    }
}

impl Pass {
    fn strike(&mut self, pid: Pid, signal: Signal, pidfds_left: &mut usize, still_meant: impl FnOnce() -> bool) {
        if self.struck.contains(&pid) || self.refused.contains(&pid) {
            return;
        }
        match strike(pid, signal, still_meant) {
            Strike::Sent(pidfd) => {
                self.struck.insert(pid);
                if *pidfds_left > 0 {
                    *pidfds_left -= 1;
                    self.pidfds.extend(pidfd);
                } else {
                    self.had_more_than_it_holds = true;
                }
            }
            Strike::Refused => {
                self.refused.insert(pid);
            }
            Strike::Missed => {}
        }
    }

    /// Nobody was there. If somebody was who is gone now, it may have forked before: only the next pass can say.
    fn is_clear(&self) -> bool {
        self.living.is_empty() && self.struck.is_empty() && !self.sighted
    }

    /// Everybody who is left is somebody else's.
    fn is_stuck(&self) -> bool {
        self.struck.is_empty()
            && !self.living.is_empty()
            && self.living.iter().all(|row| self.refused.contains(&row.pid))
    }

    /// Those who live, or else those who were signalled and may have forked before they ended.
    fn survivors(&self, reason: SurvivalReason) -> Survivors {
        let living: Vec<Pid> = self.living.iter().map(|row| row.pid).collect();
        let left = if living.is_empty() { self.struck.iter().copied().collect() } else { living };
        Survivors { pids: left.iter().map(|pid| pid.as_raw_nonzero().get().unsigned_abs()).collect(), reason }
    }
}
