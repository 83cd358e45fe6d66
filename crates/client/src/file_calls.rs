//! The places of requests about files. On links that carry little there are few, so that each connection answers some of them.

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
}

impl FileCalls {
    /// Waits for a place.
    pub(crate) async fn place(&self, lane: Lane) -> CallPlace<'_> {
        if lane == Lane::Free {
            return CallPlace { calls: None, is_counted: false };
        }
        // The common case: nothing limits them.
        if let Some(place) = self.take() {
            return place;
        }
        loop {
            let mut changed = pin!(self.changed.notified());
            // The wait begins before the look, so that nothing can happen in between.
            changed.as_mut().enable();
            if let Some(place) = self.take() {
                return place;
            }
            changed.await;
        }
    }

    fn take(&self) -> Option<CallPlace<'_>> {
        let mut state = self.state.lock();
        let limit = state.window.limit();
        let is_counted = limit < usize::MAX;
        if is_counted && state.count >= limit {
            return None;
        }
        state.count += usize::from(is_counted);
        Some(CallPlace { calls: Some(self), is_counted })
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
