//! Tags: the number that marks a process and everything it starts as ours. A tag says which server instance, which session and
//! which process it is; how it is put on a process is the business of `rlimit`.

use std::collections::HashSet;
use std::ffi::OsString;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex};

use crate::lock::lock;

const PROCESS_BITS: u32 = 18;
const SESSION_BITS: u32 = 24;
const INSTANCE_BITS: u32 = 20;

/// The two upper bits of every tag. As microseconds of uninterrupted realtime scheduling it is 146,000 years, which limits nobody
/// and which nobody sets by chance; "unlimited" has both upper bits set.
const MARK: u64 = 0b01;
const MARK_SHIFT: u32 = PROCESS_BITS + SESSION_BITS + INSTANCE_BITS;

/// Marks one started process and all its descendants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tag(u64);

impl Tag {
    pub(crate) fn new(instance: Instance, session: u32, process: u32) -> Self {
        let number = u64::from(instance.0) << (SESSION_BITS + PROCESS_BITS)
            | u64::from(session) << PROCESS_BITS
            | u64::from(process);
        Self(MARK << MARK_SHIFT | number)
    }

    /// The tag that a soft limit stands for; none if it is an ordinary limit.
    pub(crate) fn from_limit(limit: u64) -> Option<Self> {
        (limit >> MARK_SHIFT == MARK).then_some(Self(limit))
    }

    pub(crate) fn as_limit(self) -> u64 {
        self.0
    }

    pub(crate) fn instance(self) -> Instance {
        Instance(bits(self.0 >> (SESSION_BITS + PROCESS_BITS), INSTANCE_BITS))
    }

    pub(crate) fn session(self) -> u32 {
        bits(self.0 >> PROCESS_BITS, SESSION_BITS)
    }
}

fn bits(value: u64, count: u32) -> u32 {
    (value & ((1 << count) - 1)) as u32
}

/// One running server among those on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Instance(u32);

impl Instance {
    /// A random instance that is not among those in use.
    pub(crate) fn unused(in_use: &HashSet<Instance>) -> Self {
        loop {
            // The keys of a RandomState come from the operating system, so that two servers started together differ.
            let candidate = Self(bits(RandomState::new().hash_one(0), INSTANCE_BITS));
            if !in_use.contains(&candidate) {
                return candidate;
            }
        }
    }

    pub(crate) fn to_argument(self) -> OsString {
        format!("{:x}", self.0).into()
    }

    pub(crate) fn from_argument(argument: &str) -> Option<Self> {
        let number = u32::from_str_radix(argument, 16).ok()?;
        (number >> INSTANCE_BITS == 0).then_some(Self(number))
    }
}

/// Hands out session numbers; a number is not given again while its range lives.
#[derive(Debug)]
pub(crate) struct SessionNumbers {
    instance: Instance,
    state: Mutex<Numbers>,
}

#[derive(Debug, Default)]
struct Numbers {
    next: u32,
    taken: HashSet<u32>,
}

impl SessionNumbers {
    pub(crate) fn new(instance: Instance) -> Arc<Self> {
        Arc::new(Self { instance, state: Mutex::default() })
    }

    pub(crate) fn new_session(self: &Arc<Self>) -> SessionTags {
        SessionTags {
            own: Mutex::new(Own { current: self.take(), earlier: Vec::new(), issued: 0 }),
            numbers: Arc::clone(self),
        }
    }

    fn take(&self) -> u32 {
        let mut numbers = lock(&self.state);
        loop {
            let candidate = numbers.next;
            numbers.next = (candidate + 1) % (1 << SESSION_BITS);
            if numbers.taken.insert(candidate) {
                return candidate;
            }
        }
    }

    fn give_back(&self, number: u32) {
        lock(&self.state).taken.remove(&number);
    }
}

/// The tags of one session.
#[derive(Debug)]
pub struct SessionTags {
    own: Mutex<Own>,
    numbers: Arc<SessionNumbers>,
}

#[derive(Debug)]
struct Own {
    current: u32,
    earlier: Vec<u32>,
    issued: u32,
}

impl SessionTags {
    /// A tag that no other process of this server has.
    pub fn next(&self) -> Tag {
        let mut own = lock(&self.own);
        if own.issued == 1 << PROCESS_BITS {
            let full = std::mem::replace(&mut own.current, self.numbers.take());
            own.earlier.push(full);
            own.issued = 0;
        }
        let process = own.issued;
        own.issued += 1;
        Tag::new(self.numbers.instance, own.current, process)
    }

    pub(crate) fn scope(&self) -> Scope {
        let own = lock(&self.own);
        let mut sessions = own.earlier.clone();
        sessions.push(own.current);
        Scope::Sessions(self.numbers.instance, sessions)
    }
}

impl Drop for SessionTags {
    fn drop(&mut self) {
        let own = lock(&self.own);
        own.earlier.iter().for_each(|number| self.numbers.give_back(*number));
        self.numbers.give_back(own.current);
    }
}

/// Which tags are meant: of one process, of a session, or of everything the server has started.
#[derive(Clone, Debug)]
pub(crate) enum Scope {
    Tree(Tag),
    Sessions(Instance, Vec<u32>),
    Everything(Instance),
}

impl Scope {
    pub(crate) fn contains(&self, tag: Tag) -> bool {
        match self {
            Self::Tree(tree) => tag == *tree,
            Self::Sessions(instance, sessions) => tag.instance() == *instance && sessions.contains(&tag.session()),
            Self::Everything(instance) => tag.instance() == *instance,
        }
    }

    pub(crate) fn instance(&self) -> Instance {
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
    fn a_tag_keeps_its_parts_and_is_no_ordinary_limit() {
        let instance = Instance((1 << INSTANCE_BITS) - 1);
        let tag = Tag::new(instance, 0xABCDEF, (1 << PROCESS_BITS) - 1);
        assert_eq!((tag.instance(), tag.session()), (instance, 0xABCDEF));
        assert_eq!(Tag::from_limit(tag.as_limit()), Some(tag));
        assert_eq!(Tag::from_limit(u64::MAX), None, "unlimited");
        assert_eq!(Tag::from_limit(200_000), None, "a real limit");
    }

    #[test]
    fn a_full_session_number_is_followed_by_another() {
        let numbers = SessionNumbers::new(Instance(7));
        let range = numbers.new_session();
        let first = range.next();
        let last = (0..1 << PROCESS_BITS).map(|_| range.next()).last().unwrap();
        assert_ne!(first.session(), last.session());
        assert!(range.scope().contains(first) && range.scope().contains(last));
        assert!(!numbers.new_session().scope().contains(last));
    }

    #[test]
    fn a_session_number_is_not_given_twice_at_a_time() {
        let numbers = SessionNumbers::new(Instance(7));
        let held = numbers.new_session();
        lock(&numbers.state).next = 0;
        let other = numbers.new_session();
        assert_ne!(held.next().session(), other.next().session());
        drop(held);
        lock(&numbers.state).next = 0;
        assert_eq!(numbers.new_session().next().session(), 0);
    }

    #[test]
    fn an_instance_survives_the_command_line() {
        let instance = Instance(0xBEEF);
        let argument = instance.to_argument();
        assert_eq!(Instance::from_argument(argument.to_str().unwrap()), Some(instance));
        assert_eq!(Instance::from_argument("100000"), None);
        assert_eq!(Instance::from_argument("x"), None);
    }
}
