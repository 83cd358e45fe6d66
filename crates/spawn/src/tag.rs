//! Tags: numbers that mark a process and all of its descendants. A tag consists of the number of the server, of the
//! session and of the process. A session in this module is that of a client, not that of `setsid`. This module
//! computes and issues tags; `rlimit` sets and reads the tag of a process. Start with [`Tag`] and [`SessionTags`]; a
//! [`Scope`] says which processes a kill is for.

use std::collections::HashSet;
use std::ffi::OsString;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex};

use crate::lock::lock;

const PROCESS_BITS: u32 = 18;
const SESSION_BITS: u32 = 24;
const INSTANCE_BITS: u32 = 20;

/// The two upper bits of every tag. A tag is set as a limit of realtime CPU time in microseconds, and these bits make
/// that limit at least 146,000 years. So a tag limits nothing, and no user sets such a limit by chance. The value for
/// "unlimited" is no tag: both of its upper bits are set.
const MARK: u64 = 0b01;
const MARK_SHIFT: u32 = PROCESS_BITS + SESSION_BITS + INSTANCE_BITS;

/// Marks a started process and all of its descendants, which inherit the tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tag(u64);

impl Tag {
    pub(crate) fn new(instance: ServerInstance, session: u32, process: u32) -> Self {
        let number = u64::from(instance.0) << (SESSION_BITS + PROCESS_BITS)
            | u64::from(session) << PROCESS_BITS
            | u64::from(process);
        Self(MARK << MARK_SHIFT | number)
    }

    /// The tag that a soft limit stands for. None for an ordinary limit.
    pub(crate) fn from_limit(limit: u64) -> Option<Self> {
        (limit >> MARK_SHIFT == MARK).then_some(Self(limit))
    }

    pub(crate) fn as_limit(self) -> u64 {
        self.0
    }

    pub(crate) fn instance(self) -> ServerInstance {
        ServerInstance(low_bits(self.0 >> (SESSION_BITS + PROCESS_BITS), INSTANCE_BITS))
    }

    pub(crate) fn session(self) -> u32 {
        low_bits(self.0 >> PROCESS_BITS, SESSION_BITS)
    }
}

fn low_bits(value: u64, count: u32) -> u32 {
    (value & ((1 << count) - 1)) as u32
}

/// The number of one running server among all servers on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ServerInstance(u32);

impl ServerInstance {
    /// Chooses a random number that is not in `in_use`.
    pub(crate) fn unused(in_use: &HashSet<ServerInstance>) -> Self {
        loop {
            // The keys of a RandomState come from the operating system, so two servers that start at the same time
            // almost never get the same number.
            let candidate = Self(low_bits(RandomState::new().hash_one(0), INSTANCE_BITS));
            if !in_use.contains(&candidate) {
                return candidate;
            }
        }
    }

    /// The number as text, for the command line of the guard, the process that kills all trees after the server has
    /// ended.
    pub(crate) fn to_argument(self) -> OsString {
        format!("{:x}", self.0).into()
    }

    /// Reads the text that [`Self::to_argument`] makes. None if it is not valid.
    pub(crate) fn from_argument(argument: &str) -> Option<Self> {
        let number = u32::from_str_radix(argument, 16).ok()?;
        (number >> INSTANCE_BITS == 0).then_some(Self(number))
    }
}

/// Issues session numbers. A number is not issued again while its [`SessionTags`] exist.
#[derive(Debug)]
pub(crate) struct SessionNumbers {
    instance: ServerInstance,
    pool: Mutex<NumberPool>,
}

#[derive(Debug, Default)]
struct NumberPool {
    /// The number to try next.
    next: u32,
    in_use: HashSet<u32>,
}

impl SessionNumbers {
    pub(crate) fn new(instance: ServerInstance) -> Arc<Self> {
        Arc::new(Self { instance, pool: Mutex::default() })
    }

    pub(crate) fn new_session(self: &Arc<Self>) -> SessionTags {
        SessionTags {
            issued: Mutex::new(IssuedTags { current: self.take(), earlier: Vec::new(), count: 0 }),
            numbers: Arc::clone(self),
        }
    }

    fn take(&self) -> u32 {
        let mut numbers = lock(&self.pool);
        loop {
            let candidate = numbers.next;
            numbers.next = (candidate + 1) % (1 << SESSION_BITS);
            if numbers.in_use.insert(candidate) {
                return candidate;
            }
        }
    }

    fn release(&self, number: u32) {
        lock(&self.pool).in_use.remove(&number);
    }
}

