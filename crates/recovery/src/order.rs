//! The events of one process in order, whatever order they come in and however often.

use std::collections::BTreeMap;

use crate::event::Event;

/// How much may wait for an event that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderLimits {
    /// Events.
    pub events: usize,
    /// Bytes of output in them, and in any single one.
    pub bytes: usize,
}

impl Default for OrderLimits {
    fn default() -> Self {
        Self { events: 256, bytes: 1024 * 1024 }
    }
}

/// Too much came before what is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// Too many events.
    #[error("process event reorder buffer exceeds {0} entries")]
    TooManyEvents(usize),
    /// Too many bytes.
    #[error("process event reorder buffer exceeds {0} bytes")]
    TooManyBytes(usize),
    /// One event is larger than everything that may wait.
    #[error("process event exceeds {0} bytes")]
    EventTooLarge(usize),
}

/// Hands out the events of a process once, in order, without a hole.
#[derive(Debug, Default)]
pub struct EventOrder {
    limits: OrderLimits,
    /// The last event that was handed out.
    pub(crate) last: u64,
    /// Events after a hole, and at most a run without one that waits to be handed out.
    pub(crate) waiting: BTreeMap<u64, Event>,
    waiting_bytes: usize,
    pub(crate) has_exit: bool,
    /// Whether somebody else may have been handed the exit.
    pub(crate) exit_may_be_past: bool,
    /// The end was announced without a number.
    ends: bool,
    is_closed: bool,
}

impl EventOrder {
    /// Nothing has happened yet.
    pub fn new(limits: OrderLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Starts in the middle, for a process that somebody else has followed this far.
    pub fn after(last: u64, limits: OrderLimits) -> Self {
        Self { limits, last, exit_may_be_past: last > 0, ..Self::default() }
    }

    /// What came up to `through` was for somebody else, or is gone.
    pub fn skip(&mut self, through: u64) {
        if through > self.last {
            let later = self.waiting.split_off(&(through + 1));
            let skipped = std::mem::replace(&mut self.waiting, later);
            self.waiting_bytes -= skipped.values().map(Event::bytes).sum::<usize>();
            self.last = through;
            self.exit_may_be_past = true;
        }
    }

    /// The last event that was handed out.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Whether the end was handed out.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Whether something waits for an event that has not come.
    pub fn has_hole(&self) -> bool {
        self.waiting.keys().next().is_some_and(|first| *first != self.last + 1)
    }

    /// An event was pushed; [`EventOrder::poll_event`] has what it leads to. One that was handed out before is ignored.
    pub fn handle_event(&mut self, seq: u64, event: Event) -> Result<(), OrderError> {
        if self.is_known(seq) {
            return Ok(());
        }
        let bytes = event.bytes();
        if bytes > self.limits.bytes {
            return Err(OrderError::EventTooLarge(self.limits.bytes));
        }
        let closes_the_hole = seq == self.last + 1;
        if !closes_the_hole {
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

    /// The end was pushed by a server that does not number it: it stands after the exit and everything else that is here when it
    /// is handed out. During a catch-up the answer comes first, or what it would have brought is taken for not there.
    pub fn handle_unnumbered_close(&mut self) {
        self.ends = true;
    }

    /// The next event, if it is here.
    pub fn poll_event(&mut self) -> Option<(u64, Event)> {
        if self.is_closed {
            return None;
        }
        let seq = self.last.checked_add(1)?;
        let event = match self.waiting.remove(&seq) {
            Some(event) => event,
            None if self.has_come_to_its_end() => Event::Closed,
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

    fn has_come_to_its_end(&self) -> bool {
        self.ends && self.waiting.is_empty() && (self.has_exit || self.exit_may_be_past)
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
