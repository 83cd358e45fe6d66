//! Requests about the process that the loop makes while it goes on: signals, the end, the window size. They are sent one after the other, so
//! that their order is kept.

use client::{ConnectionState, ExecServerError, Signal, WindowSize};
use tokio::sync::mpsc;

use super::Foreground;
use crate::commands::capabilities::can_send;

/// A request that is sent when the ones before it are answered.
pub(super) enum ProcessRequest {
    /// A signal that the server can send, or a fatal one, which becomes `Terminate` if the server cannot.
    Signal(Signal),
    Terminate,
    Resize(WindowSize),
    /// Makes a program draw its whole screen again.
    Redraw(WindowSize),
}

/// Sends requests in their order, for ever. After each answer to a request that may end the process, `answered` gets a message.
pub(super) async fn send_in_order(
    foreground: &Foreground<'_>,
    mut queue: mpsc::UnboundedReceiver<ProcessRequest>,
    answered: mpsc::UnboundedSender<()>,
) {
    while let Some(request) = queue.recv().await {
        let may_end_process = matches!(request, ProcessRequest::Signal(_) | ProcessRequest::Terminate);
        if let Err(error) = send(foreground, request).await {
            tracing::debug!(%error, "a request about the process failed");
        }
        if may_end_process {
            let _loop_has_ended = answered.send(());
        }
    }
    std::future::pending::<()>().await;
}

async fn send(foreground: &Foreground<'_>, request: ProcessRequest) -> Result<(), ExecServerError> {
    let process = foreground.process;
    match request {
        ProcessRequest::Signal(signal) if can_send(foreground.server, signal) => process.signal(signal).await,
        // Only fatal signals are requested from a server that cannot send them.
        ProcessRequest::Signal(_) | ProcessRequest::Terminate => terminate(foreground).await,
        ProcessRequest::Resize(size) => process.resize(size).await,
        ProcessRequest::Redraw(size) => {
            // A program is told only of a size that differs from the last one.
            process.resize(WindowSize { rows: size.rows, cols: size.cols.saturating_sub(1).max(1) }).await?;
            process.resize(size).await
        }
    }
}

/// Repeats the request over as many connections as it takes: to end a process twice is the same as to end it once.
async fn terminate(foreground: &Foreground<'_>) -> Result<(), ExecServerError> {
    let state = foreground.client.connection_state();
    loop {
        match foreground.process.terminate().await {
            Err(ExecServerError::Disconnected(_)) if !matches!(*state.borrow(), ConnectionState::Failed(_)) => {}
            result => return result.map(drop),
        }
    }
}
