//! The roster: a list of the leaders, the processes that the server has started itself and has not reaped. The guard
//! is a process that kills all of them and their descendants after the server has ended. By the roster it also finds
//! leaders and descendants that have removed their tag, a number that every process inherits as a resource limit.
//!
//! The roster is a file in memory (`memfd`) that the server and the guard have open. The server writes a record when a leader is started
//! and clears it when the leader is reaped. Writing does not wait for the guard, and records are not lost when the server is killed.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::MemfdFlags;
use rustix::process::Pid;

use crate::descriptors::above_stdio;
use crate::tag::{ServerInstance, Tag};

/// A record is the tag and the process id, eight bytes each. A record of zeros is free.
const RECORD_BYTES: usize = 16;

/// The server's side of the roster, which writes.
#[derive(Debug)]
pub(crate) struct Roster {
    memory: OwnedFd,
    /// Numbers of records that were cleared and can be used again.
    free: Vec<usize>,
    /// How many records the file has, free ones included.
    records: usize,
}

/// The number of a leader's record in the roster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RosterRecord(usize);

impl Roster {
    pub(crate) fn new() -> io::Result<Self> {
        let memory = above_stdio(rustix::fs::memfd_create(c"exec-server roster", MemfdFlags::CLOEXEC)?)?;
        Ok(Self { memory, free: Vec::new(), records: 0 })
    }

    pub(crate) fn add(&mut self, tag: Tag, leader: Pid) -> RosterRecord {
        let number = self.free.pop().unwrap_or_else(|| {
            self.records += 1;
            self.records - 1
        });
        let mut record = [0; RECORD_BYTES];
        let (tag_bytes, pid_bytes) = record.split_at_mut(RECORD_BYTES / 2);
        tag_bytes.copy_from_slice(&tag.as_limit().to_ne_bytes());
        pid_bytes.copy_from_slice(&i64::from(leader.as_raw_nonzero().get()).to_ne_bytes());
        self.write(number, &record);
        RosterRecord(number)
    }

    pub(crate) fn remove(&mut self, record: RosterRecord) {
        self.write(record.0, &[0; RECORD_BYTES]);
        self.free.push(record.0);
    }

    /// An error, such as a lack of memory, is ignored: the guard then finds the leader by its tag only.
    fn write(&self, number: usize, record: &[u8]) {
        let _ignored = rustix::io::pwrite(&self.memory, record, (number * RECORD_BYTES) as u64);
    }
}

impl AsFd for Roster {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }
}

/// The guard's side of the roster: the process ids of the leaders of one server. Each leader also leads a kernel
/// session (`setsid`) that has the same number.
pub(crate) fn leaders(memory: BorrowedFd<'_>, instance: ServerInstance) -> HashSet<i32> {
    let mut leaders = HashSet::new();
    let mut record = [0; RECORD_BYTES];
    let mut offset = 0;
    while rustix::io::pread(memory, &mut record, offset) == Ok(RECORD_BYTES) {
        offset += RECORD_BYTES as u64;
        let (tag_bytes, pid_bytes) = record.split_at(RECORD_BYTES / 2);
        let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
        let tag = Tag::from_limit(number(tag_bytes));
        if tag.is_some_and(|tag| tag.instance() == instance) {
            leaders.extend(i32::try_from(number(pid_bytes)).ok().filter(|pid| *pid > 0));
        }
    }
    leaders
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tag::SessionNumbers;

    #[test]
    fn leaders_are_listed_for_each_server_until_they_are_removed_and_records_are_reused() {
        let instances = HashSet::new();
        let (ours, other) = (ServerInstance::unused(&instances), ServerInstance::unused(&instances));
        let (tags, others) = (SessionNumbers::new(ours).new_session(), SessionNumbers::new(other).new_session());
        let pid = |number| Pid::from_raw(number).unwrap();
        let mut roster = Roster::new().unwrap();
        assert_eq!(leaders(roster.as_fd(), ours), HashSet::new());
        let first = roster.add(tags.next(), pid(101));
        roster.add(tags.next(), pid(102));
        roster.add(others.next(), pid(103));
        assert_eq!(leaders(roster.as_fd(), ours), HashSet::from([101, 102]));
        roster.remove(first);
        assert_eq!(leaders(roster.as_fd(), ours), HashSet::from([102]));
        roster.add(tags.next(), pid(104));
        assert_eq!(leaders(roster.as_fd(), ours), HashSet::from([102, 104]));
        assert_eq!(leaders(roster.as_fd(), other), HashSet::from([103]));
        assert_eq!(roster.records, 3, "a cleared record is used again");
    }
}
