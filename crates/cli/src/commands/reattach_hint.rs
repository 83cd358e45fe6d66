//! Tells a person which command returns to a process of a kept session, after the person has left the process or has
//! lost the connection to it. Such a session, and its processes, outlive the command that made it. Start reading at
//! [`run_in_foreground`].

use std::process::ExitCode;

use client::{ConnectionState, ExecServerClient, ProcessId};

use super::args::TargetArgs;
use super::foreground::{Foreground, ForegroundEnd, Goodbye};
use super::limit_args::sentence_about;
use super::print::report;
use super::sandbox_flags::sentence_about_denial;
use super::signals::Signals;
use crate::terminal_text::error_line;

/// Names one process of a kept session, and makes the command lines that return to it.
pub(crate) struct ReattachHint<'a> {
    pub(crate) target: &'a TargetArgs,
    pub(crate) session: &'a str,
    pub(crate) id: &'a ProcessId,
}

impl ReattachHint<'_> {
    /// The command line that attaches to the process again.
    fn attach_command(&self) -> String {
        self.target.command_line("attach", &["--session", self.session, self.id.as_str()])
    }

    /// The command line that follows the output of the process again.
    fn follow_command(&self) -> String {
        self.target.command_line("logs", &["-f", "--session", self.session, self.id.as_str()])
    }

    /// Says that the process was left running, and how to attach to it again.
    pub(crate) fn print(&self) {
        let id = crate::terminal_text::readable(self.id.as_str());
        crate::write_to_stderr(&format!(
            "\n[exec-server: left {id} running; `{}` takes it up again]\n",
            self.attach_command()
        ));
    }

    /// The error of a command that was attached to the process. If the connection is lost, the error says how to
    /// attach again.
    pub(crate) fn attach_error(&self, error: anyhow::Error, client: &ExecServerClient) -> anyhow::Error {
        add_command(error, client, &self.attach_command(), "takes it up again")
    }

    /// The error of a command that followed the output of the process. If the connection is lost, the error says how
    /// to follow the process again.
    pub(crate) fn follow_error(&self, error: anyhow::Error, client: &ExecServerClient) -> anyhow::Error {
        add_command(error, client, &self.follow_command(), "follows it again")
    }
}

/// Runs the process in the foreground until it ends or we leave it. With a hint, a person who leaves the process or
/// loses the connection is told how to return. A limit that the process has reached, its timeout, and a denial of its
/// sandbox are reported. Returns our exit code, and how to leave the connection.
pub(crate) async fn run_in_foreground(
    foreground: Foreground<'_>,
    signals: &mut Signals,
    hint: Option<&ReattachHint<'_>>,
) -> anyhow::Result<(ExitCode, Goodbye)> {
    let (client, is_kept, tty, json) = (foreground.client, foreground.is_kept, foreground.tty, foreground.json);
    let end = foreground.run(signals).await.map_err(|error| match hint {
        Some(hint) => hint.attach_error(error, client),
        None => error,
    })?;
    if let (Some(hint), ForegroundEnd::Left) = (hint, &end) {
        hint.print();
    }
    if let ForegroundEnd::Exited(status) = &end {
        if let Some(reached) = status.resources.limit_reached {
            report(&sentence_about(reached));
        }
        if status.timed_out && !json {
            report("the command was ended because it ran longer than its timeout (--timeout)");
        }
        // A person at a terminal has seen the errors of each command, and JSON has the denial in its exit event.
        if status.sandbox_denied && !status.timed_out && !tty && !json {
            report(&sentence_about_denial(&status.sandbox_denials));
        }
    }
    Ok((end.exit_code(is_kept), end.goodbye()))
}

/// If the connection is lost for good, adds to the error that `command` has this `effect`. If another client has
/// taken the session over, the error stays as it is: attaching again would take the session away from that client.
fn add_command(error: anyhow::Error, client: &ExecServerClient, command: &str, effect: &str) -> anyhow::Error {
    let is_lost = matches!(*client.connection_state().borrow(), ConnectionState::Failed(_));
    if !is_lost || client.is_taken_over() {
        return error;
    }
    anyhow::anyhow!("{}; if the server has kept the session, `{command}` {effect}", error_line(&error))
}
