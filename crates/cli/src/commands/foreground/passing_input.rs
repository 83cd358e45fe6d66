//! Passes our stdin to the process until it ends. [`input_plan`](super::input_plan) has decided before the start how the end is passed on.

use anyhow::Context as _;
use client::{ExecServerError, WriteStatus};
use protocol::error_kind;

use super::stdin_reader::StdinInput;
use super::{EndOfInput, Foreground};

/// What the end-of-file key (Ctrl-D) of a terminal sends.
const END_OF_FILE_KEY: u8 = 4;

/// What the process knows about the end of our stdin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InputEnd {
    /// The process was told, or does not read its input any more.
    Settled,
    /// The process was not told, because the server cannot close its stdin. `after_input`: the process has got input before.
    NotTold { after_input: bool },
}

/// Passes our stdin on until it ends. An error must end the command: without the rest of its input the process would wait for ever, or
/// take a part for the whole.
pub(super) async fn pass_input(foreground: &Foreground<'_>, mut input: StdinInput) -> anyhow::Result<InputEnd> {
    let process = foreground.process;
    let mut last_byte = None;
    while let Some(bytes) = input.next().await.context("cannot read stdin")? {
        last_byte = bytes.last().copied().or(last_byte);
        match process.write(bytes).await {
            Ok(WriteStatus::Accepted | WriteStatus::Starting) => {}
            Ok(WriteStatus::StdinClosed | WriteStatus::UnknownProcess) => return Ok(InputEnd::Settled),
            Err(error) => return input_failed(error),
        }
    }
    let was_input = last_byte.is_some();
    // At a terminal, the end-of-file key within a line only hands that line over. On an empty line it means the end.
    let is_line_begun =
        foreground.tty && last_byte.is_some_and(|byte| ![b'\n', b'\r', END_OF_FILE_KEY].contains(&byte));
    if is_line_begun && let Err(error) = process.write([END_OF_FILE_KEY]).await {
        return input_failed(error);
    }
    let passed = match foreground.end_of_input {
        EndOfInput::PassedAfterInput if !was_input => Ok(()),
        EndOfInput::Passed | EndOfInput::PassedAfterInput => process.close_stdin().await,
        EndOfInput::Typed => process.write([END_OF_FILE_KEY]).await.map(drop),
        EndOfInput::BeforeTheStart => Ok(()),
        EndOfInput::CannotBePassed => return Ok(InputEnd::NotTold { after_input: was_input }),
    };
    match passed {
        Ok(()) => Ok(InputEnd::Settled),
        Err(error) => input_failed(error),
    }
}

/// Decides what a failed write means. A lost connection or a process that is gone is also reported by the events of the process, with a
/// better text, so it is no error here.
fn input_failed(error: ExecServerError) -> anyhow::Result<InputEnd> {
    let is_connection =
        matches!(error, ExecServerError::Disconnected(_) | ExecServerError::Closed | ExecServerError::Recovering);
    if is_connection || error.is_of_kind(error_kind::UNKNOWN_PROCESS) {
        tracing::debug!(%error, "cannot pass input");
        return Ok(InputEnd::Settled);
    }
    Err(anyhow::Error::new(error).context("the server did not take the input of the command"))
}
