//! Puts the events of one process in order. Events may come in any order and more than once: pushed events and the answers to reads overlap
//! after a connection was lost. An event that is missing although a later event has come is a *hole*; `catch_up.rs` fills holes from the
//! answers to reads.

use std::collections::BTreeMap;

use crate::event::Event;

/// How many events, and how many bytes of output in them, may wait behind a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderLimits {
    /// Number of waiting events. The default is 256.
    pub events: usize,
    /// Number of bytes of output in the waiting events together, and also in any single event. The default is 1 MiB.
    pub bytes: usize,
}

impl Default for OrderLimits {
    fn default() -> Self {
        Self { events: 256, bytes: 1024 * 1024 }
    }
}

/// A pushed event exceeds [`OrderLimits`]. Each variant carries the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// Too many events wait behind a hole.
    #[error("process event reorder buffer exceeds {0} entries")]
    TooManyEvents(usize),
    /// Too many bytes of output wait behind a hole.
    #[error("process event reorder buffer exceeds {0} bytes")]
    TooManyBytes(usize),
    /// One event is larger than all waiting events together may be.
    #[error("process event exceeds {0} bytes")]
    EventTooLarge(usize),
}

/// Hands out each event of a process once, in order, without a hole.
#[derive(Debug, Default)]
pub struct EventOrder {
    limits: OrderLimits,
    /// Sequence number of the last event that was handed out.
    pub(crate) last: u64,
    /// Events that have come and were not handed out: events behind a hole, and events that the next calls of `poll_event` return.
    pub(crate) waiting: BTreeMap<u64, Event>,
    waiting_bytes: usize,
    /// The exit has come, whether or not it was handed out.
    pub(crate) has_exit: bool,
    /// The exit may be among the events that this `EventOrder` never received, see [`EventOrder::after`] and [`EventOrder::skip`].
    pub(crate) may_have_skipped_exit: bool,
    /// A close without a sequence number has come, as old servers send it. It is handed out after the exit, when no
    /// event waits.
    has_unnumbered_close: bool,
    is_closed: bool,
}

impl EventOrder {
    /// An `EventOrder` that begins with the first event of a process.
    pub fn new(limits: OrderLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// An `EventOrder` that begins after the event `last`, because another client has got the events up to `last`.
    pub fn after(last: u64, limits: OrderLimits) -> Self {
        Self { limits, last, may_have_skipped_exit: last > 0, ..Self::default() }
    }

    /// Events up to `through` will not be handed out: another client has got them, or the server no longer retains them.
    pub fn skip(&mut self, through: u64) {
        if through > self.last {
            let later = self.waiting.split_off(&(through + 1));
            let skipped = std::mem::replace(&mut self.waiting, later);
            self.waiting_bytes -= skipped.values().map(Event::bytes).sum::<usize>();
            self.last = through;
            self.may_have_skipped_exit = true;
        }
    }

    /// Sequence number of the last event that was handed out; 0 if none was.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Whether the close was handed out.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Whether the next event to hand out is missing although a later event has come.
    pub fn has_hole(&self) -> bool {
        self.waiting.keys().next().is_some_and(|first| *first != self.last + 1)
    }

    /// The server has pushed an event. [`EventOrder::poll_event`] hands it out when all events before it have come. An event that has come
    /// before is ignored.
    pub fn handle_event(&mut self, seq: u64, event: Event) -> Result<(), OrderError> {
        if self.is_known(seq) {
            return Ok(());
        }
        let bytes = event.bytes();
        if bytes > self.limits.bytes {
            return Err(OrderError::EventTooLarge(self.limits.bytes));
        }
        let is_next = seq == self.last + 1;
        if !is_next {
            if self.waiting.len() >= self.limits.events {
                return Err(OrderError::TooManyEvents(self.limits.events));
            }
            if self.waiting_bytes + bytes > self.limits.bytes {
                return Err(OrderError::TooManyBytes(self.limits.bytes));
            }
        }
        self.insert(seq, event);
        Ok(())
    }

    /// A close without a sequence number has come, as old servers send it. It is handed out after the exit and after
    /// all events that wait. If a `process/read` is in flight, the caller must first pass the answer to
    /// [`EventOrder::handle_read`]: events in that answer would otherwise come after the close and be ignored.
    pub fn handle_unnumbered_close(&mut self) {
        self.has_unnumbered_close = true;
    }

    /// Hands out the next event, if it has come.
    pub fn poll_event(&mut self) -> Option<(u64, Event)> {
        if self.is_closed {
            return None;
        }
        let seq = self.last.checked_add(1)?;
        let event = match self.waiting.remove(&seq) {
            Some(event) => event,
            None if self.is_unnumbered_close_due() => Event::Closed,
            None => return None,
        };
        self.waiting_bytes -= event.bytes();
        self.last = seq;
        self.is_closed = event == Event::Closed;
        if self.is_closed {
            self.waiting.clear();
            self.waiting_bytes = 0;
        }
        Some((seq, event))
    }

    fn is_unnumbered_close_due(&self) -> bool {
        self.has_unnumbered_close && self.waiting.is_empty() && (self.has_exit || self.may_have_skipped_exit)
    }

    pub(crate) fn is_known(&self, seq: u64) -> bool {
        self.is_closed || seq <= self.last || self.waiting.contains_key(&seq)
    }

    pub(crate) fn insert(&mut self, seq: u64, event: Event) {
        self.has_exit |= matches!(event, Event::Exited(_));
        self.waiting_bytes += event.bytes();
        self.waiting.insert(seq, event);
    }
}

#[cfg(test)]
mod tests;
