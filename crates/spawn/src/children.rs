//! The children of this process. *Leaders* were started by a `Spawner`, and a [`Child`](crate::Child) waits for each.
//! A leader and its descendants are a *tree*. *Unclaimed* children are those that no code waits for: leaders whose
//! `Child` was dropped, guards (see `guard`), and, in a process that is dedicated to the server, orphans of our
//! trees, whose parent this process has become. This module reaps all of them under one lock, so that a process id is
//! never reused between checking it and acting on it. It never touches a child that other code of this process has
//! started.
//!
//! Each leader gets a *tag*, a number that its descendants inherit, so that the processes of a tree can be
//! recognised; see `tag`.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::{LazyLock, Mutex, MutexGuard};

use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

use crate::lock::lock;
use crate::procfs;
use crate::rlimit;
use crate::roster::{Roster, RosterRecord};
use crate::tag::{Scope, Tag};
use crate::usage::{AfterWait, Reaped, wait_without_blocking};

/// One table for the whole process, even if there is more than one `Spawner`, because children belong to the whole process.
static CHILDREN: LazyLock<Mutex<Children>> = LazyLock::new(Mutex::default);

pub(crate) fn children() -> MutexGuard<'static, Children> {
    lock(&CHILDREN)
}

/// Reaps the children of this process that have ended and that no code waits for. This is cheap while no child has
/// ended: one system call for each unreaped leader whose `Child` was dropped, and at most one call for all other children.
pub(crate) fn reap_unclaimed_children() -> io::Result<()> {
    children().reap_dropped_leaders();
    if !children().adopts_orphans() || !any_has_ended() {
        return Ok(());
    }
    let own_pid = rustix::process::getpid();
    let mut ended = Vec::new();
    procfs::each_process(|pid| {
        if procfs::stat(pid).ok().flatten().is_some_and(|stat| stat.is_ended_child_of(own_pid)) {
            ended.push(pid);
        }
    })?;
    children().reap_all_unclaimed(&ended);
    Ok(())
}

#[derive(Default)]
pub(crate) struct Children {
    /// Leaders whose `Child` exists. A reaped leader stays here: its descendants may still be in its kernel session
    /// (`setsid`), which has the number of the leader.
    leaders: HashMap<Pid, TreeLeader>,
    /// The tags of leaders that are being started. They may already run, or have ended, but their process ids are not known yet.
    starting: HashSet<Tag>,
    /// Process ids of guards, which kill all trees after this process has ended; see `guard`.
    guards: HashSet<Pid>,
    /// The number of guards that are being started. They may already run, but their process ids are not known yet.
    starting_guards: usize,
    /// The list of leaders that the guards read; see `roster`. None until the first guard is started.
    roster: Option<Roster>,
    /// Leaders whose `Child` was dropped and that have not been reaped, with their roster records.
    dropped: HashMap<Pid, Option<RosterRecord>>,
    /// Whether orphans of our trees become children of this process; see [`HostProcess::dedicate`](crate::HostProcess::dedicate).
    adopts_orphans: bool,
}

struct TreeLeader {
    tag: Tag,
    reaped: bool,
    /// None if there is no roster, or if the leader was reaped: then another process may get its process id, and a
    /// guard must not kill that process.
    record: Option<RosterRecord>,
}

/// A value of this type exists while a leader with this tag is being started. If the value is dropped without a call
/// of [`Self::started`], for example in a panic, no code waits for a child with this tag. The child is then unclaimed
/// if orphans of our trees become children of this process.
pub(crate) struct StartingLeader {
    tag: Tag,
}

impl StartingLeader {
    pub(crate) fn new(tag: Tag) -> Self {
        children().starting.insert(tag);
        Self { tag }
    }

    /// The start has succeeded, and the leader has this process id.
    pub(crate) fn started(self, leader: Pid) {
        children().add_leader(self.tag, leader);
    }
}

impl Drop for StartingLeader {
    fn drop(&mut self) {
        children().starting.remove(&self.tag);
    }
}

