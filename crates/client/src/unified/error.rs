//! The error of all calls of unified exec, which runs commands. A session is a command that a call has started.

use super::request::ExecSessionId;
use crate::error::ExecServerError;

/// The reason why a call of [`UnifiedExec`](super::UnifiedExec) failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnifiedExecError {
    /// There was no session with this id, or it ended so long ago that its id was forgotten.
    #[error("unknown session {0}")]
    UnknownSession(ExecSessionId),
    /// The command has ended, and a call has returned its end. Or it was removed to make room for a new command.
    #[error("session {session} has ended{}; start the command again", exit_words(*exit_code))]
    SessionEnded {
        /// The session of the command.
        session: ExecSessionId,
        /// The exit code of the command. `None` if it is not known.
        exit_code: Option<i32>,
    },
    /// The command was started without a terminal and without a stdin.
    #[error("session {0} has no stdin; start the command with tty or stdin to write to it")]
    NoStdin(ExecSessionId),
    /// As many commands are running as the options allow.
    #[error("{0} commands are running, which is the limit; end one of them first")]
    TooManySessions(usize),
    /// The request has no program to run.
    #[error("the command is empty")]
    EmptyCommand,
    /// The client could not make the call, or the server refused it.
    #[error(transparent)]
    Client(#[from] ExecServerError),
}

fn exit_words(exit_code: Option<i32>) -> String {
    exit_code.map_or_else(String::new, |code| format!(" with exit code {code}"))
}
