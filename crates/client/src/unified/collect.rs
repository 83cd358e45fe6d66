//! The task that follows the events of a command, and the reports about commands that have ended in the background.

use std::sync::Arc;

use tokio::sync::broadcast;

use super::record::{CommandEnd, CommandRecord};
use super::request::ExecSessionId;
use crate::process::ProcessEvents;

/// Reports that a command has ended after the call that started it had returned.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommandCompletion {
    /// The session: the id by which later calls find the command. The next `write_stdin` to this session returns the
    /// output that no call has returned.
    pub session: ExecSessionId,
    /// The exit code, or 128+N if signal N ended the command. `None` if the exit was not reported: `failure` says
    /// why, or a write has found the stdin of the command closed.
    pub exit_code: Option<i32>,
    /// The end of all output of the command. If output is left out, the first line says how much.
    pub output_tail: String,
    /// Whether the sandbox denied something to the command.
    pub sandbox_denied: bool,
    /// The reason why the client could no longer follow the command. `None` if there was no failure.
    pub failure: Option<String>,
}

/// A subscription to reports about commands that end in the background.
pub struct Completions {
    receiver: broadcast::Receiver<CommandCompletion>,
}

impl Completions {
    pub(super) fn new(receiver: broadcast::Receiver<CommandCompletion>) -> Self {
        Self { receiver }
    }

    /// Waits for the next report. Returns `None` when all clones of the [`UnifiedExec`](super::UnifiedExec), the
    /// value that runs the commands, were dropped. The last 256 reports are kept for a subscriber that does not take
    /// them. Cancel safe.
    pub async fn recv(&mut self) -> Option<CommandCompletion> {
        loop {
            match self.receiver.recv().await {
                Ok(completion) => return Some(completion),
                Err(broadcast::error::RecvError::Lagged(missed)) => {
                    tracing::debug!(missed, "reports about ended commands were dropped");
                }
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}

/// How many reports are kept for a subscriber that does not take them.
pub(super) const KEPT_COMPLETIONS: usize = 256;

/// Passes the events of a command to its record until the command ends or can no longer be followed.
pub(super) async fn run(mut events: ProcessEvents, record: Arc<CommandRecord>) {
    while let Some(event) = events.next().await {
        record.note(event);
    }
    // Has no effect if the last event was a close or a failure. Otherwise the end of the process is not known.
    record.end_unless_ended(CommandEnd::Failed("the command can no longer be followed".to_owned()));
}
