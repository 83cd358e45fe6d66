//! Limits how many requests about files are in flight at the same time. After a lost connection the limit is low, so that each connection
//! answers some requests, however soon it breaks. `recovery::CallWindow` has the rules.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use parking_lot::Mutex;
use recovery::CallWindow;
use tokio::sync::Notify;

/// How long a request keeps its permit at most. So a request that hangs, for example on a dead disk, does not delay all other requests.
const LONGEST_PERMIT: Duration = Duration::from_secs(2);

/// Whether the limit for requests about files applies to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileLimit {
    /// The request is sent at once.
    DoesNotApply,
    /// The request waits for a permit. A caller may make thousands of such requests at once.
    Applies,
}

/// The permits for requests about files.
#[derive(Default)]
pub(crate) struct FileCalls {
    state: Mutex<FileCallState>,
    /// A permit was given back, or a request has left the queue.
    changed: Notify,
}

#[derive(Default)]
struct FileCallState {
    /// Says how many requests may be in flight.
    window: CallWindow,
    /// Permits that are in use and counted.
    count: usize,
    /// The tickets of requests that wait. The lowest ticket is next. So a file that is read block after block cannot overtake a request
    /// that has waited for longer.
    waiting: BTreeSet<u64>,
    next_ticket: u64,
}

impl FileCallState {
    /// Takes a permit. Returns `None` if the window is full, `Some(true)` if the permit is counted and must be given back, and
    /// `Some(false)` if there is no limit, so that permits are not counted.
    fn take(&mut self) -> Option<bool> {
        let limit = self.window.limit();
        let is_counted = limit < usize::MAX;
        if is_counted && self.count >= limit {
            return None;
        }
        self.count += usize::from(is_counted);
        Some(is_counted)
    }
}

impl FileCalls {
    /// Waits for a permit. Returns at once if the limit does not apply.
    pub(crate) async fn acquire(&self, limit: FileLimit) -> FileCallPermit<'_> {
        if limit == FileLimit::DoesNotApply {
            return FileCallPermit { calls: None, is_counted: false };
        }
        let ticket = {
            let mut state = self.state.lock();
            // Usually no request waits, and there is no limit.
            if state.waiting.is_empty()
                && let Some(is_counted) = state.take()
            {
                return FileCallPermit { calls: Some(self), is_counted };
            }
            let number = state.next_ticket;
            state.next_ticket += 1;
            state.waiting.insert(number);
            Ticket { calls: self, number }
        };
        loop {
            let mut changed = pin!(self.changed.notified());
            // Registered before the check, so that a change in between is not missed.
            changed.as_mut().enable();
            if let Some(permit) = ticket.take_permit() {
                return permit;
            }
            changed.await;
        }
    }
}

/// The place of a request in the queue for permits. Dropping the value removes the request from the queue.
struct Ticket<'a> {
    calls: &'a FileCalls,
    number: u64,
}

impl<'a> Ticket<'a> {
    /// Takes a permit if this request is the first in the queue and the window is not full.
    fn take_permit(&self) -> Option<FileCallPermit<'a>> {
        let mut state = self.calls.state.lock();
        let is_next = state.waiting.first() == Some(&self.number);
        let is_counted = if is_next { state.take() } else { None }?;
        Some(FileCallPermit { calls: Some(self.calls), is_counted })
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.calls.state.lock().waiting.remove(&self.number);
        // The next ticket may take a permit now.
        self.calls.changed.notify_waiters();
    }
}

/// The permit of one request. Dropping the value gives the permit back.
pub(crate) struct FileCallPermit<'a> {
    /// `None` if the limit does not apply to the request.
    calls: Option<&'a FileCalls>,
    /// Whether the permit is part of [`FileCallState::count`].
    is_counted: bool,
}

impl FileCallPermit<'_> {
    /// Runs the request to its end. Gives the permit back early, after [`LONGEST_PERMIT`], if the answer takes
    /// longer.
    pub(crate) async fn run<T>(&mut self, request: impl Future<Output = T>) -> T {
        let mut request = pin!(request);
        if self.is_counted {
            if let Ok(answer) = tokio::time::timeout(LONGEST_PERMIT, &mut request).await {
                return answer;
            }
            self.give_back();
        }
        request.await
    }

    /// The request was answered, so the limit may grow.
    pub(crate) fn note_answer(&self) {
        if let Some(calls) = self.calls {
            calls.state.lock().window.handle_answer();
        }
    }

    /// The connection was lost before the answer, so requests are sent one at a time from now on.
    pub(crate) fn note_connection_lost(&self) {
        if let Some(calls) = self.calls {
            calls.state.lock().window.note_connection_lost();
        }
    }

    fn give_back(&mut self) {
        if let (Some(calls), true) = (self.calls, std::mem::take(&mut self.is_counted)) {
            calls.state.lock().count -= 1;
            // Wakes all waiters, because the window may have grown by more than this permit.
            calls.changed.notify_waiters();
        }
    }
}

impl Drop for FileCallPermit<'_> {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Polls the future once.
    async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
        tokio::time::timeout(Duration::ZERO, future).await.ok()
    }

    async fn calls_after_a_loss() -> FileCalls {
        let calls = FileCalls::default();
        calls.acquire(FileLimit::Applies).await.note_connection_lost();
        calls
    }

    #[tokio::test]
    async fn requests_get_permits_in_the_order_in_which_they_came() {
        let calls = calls_after_a_loss().await;
        let first = calls.acquire(FileLimit::Applies).await;
        let mut second = Box::pin(calls.acquire(FileLimit::Applies));
        assert!(poll_once(&mut second).await.is_none(), "after a loss, one request is sent at a time");
        drop(first);
        let mut third = Box::pin(calls.acquire(FileLimit::Applies));
        assert!(poll_once(&mut third).await.is_none(), "the second request has waited for longer");
        let second = poll_once(&mut second).await.expect("the second request is next");
        assert!(poll_once(&mut third).await.is_none());
        drop(second);
        assert!(poll_once(&mut third).await.is_some());
    }

    #[tokio::test]
    async fn a_request_that_gives_up_delays_no_other() {
        let calls = calls_after_a_loss().await;
        let first = calls.acquire(FileLimit::Applies).await;
        let mut second = Box::pin(calls.acquire(FileLimit::Applies));
        let mut third = Box::pin(calls.acquire(FileLimit::Applies));
        assert!(poll_once(&mut second).await.is_none() && poll_once(&mut third).await.is_none());
        drop(first);
        drop(second);
        assert!(poll_once(&mut third).await.is_some());
    }
}
