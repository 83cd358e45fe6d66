//! One pass of all hunts. A hunt kills or signals its *members*, the processes in its [`Scope`]. A pass lists the
//! processes of the machine (a *census*) and signals the members of each hunt. What the findings mean for a hunt is
//! decided in `decision`. Start with [`run_pass`].

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, Signal};

use super::decision::{Hunt, PassFindings};
use crate::children::{children, own_session};
use crate::membership::{Census, CensusProcess, Membership, covers, find_nested_servers};
use crate::procfs;
use crate::rlimit;
use crate::signal_process::{SignalResult, signal_process};
use crate::tag::{Scope, ServerInstance, Tag};

/// The most pidfds that a pass keeps to wait for signalled processes. In a larger tree, a later pass waits for the other processes.
const MAX_PIDFDS: usize = 128;

/// The result of one pass for all hunts.
pub(super) struct PassResult {
    /// One for each hunt, in the same order.
    pub(super) hunt_passes: Vec<HuntPass>,
    /// Children of this process that have ended.
    pub(super) ended_children: Vec<Pid>,
}

/// The result of one pass for one hunt.
#[derive(Default)]
pub(super) struct HuntPass {
    pub(super) findings: PassFindings,
    /// Pidfds of signalled members, at most [`MAX_PIDFDS`] for all hunts together.
    pub(super) pidfds: Vec<OwnedFd>,
    /// Some signalled members have no pidfd in `pidfds`, because of the limit.
    pub(super) reached_max_pidfds: bool,
}

/// Lists all processes once for all hunts, and signals the members of each hunt. Fails if the processes cannot be listed.
pub(super) fn run_pass(hunts: &mut [&mut Hunt]) -> io::Result<PassResult> {
    let mut hunt_passes: Vec<HuntPass> = hunts.iter().map(|_| HuntPass::default()).collect();
    // The pidfds take at most half of the allowed descriptors. The other half is left for reading `/proc`.
    let mut pidfds_left = MAX_PIDFDS.min(rlimit::max_open_files() / 2);
    let listed = list_processes(hunts, &mut hunt_passes, &mut pidfds_left)?;
    let mut processes = Vec::with_capacity(listed.len());
    for (pid, tag) in listed {
        processes.extend(procfs::stat(pid)?.map(|stat| CensusProcess { pid, tag, stat }));
    }
    let trees = KnownTrees::read(&mut processes);
    let census = Census::new(processes);
    for (hunt, pass) in hunts.iter_mut().zip(&mut hunt_passes) {
        signal_members(hunt, pass, &census, &trees, &mut pidfds_left);
    }
    let ended = census.processes().iter().filter(|process| process.stat.is_ended_child_of(trees.own_pid));
    Ok(PassResult { hunt_passes, ended_children: ended.map(|process| process.pid).collect() })
}

/// Lists the processes that can be members of a hunt, with their tags. While it lists, it already signals those that
/// have a tag in the scope of a hunt, unless the hunt is new.
fn list_processes(
    hunts: &[&mut Hunt],
    hunt_passes: &mut [HuntPass],
    pidfds_left: &mut usize,
) -> io::Result<Vec<(Pid, Option<Tag>)>> {
    let own_pid = rustix::process::getpid();
    let by_tag = HuntsByTag::new(hunts);
    // All hunts are for trees of the same server.
    let own_instance = hunts.first().map(|hunt| hunt.scope.instance());
    let any_hunt_is_new = hunts.iter().any(|hunt| hunt.is_new());
    let mut listed = Vec::new();
    procfs::each_process(|pid| {
        if pid == own_pid || children().is_guard(pid) {
            return;
        }
        let tag = rlimit::tag_of(pid);
        let mut is_covered = false;
        for number in tag.into_iter().flat_map(|tag| by_tag.covering(tag, hunts)) {
            let (Some(pass), Some(hunt)) = (hunt_passes.get_mut(number), hunts.get(number)) else {
                continue;
            };
            is_covered = true;
            // A new hunt must list all processes before it kills the first one: descendants of a killed process get another parent, and
            // can then no longer be found by descent. A later pass signals a process with the tag as soon as it is listed, because a
            // process that forks and exits all the time has another process id by the end of the listing.
            if hunt.is_new() {
                pass.findings.is_incomplete = true;
            } else {
                pass.signal(pid, hunt.signal(), pidfds_left, || rlimit::tag_of(pid) == tag);
            }
        }
        // Reading the `stat` of a process is expensive, and on a server with a thousand processes most are in trees that are not hunted.
        // Such processes are skipped, except in the first pass of a hunt: a process of the hunted tree may have given itself the tag of
        // another tree.
        let is_in_other_tree = !is_covered && tag.is_some_and(|tag| Some(tag.instance()) == own_instance);
        if any_hunt_is_new || !is_in_other_tree {
            listed.push((pid, tag));
        }
    })?;
    listed.sort_unstable_by_key(|(pid, _)| pid.as_raw_nonzero());
    listed.dedup_by_key(|(pid, _)| *pid);
    Ok(listed)
}

/// What this process knows of the trees that it has started. The sessions are those of the kernel (`setsid`).
struct KnownTrees {
    own_pid: Pid,
    own_session: i32,
    sessions_by_tag: HashMap<Tag, i32>,
    all_sessions: HashSet<i32>,
    adopts_orphans: bool,
    guard_is_starting: bool,
}