/// Issues the tags of one session. Its session numbers can be used again by other sessions when this is dropped, so keep it until all
/// processes of the session have ended.
#[derive(Debug)]
pub struct SessionTags {
    issued: Mutex<IssuedTags>,
    numbers: Arc<SessionNumbers>,
}

#[derive(Debug)]
struct IssuedTags {
    /// The session number of the next tags.
    current: u32,
    /// Session numbers of which all tags have been issued.
    earlier: Vec<u32>,
    /// How many tags have been issued for `current`.
    count: u32,
}

impl SessionTags {
    /// Issues a tag that no other process of this server has.
    pub fn next(&self) -> Tag {
        let mut issued = lock(&self.issued);
        if issued.count == 1 << PROCESS_BITS {
            let full = std::mem::replace(&mut issued.current, self.numbers.take());
            issued.earlier.push(full);
            issued.count = 0;
        }
        let process = issued.count;
        issued.count += 1;
        Tag::new(self.numbers.instance, issued.current, process)
    }

    pub(crate) fn scope(&self) -> Scope {
        let issued = lock(&self.issued);
        let mut sessions = issued.earlier.clone();
        sessions.push(issued.current);
        Scope::Sessions(self.numbers.instance, sessions)
    }
}

impl Drop for SessionTags {
    fn drop(&mut self) {
        let issued = lock(&self.issued);
        issued.earlier.iter().for_each(|number| self.numbers.release(*number));
        self.numbers.release(issued.current);
    }
}

/// The processes that a kill or a signal is for. A tree is a process that the server has started, with all of its
/// descendants.
#[derive(Clone, Debug)]
pub(crate) enum Scope {
    Tree(Tag),
    /// All trees with one of these session numbers. One session can have more than one number.
    Sessions(ServerInstance, Vec<u32>),
    /// All trees of a server.
    Everything(ServerInstance),
}

impl Scope {
    pub(crate) fn contains(&self, tag: Tag) -> bool {
        match self {
            Self::Tree(tree) => tag == *tree,
            Self::Sessions(instance, sessions) => tag.instance() == *instance && sessions.contains(&tag.session()),
            Self::Everything(instance) => tag.instance() == *instance,
        }
    }

    pub(crate) fn instance(&self) -> ServerInstance {
        match self {
            Self::Tree(tag) => tag.instance(),
            Self::Sessions(instance, _) | Self::Everything(instance) => *instance,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_keeps_its_parts_and_ordinary_limits_are_no_tags() {
        let instance = ServerInstance((1 << INSTANCE_BITS) - 1);
        let tag = Tag::new(instance, 0xABCDEF, (1 << PROCESS_BITS) - 1);
        assert_eq!((tag.instance(), tag.session()), (instance, 0xABCDEF));
        assert_eq!(Tag::from_limit(tag.as_limit()), Some(tag));
        assert_eq!(Tag::from_limit(u64::MAX), None, "unlimited");
        assert_eq!(Tag::from_limit(200_000), None, "a real limit");
    }

    #[test]
    fn a_session_gets_another_number_when_one_is_full_and_its_scope_contains_both() {
        let numbers = SessionNumbers::new(ServerInstance(7));
        let tags = numbers.new_session();
        let first = tags.next();
        let last = (0..1 << PROCESS_BITS).map(|_| tags.next()).last().unwrap();
        assert_ne!(first.session(), last.session());
        assert!(tags.scope().contains(first) && tags.scope().contains(last));
        assert!(!numbers.new_session().scope().contains(last));
    }

    #[test]
    fn a_session_number_is_issued_again_only_after_its_session_is_dropped() {
        let numbers = SessionNumbers::new(ServerInstance(7));
        let held = numbers.new_session();
        lock(&numbers.pool).next = 0;
        let other = numbers.new_session();
        assert_ne!(held.next().session(), other.next().session());
        drop(held);
        lock(&numbers.pool).next = 0;
        assert_eq!(numbers.new_session().next().session(), 0);
    }

    #[test]
    fn an_instance_can_be_passed_as_an_argument_and_invalid_arguments_are_refused() {
        let instance = ServerInstance(0xBEEF);
        let argument = instance.to_argument();
        assert_eq!(ServerInstance::from_argument(argument.to_str().unwrap()), Some(instance));
        assert_eq!(ServerInstance::from_argument("100000"), None, "more than 20 bits");
        assert_eq!(ServerInstance::from_argument("x"), None);
    }
}
