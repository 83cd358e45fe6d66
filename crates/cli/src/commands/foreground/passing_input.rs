//! Passes our stdin to the process until our stdin ends. [`EndOfInput`], which was chosen before, says how the
//! process learns of that end.

use anyhow::{Context as _, bail};
use client::{ExecServerError, WriteStatus};
use protocol::error_kind;

use super::stdin_reader::StdinInput;
use super::{EndOfInput, Foreground};

/// The byte that the end-of-file key (Ctrl-D) of a terminal sends.
const END_OF_FILE_KEY: u8 = 4;

/// Says whether anything is left to do after the last input was passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InputEnd {
    /// The process knows that our stdin has ended, or does not need to know it, or cannot be reached any more.
    NothingLeftToDo,
    /// The process does not know that our stdin has ended, because the server cannot close the stdin of a process.
    ProcessNotTold {
        /// Whether the process has got input before the end.
        had_input: bool,
    },
}

/// Passes our stdin to the process until our stdin ends. After an error, a process that has not exited must not stay
/// in the foreground: without the rest of its input, it would wait for ever, or take a part of its input for all of
/// it.
pub(super) async fn pass_input(foreground: &Foreground<'_>, mut input: StdinInput) -> anyhow::Result<InputEnd> {
    let process = foreground.process;
    let mut last_byte = None;
    while let Some(bytes) = input.next().await.context("cannot read stdin")? {
        last_byte = bytes.last().copied().or(last_byte);
        match process.write(bytes).await {
            Ok(WriteStatus::Accepted) => {}
            Ok(WriteStatus::Starting) => {
                bail!("the server did not take the input of the command: it says that the command is still starting")
            }
            Ok(WriteStatus::StdinClosed | WriteStatus::UnknownProcess) => return Ok(InputEnd::NothingLeftToDo),
            Err(error) => return after_failed_request(error),
        }
    }
    let had_input = last_byte.is_some();
    // At a terminal, the end-of-file key means the end of the input only on an empty line. Within a line it passes
    // the begun line to the program, so it is typed once more here.
    let is_line_begun =
        foreground.tty && last_byte.is_some_and(|byte| ![b'\n', b'\r', END_OF_FILE_KEY].contains(&byte));
    if is_line_begun && let Err(error) = process.write([END_OF_FILE_KEY]).await {
        return after_failed_request(error);
    }
    let passed = match foreground.end_of_input {
        EndOfInput::PassedIfAnyInput if !had_input => Ok(()),
        EndOfInput::Passed | EndOfInput::PassedIfAnyInput => process.close_stdin().await,
        EndOfInput::Typed => process.write([END_OF_FILE_KEY]).await.map(drop),
        EndOfInput::EndedBeforeStart => Ok(()),
        EndOfInput::CannotBePassed => return Ok(InputEnd::ProcessNotTold { had_input }),
    };
    match passed {
        Ok(()) => Ok(InputEnd::NothingLeftToDo),
        Err(error) => after_failed_request(error),
    }
}

/// The result of [`pass_input`] after a request about the input has failed. A lost connection, or a process that is
/// gone, is no error here: the events of the process report it too, with a better text.
fn after_failed_request(error: ExecServerError) -> anyhow::Result<InputEnd> {
    let is_connection_lost =
        matches!(error, ExecServerError::Disconnected(_) | ExecServerError::Closed | ExecServerError::Recovering);
    if is_connection_lost || error.is_of_kind(error_kind::UNKNOWN_PROCESS) {
        tracing::debug!(%error, "cannot pass input");
        return Ok(InputEnd::NothingLeftToDo);
    }
    Err(anyhow::Error::new(error).context("the server did not take the input of the command"))
}
