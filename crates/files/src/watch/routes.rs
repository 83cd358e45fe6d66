//! Which watches are told about which directory. All watches share one inotify instance, and the kernel has one number for a directory
//! however many of them watch it. A value: it decides, and [`hub`](super::hub) talks to the kernel.
//!
//! To add a directory takes a system call that can hang on a dead mount, so nothing is locked meanwhile. What was read from the kernel
//! during that time is remembered, and told to the new watch when its addition is finished.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use rustix::fs::inotify::{ReadFlags, WatchFlags};
use rustix::io::Errno;

use super::WatchedDirectoryCount;
use super::inbox::Inbox;
use super::kernel::{Event, Number};

/// Events and removals that are remembered for additions that are not finished. An addition that takes longer than it takes to
/// forget an event is told of an overflow.
const REMEMBERED: usize = 1024;

/// Told to every watch of a directory, whatever it has asked for.
const ALWAYS_TOLD: ReadFlags = ReadFlags::IGNORED.union(ReadFlags::UNMOUNT);

/// Names a watch among those of the hub.
pub(super) type WatchNumber = u64;

/// When an addition was begun, counted in events and removals.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket(u64);

/// What became of an addition.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Addition {
    Added,
    /// The kernel forgot the directory meanwhile, because another watch has ended: ask the kernel again.
    Again,
    /// The session has as many as it leaves for others, which is this number.
    TooMany(usize),
}

#[derive(Default)]
pub(super) struct Routes {
    members: HashMap<WatchNumber, Member>,
    by_number: HashMap<Number, Vec<Route>>,
    /// Directories of all members; one that several watch counts for each of them.
    total: usize,
    last_member: WatchNumber,
    additions: usize,
    clock: u64,
    events: VecDeque<(u64, Event)>,
    removals: VecDeque<(u64, Number)>,
    /// Why nothing is told any more.
    failure: Option<Errno>,
}

struct Member {
    inbox: Arc<Inbox>,
    share: WatchedDirectoryCount,
    numbers: HashSet<Number>,
}

struct Route {
    watch: WatchNumber,
    /// The kernel tells what any of the watches has asked for.
    wanted: ReadFlags,
}

impl Routes {
    pub(super) fn join(&mut self, inbox: Arc<Inbox>, share: WatchedDirectoryCount) -> WatchNumber {
        if let Some(error) = self.failure {
            inbox.fail(error);
        }
        self.last_member += 1;
        self.members.insert(self.last_member, Member { inbox, share, numbers: HashSet::new() });
        self.last_member
    }

    /// The directories of a watch, each of which is to be [removed](Self::remove) before the watch [leaves](Self::leave).
    pub(super) fn numbers_of(&self, watch: WatchNumber) -> Vec<Number> {
        self.members.get(&watch).map(|member| member.numbers.iter().copied().collect()).unwrap_or_default()
    }

    pub(super) fn leave(&mut self, watch: WatchNumber) {
        self.members.remove(&watch);
    }

    /// To be called before the kernel is asked for a number.
    pub(super) fn begin_addition(&mut self) -> Ticket {
        self.additions += 1;
        Ticket(self.clock)
    }

    /// The kernel has refused.
    pub(super) fn abandon_addition(&mut self) {
        self.additions -= 1;
        if self.additions == 0 {
            self.events = VecDeque::new();
            self.removals = VecDeque::new();
        }
    }

    /// The kernel has given a number. `limit` is how many directories this process may watch.
    pub(super) fn finish_addition(
        &mut self,
        ticket: Ticket,
        watch: WatchNumber,
        number: Number,
        flags: WatchFlags,
        limit: usize,
    ) -> Addition {
        let added = self.try_finish(ticket, watch, number, flags, limit);
        self.abandon_addition();
        added
    }

