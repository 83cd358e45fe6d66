//! Ending a tree for certain: census, signal, wait, and again until a census finds nobody. A tree that makes processes faster than
//! they can be killed is stopped as a whole first and killed then.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::children::{children, own_session};
use crate::error::{Survival, Survivors};
use crate::family::{Membership, Row, covers, servers_inside};
use crate::procfs;
use crate::rlimit;
use crate::strike::{Strike, strike, wait_for_ends};
use crate::tag::{Instance, Scope};

/// An ordinary tree is gone after two passes; one that still has new members after this many is forking against us.
const PASSES_BEFORE_FREEZE: usize = 3;
/// How long a pass waits for those it has killed before it looks for new ones.
const WAIT_BETWEEN_PASSES: Duration = Duration::from_millis(100);
/// When there is nothing to wait for but time.
const PAUSE: Duration = Duration::from_millis(1);
/// Bounds the descriptors that a pass holds; the rest of a larger tree is waited for by the next pass.
const PIDFDS_HELD: usize = 128;

/// Kills all processes in scope and returns when they are gone; zombies that somebody waits for are gone.
pub(crate) fn kill(scope: &Scope, patience: Duration) -> Result<(), Survivors> {
    let deadline = Instant::now() + patience;
    let mut hunt = Hunt::new(scope);
    let mut passes = 0;
    loop {
        let pass = hunt.pass(Signal::KILL);
        passes += 1;
        let late = Instant::now() >= deadline;
        match pass {
            Ok(pass) if pass.is_clear() => return Ok(()),
            Ok(pass) if pass.is_stuck() => return Err(pass.survivors(Survival::Refused)),
            Ok(pass) if late => return Err(pass.survivors(Survival::Late)),
            Ok(pass) => {
                if passes >= PASSES_BEFORE_FREEZE && pass.new > 0 {
                    hunt.freeze(deadline);
                    passes = 0;
                } else {
                    pass.wait(deadline);
                }
            }
            Err(error) if late => {
                return Err(Survivors { pids: Vec::new(), reason: Survival::Unseen(error) });
            }
            // Most likely out of descriptors, which others may give back.
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

/// Signals all processes in scope that one census finds.
pub(crate) fn signal(scope: &Scope, signal: Signal) {
    let _best_effort = Hunt::new(scope).pass(signal);
}

/// Reaps the orphans among our children; see [`crate::children`].
pub(crate) fn reap_strangers() -> io::Result<()> {
    let own_pid = rustix::process::getpid();
    let mut ended = Vec::new();
    procfs::each_process(|pid| {
        if procfs::stat(pid).is_some_and(|stat| is_ended_child(&stat, own_pid)) {
            ended.push(pid);
        }
    })?;
    let mut children = children();
    ended.into_iter().for_each(|pid| children.reap_stranger(pid));
    Ok(())
}

fn is_ended_child(stat: &procfs::Stat, own_pid: Pid) -> bool {
    stat.is_gone() && stat.parent == own_pid.as_raw_nonzero().get()
}

struct Hunt<'a> {
    scope: &'a Scope,
    own_pid: Pid,
    adopted: HashSet<Instance>,
    met: HashSet<Pid>,
    has_census: bool,
}

/// What one pass over all processes found and did.
#[derive(Default)]
struct Pass {
    /// Members that had not ended when they were looked at.
    living: Vec<Row>,
    refused: HashSet<Pid>,
    struck: HashSet<Pid>,
    pidfds: Vec<OwnedFd>,
    /// Members that no earlier pass has met.
    new: usize,
    /// A tag was seen and not acted on at once.
    sighted: bool,
}

impl<'a> Hunt<'a> {
    fn new(scope: &'a Scope) -> Self {
        Self {
            scope,
            own_pid: rustix::process::getpid(),
            adopted: HashSet::new(),
            met: HashSet::new(),
            has_census: false,
        }
    }

    fn pass(&mut self, signal: Signal) -> io::Result<Pass> {
        let mut pass = Pass::default();
        let mut listed = Vec::new();
        // The first census must be complete before anybody dies, as death ends descent. After it, those with a tag are signalled
        // the moment they are seen: one that forks and exits all the time is another process by the end of the census.
        let on_sight = std::mem::replace(&mut self.has_census, true);
        procfs::each_process(|pid| {
            if pid == self.own_pid || children().is_guard(pid) {
                return;
            }
            let tag = rlimit::tag_of(pid);
            let is_covered = tag.is_some_and(|tag| covers(self.scope, &self.adopted, tag));
            if is_covered && on_sight {
                pass.strike(pid, signal, || rlimit::tag_of(pid) == tag);
            }
            pass.sighted |= is_covered && !on_sight;
            // On a server with a thousand processes most belong to other trees, and looking closer is what costs. The first
            // census does, in case one of ours has given itself the tag of another.
            let is_in_other_tree = !is_covered && tag.is_some_and(|tag| tag.instance() == self.scope.instance());
            if on_sight && is_in_other_tree {
                return;
            }
            listed.push((pid, tag));
        })?;
        listed.sort_unstable_by_key(|(pid, _)| pid.as_raw_nonzero());
        listed.dedup_by_key(|(pid, _)| *pid);
        let census: Vec<Row> =
            listed.into_iter().filter_map(|(pid, tag)| Some(Row { pid, tag, stat: procfs::stat(pid)? })).collect();

        let members = self.membership().members(&census);
        for row in members.iter().filter(|row| !row.stat.is_gone()) {
            pass.strike(row.pid, signal, || {
                procfs::stat(row.pid).is_some_and(|stat| stat.started == row.stat.started)
            });
            pass.living.push(*row);
        }
        pass.new = pass.struck.iter().filter(|pid| self.met.insert(**pid)).count();
        self.adopt_servers_inside(&members, &census);
        self.reap_ended(&census);
        Ok(pass)
    }

    /// Stops every member, until a census finds all of them stopped and no new one: from then on none can fork.
    fn freeze(&mut self, deadline: Instant) {
        while Instant::now() < deadline {
            match self.pass(Signal::STOP) {
                Ok(pass) if pass.new == 0 && pass.living.iter().all(|row| row.stat.is_stopped()) => return,
                _ => thread::sleep(PAUSE),
            }
        }
    }

    fn membership(&self) -> Membership<'_> {
        let children = children();
        Membership {
            scope: self.scope,
            adopted: &self.adopted,
            own_pid: self.own_pid,
            own_session: own_session(),
            sessions: children.sessions(self.scope),
            all_sessions: children.all_sessions(),
        }
    }

    /// If the tree runs a server of our kind, that one's children carry its tag and not ours, and lose the descent from the tree once it
    /// is dead.
    fn adopt_servers_inside(&mut self, members: &[Row], census: &[Row]) {
        let mut servers = servers_inside(members, census, self.scope.instance());
        if let Some(outer) = rlimit::own_tag() {
            servers.remove(&outer.instance());
        }
        self.adopted.extend(servers);
    }

    fn reap_ended(&self, census: &[Row]) {
        let mut children = children();
        for row in census.iter().filter(|row| is_ended_child(&row.stat, self.own_pid)) {
            children.reap_stranger(row.pid);
        }
    }
}

impl Pass {
    fn strike(&mut self, pid: Pid, signal: Signal, still_meant: impl FnOnce() -> bool) {
        if self.struck.contains(&pid) || self.refused.contains(&pid) {
            return;
        }
        match strike(pid, signal, still_meant) {
            Strike::Sent(pidfd) => {
                self.struck.insert(pid);
                if self.pidfds.len() < PIDFDS_HELD {
                    self.pidfds.extend(pidfd);
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

    fn wait(&self, deadline: Instant) {
        if self.pidfds.is_empty() {
            thread::sleep(PAUSE);
        } else {
            wait_for_ends(&self.pidfds, deadline.min(Instant::now() + WAIT_BETWEEN_PASSES));
        }
    }

    fn survivors(&self, reason: Survival) -> Survivors {
        let pids = self.living.iter().map(|row| row.pid.as_raw_nonzero().get().unsigned_abs());
        Survivors { pids: pids.collect(), reason }
    }
}