impl KnownTrees {
    /// Also removes guards (processes that outlive the server and then kill its trees) from the list of processes, because a guard may have
    /// been started during the listing.
    fn read(processes: &mut Vec<CensusProcess>) -> Self {
        let children = children();
        processes.retain(|process| !children.is_guard(process.pid));
        let sessions_by_tag = children.sessions_by_tag();
        Self {
            own_pid: rustix::process::getpid(),
            own_session: own_session(),
            all_sessions: sessions_by_tag.values().copied().collect(),
            sessions_by_tag,
            adopts_orphans: children.adopts_orphans(),
            guard_is_starting: children.guard_is_starting(),
        }
    }

    /// The sessions of the leaders in scope. A leader is a process that a `Spawner` has started.
    fn sessions_in(&self, scope: &Scope) -> HashSet<i32> {
        let leaders = &self.sessions_by_tag;
        match scope {
            Scope::Tree(tag) => leaders.get(tag).copied().into_iter().collect(),
            _ => leaders.iter().filter(|(tag, _)| scope.contains(**tag)).map(|(_, session)| *session).collect(),
        }
    }
}

/// Signals all members of a hunt that the census has found.
fn signal_members(
    hunt: &mut Hunt,
    pass: &mut HuntPass,
    census: &Census,
    trees: &KnownTrees,
    pidfds_left: &mut usize,
) {
    hunt.orphaned_sessions.forget_possibly_reused(census);
    // Only the next pass can distinguish the guard that is starting from the processes to kill.
    pass.findings.is_incomplete |= trees.guard_is_starting && matches!(hunt.scope, Scope::Everything(_));
    let membership = Membership {
        scope: &hunt.scope,
        nested_servers: &hunt.nested_servers,
        adopts_orphans: trees.adopts_orphans,
        own_pid: trees.own_pid,
        own_session: trees.own_session,
        sessions: trees.sessions_in(&hunt.scope),
        all_sessions: &trees.all_sessions,
        orphaned_sessions: &hunt.orphaned_sessions,
        guard_is_starting: trees.guard_is_starting,
    };
    let members = membership.members(census);
    for process in members.iter().filter(|process| !process.stat.has_ended()) {
        pass.signal(
            process.pid,
            hunt.signal(),
            pidfds_left,
            || matches!(procfs::stat(process.pid), Ok(Some(stat)) if stat.started == process.stat.started),
        );
        pass.findings.alive.push(*process);
    }
    hunt.nested_servers.extend(nested_servers(&members, census, hunt.scope.instance()));
    hunt.orphaned_sessions.note_all_signalled(procfs::ticks_since_boot());
}

/// Other servers that run inside the tree. The processes that such a server has started have its tags and not the tag of this hunt, and
/// they are no longer descendants of the tree once that server is killed.
fn nested_servers(members: &[CensusProcess], census: &Census, own: ServerInstance) -> HashSet<ServerInstance> {
    let mut servers = find_nested_servers(members, census, own);
    // If another server has started this one, children without a tag inherit the tag of that outer server, which is not nested.
    if let (false, Some(outer)) = (servers.is_empty(), rlimit::own_tag()) {
        servers.remove(&outer.instance());
    }
    servers
}

impl HuntPass {
    /// Signals a process, unless this pass has already tried to. `is_same_process` must tell whether the process id
    /// still belongs to the process that was listed.
    fn signal(&mut self, pid: Pid, signal: Signal, pidfds_left: &mut usize, is_same_process: impl FnOnce() -> bool) {
        let findings = &mut self.findings;
        if findings.signalled.contains(&pid) || findings.refused.contains(&pid) {
            return;
        }
        match signal_process(pid, signal, is_same_process) {
            SignalResult::Sent(pidfd) => {
                findings.signalled.insert(pid);
                if *pidfds_left > 0 {
                    *pidfds_left -= 1;
                    self.pidfds.extend(pidfd);
                } else {
                    self.reached_max_pidfds = true;
                }
            }
            SignalResult::NotPermitted => {
                findings.refused.insert(pid);
            }
            SignalResult::NotFound => {}
        }
    }
}

/// An index from tags to hunts. With it the cost of a pass does not grow with the number of processes times the number of hunts.
struct HuntsByTag {
    /// The numbers of the hunts for a single tree. The number of a hunt is its index in the list of hunts.
    trees: HashMap<Tag, Vec<usize>>,
    /// The numbers of the hunts for more than one tag. Each is checked for each process.
    others: Vec<usize>,
}

impl HuntsByTag {
    fn new(hunts: &[&mut Hunt]) -> Self {
        let mut by_tag = Self { trees: HashMap::new(), others: Vec::new() };
        for (number, hunt) in hunts.iter().enumerate() {
            match hunt.scope {
                Scope::Tree(tag) if hunt.nested_servers.is_empty() => {
                    by_tag.trees.entry(tag).or_default().push(number);
                }
                _ => by_tag.others.push(number),
            }
        }
        by_tag
    }

    /// The numbers of the hunts that processes with this tag belong to.
    fn covering<'a>(&'a self, tag: Tag, hunts: &'a [&mut Hunt]) -> impl Iterator<Item = usize> + 'a {
        let is_covered = move |number: &usize| {
            hunts.get(*number).is_some_and(|hunt| covers(&hunt.scope, &hunt.nested_servers, tag))
        };
        let others = self.others.iter().copied().filter(is_covered);
        self.trees.get(&tag).into_iter().flatten().copied().chain(others)
    }
}
