//! The sessions that leaders of a server have left behind when the server ended. It is a value: it asks the operating system nothing.
//!
//! The number of a session is that of the leader that made it, and the kernel does not give it again while anybody is in the session. After
//! that, a process that has nothing to do with the server can get it, and make a session of that number.

use std::collections::HashSet;

use crate::family::Census;

/// Numbers of sessions that were in use by the server's processes when they were last looked at.
#[derive(Default)]
pub(crate) struct LeftSessions {
    numbers: HashSet<i32>,
    /// When they were last known to be in use, in clock ticks since boot.
    in_use_at: u64,
}

impl LeftSessions {
    /// Sessions that were in use when the server ended.
    pub(crate) fn at_the_end(numbers: HashSet<i32>, end: u64) -> Self {
        Self { numbers, in_use_at: end }
    }

    pub(crate) fn contains(&self, session: i32) -> bool {
        self.numbers.contains(&session)
    }

    /// Forgets the sessions in which nobody is who was there when they were last known to be in use: whoever is in one of these now
    /// may be somebody else.
    pub(crate) fn handle_census(&mut self, census: &Census) {
        let Self { numbers, in_use_at } = self;
        numbers.retain(|session| census.in_session(*session).any(|row| row.stat.started <= *in_use_at));
    }

    /// A pass has signalled everybody in the sessions that are left. Whoever was born in one of them before that is looked for by the next.
    pub(crate) fn handle_pass(&mut self, now: u64) {
        self.in_use_at = now;
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::Pid;

    use super::*;
    use crate::family::Row;
    use crate::procfs::Stat;

    fn census(rows: &[(i32, i32, u64)]) -> Census {
        let row = |&(pid, session, started): &(i32, i32, u64)| {
            let stat = Stat { started, ..Stat::running(1, session) };
            Row { pid: Pid::from_raw(pid).unwrap(), tag: None, stat }
        };
        Census::new(rows.iter().map(row).collect())
    }

    #[test]
    fn a_session_whose_number_comes_again_is_somebody_elses() {
        let mut left = LeftSessions::at_the_end(HashSet::from([20, 30, 40]), 100);
        left.handle_census(&census(&[(20, 20, 90), (31, 30, 100), (40, 40, 101)]));
        assert!(left.contains(20) && left.contains(30));
        assert!(!left.contains(40), "it began after the end of the server");
        left.handle_pass(110);
        left.handle_census(&census(&[(20, 20, 111), (32, 30, 105)]));
        assert!(!left.contains(20), "it began after everybody in the session was killed");
        assert!(left.contains(30), "it was born before its parent was killed");
        left.handle_pass(120);
        left.handle_census(&census(&[]));
        left.handle_census(&census(&[(30, 30, 110)]));
        assert!(!left.contains(30), "the session was empty in between");
    }
}
