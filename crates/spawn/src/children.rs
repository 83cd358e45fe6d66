//! The children of this process: which of them are leaders that somebody waits for, and which are strangers, orphans of our trees that
//! have come to us as their subreaper and that nobody waits for. Reaping happens under one lock, so that a number is never
//! freed and given out again between looking at it and acting on it.

use std::collections::{HashMap, HashSet};
use std::sync::{LazyLock, Mutex, MutexGuard};

use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, WaitIdStatus};

use crate::lock::lock;
use crate::procfs;
use crate::rlimit;
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
}

struct Leader {
    tag: Tag,
    reaped: bool,
}

impl Children {
    pub(crate) fn announce(&mut self, tag: Tag) {
        self.starting.insert(tag);
    }

    /// Ends the time of uncertainty: the announced child has this number, or there is none.
    pub(crate) fn settle(&mut self, tag: Tag, leader: Option<Pid>) {
        self.starting.remove(&tag);
        if let Some(pid) = leader {
            self.leaders.insert(pid, Leader { tag, reaped: false });
        }
    }

    /// Reaps a leader if it has ended.
    pub(crate) fn reap_leader(&mut self, pid: Pid, pidfd: BorrowedFd<'_>) -> Result<Option<WaitIdStatus>, Errno> {
        let status = rustix::process::waitid(WaitId::PidFd(pidfd), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
        if !matches!(status, Ok(None))
            && let Some(leader) = self.leaders.get_mut(&pid)
        {
            leader.reaped = true;
        }
        status
    }

    /// Nobody will wait for this leader any more; if it has not been reaped, it is a stranger from now on.
    pub(crate) fn forget_leader(&mut self, pid: Pid, tag: Tag) {
        if self.leaders.get(&pid).is_some_and(|leader| leader.tag == tag) {
            self.leaders.remove(&pid);
        }
    }

    /// How many leaders somebody waits for.
    pub(crate) fn count(&self) -> usize {
        self.leaders.len()
    }

    pub(crate) fn add_guard(&mut self, pid: Pid) {
        self.guards.insert(pid);
    }

    pub(crate) fn is_guard(&self, pid: Pid) -> bool {
        self.guards.contains(&pid)
    }

    /// The terminal sessions that were made for these tags.
    pub(crate) fn sessions(&self, scope: &Scope) -> HashSet<i32> {
        let of_scope =
            |(pid, leader): (&Pid, &Leader)| scope.contains(leader.tag).then_some(pid.as_raw_nonzero().get());
        self.leaders.iter().filter_map(of_scope).collect()
    }

    /// The terminal sessions that were made for any tag.
    pub(crate) fn all_sessions(&self) -> HashSet<i32> {
        self.leaders.keys().map(|pid| pid.as_raw_nonzero().get()).collect()
    }

    /// Reaps a child that has ended, if nobody waits for it.
    pub(crate) fn reap_stranger(&mut self, pid: Pid) {
        if self.is_stranger(pid) {
            let _nobody_asks =
                rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
            self.guards.remove(&pid);
        }
    }

    fn is_stranger(&self, pid: Pid) -> bool {
        let own = rustix::process::getpid().as_raw_nonzero().get();
        let Some(stat) = procfs::stat(pid) else {
            return false;
        };
        if !stat.is_gone() || stat.parent != own || self.leaders.get(&pid).is_some_and(|leader| !leader.reaped) {
            return false;
        }
        match rlimit::tag_of(pid) {
            Some(tag) if self.starting.contains(&tag) => false,
            Some(_) => true,
            // Whatever we spawn lives outside of our own session; children in it are of other code in this process, which waits
            // for them itself.
            None => self.starting.is_empty() && stat.session != own_session(),
        }
    }
}

/// 0 if the session was made outside of our PID namespace, as for a server that a container's runtime starts beside its first process.
pub(crate) fn own_session() -> i32 {
    // SAFETY: takes and returns numbers. Rustix's own `getsid` makes a `Pid` of the answer, which must not be 0.
    unsafe { libc::getsid(0) }
}

/// Whether any child waits to be reaped, by whomever.
pub(crate) fn any_has_ended() -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(rustix::process::waitid(WaitId::All, options), Ok(Some(_)))
}
