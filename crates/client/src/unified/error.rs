//! Why a command cannot be run or gone on with.

use super::request::ExecSessionId;
use crate::error::ExecServerError;

/// Why a call failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnifiedExecError {
    /// There never was such a session, or it is long gone.
    #[error("unknown session {0}")]
    UnknownSession(ExecSessionId),
    /// The command has ended and everything it wrote was returned.
    #[error("session {session} has ended{}; start the command again", exit_words(*exit_code))]
    SessionEnded {
        /// Which.
        session: ExecSessionId,
        /// How, if that is known.
        exit_code: Option<i32>,
    },
    /// The command was started without anything to write to.
    #[error("session {0} has no stdin; start the command with tty or stdin to write to it")]
    NoStdin(ExecSessionId),
    /// As many commands run as may.
    #[error("{0} commands are running, which is the limit; end one of them first")]
    TooManySessions(usize),
    /// There is nothing to run.
    #[error("the command is empty")]
    EmptyCommand,
    /// The environment could not be asked, or refused.
    #[error(transparent)]
    Client(#[from] ExecServerError),
}

fn exit_words(exit_code: Option<i32>) -> String {
    exit_code.map_or_else(String::new, |code| format!(" with exit code {code}"))
}
