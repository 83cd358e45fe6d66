//! A subscription to the events of a process, as they are pushed.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::entry::Entry;
use super::event::ExecProcessEvent;
use super::feed::Received;
use crate::client::Handle;

/// Events were dropped before they were received: read the output that the server has retained, or use
/// [`ProcessEvents`](super::ProcessEvents), which does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the receiver was too slow and has missed events")]
pub struct EventsLagged;

/// The events of a process, in order. Each subscriber gets them all, at its own pace; one that is far behind makes the process wait.
pub struct ExecProcessEventReceiver {
    handle: Arc<Handle>,
    entry: Arc<Entry>,
    subscriber: u64,
}

impl ExecProcessEventReceiver {
    /// From the oldest event that is still here.
    pub(crate) fn new(handle: &Arc<Handle>, entry: &Arc<Entry>) -> Self {
        let subscriber = entry.feed(super::feed::Feed::subscribe);
        Self { handle: Arc::clone(handle), entry: Arc::clone(entry), subscriber }
    }

    /// From the very first event, whenever that was. There is one of these for each process.
    pub(crate) fn first(handle: &Arc<Handle>, entry: &Arc<Entry>) -> Self {
        Self { handle: Arc::clone(handle), entry: Arc::clone(entry), subscriber: entry.first_subscriber }
    }

    /// Waits for the next event; none after the last. Cancel safe.
    pub async fn recv(&mut self) -> Result<Option<ExecProcessEvent>, EventsLagged> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// Whether nothing is to be received at the moment.
    pub fn is_empty(&self) -> bool {
        self.entry.feed(|feed| feed.is_empty_for(self.subscriber))
    }

    /// As [`recv`](Self::recv), for those who poll.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<ExecProcessEvent>, EventsLagged>> {
        let (received, consequence) = self.entry.consume(|feed| feed.poll(self.subscriber, cx));
        self.handle.shared.inbound.handle(&self.entry, consequence);
        Poll::Ready(match ready!(received) {
            Received::Event(event) => Ok(Some(event)),
            Received::Lagged => Err(EventsLagged),
            Received::End => Ok(None),
        })
    }

    pub(crate) fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    pub(crate) fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }
}

impl Drop for ExecProcessEventReceiver {
    fn drop(&mut self) {
        let ((), consequence) = self.entry.consume(|feed| feed.unsubscribe(self.subscriber));
        self.handle.shared.inbound.handle(&self.entry, consequence);
        self.handle.shared.inbound.remove_if_unwatched(&self.entry);
    }
}
