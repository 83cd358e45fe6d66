//! Decides which watches get the events of a directory. A *watch* is one tree or file that a caller watches. All
//! watches share one inotify instance, and a directory has one watch descriptor, however many watches it belongs to.
//! [`Subscriptions`] makes no system calls; [`shared_inotify`](super::shared_inotify) makes them.
//!
//! An *addition* is the system call that adds a directory to inotify for a watch. It can hang on a dead mount, so no
//! lock is held during the call. Events that are read meanwhile are remembered, and the watch gets them when the
//! addition is finished.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use rustix::fs::inotify::{ReadFlags, WatchFlags};
use rustix::io::Errno;

use super::WatchedDirectoryCount;
use super::event_queue::EventQueue;
use super::inotify_handle::{InotifyEvent, WatchDescriptor};

/// Maximum number of events that are remembered for unfinished additions, and also the maximum number of removals of
/// directories from inotify. If an addition takes so long that an event is forgotten, the watch of the addition gets
/// an overflow. If a removal is forgotten, the addition is retried.
const MAX_REMEMBERED: usize = 1024;

/// Events that every watch of a directory gets, whatever flags it has asked for.
const ALWAYS_WANTED: ReadFlags = ReadFlags::IGNORED.union(ReadFlags::UNMOUNT);

/// Identifies a watch. Not used twice.
pub(super) type WatchId = u64;

/// The time at which an addition began, as a sequence number of events and removals.
#[derive(Clone, Copy, Debug)]
pub(super) struct AdditionStart(u64);

/// The result of an addition.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AdditionResult {
    Added,
    /// The descriptor was removed from inotify meanwhile, or this cannot be excluded, because a removal was
    /// forgotten. The directory has to be added again.
    Retry,
    /// The session of the watch has this many directories, and no more than this many are left free. A session is all
    /// watches with the same [`WatchedDirectoryCount`]. It may watch only as many directories as are left free.
    TooManyDirectories(usize),
}

#[derive(Default)]
pub(super) struct Subscriptions {
    watches: HashMap<WatchId, SubscribedWatch>,
    by_descriptor: HashMap<WatchDescriptor, Vec<Subscription>>,
    /// Number of directories of all watches together. A directory of several watches is counted for each.
    total: usize,
    last_watch: WatchId,
    /// Number of unfinished additions.
    additions: usize,
    /// Number of events and removals so far.
    sequence: u64,
    /// Events since the first unfinished addition, with their sequence numbers.
    events: VecDeque<(u64, InotifyEvent)>,
    /// Removals from inotify since the first unfinished addition, with their sequence numbers.
    removals: VecDeque<(u64, WatchDescriptor)>,
    /// The error that has ended the reading of events.
    failure: Option<Errno>,
}

struct SubscribedWatch {
    queue: Arc<EventQueue>,
    /// Number of directories of all watches of the session.
    count: WatchedDirectoryCount,
    descriptors: HashSet<WatchDescriptor>,
}

/// Connects a directory with one of its watches.
struct Subscription {
    watch: WatchId,
    /// The events that this watch has asked for. The kernel also reports events that only other watches of the
    /// directory have asked for.
    wanted: ReadFlags,
}

impl Subscriptions {
    pub(super) fn subscribe(&mut self, queue: Arc<EventQueue>, count: WatchedDirectoryCount) -> WatchId {
        if let Some(error) = self.failure {
            queue.record_failure(error);
        }
        self.last_watch += 1;
        self.watches.insert(self.last_watch, SubscribedWatch { queue, count, descriptors: HashSet::new() });
        self.last_watch
    }

    /// The directories of a watch. Each has to be [removed](Self::remove) before
    /// [`unsubscribe`](Self::unsubscribe) is called for the watch.
    pub(super) fn descriptors_of(&self, watch: WatchId) -> Vec<WatchDescriptor> {
        self.watches
            .get(&watch)
            .map(|subscribed| subscribed.descriptors.iter().copied().collect())
            .unwrap_or_default()
    }

    pub(super) fn unsubscribe(&mut self, watch: WatchId) {
        self.watches.remove(&watch);
    }

    /// To be called before a directory is added to inotify.
    pub(super) fn begin_addition(&mut self) -> AdditionStart {
        self.additions += 1;
        AdditionStart(self.sequence)
    }

    /// Ends an addition. Other modules call this only if the kernel refused to add the directory; otherwise they call
    /// [`finish_addition`](Self::finish_addition).
    pub(super) fn end_addition(&mut self) {
        self.additions -= 1;
        if self.additions == 0 {
            self.events = VecDeque::new();
            self.removals = VecDeque::new();
        }
    }

