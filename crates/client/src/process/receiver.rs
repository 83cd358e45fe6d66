//! A subscription to the events of a process as the server pushes them.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::client_core::ClientHandle;
use crate::records::{ExecProcessEvent, Feed, ProcessRecord, Received};

/// Events were dropped before the subscriber received them. Read the missed events from the output that the server
/// retains, or use [`ProcessEvents`](super::ProcessEvents), which reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the receiver was too slow and has missed events")]
pub struct EventsLagged;

/// The events of a process, in order. Each subscriber gets every event, except those that [`EventsLagged`] stands
/// for. A subscriber that is far behind makes the client ask the server to pause the events, if the server can do
/// that.
pub struct ExecProcessEventReceiver {
    handle: Arc<ClientHandle>,
    record: Arc<ProcessRecord>,
    subscriber: u64,
}

impl ExecProcessEventReceiver {
    /// A new subscription, from the oldest event that the feed (the queue of events for all subscribers) keeps. If
    /// earlier events were dropped, the first result is [`EventsLagged`].
    pub(crate) fn new(handle: &Arc<ClientHandle>, record: &Arc<ProcessRecord>) -> Self {
        let subscriber = record.feed(Feed::subscribe);
        Self { handle: Arc::clone(handle), record: Arc::clone(record), subscriber }
    }

    /// The subscription from the first event on. There is one for each process.
    pub(crate) fn first(handle: &Arc<ClientHandle>, record: &Arc<ProcessRecord>) -> Self {
        Self { handle: Arc::clone(handle), record: Arc::clone(record), subscriber: record.first_subscriber }
    }

    /// Waits for the next event. Returns `None` after the last event. Cancel safe.
    pub async fn recv(&mut self) -> Result<Option<ExecProcessEvent>, EventsLagged> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// Whether this subscriber has received all events so far.
    pub fn is_empty(&self) -> bool {
        self.record.feed(|feed| feed.is_empty_for(self.subscriber))
    }

    /// As [`recv`](Self::recv), for implementations of `poll` functions.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<ExecProcessEvent>, EventsLagged>> {
        let (received, consequence) = self.record.consume(|feed| feed.poll(self.subscriber, cx));
        self.handle.core.inbound.handle(&self.record, consequence);
        Poll::Ready(match ready!(received) {
            Received::Event(event) => Ok(Some(event)),
            Received::Lagged => Err(EventsLagged),
            Received::End => Ok(None),
        })
    }

    pub(crate) fn handle(&self) -> &Arc<ClientHandle> {
        &self.handle
    }

    pub(crate) fn record(&self) -> &Arc<ProcessRecord> {
        &self.record
    }
}

impl Drop for ExecProcessEventReceiver {
    fn drop(&mut self) {
        let ((), consequence) = self.record.consume(|feed| feed.unsubscribe(self.subscriber));
        self.handle.core.inbound.handle(&self.record, consequence);
        self.handle.core.inbound.remove_if_unused(&self.record);
    }
}
