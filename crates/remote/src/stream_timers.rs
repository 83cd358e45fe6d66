//! The timers of streams: one heap for all streams of an end, so that a stream needs no task.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Weak;
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::relayed_stream::RelayedStream;

/// The timers of all streams of an end.
#[derive(Debug, Default)]
pub(crate) struct StreamTimers {
    heap: Mutex<BinaryHeap<Reverse<StreamTimer>>>,
    earlier: Notify,
}

#[derive(Debug)]
struct StreamTimer {
    due: Instant,
    stream: Weak<RelayedStream>,
}

impl PartialEq for StreamTimer {
    fn eq(&self, other: &Self) -> bool {
        self.due == other.due
    }
}

impl Eq for StreamTimer {}

impl PartialOrd for StreamTimer {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for StreamTimer {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.due.cmp(&other.due)
    }
}

impl StreamTimers {
    /// Calls [`RelayedStream::handle_timer`] at `due`.
    pub(crate) fn add(&self, due: Instant, stream: Weak<RelayedStream>) {
        let mut heap = self.heap.lock();
        let is_first = heap.peek().is_none_or(|Reverse(first)| due < first.due);
        heap.push(Reverse(StreamTimer { due, stream }));
        drop(heap);
        if is_first {
            self.earlier.notify_one();
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.heap.lock().len()
    }

    /// Runs the timers. Does not end.
    pub(crate) async fn run(&self) {
        loop {
            let now = Instant::now();
            while let Some(stream) = self.take_due(now) {
                if let Some(stream) = stream.upgrade() {
                    stream.handle_timer(now);
                }
            }
            let next = self.heap.lock().peek().map(|Reverse(first)| first.due);
            let earlier = self.earlier.notified();
            match next {
                None => earlier.await,
                Some(due) => tokio::select! {
                    () = tokio::time::sleep_until(due.into()) => {}
                    () = earlier => {}
                },
            }
        }
    }

    /// Takes the next timer that is due, and returns its stream. `None`: no timer is due.
    pub(crate) fn take_due(&self, now: Instant) -> Option<Weak<RelayedStream>> {
        let mut heap = self.heap.lock();
        let is_due = heap.peek().is_some_and(|Reverse(first)| first.due <= now);
        is_due.then(|| heap.pop()).flatten().map(|Reverse(timer)| timer.stream)
    }
}