    /// To be called when the kernel has returned a descriptor. `limit` is the number of directories that this user
    /// may watch.
    pub(super) fn finish_addition(
        &mut self,
        start: AdditionStart,
        watch: WatchId,
        descriptor: WatchDescriptor,
        flags: WatchFlags,
        limit: usize,
    ) -> AdditionResult {
        let result = self.subscribe_to_directory(start, watch, descriptor, flags, limit);
        self.end_addition();
        result
    }

    /// Gives the watch the directory, and puts the remembered events of the directory into its queue.
    fn subscribe_to_directory(
        &mut self,
        AdditionStart(begun): AdditionStart,
        watch: WatchId,
        descriptor: WatchDescriptor,
        flags: WatchFlags,
        limit: usize,
    ) -> AdditionResult {
        // Whether a queue that has `len` items may have dropped one since the addition began.
        let may_have_forgotten =
            |oldest: Option<u64>, len: usize| len == MAX_REMEMBERED && oldest.is_some_and(|oldest| oldest > begun);
        let oldest_removal = self.removals.front().map(|(at, _)| *at);
        if may_have_forgotten(oldest_removal, self.removals.len())
            || self.removals.iter().any(|(at, removed)| *at > begun && *removed == descriptor)
        {
            return AdditionResult::Retry;
        }
        // A watch adds no directories after it has unsubscribed, so it is always found.
        let Some(subscribed) = self.watches.get_mut(&watch) else { return AdditionResult::Added };
        if !subscribed.descriptors.contains(&descriptor) {
            let watched = subscribed.count.get();
            if watched + self.total >= limit {
                return AdditionResult::TooManyDirectories(watched);
            }
            subscribed.descriptors.insert(descriptor);
            subscribed.count.increment();
            self.total += 1;
        }
        let wanted = ReadFlags::from_bits_truncate(flags.bits());
        let subscriptions = self.by_descriptor.entry(descriptor).or_default();
        match subscriptions.iter_mut().find(|subscription| subscription.watch == watch) {
            Some(subscription) => subscription.wanted |= wanted,
            None => subscriptions.push(Subscription { watch, wanted }),
        }
        let since = self.events.iter().filter(|(at, _)| *at > begun);
        for (_, event) in since {
            if event.is(ReadFlags::QUEUE_OVERFLOW) {
                subscribed.queue.record_overflow();
            } else if event.descriptor == descriptor && event.is(wanted | ALWAYS_WANTED) {
                subscribed.queue.push(event.clone());
            }
        }
        if may_have_forgotten(self.events.front().map(|(at, _)| *at), self.events.len()) {
            subscribed.queue.record_overflow();
        }
        AdditionResult::Added
    }

    /// Removes a directory from a watch. If this returns true, no watch needs the directory any more, and the caller must remove it from
    /// inotify before it calls another method.
    #[must_use]
    pub(super) fn remove(&mut self, watch: WatchId, descriptor: WatchDescriptor) -> bool {
        let was_watched = self.watches.get_mut(&watch).is_some_and(|subscribed| subscribed.release(descriptor));
        let Some(subscriptions) = self.by_descriptor.get_mut(&descriptor).filter(|_| was_watched) else {
            return false;
        };
        self.total -= 1;
        subscriptions.retain(|subscription| subscription.watch != watch);
        subscriptions.is_empty() && self.forget(descriptor)
    }

    /// Whether no watch has the directory. If so, the caller must remove it from inotify before it calls another
    /// method.
    #[must_use]
    pub(super) fn remove_if_unused(&mut self, descriptor: WatchDescriptor) -> bool {
        !self.by_descriptor.contains_key(&descriptor) && self.forget(descriptor)
    }

    /// Forgets a directory that no watch has any more. Always returns true, which the callers return.
    fn forget(&mut self, descriptor: WatchDescriptor) -> bool {
        self.by_descriptor.remove(&descriptor);
        self.sequence += 1;
        if self.additions > 0 {
            remember(&mut self.removals, (self.sequence, descriptor));
        }
        true
    }

