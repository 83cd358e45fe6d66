//! A feed hands the events of one process to any number of subscribers, each with its own position. The newest events
//! are kept for late subscribers, even if all present subscribers have seen them. A subscriber that is far behind
//! makes the client pause the process: the client asks the server to send no further events of the process for now.
//! If the server cannot do that, the oldest events are dropped and the slow subscriber gets `Lagged`.

use std::collections::{HashMap, VecDeque};
use std::task::{Context, Poll, Waker};

use super::event::ExecProcessEvent;

/// How many of the newest events are kept for late subscribers.
const REPLAY: Amount = Amount { events: 256, bytes: 1024 * 1024 };
/// The process is paused when a subscriber is behind by more than this.
const PAUSE_ABOVE: Amount = Amount { events: 4096, bytes: 2 * 1024 * 1024 };
/// The process is resumed when no subscriber is behind by more than this.
const RESUME_AT: Amount = Amount { events: 512, bytes: 256 * 1024 };
/// The most events that a feed keeps. Beyond it, the oldest events are dropped, even if a subscriber has not seen them.
const MOST_KEPT: Amount = Amount { events: 65_536, bytes: 64 * 1024 * 1024 };

/// A number of events, and the bytes of output in them.
#[derive(Clone, Copy)]
struct Amount {
    events: u64,
    bytes: u64,
}

impl Amount {
    fn exceeds(self, other: Self) -> bool {
        self.events > other.events || self.bytes > other.bytes
    }
}

/// The result of a subscriber's request for the next event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    Event(ExecProcessEvent),
    /// Events were dropped before this subscriber had seen them.
    Lagged,
    /// No event follows.
    End,
}

#[derive(Default)]
pub(crate) struct Feed {
    events: VecDeque<FeedEntry>,
    /// How many events were published before `events[0]`.
    first: u64,
    /// Bytes of all events that were published.
    published_bytes: u64,
    has_ended: bool,
    subscribers: HashMap<u64, Subscriber>,
    last_subscriber: u64,
    /// Whether the process should be paused, as [`Feed::update_pause`] has decided last.
    wants_pause: bool,
}

struct FeedEntry {
    event: ExecProcessEvent,
    /// Bytes of all events that were published before this event.
    bytes_before: u64,
}

struct Subscriber {
    /// Position of the next event for this subscriber, counted from 0 over all published events.
    next: u64,
    waker: Option<Waker>,
}

impl Feed {
    pub(crate) fn publish(&mut self, event: ExecProcessEvent) {
        if self.has_ended {
            return;
        }
        self.has_ended = event.is_last();
        let bytes_before = self.published_bytes;
        self.published_bytes += event.bytes() as u64;
        self.events.push_back(FeedEntry { event, bytes_before });
        self.trim();
        self.wake_subscribers();
    }

    fn wake_subscribers(&mut self) {
        self.subscribers.values_mut().filter_map(|subscriber| subscriber.waker.take()).for_each(Waker::wake);
    }

    /// Adds a subscriber that starts with the oldest event that is kept, and returns its number.
    pub(crate) fn subscribe(&mut self) -> u64 {
        self.last_subscriber += 1;
        // If the first events are gone, the first poll returns `Lagged`.
        self.subscribers.insert(self.last_subscriber, Subscriber { next: 0, waker: None });
        self.last_subscriber
    }

    pub(crate) fn has_subscribers(&self) -> bool {
        !self.subscribers.is_empty()
    }

    pub(crate) fn unsubscribe(&mut self, subscriber: u64) {
        self.subscribers.remove(&subscriber);
        self.trim();
    }

    pub(crate) fn poll(&mut self, subscriber: u64, cx: &mut Context<'_>) -> Poll<Received> {
        let Some(state) = self.subscribers.get_mut(&subscriber) else { return Poll::Ready(Received::End) };
        if state.next < self.first {
            state.next = self.first;
            return Poll::Ready(Received::Lagged);
        }
        let index = usize::try_from(state.next - self.first).unwrap_or(usize::MAX);
        if let Some(entry) = self.events.get(index) {
            state.next += 1;
            let event = entry.event.clone();
            self.trim();
            return Poll::Ready(Received::Event(event));
        }
        if self.has_ended {
            return Poll::Ready(Received::End);
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Whether this subscriber has seen all events so far.
    pub(crate) fn is_empty_for(&self, subscriber: u64) -> bool {
        self.subscribers.get(&subscriber).is_none_or(|state| state.next >= self.end())
    }

    /// Decides again whether the process should be paused. Returns true if the decision has changed.
    pub(crate) fn update_pause(&mut self) -> bool {
        let limit = if self.wants_pause { RESUME_AT } else { PAUSE_ABOVE };
        let wants_pause = !self.has_ended && self.behind().exceeds(limit);
        std::mem::replace(&mut self.wants_pause, wants_pause) != wants_pause
    }

    /// Whether the process should be paused.
    pub(crate) fn wants_pause(&self) -> bool {
        self.wants_pause
    }

    /// The connection was lost, and with it the pause on the server.
    pub(crate) fn forget_pause(&mut self) {
        self.wants_pause = false;
    }

    /// Position after the newest event.
    fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// Events and bytes that the slowest subscriber has not seen.
    fn behind(&self) -> Amount {
        let Some(next) = self.slowest_position() else { return Amount { events: 0, bytes: 0 } };
        let events = self.end() - next.max(self.first);
        let index = usize::try_from(next.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let bytes = self.events.get(index).map_or(0, |entry| self.published_bytes - entry.bytes_before);
        Amount { events, bytes }
    }

    /// Position of the subscriber that is furthest behind.
    fn slowest_position(&self) -> Option<u64> {
        self.subscribers.values().map(|subscriber| subscriber.next).min()
    }

    /// Drops the oldest events: all beyond [`MOST_KEPT`], and those beyond [`REPLAY`] that every subscriber has seen.
    fn trim(&mut self) {
        let seen = self.slowest_position().unwrap_or(self.end());
        while let Some(oldest) = self.events.front() {
            let kept = Amount { events: self.events.len() as u64, bytes: self.published_bytes - oldest.bytes_before };
            if !(kept.exceeds(MOST_KEPT) || (kept.exceeds(REPLAY) && self.first < seen)) {
                return;
            }
            self.events.pop_front();
            self.first += 1;
        }
    }
}