    fn try_finish(
        &mut self,
        Ticket(begun): Ticket,
        watch: WatchNumber,
        number: Number,
        flags: WatchFlags,
        limit: usize,
    ) -> Addition {
        let is_forgotten =
            |oldest: Option<u64>, len: usize| len == REMEMBERED && oldest.is_some_and(|oldest| oldest > begun);
        let oldest_removal = self.removals.front().map(|(at, _)| *at);
        if is_forgotten(oldest_removal, self.removals.len())
            || self.removals.iter().any(|(at, removed)| *at > begun && *removed == number)
        {
            return Addition::Again;
        }
        let Some(member) = self.members.get_mut(&watch) else { return Addition::Added };
        if !member.numbers.contains(&number) {
            let taken = member.share.taken();
            if taken + self.total >= limit {
                return Addition::TooMany(taken);
            }
            member.numbers.insert(number);
            member.share.add();
            self.total += 1;
        }
        let wanted = ReadFlags::from_bits_truncate(flags.bits());
        let routes = self.by_number.entry(number).or_default();
        match routes.iter_mut().find(|route| route.watch == watch) {
            Some(route) => route.wanted |= wanted,
            None => routes.push(Route { watch, wanted }),
        }
        let since = self.events.iter().filter(|(at, _)| *at > begun);
        for (_, event) in since {
            if event.is(ReadFlags::QUEUE_OVERFLOW) {
                member.inbox.overflow();
            } else if event.number == number && event.is(wanted | ALWAYS_TOLD) {
                member.inbox.push(event.clone());
            }
        }
        if is_forgotten(self.events.front().map(|(at, _)| *at), self.events.len()) {
            member.inbox.overflow();
        }
        Addition::Added
    }

    /// A watch no longer needs a directory. Returns whether nobody does, so that the kernel can forget it; that must be done before
    /// anything else is asked of this value.
    #[must_use]
    pub(super) fn remove(&mut self, watch: WatchNumber, number: Number) -> bool {
        let is_member = self.members.get_mut(&watch).is_some_and(|member| member.give_back(number));
        let Some(routes) = self.by_number.get_mut(&number).filter(|_| is_member) else { return false };
        self.total -= 1;
        routes.retain(|route| route.watch != watch);
        routes.is_empty() && self.forget(number)
    }

    /// Whether nobody watches a directory. If so, the kernel is to forget it.
    #[must_use]
    pub(super) fn is_unused(&mut self, number: Number) -> bool {
        !self.by_number.contains_key(&number) && self.forget(number)
    }

    fn forget(&mut self, number: Number) -> bool {
        self.by_number.remove(&number);
        self.clock += 1;
        if self.additions > 0 {
            remember(&mut self.removals, (self.clock, number));
        }
        true
    }

    /// Tells an event to the watches that want it.
    pub(super) fn tell(&mut self, event: Event) {
        self.clock += 1;
        if event.is(ReadFlags::QUEUE_OVERFLOW) {
            self.members.values().for_each(|member| member.inbox.overflow());
        }
        for route in self.by_number.get(&event.number).into_iter().flatten() {
            if event.is(route.wanted | ALWAYS_TOLD)
                && let Some(member) = self.members.get(&route.watch)
            {
                member.inbox.push(event.clone());
            }
        }
        if event.is(ReadFlags::IGNORED) {
            // The directory is gone, and the kernel's watch with it.
            for route in self.by_number.remove(&event.number).unwrap_or_default() {
                let member = self.members.get_mut(&route.watch);
                self.total -= usize::from(member.is_some_and(|member| member.give_back(event.number)));
            }
        }
        if self.additions > 0 {
            remember(&mut self.events, (self.clock, event));
        }
    }

    /// Nothing more can be read from the kernel. Every watch is told, and so is one that joins later.
    pub(super) fn fail(&mut self, error: Errno) {
        self.failure = Some(error);
        self.members.values().for_each(|member| member.inbox.fail(error));
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }
}

impl Member {
    fn give_back(&mut self, number: Number) -> bool {
        let had = self.numbers.remove(&number);
        if had {
            self.share.give_back();
        }
        had
    }
}