    /// Puts an event into the queues of the watches that want it.
    pub(super) fn dispatch(&mut self, event: InotifyEvent) {
        self.sequence += 1;
        if event.is(ReadFlags::QUEUE_OVERFLOW) {
            self.watches.values().for_each(|subscribed| subscribed.queue.record_overflow());
        }
        for subscription in self.by_descriptor.get(&event.descriptor).into_iter().flatten() {
            if event.is(subscription.wanted | ALWAYS_WANTED)
                && let Some(subscribed) = self.watches.get(&subscription.watch)
            {
                subscribed.queue.push(event.clone());
            }
        }
        if event.is(ReadFlags::IGNORED) {
            // The kernel has removed the directory from inotify.
            for subscription in self.by_descriptor.remove(&event.descriptor).unwrap_or_default() {
                let subscribed = self.watches.get_mut(&subscription.watch);
                self.total -= usize::from(subscribed.is_some_and(|subscribed| subscribed.release(event.descriptor)));
            }
        }
        if self.additions > 0 {
            remember(&mut self.events, (self.sequence, event));
        }
    }

    /// No more events can be read. Every watch gets the error, also one that subscribes later.
    pub(super) fn fail(&mut self, error: Errno) {
        self.failure = Some(error);
        self.watches.values().for_each(|subscribed| subscribed.queue.record_failure(error));
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }
}

impl SubscribedWatch {
    /// Removes a directory from the watch. Returns whether the watch had it.
    fn release(&mut self, descriptor: WatchDescriptor) -> bool {
        let had = self.descriptors.remove(&descriptor);
        if had {
            self.count.decrement();
        }
        had
    }
}

fn remember<T>(queue: &mut VecDeque<T>, item: T) {
    if queue.len() == MAX_REMEMBERED {
        queue.pop_front();
    }
    queue.push_back(item);
}

#[cfg(test)]
mod tests {
    use super::*;

    const HIGH_LIMIT: usize = 1000;

    fn event(descriptor: WatchDescriptor, flags: ReadFlags) -> InotifyEvent {
        InotifyEvent { descriptor, flags, cookie: 0, name: None }
    }

    fn subscribe(subscriptions: &mut Subscriptions) -> (WatchId, Arc<EventQueue>) {
        let queue = Arc::new(EventQueue::default());
        (subscriptions.subscribe(Arc::clone(&queue), WatchedDirectoryCount::default()), queue)
    }

    fn add(subscriptions: &mut Subscriptions, watch: WatchId, descriptor: WatchDescriptor, flags: WatchFlags) {
        let start = subscriptions.begin_addition();
        assert_eq!(subscriptions.finish_addition(start, watch, descriptor, flags, HIGH_LIMIT), AdditionResult::Added);
    }

    /// Takes all events. Returns their descriptors, and whether events were lost.
    fn drain(queue: &EventQueue) -> (Vec<WatchDescriptor>, bool) {
        let mut events = Vec::new();
        let overflow = queue.take(&mut events).unwrap();
        (events.iter().map(|event| event.descriptor).collect(), overflow)
    }

    #[test]
    fn each_watch_gets_the_events_that_it_wants_of_a_shared_directory() {
        let mut subscriptions = Subscriptions::default();
        let (first, first_queue) = subscribe(&mut subscriptions);
        let (second, second_queue) = subscribe(&mut subscriptions);
        add(&mut subscriptions, first, 7, WatchFlags::CREATE);
        add(&mut subscriptions, second, 7, WatchFlags::CREATE | WatchFlags::MODIFY);
        subscriptions.dispatch(event(7, ReadFlags::MODIFY));
        subscriptions.dispatch(event(7, ReadFlags::CREATE));
        subscriptions.dispatch(event(8, ReadFlags::CREATE));
        assert_eq!((drain(&first_queue), drain(&second_queue)), ((vec![7], false), (vec![7, 7], false)));
        assert!(!subscriptions.remove(first, 7), "the second watch still needs the directory");
        subscriptions.dispatch(event(7, ReadFlags::CREATE));
        assert_eq!((drain(&first_queue), drain(&second_queue)), ((vec![], false), (vec![7], false)));
        assert!(subscriptions.remove(second, 7) && !subscriptions.remove(second, 7));
    }

    #[test]
    fn an_overflow_of_the_kernel_is_passed_to_all_watches() {
        let mut subscriptions = Subscriptions::default();
        let (_first, first_queue) = subscribe(&mut subscriptions);
        let (_second, second_queue) = subscribe(&mut subscriptions);
        subscriptions.dispatch(event(-1, ReadFlags::QUEUE_OVERFLOW));
        assert_eq!((drain(&first_queue), drain(&second_queue)), ((vec![], true), (vec![], true)));
    }

