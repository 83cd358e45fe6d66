//! The kernel sessions (`setsid`) of the processes that a server had started and not reaped when the server ended.
//! The guard, a process that outlives the server, kills all processes in these sessions. This module makes no system
//! calls.
//!
//! A session has the number of the process that created it, its leader. The kernel does not reuse the number while a
//! process is in the session. When the session is empty, a process that does not belong to the server can get the
//! number and create a session with it. So a session must be forgotten as soon as its number may have been reused.

use std::collections::HashSet;

use crate::membership::Census;

/// Numbers of sessions that contained processes of the server at the last check.
#[derive(Default)]
pub(crate) struct OrphanedSessions {
    numbers: HashSet<i32>,
    /// The time of the last check, in clock ticks since boot.
    checked_at: u64,
}

impl OrphanedSessions {
    /// Sessions that existed when the server ended, at `server_ended` in clock ticks since boot.
    pub(crate) fn new(numbers: HashSet<i32>, server_ended: u64) -> Self {
        Self { numbers, checked_at: server_ended }
    }

    pub(crate) fn contains(&self, session: i32) -> bool {
        self.numbers.contains(&session)
    }

    /// Forgets the sessions in which `census`, a new list of all processes, has no process that was started before
    /// the last check. At most later processes are in such a session, and its number may have been reused.
    pub(crate) fn forget_possibly_reused(&mut self, census: &Census) {
        let Self { numbers, checked_at } = self;
        numbers.retain(|session| census.in_session(*session).any(|process| process.stat.started <= *checked_at));
    }

    /// Notes that all processes in the remaining sessions were signalled. Processes that were forked before `now` count as members of the
    /// session in the next census.
    pub(crate) fn note_all_signalled(&mut self, now: u64) {
        self.checked_at = now;
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::Pid;

    use super::*;
    use crate::membership::CensusProcess;
    use crate::procfs::Stat;

    /// A census of processes, each given as its process id, its session and its start time.
    fn census(processes: &[(i32, i32, u64)]) -> Census {
        let process = |&(pid, session, started): &(i32, i32, u64)| {
            let stat = Stat { started, ..Stat::running(1, session) };
            CensusProcess { pid: Pid::from_raw(pid).unwrap(), tag: None, stat }
        };
        Census::new(processes.iter().map(process).collect())
    }

    #[test]
    fn a_session_whose_number_may_be_reused_is_forgotten() {
        let mut sessions = OrphanedSessions::new(HashSet::from([20, 30, 40]), 100);
        sessions.forget_possibly_reused(&census(&[(20, 20, 90), (31, 30, 100), (40, 40, 101)]));
        assert!(sessions.contains(20) && sessions.contains(30));
        assert!(!sessions.contains(40), "its process started after the server had ended");
        sessions.note_all_signalled(110);
        sessions.forget_possibly_reused(&census(&[(20, 20, 111), (32, 30, 105)]));
        assert!(!sessions.contains(20), "its process started after all processes of the session were killed");
        assert!(sessions.contains(30), "its process was forked before its parent was killed");
        sessions.note_all_signalled(120);
        sessions.forget_possibly_reused(&census(&[]));
        sessions.forget_possibly_reused(&census(&[(30, 30, 110)]));
        assert!(!sessions.contains(30), "the session was empty in between");
    }
}
