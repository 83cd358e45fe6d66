//! The sessions (in the sense of `setsid`) whose server has ended. The guard kills all processes in them. This module is a value that makes
//! no system calls.
//!
//! A session has the number of the leader that created it. The kernel does not reuse the number while a process is in the session. After
//! that, a process that does not belong to the server can get the number and create a session with it. So a session must be forgotten
//! before its number can be reused.

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

    /// Takes a new list of all processes, and forgets the sessions without a process that was started before the last
    /// check. Only later processes are in such a session, and its number may have been reused.
    pub(crate) fn handle_census(&mut self, census: &Census) {
        let Self { numbers, checked_at } = self;
        numbers.retain(|session| census.in_session(*session).any(|process| process.stat.started <= *checked_at));
    }

    /// Notes that all processes in the remaining sessions were signalled. Processes that were forked before `now` count as members of the
    /// session in the next census.
    pub(crate) fn handle_pass(&mut self, now: u64) {
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
        sessions.handle_census(&census(&[(20, 20, 90), (31, 30, 100), (40, 40, 101)]));
        assert!(sessions.contains(20) && sessions.contains(30));
        assert!(!sessions.contains(40), "its process started after the server had ended");
        sessions.handle_pass(110);
        sessions.handle_census(&census(&[(20, 20, 111), (32, 30, 105)]));
        assert!(!sessions.contains(20), "its process started after all processes of the session were killed");
        assert!(sessions.contains(30), "its process was forked before its parent was killed");
        sessions.handle_pass(120);
        sessions.handle_census(&census(&[]));
        sessions.handle_census(&census(&[(30, 30, 110)]));
        assert!(!sessions.contains(30), "the session was empty in between");
    }
}
