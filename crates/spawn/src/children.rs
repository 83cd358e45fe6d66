//! The children of this process: which of them are leaders that somebody waits for, and which are strangers, orphans of our trees that
//! have come to us as their subreaper and that nobody waits for. Reaping happens under one lock, so that a number is never
//! freed and given out again between looking at it and acting on it.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::{LazyLock, Mutex, MutexGuard};

use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus};

use crate::lock::lock;
use crate::rlimit;
use crate::roster::{Roster, RosterLine};
use crate::tag::{Scope, Tag};

/// Children belong to the whole process and so does this, even if there is more than one `Spawner`.
static CHILDREN: LazyLock<Mutex<Children>> = LazyLock::new(Mutex::default);

pub(crate) fn children() -> MutexGuard<'static, Children> {
    lock(&CHILDREN)
}

#[derive(Default)]
pub(crate) struct Children {
    /// Kept for as long as their `Child` lives, because a session keeps the number of its leader.
    leaders: HashMap<Pid, Leader>,
    /// Being spawned: they may already be running, and even dead, but their number is not known yet.
    starting: HashSet<Tag>,
    guards: HashSet<Pid>,
    /// They may already be running, but their numbers are not known yet.
    starting_guards: usize,
    /// None until there is a guard to read it.
    roster: Option<Roster>,
    /// Leaders that nobody waits for and that have not been reaped.
    forgotten: HashMap<Pid, RosterLine>,
}

struct Leader {
    tag: Tag,
    reaped: bool,
    /// None if it is reaped, so that no guard takes another process with its number for it, or if there is no roster.
    line: Option<RosterLine>,
}

/// A child with this tag is being started. Dropped, also in a panic, it says that no number of such a child is known: if there is one, it
/// is a stranger.
pub(crate) struct Announcement {
    tag: Tag,
}

impl Announcement {
    pub(crate) fn new(tag: Tag) -> Self {
        children().starting.insert(tag);
        Self { tag }
    }

    /// Ends the time of uncertainty: the announced child has this number.
    pub(crate) fn settle(self, leader: Pid) {
        children().add_leader(self.tag, leader);
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        children().starting.remove(&self.tag);
    }
}

/// A guard is being started. Dropped, also in a panic, it says that this is over.
pub(crate) struct GuardAnnouncement(());

impl GuardAnnouncement {
    pub(crate) fn new() -> Self {
        children().starting_guards += 1;
        Self(())
    }

    /// The guard has this number.
    pub(crate) fn settle(self, guard: Pid) {
        children().guards.insert(guard);
    }
}

impl Drop for GuardAnnouncement {
    fn drop(&mut self) {
        children().starting_guards -= 1;
    }
}

impl Children {
    fn add_leader(&mut self, tag: Tag, pid: Pid) {
        let line = self.roster.as_mut().map(|roster| roster.enter(tag, pid));
        self.leaders.insert(pid, Leader { tag, reaped: false, line });
    }

    /// The roster for a guard; it is made for the first one, and has everybody in it who is there.
    pub(crate) fn roster(&mut self) -> io::Result<&Roster> {
        let roster = match self.roster.take() {
            Some(roster) => roster,
            None => {
                let mut roster = Roster::new()?;
                for (pid, leader) in self.leaders.iter_mut().filter(|(_, leader)| !leader.reaped) {
                    leader.line = Some(roster.enter(leader.tag, *pid));
                }
                roster
            }
        };
        Ok(self.roster.insert(roster))
    }

    /// From now on the number may be that of another process.
    fn note_reaped(&mut self, pid: Pid) {
        let of_leader = self.leaders.get_mut(&pid).and_then(|leader| {
            leader.reaped = true;
            leader.line.take()
        });
        let line = of_leader.or_else(|| self.forgotten.remove(&pid));
        if let (Some(line), Some(roster)) = (line, &mut self.roster) {
            roster.strike_out(line);
        }
    }

