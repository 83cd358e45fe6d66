//! What a person is told about the connection while something runs: one line when it is lost, one when it is back. A short break is not
//! worth a word in a log.

use std::time::Duration;

use client::ConnectionState;
use tokio::time::Instant;

/// Shorter breaks are not mentioned where nobody is watching.
const WORTH_MENTIONING: Duration = Duration::from_secs(2);

/// Keeps track of what was said.
pub(crate) struct Notice {
    is_raw: bool,
    /// The connection is lost and nobody knows yet; when to say so.
    due: Option<Instant>,
    was_said: bool,
}

impl Notice {
    /// `is_raw`: a person is watching, and their terminal does not return the carriage by itself.
    pub(crate) fn new(is_raw: bool) -> Self {
        Self { is_raw, due: None, was_said: false }
    }

    /// The connection has changed. True: it is back, and lines were written across the screen.
    pub(crate) fn handle(&mut self, state: &ConnectionState) -> bool {
        match state {
            ConnectionState::Recovering(_) if self.is_raw => self.lost(),
            ConnectionState::Recovering(_) if !self.was_said => {
                self.due.get_or_insert_with(|| Instant::now() + WORTH_MENTIONING);
            }
            ConnectionState::Connected => {
                self.due = None;
                if std::mem::take(&mut self.was_said) {
                    self.say("reconnected");
                    return true;
                }
            }
            ConnectionState::Recovering(_) | ConnectionState::Failed(_) => self.due = None,
        }
        false
    }

    /// Waits until there is something to say, and says it. Cancel safe.
    pub(crate) async fn speak(&mut self) {
        match self.due {
            Some(due) => tokio::time::sleep_until(due).await,
            None => std::future::pending().await,
        }
        self.lost();
    }

    fn lost(&mut self) {
        self.due = None;
        if !std::mem::replace(&mut self.was_said, true) {
            self.say("connection lost, reconnecting…");
        }
    }

    /// Says it at once.
    pub(crate) fn say(&self, text: &str) {
        let line =
            if self.is_raw { format!("\r\n[exec-server: {text}]\r\n") } else { format!("exec-server: {text}\n") };
        crate::say(&line);
    }
}
