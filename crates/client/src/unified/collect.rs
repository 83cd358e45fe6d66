//! The task that follows a command by what is pushed, and the news that one has ended in the background.

use std::sync::Arc;

use tokio::sync::broadcast;

use super::record::{End, Record};
use super::request::ExecSessionId;
use crate::process::ProcessEvents;

/// A command has ended after the call that started it had returned.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommandCompletion {
    /// Which. What it wrote can still be asked for, once.
    pub session: ExecSessionId,
    /// How, unless it could not be followed to its end; 128+N after signal N.
    pub exit_code: Option<i32>,
    /// The end of everything it wrote, with a line before it that says how much is left out.
    pub output_tail: String,
    /// Whether the sandbox refused it something.
    pub sandbox_denied: bool,
    /// Why it could not be followed to its end.
    pub failure: Option<String>,
}

/// Commands that end in the background, from the moment of the subscription.
pub struct Completions {
    receiver: broadcast::Receiver<CommandCompletion>,
}

impl Completions {
    pub(super) fn new(receiver: broadcast::Receiver<CommandCompletion>) -> Self {
        Self { receiver }
    }

    /// Waits for the next one; none when the [`UnifiedExec`](super::UnifiedExec) is gone. Of those that nobody takes, the last 256 are
    /// kept. Cancel safe.
    pub async fn recv(&mut self) -> Option<CommandCompletion> {
        loop {
            match self.receiver.recv().await {
                Ok(completion) => return Some(completion),
                Err(broadcast::error::RecvError::Lagged(missed)) => {
                    tracing::debug!(missed, "completions were not taken");
                }
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}

/// Completions kept for a subscriber that does not take them.
pub(super) const KEPT_COMPLETIONS: usize = 256;

pub(super) async fn run(mut events: ProcessEvents, record: Arc<Record>) {
    while let Some(event) = events.next().await {
        record.note(event);
    }
    // A stream of events that just stops says nothing about the process.
    record.finish(End::Failed("the command can no longer be followed".to_owned()));
}
