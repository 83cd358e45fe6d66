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

/// Whether a request counts as a request about files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileLane {
    /// The request is sent at once.
    None,
    /// The request waits for a permit. A caller may make thousands of such requests at once.
    Files,
}

/// The permits for requests about files.
#[derive(Default)]
pub(crate) struct FileCalls {
    state: Mutex<FileCallState>,
    changed: Notify,
}

#[derive(Default)]
struct FileCallState {
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
    /// Waits for a permit.
    pub(crate) async fn acquire(&self, lane: FileLane) -> FileCallPermit<'_> {
        if lane == FileLane::None {
            return FileCallPermit { calls: None, is_counted: false };
        }
        let ticket = {
            let mut state = self.state.lock();
            // The common case: there is no limit.
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

/// A request that waits for a permit. Dropping the value lets the next request go first.
struct Ticket<'a> {
    calls: &'a FileCalls,
    number: u64,
}

impl<'a> Ticket<'a> {
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
    calls: Option<&'a FileCalls>,
    is_counted: bool,
}

impl FileCallPermit<'_> {
    /// Makes the request. Gives the permit back early if the answer takes long.
    pub(crate) async fn hold<T>(&mut self, request: impl Future<Output = T>) -> T {
        let mut request = pin!(request);
        if self.is_counted {
            if let Ok(answer) = tokio::time::timeout(LONGEST_PERMIT, &mut request).await {
                return answer;
            }
            self.give_back();
        }
        request.await
    }

    /// The request was answered.
    pub(crate) fn answered(&self) {
        if let Some(calls) = self.calls {
            calls.state.lock().window.handle_answer();
        }
    }

    /// The connection was lost before the answer.
    pub(crate) fn lost(&self) {
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
    async fn now<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
        tokio::time::timeout(Duration::ZERO, future).await.ok()
    }

    async fn after_a_loss() -> FileCalls {
        let calls = FileCalls::default();
        calls.acquire(FileLane::Files).await.lost();
        calls
    }

    #[tokio::test]
    async fn requests_get_permits_in_the_order_in_which_they_came() {
        let calls = after_a_loss().await;
        let first = calls.acquire(FileLane::Files).await;
        let mut second = Box::pin(calls.acquire(FileLane::Files));
        assert!(now(&mut second).await.is_none(), "after a loss, one request is sent at a time");
        drop(first);
        let mut third = Box::pin(calls.acquire(FileLane::Files));
        assert!(now(&mut third).await.is_none(), "the second request has waited for longer");
        let second = now(&mut second).await.expect("the second request is next");
        assert!(now(&mut third).await.is_none());
        drop(second);
        assert!(now(&mut third).await.is_some());
    }

    #[tokio::test]
    async fn a_request_that_gives_up_delays_no_other() {
        let calls = after_a_loss().await;
        let first = calls.acquire(FileLane::Files).await;
        let mut second = Box::pin(calls.acquire(FileLane::Files));
        let mut third = Box::pin(calls.acquire(FileLane::Files));
        assert!(now(&mut second).await.is_none() && now(&mut third).await.is_none());
        drop(first);
        drop(second);
        assert!(now(&mut third).await.is_some());
    }
}
