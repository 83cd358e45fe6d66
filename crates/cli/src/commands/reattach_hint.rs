//! How a person who has left a command of a kept session, or has lost the connection to it, gets back to it.

use std::process::ExitCode;

use client::{ConnectionState, ExecServerClient, ProcessId};

use super::args::TargetArgs;
use super::foreground::{Foreground, ForegroundEnd, Goodbye};
use super::signals::Signals;
use crate::terminal_text::error_line;

/// The way back to one process of a kept session.
pub(crate) struct ReattachHint<'a> {
    pub(crate) target: &'a TargetArgs,
    pub(crate) session: &'a str,
    pub(crate) id: &'a ProcessId,
}

impl ReattachHint<'_> {
    /// The command line that takes the process up again.
    fn attach(&self) -> String {
        self.target.command_line("attach", &["--session", self.session, self.id.as_str()])
    }

    /// The command line that follows its output again.
    fn follow(&self) -> String {
        self.target.command_line("logs", &["-f", "--session", self.session, self.id.as_str()])
    }

    /// Says that the process goes on without us.
    pub(crate) fn say(&self) {
        let id = crate::terminal_text::readable(self.id.as_str());
        crate::write_to_stderr(&format!(
            "\n[exec-server: left {id} running; `{}` takes it up again]\n",
            self.attach()
        ));
    }

    /// The error of somebody who was attached, with the way back if the connection is what failed.
    pub(crate) fn attaching(&self, error: anyhow::Error, client: &ExecServerClient) -> anyhow::Error {
        added_to(error, client, &self.attach(), "takes it up again")
    }

    /// The same for somebody who followed the output.
    pub(crate) fn following(&self, error: anyhow::Error, client: &ExecServerClient) -> anyhow::Error {
        added_to(error, client, &self.follow(), "follows it again")
    }
}

/// Carries input and output to the end of the process or until a person leaves it, who is then told the way back, if there is one.
pub(crate) async fn run_in_foreground(
    foreground: Foreground<'_>,
    signals: &mut Signals,
    reattach_hint: Option<&ReattachHint<'_>>,
) -> anyhow::Result<(ExitCode, Goodbye)> {
    let (client, is_kept) = (foreground.client, foreground.is_kept);
    let end = foreground.run(signals).await.map_err(|error| match reattach_hint {
        Some(reattach_hint) => reattach_hint.attaching(error, client),
        None => error,
    })?;
    if let (Some(reattach_hint), ForegroundEnd::Left) = (reattach_hint, end) {
        reattach_hint.say();
    }
    Ok((end.exit_code(is_kept), end.goodbye()))
}

/// Another client that has taken the session is no reason to take it back.
fn added_to(error: anyhow::Error, client: &ExecServerClient, command: &str, what: &str) -> anyhow::Error {
    let is_lost = matches!(*client.connection_state().borrow(), ConnectionState::Failed(_));
    if !is_lost || client.is_taken_over() {
        return error;
    }
    anyhow::anyhow!("{}; if the server has kept the session, `{command}` {what}", error_line(&error))
}