/// A value of this type exists while a guard is being started.
pub(crate) struct StartingGuard(());

impl StartingGuard {
    pub(crate) fn new() -> Self {
        children().starting_guards += 1;
        Self(())
    }

    /// The start has succeeded, and the guard has this process id.
    pub(crate) fn started(self, guard: Pid) {
        children().guards.insert(guard);
    }
}

impl Drop for StartingGuard {
    fn drop(&mut self) {
        children().starting_guards -= 1;
    }
}

impl Children {
    /// Declares that from now on orphans of our trees are children of this process, and that no other code of this process has children
    /// that lead a session.
    pub(crate) fn adopt_orphans(&mut self) {
        self.adopts_orphans = true;
    }

    /// Whether [`Self::adopt_orphans`] was called.
    pub(crate) fn adopts_orphans(&self) -> bool {
        self.adopts_orphans
    }

    fn add_leader(&mut self, tag: Tag, pid: Pid) {
        let record = self.roster.as_mut().map(|roster| roster.add(tag, pid));
        self.leaders.insert(pid, TreeLeader { tag, reaped: false, record });
    }

    /// The roster for a guard. The first call creates it with all leaders whose `Child` exists and that were not
    /// reaped.
    pub(crate) fn roster(&mut self) -> io::Result<&Roster> {
        let roster = match self.roster.take() {
            Some(roster) => roster,
            None => {
                let mut roster = Roster::new()?;
                for (pid, leader) in self.leaders.iter_mut().filter(|(_, leader)| !leader.reaped) {
                    leader.record = Some(roster.add(leader.tag, *pid));
                }
                roster
            }
        };
        Ok(self.roster.insert(roster))
    }

    /// Must be called when a child was reaped, because from then on another process may get its process id.
    fn note_reaped(&mut self, pid: Pid) {
        let leader_record = self.leaders.get_mut(&pid).and_then(|leader| {
            leader.reaped = true;
            leader.record.take()
        });
        let record = leader_record.or_else(|| self.dropped.remove(&pid).flatten());
        if let (Some(record), Some(roster)) = (record, &mut self.roster) {
            roster.remove(record);
        }
    }

    /// Reaps a leader if it has ended. None if it has not. An error means that other code has reaped it.
    pub(crate) fn reap_leader(&mut self, pid: Pid, pidfd: BorrowedFd<'_>) -> Result<Option<Reaped>, Errno> {
        let reaped = wait_without_blocking(pidfd, AfterWait::Reap);
        if !matches!(reaped, Ok(None)) {
            self.note_reaped(pid);
        }
        reaped
    }

    /// Removes a leader that the caller has reaped itself.
    pub(crate) fn remove_reaped_leader(&mut self, pid: Pid, tag: Tag) {
        self.note_reaped(pid);
        self.remove_leader(pid, tag);
    }

    /// Removes a leader whose `Child` is dropped. If it has not been reaped, it is unclaimed from now on.
    pub(crate) fn remove_leader(&mut self, pid: Pid, tag: Tag) {
        if self.leaders.get(&pid).is_some_and(|leader| leader.tag == tag) {
            let unreaped = self.leaders.remove(&pid).filter(|leader| !leader.reaped);
            self.dropped.extend(unreaped.map(|leader| (pid, leader.record)));
        }
    }

    /// The number of leaders whose `Child` exists.
    pub(crate) fn leader_count(&self) -> usize {
        self.leaders.len()
    }

    pub(crate) fn guard_is_starting(&self) -> bool {
        self.starting_guards > 0
    }

    pub(crate) fn is_guard(&self, pid: Pid) -> bool {
        self.guards.contains(&pid)
    }

