//! The roster: which processes lead a tree, written down where the guard can read it when the server is gone. A leader that has
//! thrown away its tag, and what it has started, is found by it.
//!
//! It is a file in memory that server and guard have open. The server writes one small record when a leader is started and when it
//! is reaped, which neither waits for the guard nor can be lost, and the guard reads it once, at the end.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::MemfdFlags;
use rustix::process::Pid;

use crate::descriptors::above_stdio;
use crate::tag::{Instance, Tag};

/// The tag and the process id, each as eight bytes. All zero: nobody.
const RECORD_BYTES: usize = 16;

/// The server's side.
#[derive(Debug)]
pub(crate) struct Roster {
    memory: OwnedFd,
    /// Records that were written and mean nobody any more.
    free: Vec<usize>,
    records: usize,
}

/// Where a leader stands in the roster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RosterLine(usize);

impl Roster {
    pub(crate) fn new() -> io::Result<Self> {
        let memory = above_stdio(rustix::fs::memfd_create(c"exec-server roster", MemfdFlags::CLOEXEC)?)?;
        Ok(Self { memory, free: Vec::new(), records: 0 })
    }

    pub(crate) fn enter(&mut self, tag: Tag, leader: Pid) -> RosterLine {
        let line = self.free.pop().unwrap_or_else(|| {
            self.records += 1;
            self.records - 1
        });
        let mut record = [0; RECORD_BYTES];
        let (of_tag, of_pid) = record.split_at_mut(RECORD_BYTES / 2);
        of_tag.copy_from_slice(&tag.as_limit().to_ne_bytes());
        of_pid.copy_from_slice(&i64::from(leader.as_raw_nonzero().get()).to_ne_bytes());
        self.write(line, &record);
        RosterLine(line)
    }

    pub(crate) fn strike_out(&mut self, line: RosterLine) {
        self.write(line.0, &[0; RECORD_BYTES]);
        self.free.push(line.0);
    }

    /// Without memory for it, the guard knows the leader by its tag only.
    fn write(&self, line: usize, record: &[u8]) {
        let _no_memory = rustix::io::pwrite(&self.memory, record, (line * RECORD_BYTES) as u64);
    }
}

impl AsFd for Roster {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }
}

/// The leaders of one server that are in a roster, as numbers of their sessions.
pub(crate) fn leaders(memory: BorrowedFd<'_>, instance: Instance) -> HashSet<i32> {
    let mut leaders = HashSet::new();
    let mut record = [0; RECORD_BYTES];
    let mut offset = 0;
    while rustix::io::pread(memory, &mut record, offset) == Ok(RECORD_BYTES) {
        offset += RECORD_BYTES as u64;
        let (of_tag, of_pid) = record.split_at(RECORD_BYTES / 2);
        let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
        let tag = Tag::from_limit(number(of_tag));
        if tag.is_some_and(|tag| tag.instance() == instance) {
            leaders.extend(i32::try_from(number(of_pid)).ok().filter(|pid| *pid > 0));
        }
    }
    leaders
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tag::SessionNumbers;

    #[test]
    fn a_roster_has_those_who_were_not_struck_out() {
        let instances = HashSet::new();
        let (ours, other) = (Instance::unused(&instances), Instance::unused(&instances));
        let (tags, others) = (SessionNumbers::new(ours).new_session(), SessionNumbers::new(other).new_session());
        let pid = |number| Pid::from_raw(number).unwrap();
        let mut roster = Roster::new().unwrap();
        assert_eq!(leaders(roster.as_fd(), ours), HashSet::new());
        let first = roster.enter(tags.next(), pid(101));
        roster.enter(tags.next(), pid(102));
        roster.enter(others.next(), pid(103));
        assert_eq!(leaders(roster.as_fd(), ours), HashSet::from([101, 102]));
        roster.strike_out(first);
        assert_eq!(leaders(roster.as_fd(), ours), HashSet::from([102]));
        roster.enter(tags.next(), pid(104));
        assert_eq!(leaders(roster.as_fd(), ours), HashSet::from([102, 104]));
        assert_eq!(leaders(roster.as_fd(), other), HashSet::from([103]));
        assert_eq!(roster.records, 3, "a line is used again");
    }
}