fn remember<T>(queue: &mut VecDeque<T>, one: T) {
    if queue.len() == REMEMBERED {
        queue.pop_front();
    }
    queue.push_back(one);
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: usize = 1000;

    fn event(number: Number, flags: ReadFlags) -> Event {
        Event { number, flags, cookie: 0, name: None }
    }

    fn member(routes: &mut Routes) -> (WatchNumber, Arc<Inbox>) {
        let inbox = Arc::new(Inbox::default());
        (routes.join(Arc::clone(&inbox), WatchedDirectoryCount::default()), inbox)
    }

    fn add(routes: &mut Routes, watch: WatchNumber, number: Number, flags: WatchFlags) {
        let ticket = routes.begin_addition();
        assert_eq!(routes.finish_addition(ticket, watch, number, flags, MANY), Addition::Added);
    }

    fn told(inbox: &Inbox) -> (Vec<Number>, bool) {
        let mut events = Vec::new();
        let overflow = inbox.take(&mut events).unwrap();
        (events.iter().map(|event| event.number).collect(), overflow)
    }

    #[test]
    fn each_watch_is_told_what_it_wants_of_a_shared_directory() {
        let mut routes = Routes::default();
        let ((one, first), (other, second)) = (member(&mut routes), member(&mut routes));
        add(&mut routes, one, 7, WatchFlags::CREATE);
        add(&mut routes, other, 7, WatchFlags::CREATE | WatchFlags::MODIFY);
        routes.tell(event(7, ReadFlags::MODIFY));
        routes.tell(event(7, ReadFlags::CREATE));
        routes.tell(event(8, ReadFlags::CREATE));
        assert_eq!((told(&first), told(&second)), ((vec![7], false), (vec![7, 7], false)));
        assert!(!routes.remove(one, 7), "another still needs it");
        routes.tell(event(7, ReadFlags::CREATE));
        assert_eq!((told(&first), told(&second)), ((vec![], false), (vec![7], false)));
        assert!(routes.remove(other, 7) && !routes.remove(other, 7));
        routes.tell(event(-1, ReadFlags::QUEUE_OVERFLOW));
        assert_eq!((told(&first), told(&second)), ((vec![], true), (vec![], true)), "an overflow concerns all");
    }

    #[test]
    fn what_happens_during_an_addition_is_told_when_it_is_finished() {
        let mut routes = Routes::default();
        let ((one, first), (other, second)) = (member(&mut routes), member(&mut routes));
        add(&mut routes, one, 7, WatchFlags::CREATE);
        routes.tell(event(7, ReadFlags::CREATE));
        let ticket = routes.begin_addition();
        routes.tell(event(7, ReadFlags::CREATE));
        routes.tell(event(9, ReadFlags::CREATE));
        routes.tell(event(7, ReadFlags::MODIFY));
        let added = routes.finish_addition(ticket, other, 7, WatchFlags::CREATE, MANY);
        assert_eq!((added, told(&second)), (Addition::Added, (vec![7], false)));
        assert_eq!(told(&first), (vec![7, 7], false));
        assert!(routes.events.is_empty(), "nobody needs it any longer");

        let slow = routes.begin_addition();
        for _ in 0..=REMEMBERED {
            routes.tell(event(1, ReadFlags::CREATE));
        }
        routes.finish_addition(slow, other, 8, WatchFlags::CREATE, MANY);
        assert_eq!(told(&second), (vec![], true), "what is forgotten is an overflow");
    }

    #[test]
    fn a_number_that_was_given_back_meanwhile_is_asked_for_again() {
        let mut routes = Routes::default();
        let ((one, _first), (other, _second)) = (member(&mut routes), member(&mut routes));
        add(&mut routes, one, 7, WatchFlags::CREATE);
        let ticket = routes.begin_addition();
        assert!(routes.remove(one, 7));
        assert_eq!(routes.finish_addition(ticket, other, 7, WatchFlags::CREATE, MANY), Addition::Again);
        add(&mut routes, other, 8, WatchFlags::CREATE);
    }

    #[test]
    fn a_session_leaves_as_many_as_it_takes() {
        let mut routes = Routes::default();
        let share = WatchedDirectoryCount::default();
        let mut taken_by = |share: &WatchedDirectoryCount| {
            let watch = routes.join(Arc::default(), share.clone());
            for number in 0.. {
                let ticket = routes.begin_addition();
                let number = number + 1000 * i32::try_from(watch).unwrap();
                match routes.finish_addition(ticket, watch, number, WatchFlags::CREATE, 100) {
                    Addition::Added => {}
                    Addition::TooMany(taken) => {
                        assert!(routes.is_unused(number));
                        return taken;
                    }
                    Addition::Again => panic!("nothing was removed"),
                }
            }
            0
        };
        assert_eq!(taken_by(&share), 50);
        assert_eq!(taken_by(&share), 50, "all watches of a session count");
        assert_eq!(taken_by(&WatchedDirectoryCount::default()), 25);
        assert_eq!(taken_by(&WatchedDirectoryCount::default()), 13);
        for number in routes.numbers_of(1) {
            assert!(routes.remove(1, number));
        }
        routes.leave(1);
        assert_eq!((share.taken(), routes.total), (0, 38));
    }

    #[test]
    fn a_directory_that_is_gone_is_nobodys() {
        let mut routes = Routes::default();
        let (one, first) = member(&mut routes);
        add(&mut routes, one, 7, WatchFlags::CREATE);
        routes.tell(event(7, ReadFlags::IGNORED));
        assert_eq!((told(&first), routes.total), ((vec![7], false), 0));
        assert!(!routes.remove(one, 7), "the kernel has forgotten it already");
    }
}