    /// The session (in the sense of `setsid`) of the leader of each tag. If orphans do not become children of this process, a leader that
    /// was reaped is left out: its number may have been given to a session that does not belong to the server, and nothing distinguishes
    /// the two sessions.
    pub(crate) fn sessions_by_tag(&self) -> HashMap<Tag, i32> {
        let leaders = self.leaders.iter().filter(|(_, leader)| self.adopts_orphans || !leader.reaped);
        leaders.map(|(pid, leader)| (leader.tag, pid.as_raw_nonzero().get())).collect()
    }

    /// Kills the process groups of the leaders in scope. This does not need to read `/proc`.
    pub(crate) fn kill_groups(&self, scope: &Scope) {
        // Another process group may have the number of a leader that was reaped.
        let leaders = self.leaders.iter().filter(|(_, leader)| !leader.reaped && scope.contains(leader.tag));
        for (pid, _) in leaders {
            let _may_have_ended = rustix::process::kill_process_group(*pid, Signal::KILL);
        }
    }

    /// Reaps a child if it has ended and is unclaimed.
    pub(crate) fn reap_unclaimed(&mut self, pid: Pid) {
        if self.is_ended_and_unclaimed(pid) {
            let _status_not_needed =
                rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
            self.note_reaped(pid);
            self.guards.remove(&pid);
        }
    }

    /// Calls [`Self::reap_unclaimed`] for each process id.
    pub(crate) fn reap_all_unclaimed(&mut self, pids: &[Pid]) {
        pids.iter().for_each(|pid| self.reap_unclaimed(*pid));
    }

    /// Reaps the leaders that have ended and whose `Child` was dropped.
    pub(crate) fn reap_dropped_leaders(&mut self) {
        let dropped: Vec<Pid> = self.dropped.keys().copied().collect();
        self.reap_all_unclaimed(&dropped);
    }

    /// Whether this process id belongs to a child that has ended and that no code waits for.
    fn is_ended_and_unclaimed(&self, pid: Pid) -> bool {
        // This check comes first because it makes no system call: while many trees end, this is called often for each of their leaders.
        if self.leaders.get(&pid).is_some_and(|leader| !leader.reaped) {
            return false;
        }
        if !has_ended(WaitId::Pid(pid)) {
            return false;
        }
        if self.dropped.contains_key(&pid) || self.guards.contains(&pid) {
            return true;
        }
        if !self.adopts_orphans {
            return false;
        }
        // If an outer server has started this process, this process has a tag itself, and its children without a tag of their own inherit
        // that tag.
        match rlimit::tag_of(pid).filter(|tag| Some(*tag) != rlimit::own_tag()) {
            Some(tag) if self.starting.contains(&tag) => false,
            Some(_) => true,
            // Every leader starts in its own session. A child in the session of this process was started by other code, which waits for it.
            None => self.starting.is_empty() && self.starting_guards == 0 && session_of(Some(pid)) != own_session(),
        }
    }
}

/// The session of this process. 0 if the session was created outside of this PID namespace, as for a server that is started in a running
/// container (`docker exec`).
pub(crate) fn own_session() -> i32 {
    session_of(None)
}

/// The session of a process, or of this process if `pid` is None.
fn session_of(pid: Option<Pid>) -> i32 {
    // SAFETY: takes and returns numbers. Rustix's own `getsid` makes a `Pid` of the answer, which must not be 0.
    unsafe { libc::getsid(Pid::as_raw(pid)) }
}

/// Whether any child has ended and was not reaped.
fn any_has_ended() -> bool {
    has_ended(WaitId::All)
}

fn has_ended(children: WaitId<'_>) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(rustix::process::waitid(children, options), Ok(Some(_)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tag::{ServerInstance, SessionNumbers};

    #[test]
    fn a_start_that_panics_is_no_longer_starting() {
        let tag = SessionNumbers::new(ServerInstance::unused(&HashSet::new())).new_session().next();
        let panicked = std::panic::catch_unwind(|| {
            let _starting = StartingLeader::new(tag);
            assert!(children().starting.contains(&tag));
            panic!("on purpose");
        });
        assert!(panicked.is_err());
        assert!(!children().starting.contains(&tag));
    }
}
