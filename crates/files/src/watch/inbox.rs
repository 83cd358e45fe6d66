//! What one watch has been told and not yet looked at.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;

use super::kernel::Event;

/// Events that may wait for a watch that is busy, as many as the kernel keeps by default. More are an overflow.
const MOST_EVENTS: usize = 16_384;

#[derive(Debug, Default)]
pub(super) struct Inbox {
    contents: Mutex<Contents>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct Contents {
    events: Vec<Event>,
    has_overflowed: bool,
    failure: Option<Errno>,
    is_closed: bool,
}

impl Contents {
    fn is_empty(&self) -> bool {
        self.events.is_empty() && !self.has_overflowed && self.failure.is_none()
    }
}

impl Inbox {
    pub(super) fn push(&self, event: Event) {
        self.change(|contents| {
            if contents.events.len() < MOST_EVENTS {
                contents.events.push(event);
            } else {
                contents.has_overflowed = true;
            }
        });
    }

    /// Events were lost.
    pub(super) fn overflow(&self) {
        self.change(|contents| contents.has_overflowed = true);
    }

    /// Nothing will come any more.
    pub(super) fn fail(&self, error: Errno) {
        self.change(|contents| contents.failure = Some(error));
    }

    /// The watch is to end.
    pub(super) fn close(&self) {
        self.change(|contents| contents.is_closed = true);
    }

    fn change(&self, change: impl FnOnce(&mut Contents)) {
        change(&mut self.contents.lock());
        self.news.notify_one();
    }

    /// Waits until there is something, but not longer than `patience`. Breaks when the watch is to end.
    pub(super) fn wait(&self, patience: Option<Duration>) -> ControlFlow<()> {
        let until = patience.map(|patience| Instant::now() + patience);
        let mut contents = self.contents.lock();
        while contents.is_empty() && !contents.is_closed {
            match until {
                Some(until) => {
                    if self.news.wait_until(&mut contents, until).timed_out() {
                        break;
                    }
                }
                None => self.news.wait(&mut contents),
            }
        }
        if contents.is_closed { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Takes everything, and says whether events were lost.
    pub(super) fn take(&self, events: &mut Vec<Event>) -> Result<bool, Errno> {
        let mut contents = self.contents.lock();
        events.append(&mut contents.events);
        match contents.failure {
            Some(error) => Err(error),
            None => Ok(std::mem::take(&mut contents.has_overflowed)),
        }
    }
}