    #[test]
    fn events_during_an_addition_are_queued_when_the_addition_is_finished() {
        let mut subscriptions = Subscriptions::default();
        let (first, first_queue) = subscribe(&mut subscriptions);
        let (second, second_queue) = subscribe(&mut subscriptions);
        add(&mut subscriptions, first, 7, WatchFlags::CREATE);
        subscriptions.dispatch(event(7, ReadFlags::CREATE));
        let start = subscriptions.begin_addition();
        subscriptions.dispatch(event(7, ReadFlags::CREATE));
        subscriptions.dispatch(event(9, ReadFlags::CREATE));
        subscriptions.dispatch(event(7, ReadFlags::MODIFY));
        let added = subscriptions.finish_addition(start, second, 7, WatchFlags::CREATE, HIGH_LIMIT);
        assert_eq!((added, drain(&second_queue)), (AdditionResult::Added, (vec![7], false)));
        assert_eq!(drain(&first_queue), (vec![7, 7], false));
        assert!(subscriptions.events.is_empty(), "no addition needs the remembered events any more");
    }

    #[test]
    fn a_watch_gets_an_overflow_if_an_event_during_its_addition_was_forgotten() {
        let mut subscriptions = Subscriptions::default();
        let (watch, queue) = subscribe(&mut subscriptions);
        let slow = subscriptions.begin_addition();
        for _ in 0..=MAX_REMEMBERED {
            subscriptions.dispatch(event(1, ReadFlags::CREATE));
        }
        subscriptions.finish_addition(slow, watch, 8, WatchFlags::CREATE, HIGH_LIMIT);
        assert_eq!(drain(&queue), (vec![], true));
    }

    #[test]
    fn an_addition_is_retried_if_its_descriptor_was_removed_meanwhile() {
        let mut subscriptions = Subscriptions::default();
        let (first, _first_queue) = subscribe(&mut subscriptions);
        let (second, _second_queue) = subscribe(&mut subscriptions);
        add(&mut subscriptions, first, 7, WatchFlags::CREATE);
        let start = subscriptions.begin_addition();
        assert!(subscriptions.remove(first, 7));
        let added = subscriptions.finish_addition(start, second, 7, WatchFlags::CREATE, HIGH_LIMIT);
        assert_eq!(added, AdditionResult::Retry);
        add(&mut subscriptions, second, 8, WatchFlags::CREATE);
    }

    #[test]
    fn a_session_leaves_as_many_directories_free_as_it_watches() {
        let mut subscriptions = Subscriptions::default();
        let count = WatchedDirectoryCount::default();
        // Adds directories to a new watch until one is refused. Returns the number of directories of its session.
        let mut watch_until_refused = |count: &WatchedDirectoryCount| {
            let watch = subscriptions.subscribe(Arc::default(), count.clone());
            for descriptor in 0.. {
                let start = subscriptions.begin_addition();
                let descriptor = descriptor + 1000 * i32::try_from(watch).unwrap();
                match subscriptions.finish_addition(start, watch, descriptor, WatchFlags::CREATE, 100) {
                    AdditionResult::Added => {}
                    AdditionResult::TooManyDirectories(watched) => {
                        assert!(subscriptions.remove_if_unused(descriptor));
                        return watched;
                    }
                    AdditionResult::Retry => panic!("nothing was removed"),
                }
            }
            0
        };
        assert_eq!(watch_until_refused(&count), 50);
        assert_eq!(watch_until_refused(&count), 50, "all watches of a session count");
        assert_eq!(watch_until_refused(&WatchedDirectoryCount::default()), 25);
        assert_eq!(watch_until_refused(&WatchedDirectoryCount::default()), 13);
        for descriptor in subscriptions.descriptors_of(1) {
            assert!(subscriptions.remove(1, descriptor));
        }
        subscriptions.unsubscribe(1);
        assert_eq!((count.get(), subscriptions.total), (0, 38), "removed directories are free again");
    }

    #[test]
    fn a_directory_that_the_kernel_has_removed_belongs_to_no_watch() {
        let mut subscriptions = Subscriptions::default();
        let (watch, queue) = subscribe(&mut subscriptions);
        add(&mut subscriptions, watch, 7, WatchFlags::CREATE);
        subscriptions.dispatch(event(7, ReadFlags::IGNORED));
        assert_eq!((drain(&queue), subscriptions.total), ((vec![7], false), 0));
        assert!(!subscriptions.remove(watch, 7), "the kernel has removed the directory already");
    }
}
