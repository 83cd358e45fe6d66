//! What a command has written and how it ended: between the task that follows it and the calls that ask.

use parking_lot::Mutex;
use recovery::Exit;
use tokio::sync::{broadcast, watch};
use tokio::time::{Duration, Instant, timeout, timeout_at};

use super::collect::CommandCompletion;
use super::head_tail::{Abridged, Ending, HeadTail};
use super::options::UnifiedExecOptions;
use super::request::ExecSessionId;
use crate::records::ExecProcessEvent;

pub(super) struct Record {
    id: ExecSessionId,
    state: Mutex<State>,
    progress: watch::Sender<Progress>,
    completions: broadcast::Sender<CommandCompletion>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Progress {
    bytes: u64,
    is_over: bool,
}

struct State {
    unread: HeadTail,
    last_words: HeadTail,
    exit: Option<Exit>,
    end: Option<End>,
    /// The call that started it has returned: from now on its end is news.
    is_in_background: bool,
}

/// Why nothing follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    Closed,
    Failed(String),
    /// It takes no input any more, which is how it was found out.
    StdinClosed,
}

/// Output and state at one moment.
pub(super) struct Moment {
    pub(super) abridged: Abridged,
    pub(super) original_bytes: u64,
    pub(super) exit: Option<Exit>,
    pub(super) end: Option<End>,
}

impl Record {
    pub(super) fn new(
        id: ExecSessionId,
        options: &UnifiedExecOptions,
        completions: broadcast::Sender<CommandCompletion>,
    ) -> Self {
        let state = State {
            unread: HeadTail::new(options.retain_bytes),
            last_words: HeadTail::with_budgets(0, options.completion_tail_bytes),
            exit: None,
            end: None,
            is_in_background: false,
        };
        Self { id, state: Mutex::new(state), progress: watch::Sender::default(), completions }
    }

    /// The next event.
    pub(super) fn note(&self, event: ExecProcessEvent) {
        match event {
            ExecProcessEvent::Output(output) => {
                let mut state = self.state.lock();
                state.unread.push(&output.chunk);
                state.last_words.push(&output.chunk);
                drop(state);
                self.progress.send_modify(|progress| progress.bytes += output.chunk.len() as u64);
            }
            ExecProcessEvent::Exited { exit_code: code, sandbox_denied, timed_out, .. } => {
                self.state.lock().exit = Some(Exit { code, sandbox_denied, timed_out });
            }
            ExecProcessEvent::Closed { .. } => self.finish(End::Closed),
            ExecProcessEvent::Failed(text) => self.finish(End::Failed(text)),
        }
    }

    /// Nothing follows. Only the first reason counts.
    pub(super) fn finish(&self, end: End) {
        let mut state = self.state.lock();
        if state.end.is_some() {
            return;
        }
        state.end = Some(end);
        let completion = state.is_in_background.then(|| state.completion(self.id));
        drop(state);
        if let Some(completion) = completion {
            let _nobody_listens = self.completions.send(completion);
        }
        self.progress.send_modify(|progress| progress.is_over = true);
    }

    pub(super) fn is_over(&self) -> bool {
        self.progress.borrow().is_over
    }

    /// What was written and not returned yet; it stays.
    pub(super) fn peek(&self, max_bytes: usize) -> Moment {
        let state = self.state.lock();
        state.moment(&state.unread, max_bytes)
    }

    /// What was written and not returned yet. A command that has not ended is in the background from now on.
    pub(super) fn take(&self, max_bytes: usize) -> Moment {
        let mut state = self.state.lock();
        let ending = if state.end.is_some() { Ending::Last } else { Ending::More };
        state.is_in_background |= ending == Ending::More;
        let taken = state.unread.take(ending);
        state.moment(&taken, max_bytes)
    }

    /// Waits for the end, for at most this long.
    pub(super) async fn over_within(&self, time: Duration) {
        let _out_of_time = timeout(time, self.over()).await;
    }

    /// Waits for the end.
    pub(super) async fn over(&self) {
        // The sender is ours and lives as long as we do.
        let mut progress = self.progress.subscribe();
        let _over = progress.wait_for(|progress| progress.is_over).await;
    }

    /// Waits for the end, or until something was written after `mark` and then nothing for `quiet`.
    pub(super) async fn settled(&self, mark: Mark, quiet: Duration) {
        let mut progress = self.progress.subscribe();
        let has_news = |progress: &Progress| progress.is_over || progress.bytes > mark.0;
        let Ok(mut last) = progress.wait_for(has_news).await.map(|progress| *progress) else { return };
        while !last.is_over {
            let until = Instant::now() + quiet;
            match timeout_at(until, progress.wait_for(|progress| *progress != last)).await {
                Ok(Ok(next)) => last = *next,
                Ok(Err(_)) | Err(_) => return,
            }
        }
    }

    /// How much was written so far.
    pub(super) fn mark(&self) -> Mark {
        Mark(self.progress.borrow().bytes)
    }
}

/// A place in the output of a command.
#[derive(Clone, Copy)]
pub(super) struct Mark(u64);

impl State {
    fn moment(&self, output: &HeadTail, max_bytes: usize) -> Moment {
        Moment {
            abridged: output.abridge(max_bytes),
            original_bytes: output.total_bytes(),
            exit: self.exit,
            end: self.end.clone(),
        }
    }

    fn completion(&self, session: ExecSessionId) -> CommandCompletion {
        CommandCompletion {
            session,
            exit_code: self.exit.map(|exit| exit.code),
            output_tail: self.last_words.abridge(usize::MAX).text,
            sandbox_denied: self.exit.is_some_and(|exit| exit.sandbox_denied == Some(true)),
            failure: self.end.as_ref().and_then(End::failure),
        }
    }
}

impl End {
    pub(super) fn failure(&self) -> Option<String> {
        match self {
            Self::Failed(text) => Some(text.clone()),
            Self::Closed | Self::StdinClosed => None,
        }
    }
}
