//! Sends requests about the process while the foreground loop goes on: signals, termination, the window size. One
//! request is sent at a time, so that the server gets the requests in order. While the server does not answer, later
//! requests wait. Waiting requests of one kind are merged, as the kernel merges pending signals: at most one of each
//! signal, one termination and the latest window size wait, however long the server is silent.

use std::collections::VecDeque;
use std::pin::Pin;

use client::{ConnectionState, ExecServerError, Signal, WindowSize};

use super::Foreground;
use crate::commands::capabilities::can_send;

/// A request about the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProcessRequest {
    /// A signal that the server can send, or a fatal signal, which becomes `Terminate` if the server cannot send it.
    Signal(Signal),
    Terminate,
    Resize(WindowSize),
    /// Makes a program draw its whole screen again, in this size.
    Redraw(WindowSize),
}

impl ProcessRequest {
    /// Whether the process may end because of this request.
    pub(super) fn may_end_process(self) -> bool {
        matches!(self, Self::Signal(_) | Self::Terminate)
    }

    /// One request that has the effect of `self` and then `later`, or `None` if both requests must be sent.
    fn merged_with(self, later: Self) -> Option<Self> {
        match (self, later) {
            // The screen has to be drawn in the size that the window has in the end.
            (Self::Redraw(_), Self::Resize(size)) | (Self::Resize(_) | Self::Redraw(_), Self::Redraw(size)) => {
                Some(Self::Redraw(size))
            }
            (Self::Resize(_), Self::Resize(size)) => Some(Self::Resize(size)),
            (earlier, later) => (earlier == later).then_some(earlier),
        }
    }
}

/// Requests that wait until the ones before them are answered.
#[derive(Debug, Default)]
struct WaitingRequests(VecDeque<ProcessRequest>);

impl WaitingRequests {
    /// Adds a request, or merges it with one that waits.
    fn push(&mut self, request: ProcessRequest) {
        for waiting in &mut self.0 {
            if let Some(merged) = waiting.merged_with(request) {
                *waiting = merged;
                return;
            }
        }
        self.0.push_back(request);
    }
}

/// The request that is on its way, and those that wait for its answer.
pub(super) struct ProcessRequests<'a> {
    foreground: &'a Foreground<'a>,
    waiting: WaitingRequests,
    /// Resolves to the request on its way when the server has answered it, or when it has failed.
    sent: Option<Pin<Box<dyn Future<Output = ProcessRequest> + 'a>>>,
}

impl<'a> ProcessRequests<'a> {
    pub(super) fn new(foreground: &'a Foreground<'a>) -> Self {
        Self { foreground, waiting: WaitingRequests::default(), sent: None }
    }

    /// Queues a request. It is sent while [`next_answer`](Self::next_answer) is awaited.
    pub(super) fn push(&mut self, request: ProcessRequest) {
        self.waiting.push(request);
    }

    /// Sends the next request, waits until it is answered or has failed, and returns it. Without a request it never
    /// returns, so the caller has to cancel it before a [`push`](Self::push). Cancel safe.
    pub(super) async fn next_answer(&mut self) -> ProcessRequest {
        if self.sent.is_none()
            && let Some(request) = self.waiting.0.pop_front()
        {
            self.sent = Some(Box::pin(send(self.foreground, request)));
        }
        let Some(sent) = &mut self.sent else { return std::future::pending().await };
        let answered = sent.await;
        self.sent = None;
        answered
    }
}

/// Sends a request and returns it when it is answered or has failed.
async fn send(foreground: &Foreground<'_>, request: ProcessRequest) -> ProcessRequest {
    if let Err(error) = try_send(foreground, request).await {
        tracing::debug!(%error, "a request about the process failed");
    }
    request
}

async fn try_send(foreground: &Foreground<'_>, request: ProcessRequest) -> Result<(), ExecServerError> {
    let process = foreground.process;
    match request {
        ProcessRequest::Signal(signal) if can_send(foreground.server, signal) => process.signal(signal).await,
        // Only fatal signals are requested from a server that cannot send them.
        ProcessRequest::Signal(_) | ProcessRequest::Terminate => terminate(foreground).await,
        ProcessRequest::Resize(size) => process.resize(size).await,
        ProcessRequest::Redraw(size) => {
            // The kernel tells a program only of a size that differs from the last one, so another size comes first.
            process.resize(WindowSize { rows: size.rows, cols: size.cols.saturating_sub(1).max(1) }).await?;
            process.resize(size).await
        }
    }
}

/// Asks the server to end the process. If the connection is lost before the answer, it asks again over the next
/// connection, unless the client has given up: to end a process twice is the same as to end it once.
async fn terminate(foreground: &Foreground<'_>) -> Result<(), ExecServerError> {
    let state = foreground.client.connection_state();
    loop {
        match foreground.process.terminate().await {
            Err(ExecServerError::Disconnected(_)) if !matches!(*state.borrow(), ConnectionState::Failed(_)) => {}
            result => return result.map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(cols: u16) -> WindowSize {
        WindowSize { rows: 24, cols }
    }

    fn waiting_after(requests: impl IntoIterator<Item = ProcessRequest>) -> Vec<ProcessRequest> {
        let mut waiting = WaitingRequests::default();
        requests.into_iter().for_each(|request| waiting.push(request));
        waiting.0.into()
    }

    #[test]
    fn only_the_latest_size_waits_and_a_redraw_is_not_forgotten() {
        assert_eq!(
            waiting_after((1..=10_000).map(|cols| ProcessRequest::Resize(size(cols)))),
            [ProcessRequest::Resize(size(10_000))]
        );
        let mixed =
            [ProcessRequest::Resize(size(1)), ProcessRequest::Redraw(size(2)), ProcessRequest::Resize(size(3))];
        assert_eq!(waiting_after(mixed), [ProcessRequest::Redraw(size(3))]);
    }

    #[test]
    fn equal_requests_wait_once_in_the_order_of_their_first_occurrence() {
        let round = [
            ProcessRequest::Signal(Signal::User2),
            ProcessRequest::Resize(size(80)),
            ProcessRequest::Signal(Signal::User1),
            ProcessRequest::Terminate,
            ProcessRequest::Signal(Signal::Interrupt),
        ];
        assert_eq!(waiting_after(std::iter::repeat_n(round, 1000).flatten()), round);
    }
}
