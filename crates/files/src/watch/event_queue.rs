//! The event queue of one watch, which is one tree or file that a caller watches on a thread of its own. The queue
//! holds the events that were read from inotify for this watch and that its thread has not yet taken.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;

use super::inotify_handle::InotifyEvent;

/// Maximum number of events that wait for a busy watch. The kernel queues as many by default. Further events are
/// lost, and the watch reports an overflow.
pub const MAX_EVENTS: usize = 16_384;

#[derive(Debug, Default)]
pub(super) struct EventQueue {
    queued: Mutex<QueuedEvents>,
    /// Wakes the thread of the watch after every change of `queued`.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct QueuedEvents {
    events: Vec<InotifyEvent>,
    /// Whether events were lost since the last [`EventQueue::take`].
    has_overflowed: bool,
    /// The error after which no further events come.
    failure: Option<Errno>,
    is_closed: bool,
}

impl QueuedEvents {
    fn is_empty(&self) -> bool {
        self.events.is_empty() && !self.has_overflowed && self.failure.is_none()
    }
}

impl EventQueue {
    pub(super) fn push(&self, event: InotifyEvent) {
        self.change(|queued| {
            if queued.events.len() < MAX_EVENTS {
                queued.events.push(event);
            } else {
                queued.has_overflowed = true;
            }
        });
    }

    /// Records that events were lost.
    pub(super) fn record_overflow(&self) {
        self.change(|queued| queued.has_overflowed = true);
    }

    /// Records that no further events will come, because of this error.
    pub(super) fn record_failure(&self, error: Errno) {
        self.change(|queued| queued.failure = Some(error));
    }

    /// Tells the watch to end.
    pub(super) fn close(&self) {
        self.change(|queued| queued.is_closed = true);
    }

    fn change(&self, change: impl FnOnce(&mut QueuedEvents)) {
        change(&mut self.queued.lock());
        self.changed.notify_one();
    }

    /// Waits until there is an event, an overflow or a failure, or the queue is closed. Waits at most for `timeout`,
    /// or without a limit if it is `None`. Returns `Break` if the queue is closed.
    pub(super) fn wait(&self, timeout: Option<Duration>) -> ControlFlow<()> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let mut queued = self.queued.lock();
        while queued.is_empty() && !queued.is_closed {
            match deadline {
                Some(deadline) => {
                    if self.changed.wait_until(&mut queued, deadline).timed_out() {
                        break;
                    }
                }
                None => self.changed.wait(&mut queued),
            }
        }
        if queued.is_closed { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Appends all queued events to `events`. Returns whether events were lost since the last call, or the error of
    /// [`record_failure`](Self::record_failure).
    pub(super) fn take(&self, events: &mut Vec<InotifyEvent>) -> Result<bool, Errno> {
        let mut queued = self.queued.lock();
        events.append(&mut queued.events);
        match queued.failure {
            Some(error) => Err(error),
            None => Ok(std::mem::take(&mut queued.has_overflowed)),
        }
    }
}
