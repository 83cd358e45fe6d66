//! The places of requests about files. On links that carry little there are few, so that each connection answers some of them.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use parking_lot::Mutex;
use recovery::CallWindow;
use tokio::sync::Notify;

/// How long a request may keep its place. One that takes longer, on a disk that hangs for example, must not hold up all the others.
const LONGEST_STAY: Duration = Duration::from_secs(2);

/// Which of the requests of a client a request waits for before it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// None.
    Free,
    /// Requests about files, of which there may be thousands.
    Files,
}

/// The requests about files that are on their way.
#[derive(Default)]
pub(crate) struct FileCalls {
    state: Mutex<UnderWay>,
    changed: Notify,
}

#[derive(Default)]
struct UnderWay {
    window: CallWindow,
    count: usize,
    /// The tickets of requests that wait. The lowest has its turn, so that a request that follows another at once, as the blocks of a
    /// file do, cannot keep the place from those that have waited for longer.
    waiting: BTreeSet<u64>,
    next_ticket: u64,
}

impl UnderWay {
    /// Takes a place, if the window has one. `None`: the window is full. `Some(true)`: the place counts, and is to be given back.
    /// `Some(false)`: nothing limits requests now, so places are not counted.
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
    /// Waits for a place.
    pub(crate) async fn place(&self, lane: Lane) -> CallPlace<'_> {
        if lane == Lane::Free {
            return CallPlace { calls: None, is_counted: false };
        }
        let ticket = {
            let mut state = self.state.lock();
            // The common case: nothing limits them.
            if state.waiting.is_empty()
                && let Some(is_counted) = state.take()
            {
                return CallPlace { calls: Some(self), is_counted };
            }
            let number = state.next_ticket;
            state.next_ticket += 1;
            state.waiting.insert(number);
            Ticket { calls: self, number }
        };
        loop {
            let mut changed = pin!(self.changed.notified());
            // The wait begins before the look, so that nothing can happen in between.
            changed.as_mut().enable();
            if let Some(place) = ticket.take_place() {
                return place;
            }
            changed.await;
        }
    }
}

/// A request that waits for its turn, until it is dropped.
struct Ticket<'a> {
    calls: &'a FileCalls,
    number: u64,
}

impl<'a> Ticket<'a> {
    fn take_place(&self) -> Option<CallPlace<'a>> {
        let mut state = self.calls.state.lock();
        let is_its_turn = state.waiting.first() == Some(&self.number);
        let is_counted = if is_its_turn { state.take() } else { None }?;
        Some(CallPlace { calls: Some(self.calls), is_counted })
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.calls.state.lock().waiting.remove(&self.number);
        // It may be the turn of the next one now.
        self.calls.changed.notify_waiters();
    }
}

/// The place of one request, until it is dropped. While nothing limits them, places are not counted.
pub(crate) struct CallPlace<'a> {
    calls: Option<&'a FileCalls>,
    is_counted: bool,
}

impl CallPlace<'_> {
    /// Makes the request, and gives the place back early if the answer takes long.
    pub(crate) async fn hold<T>(&mut self, request: impl Future<Output = T>) -> T {
        let mut request = pin!(request);
        if self.is_counted {
            if let Ok(answer) = tokio::time::timeout(LONGEST_STAY, &mut request).await {
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
            calls.state.lock().window.handle_lost();
        }
    }

    fn give_back(&mut self) {
        if let (Some(calls), true) = (self.calls, std::mem::take(&mut self.is_counted)) {
            calls.state.lock().count -= 1;
            // The window may have grown, so one place may be room for two.
            calls.changed.notify_waiters();
        }
    }
}

impl Drop for CallPlace<'_> {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Polls once.
    async fn now<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
        tokio::time::timeout(Duration::ZERO, future).await.ok()
    }

    async fn after_a_loss() -> FileCalls {
        let calls = FileCalls::default();
        calls.place(Lane::Files).await.lost();
        calls
    }

    #[tokio::test]
    async fn who_waits_has_its_turn_before_who_comes_later() {
        let calls = after_a_loss().await;
        let first = calls.place(Lane::Files).await;
        let mut second = Box::pin(calls.place(Lane::Files));
        assert!(now(&mut second).await.is_none(), "one at a time after a loss");
        drop(first);
        let mut third = Box::pin(calls.place(Lane::Files));
        assert!(now(&mut third).await.is_none(), "the second has waited for longer");
        let second = now(&mut second).await.expect("it is its turn");
        assert!(now(&mut third).await.is_none());
        drop(second);
        assert!(now(&mut third).await.is_some());
    }

    #[tokio::test]
    async fn who_gives_up_waiting_holds_up_nobody() {
        let calls = after_a_loss().await;
        let first = calls.place(Lane::Files).await;
        let mut second = Box::pin(calls.place(Lane::Files));
        let mut third = Box::pin(calls.place(Lane::Files));
        assert!(now(&mut second).await.is_none() && now(&mut third).await.is_none());
        drop(first);
        drop(second);
        assert!(now(&mut third).await.is_some());
    }
}
