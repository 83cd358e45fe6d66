//! The record of a command: the output that no call has returned yet, and how the command ended. The task that
//! follows the events of the command fills the record, and calls read it.

use parking_lot::Mutex;
use tokio::sync::{broadcast, watch};
use tokio::time::{Duration, Instant, timeout, timeout_at};

use super::collect::CommandCompletion;
use super::head_tail::{Abridged, HeadTail, StreamRest};
use super::options::UnifiedExecOptions;
use super::request::ExecSessionId;
use crate::records::{ExecProcessEvent, ExitStatus};

pub(super) struct CommandRecord {
    id: ExecSessionId,
    state: Mutex<CommandState>,
    progress: watch::Sender<CommandProgress>,
    completions: broadcast::Sender<CommandCompletion>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CommandProgress {
    /// Bytes of output so far.
    bytes: u64,
    is_over: bool,
}

struct CommandState {
    /// Output that no call has returned yet.
    unread: HeadTail,
    /// The end of all output, for the report about a command that ends in the background.
    tail: HeadTail,
    /// The exit of the process. Output of its descendants may still follow.
    exit: Option<ExitStatus>,
    /// Set when no further event is expected.
    end: Option<CommandEnd>,
    /// The call that started the command has returned, so the end of the command has to be reported.
    is_in_background: bool,
}

/// The reason why no further event of a command is expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CommandEnd {
    /// The process has exited, and its output streams are closed.
    Closed,
    /// The client could no longer follow the command, for this reason.
    Failed(String),
    /// A write has shown that the stdin of the command is closed, and the command did not end soon after.
    StdinClosed,
}

/// Output and state of a command when a call asked for them.
pub(super) struct CommandSnapshot {
    pub(super) abridged: Abridged,
    /// Bytes of the output before it was abridged.
    pub(super) original_bytes: u64,
    pub(super) exit: Option<ExitStatus>,
    pub(super) end: Option<CommandEnd>,
}

impl CommandRecord {
    pub(super) fn new(
        id: ExecSessionId,
        options: &UnifiedExecOptions,
        completions: broadcast::Sender<CommandCompletion>,
    ) -> Self {
        let state = CommandState {
            unread: HeadTail::new(options.retain_bytes),
            tail: HeadTail::with_budgets(0, options.completion_tail_bytes),
            exit: None,
            end: None,
            is_in_background: false,
        };
        Self { id, state: Mutex::new(state), progress: watch::Sender::default(), completions }
    }

    /// Takes the next event of the command.
    pub(super) fn note(&self, event: ExecProcessEvent) {
        match event {
            ExecProcessEvent::Output(output) => {
                let mut state = self.state.lock();
                state.unread.push(&output.chunk);
                state.tail.push(&output.chunk);
                drop(state);
                self.progress.send_modify(|progress| progress.bytes += output.chunk.len() as u64);
            }
            ExecProcessEvent::Exited { .. } => self.state.lock().exit = event.exit_status(),
            ExecProcessEvent::Closed { .. } => self.end_unless_ended(CommandEnd::Closed),
            ExecProcessEvent::Failed(text) => self.end_unless_ended(CommandEnd::Failed(text)),
        }
    }

    /// Marks the command as ended, and reports the end of a command in the background. Does nothing if the command
    /// has already ended.
    pub(super) fn end_unless_ended(&self, end: CommandEnd) {
        let mut state = self.state.lock();
        if state.end.is_some() {
            return;
        }
        state.end = Some(end);
        let completion = state.is_in_background.then(|| state.completion(self.id));
        drop(state);
        if let Some(completion) = completion {
            let _sent_if_anybody_listens = self.completions.send(completion);
        }
        self.progress.send_modify(|progress| progress.is_over = true);
    }

    pub(super) fn is_over(&self) -> bool {
        self.progress.borrow().is_over
    }

    /// The output that no call has returned yet. It stays in the record.
    pub(super) fn peek(&self, max_bytes: usize) -> CommandSnapshot {
        let state = self.state.lock();
        state.snapshot(&state.unread, max_bytes)
    }

    /// Takes the output that no call has returned yet out of the record. A command that has not ended is in the
    /// background from now on.
    pub(super) fn take(&self, max_bytes: usize) -> CommandSnapshot {
        let mut state = self.state.lock();
        let rest = if state.end.is_some() { StreamRest::Complete } else { StreamRest::MoreFollows };
        state.is_in_background |= rest == StreamRest::MoreFollows;
        let taken = state.unread.take(rest);
        state.snapshot(&taken, max_bytes)
    }

    /// Waits for the end of the command, for at most this long.
    pub(super) async fn wait_for_end_within(&self, time: Duration) {
        let _ended_or_timed_out = timeout(time, self.wait_for_end()).await;
    }

    /// Waits for the end of the command.
    pub(super) async fn wait_for_end(&self) {
        // `self` holds the sender, so waiting cannot fail.
        let mut progress = self.progress.subscribe();
        let _progress_at_end = progress.wait_for(|progress| progress.is_over).await;
    }

    /// Waits until the command has ended, or until it has written output after `mark` and then nothing for `quiet`.
    pub(super) async fn wait_until_quiet(&self, mark: OutputMark, quiet: Duration) {
        let mut progress = self.progress.subscribe();
        let has_changed = |progress: &CommandProgress| progress.is_over || progress.bytes > mark.0;
        let Ok(mut last) = progress.wait_for(has_changed).await.map(|progress| *progress) else { return };
        while !last.is_over {
            let until = Instant::now() + quiet;
            match timeout_at(until, progress.wait_for(|progress| *progress != last)).await {
                Ok(Ok(next)) => last = *next,
                Ok(Err(_)) | Err(_) => return,
            }
        }
    }

    /// The position at the end of the output so far.
    pub(super) fn output_mark(&self) -> OutputMark {
        OutputMark(self.progress.borrow().bytes)
    }
}

/// A position in the output of a command, in bytes.
#[derive(Clone, Copy)]
pub(super) struct OutputMark(u64);

impl CommandState {
    fn snapshot(&self, output: &HeadTail, max_bytes: usize) -> CommandSnapshot {
        CommandSnapshot {
            abridged: output.abridge(max_bytes),
            original_bytes: output.total_bytes(),
            exit: self.exit.clone(),
            end: self.end.clone(),
        }
    }

    fn completion(&self, session: ExecSessionId) -> CommandCompletion {
        CommandCompletion {
            session,
            exit_code: self.exit.as_ref().map(|exit| exit.code),
            output_tail: self.tail.abridge(usize::MAX).text,
            sandbox_denied: self.exit.as_ref().is_some_and(|exit| exit.sandbox_denied),
            failure: self.end.as_ref().and_then(CommandEnd::failure),
        }
    }
}

impl CommandEnd {
    pub(super) fn failure(&self) -> Option<String> {
        match self {
            Self::Failed(text) => Some(text.clone()),
            Self::Closed | Self::StdinClosed => None,
        }
    }
}
