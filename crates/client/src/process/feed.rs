//! The events of one process on their way to any number of subscribers, each at its own pace. What all have seen is kept for a while,
//! for those who come late. A subscriber that is far behind makes the process wait; where the server cannot do that, it misses events and
//! is told so.

use std::collections::{HashMap, VecDeque};
use std::task::{Context, Poll, Waker};

use super::event::ExecProcessEvent;

/// Kept for late subscribers.
const REPLAY: Amount = Amount { events: 256, bytes: 1024 * 1024 };
/// Behind by more than this: the process is asked to wait.
const PAUSE_ABOVE: Amount = Amount { events: 4096, bytes: 2 * 1024 * 1024 };
/// Behind by less: it may go on.
const GO_ON_BELOW: Amount = Amount { events: 512, bytes: 256 * 1024 };
/// More is never kept, whoever has not seen it.
const MOST: Amount = Amount { events: 65_536, bytes: 64 * 1024 * 1024 };

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

/// What a subscriber gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    Event(ExecProcessEvent),
    /// Events were dropped before this one had seen them.
    Lagged,
    /// There will be no more.
    End,
}

#[derive(Default)]
pub(crate) struct Feed {
    events: VecDeque<Published>,
    /// The index of `events[0]` among all that were ever published.
    first: u64,
    /// Bytes that were ever published.
    offset: u64,
    has_ended: bool,
    subscribers: HashMap<u64, Subscriber>,
    last_subscriber: u64,
    is_paused: bool,
}

struct Published {
    event: ExecProcessEvent,
    /// Bytes that were published before it.
    offset: u64,
}

struct Subscriber {
    next: u64,
    waker: Option<Waker>,
}

impl Feed {
    pub(crate) fn publish(&mut self, event: ExecProcessEvent) {
        if self.has_ended {
            return;
        }
        self.has_ended = event.is_last();
        let offset = self.offset;
        self.offset += event.bytes() as u64;
        self.events.push_back(Published { event, offset });
        self.trim();
        self.wake();
    }

    /// Wakes everybody up.
    fn wake(&mut self) {
        self.subscribers.values_mut().filter_map(|subscriber| subscriber.waker.take()).for_each(Waker::wake);
    }

    /// A subscriber that starts with the oldest event that is kept.
    pub(crate) fn subscribe(&mut self) -> u64 {
        self.last_subscriber += 1;
        // If the beginning is gone it finds out at its first look.
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
        if let Some(published) = self.events.get(index) {
            state.next += 1;
            let event = published.event.clone();
            self.trim();
            return Poll::Ready(Received::Event(event));
        }
        if self.has_ended {
            return Poll::Ready(Received::End);
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Whether there is nothing for this subscriber at the moment.
    pub(crate) fn is_empty_for(&self, subscriber: u64) -> bool {
        self.subscribers.get(&subscriber).is_none_or(|state| state.next >= self.end())
    }

    /// Whether the process should now wait or go on and did the opposite before.
    pub(crate) fn changes_flow(&mut self) -> bool {
        let enough = if self.is_paused { GO_ON_BELOW } else { PAUSE_ABOVE };
        let wants_pause = !self.has_ended && self.behind().exceeds(enough);
        std::mem::replace(&mut self.is_paused, wants_pause) != wants_pause
    }

    /// Whether the process should wait.
    pub(crate) fn wants_pause(&self) -> bool {
        self.is_paused
    }

    /// The connection is another one, over which the process does not wait.
    pub(crate) fn forget_pause(&mut self) {
        self.is_paused = false;
    }

    fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// How much the slowest subscriber has not seen.
    fn behind(&self) -> Amount {
        let Some(next) = self.slowest() else { return Amount { events: 0, bytes: 0 } };
        let events = self.end() - next.max(self.first);
        let index = usize::try_from(next.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let bytes = self.events.get(index).map_or(0, |published| self.offset - published.offset);
        Amount { events, bytes }
    }

    fn slowest(&self) -> Option<u64> {
        self.subscribers.values().map(|subscriber| subscriber.next).min()
    }

    fn trim(&mut self) {
        // Only what was seen by all goes, unless there is far too much.
        let seen = self.slowest().unwrap_or(self.end());
        while let Some(oldest) = self.events.front() {
            let kept = Amount { events: self.events.len() as u64, bytes: self.offset - oldest.offset };
            if !(kept.exceeds(MOST) || (kept.exceeds(REPLAY) && self.first < seen)) {
                return;
            }
            self.events.pop_front();
            self.first += 1;
        }
    }
}
