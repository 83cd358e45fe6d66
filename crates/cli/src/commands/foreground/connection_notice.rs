//! Prints lines on stderr about the connection while a process runs: one when the connection is lost, one when it is
//! back. A short loss is reported only to a person at a terminal.

use std::time::Duration;

use client::ConnectionState;
use tokio::time::Instant;

/// A loss that is shorter than this is not reported, unless a person is at the terminal.
const REPORTED_AFTER: Duration = Duration::from_secs(2);

/// Prints the lines, and remembers whether the loss was reported.
pub(crate) struct ConnectionNotice {
    /// Whether a person is at a terminal in raw mode, where lines must end with CR LF.
    is_raw: bool,
    /// When to report a loss that is not reported yet.
    due: Option<Instant>,
    is_loss_reported: bool,
}

impl ConnectionNotice {
    pub(crate) fn new(is_raw: bool) -> Self {
        Self { is_raw, due: None, is_loss_reported: false }
    }

    /// Handles a change of the connection. Returns true if the connection is back and lines about its loss are on the
    /// screen.
    pub(crate) fn handle(&mut self, state: &ConnectionState) -> bool {
        match state {
            ConnectionState::Recovering(_) if self.is_raw => self.report_loss(),
            ConnectionState::Recovering(_) if !self.is_loss_reported => {
                self.due.get_or_insert_with(|| Instant::now() + REPORTED_AFTER);
            }
            ConnectionState::Connected => {
                self.due = None;
                if std::mem::take(&mut self.is_loss_reported) {
                    self.say("reconnected");
                    return true;
                }
            }
            ConnectionState::Recovering(_) | ConnectionState::Failed(_) => self.due = None,
        }
        false
    }

    /// Waits until a loss has lasted long enough, and reports it. Cancel safe.
    pub(crate) async fn report_when_due(&mut self) {
        match self.due {
            Some(due) => tokio::time::sleep_until(due).await,
            None => std::future::pending().await,
        }
        self.report_loss();
    }

    fn report_loss(&mut self) {
        self.due = None;
        if !std::mem::replace(&mut self.is_loss_reported, true) {
            self.say("connection lost, reconnecting…");
        }
    }

    /// Prints a line at once, which need not be about the connection.
    pub(crate) fn say(&self, text: &str) {
        let line =
            if self.is_raw { format!("\r\n[exec-server: {text}]\r\n") } else { format!("exec-server: {text}\n") };
        crate::write_to_stderr(&line);
    }
}
