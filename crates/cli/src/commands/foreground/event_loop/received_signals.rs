//! Handles signals that we get while a process is in the foreground: a signal is passed on to the process, stops or
//! continues both the process and us, tells the process the new window size, or makes us leave.

use std::time::Duration;

use client::Signal;
use tokio::time::Instant;

use super::{EndReason, EventLoop, ForegroundEnd, MAY_RUN, ProcessRequest};
use crate::commands::capabilities::can_send;
use crate::commands::signals::{FatalSignal, SignalEffect, stop_ourselves};
use crate::commands::terminal::window_size;

/// How long the reader of our output may read nothing after a signal has told us to end.
const STUCK_OUTPUT_PATIENCE: Duration = Duration::from_secs(2);
/// How long the server may take to stop the process before we stop ourselves.
const STOP_PATIENCE: Duration = Duration::from_millis(500);

impl EventLoop<'_> {
    /// Handles a signal. `is_connected`: the connection to the server is not lost at this moment.
    pub(super) async fn handle_signal(&mut self, signal: SignalEffect, is_connected: bool) -> Option<ForegroundEnd> {
        match signal {
            SignalEffect::End(fatal) => return self.handle_fatal_signal(fatal, is_connected),
            SignalEffect::Pass(signal) if can_send(self.foreground.server, signal) => {
                self.requests.push(ProcessRequest::Signal(signal));
            }
            SignalEffect::Pass(_) => self.notice.say("this server cannot send this signal to a command"),
            SignalEffect::Stop => self.stop().await,
            SignalEffect::Continue => self.resume(),
            SignalEffect::Resize => {
                if let (true, Some(size)) = (self.foreground.tty, window_size()) {
                    self.requests.push(ProcessRequest::Resize(size));
                }
            }
        }
        None
    }

    fn handle_fatal_signal(&mut self, fatal: FatalSignal, is_connected: bool) -> Option<ForegroundEnd> {
        if let Some(status) = self.exited.clone() {
            return Some(ForegroundEnd::Exited(status));
        }
        if self.end_wait.is_waiting() {
            self.notice.say(&format!("left before the server had ended the command; {MAY_RUN}"));
            return Some(ForegroundEnd::Abandoned(fatal.exit_code()));
        }
        // We leave the process at once in three cases. In raw mode, Ctrl-C and Ctrl-\ are bytes for the process, so a
        // signal is meant for us. If the connection is lost, no signal can be passed on. A process of a kept session
        // goes on without us, except after the signals of these two keys: the user has no other key to interrupt it.
        let is_key_signal = matches!(fatal.signal, Signal::Interrupt | Signal::Quit);
        if self.terminal.is_some() || !is_connected || (self.foreground.is_kept && !is_key_signal) {
            return Some(ForegroundEnd::Signalled(fatal));
        }
        let reason = if can_send(self.foreground.server, fatal.signal) {
            EndReason::Passed(fatal)
        } else {
            self.replaced_signal = Some(fatal);
            EndReason::Replaced(fatal)
        };
        // If the server cannot send the signal, this request ends the process.
        self.requests.push(ProcessRequest::Signal(fatal.signal));
        self.end_wait.begin(reason, Instant::now());
        if self.output.is_stuck() {
            self.signal_while_stuck = Some(fatal);
            self.leave_at = Some(Instant::now() + STUCK_OUTPUT_PATIENCE);
        }
        None
    }

    /// Stops the process, if the server can do that, and then us, as Ctrl-Z does, until a signal continues us.
    async fn stop(&self) {
        match self.terminal {
            // At a terminal the program gets the key Ctrl-Z itself, so this signal stops us alone.
            Some(terminal) => terminal.suspend(),
            None if can_send(self.foreground.server, Signal::Stop) => {
                let stopping = self.foreground.process.signal(Signal::Stop);
                let _stopped_or_late = tokio::time::timeout(STOP_PATIENCE, stopping).await;
            }
            // The server cannot stop the process, which runs on until the buffers for its output are full.
            None => {}
        }
        stop_ourselves();
    }

    fn resume(&mut self) {
        let Some(terminal) = self.terminal else {
            // A server that cannot send this signal could not stop the process either.
            if can_send(self.foreground.server, Signal::Continue) {
                self.requests.push(ProcessRequest::Signal(Signal::Continue));
            }
            return;
        };
        if let Err(error) = terminal.resume() {
            tracing::debug!(%error, "cannot make the terminal raw again");
        }
        self.redraw();
    }
}