    /// Reaps a leader if it has ended.
    pub(crate) fn reap_leader(&mut self, pid: Pid, pidfd: BorrowedFd<'_>) -> Result<Option<WaitIdStatus>, Errno> {
        let status = rustix::process::waitid(WaitId::PidFd(pidfd), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
        if !matches!(status, Ok(None)) {
            self.note_reaped(pid);
        }
        status
    }

    /// A leader that nobody could watch has been reaped.
    pub(crate) fn forget_reaped(&mut self, pid: Pid, tag: Tag) {
        self.note_reaped(pid);
        self.forget_leader(pid, tag);
    }

    /// Nobody will wait for this leader any more; if it has not been reaped, it is a stranger from now on.
    pub(crate) fn forget_leader(&mut self, pid: Pid, tag: Tag) {
        if self.leaders.get(&pid).is_some_and(|leader| leader.tag == tag) {
            let line = self.leaders.remove(&pid).and_then(|leader| leader.line);
            self.forgotten.extend(line.map(|line| (pid, line)));
        }
    }

    /// How many leaders somebody waits for.
    pub(crate) fn count(&self) -> usize {
        self.leaders.len()
    }

    pub(crate) fn guard_is_starting(&self) -> bool {
        self.starting_guards > 0
    }

    pub(crate) fn is_guard(&self, pid: Pid) -> bool {
        self.guards.contains(&pid)
    }

    /// The terminal sessions that were made for each tag.
    pub(crate) fn sessions_by_tag(&self) -> HashMap<Tag, i32> {
        self.leaders.iter().map(|(pid, leader)| (leader.tag, pid.as_raw_nonzero().get())).collect()
    }

    /// Kills the process groups of the leaders in scope, which are known without a look at the machine.
    pub(crate) fn kill_groups(&self, scope: &Scope) {
        // The number of a leader that has been reaped may be that of another group.
        let leaders = self.leaders.iter().filter(|(_, leader)| !leader.reaped && scope.contains(leader.tag));
        for (pid, _) in leaders {
            let _may_have_ended = rustix::process::kill_process_group(*pid, Signal::KILL);
        }
    }

    /// Reaps a child that has ended, if nobody waits for it.
    pub(crate) fn reap_stranger(&mut self, pid: Pid) {
        if self.is_stranger(pid) {
            let _nobody_asks =
                rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
            self.note_reaped(pid);
            self.guards.remove(&pid);
        }
    }

    /// The same for several.
    pub(crate) fn reap_strangers(&mut self, pids: &[Pid]) {
        pids.iter().for_each(|pid| self.reap_stranger(*pid));
    }

    /// Whether this is a child of ours that has ended and that nobody waits for. Needs no descriptor.
    fn is_stranger(&self, pid: Pid) -> bool {
        // Asked first, because it costs nothing: when many trees end at once, all their leaders come here again and again.
        if self.leaders.get(&pid).is_some_and(|leader| !leader.reaped) {
            return false;
        }
        if !has_ended(WaitId::Pid(pid)) {
            return false;
        }
        // A server that was itself started under a tag passes that on to what it starts without one.
        match rlimit::tag_of(pid).filter(|tag| Some(*tag) != rlimit::own_tag()) {
            Some(tag) if self.starting.contains(&tag) => false,
            Some(_) => true,
            // Whatever we spawn lives outside of our own session; children in it are of other code in this process, which waits
            // for them itself.
            None => self.starting.is_empty() && self.starting_guards == 0 && session_of(Some(pid)) != own_session(),
        }
    }
}

/// 0 if the session was made outside of our PID namespace, as for a server that a container's runtime starts beside its first process.
pub(crate) fn own_session() -> i32 {
    session_of(None)
}

/// The session of a process, or of ours.
fn session_of(pid: Option<Pid>) -> i32 {
    // SAFETY: takes and returns numbers. Rustix's own `getsid` makes a `Pid` of the answer, which must not be 0.
    unsafe { libc::getsid(Pid::as_raw(pid)) }
}

/// Whether any child waits to be reaped, by whomever.
pub(crate) fn any_has_ended() -> bool {
    has_ended(WaitId::All)
}

fn has_ended(children: WaitId<'_>) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(rustix::process::waitid(children, options), Ok(Some(_)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tag::{Instance, SessionNumbers};

    #[test]
    fn a_start_that_panics_is_announced_no_more() {
        let tag = SessionNumbers::new(Instance::unused(&HashSet::new())).new_session().next();
        let panicked = std::panic::catch_unwind(|| {
            let _announcement = Announcement::new(tag);
            assert!(children().starting.contains(&tag));
            panic!("on purpose");
        });
        assert!(panicked.is_err());
        assert!(!children().starting.contains(&tag));
    }
}
