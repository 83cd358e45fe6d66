//! Runs a process of an exec-server in the foreground: its output becomes ours, and our input, signals and window
//! size go to it, until the process ends or we leave it. Of its own, this module prints only notices about the
//! connection and the server. It does not know which command has started the process.
//!
//! [`Foreground::run`] prepares the terminal and the threads for stdin and stdout; [`event_loop`] handles each event.

mod connection_notice;
mod end_wait;
mod escape_keys;
mod event_loop;
pub(crate) mod input_plan;
mod passing_input;
mod process_requests;
mod query_filter;
mod screen_modes;
mod stdin_reader;

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use client::{Capabilities, ExecProcess, ExecServerClient, ExitStatus};

use super::exit_code;
use super::output_queue::{OutputQueue, OutputWritten};
use super::signals::{FatalSignal, Signals};
use super::terminal::RawTerminal;
pub(crate) use end_wait::{END_PATIENCE, EndReason};
use escape_keys::EscapeKeys;
use event_loop::EventLoop;
use screen_modes::ScreenModes;
use stdin_reader::StdinReader;

/// How long a terminal may take to show the last output after we have left the process.
const LAST_OUTPUT_PATIENCE: Duration = Duration::from_millis(100);
/// Exit code of a program that writes to a closed pipe.
pub(crate) const BROKEN_PIPE: u8 = 128 + 13;
/// Exit code of a program whose terminal was closed.
const HUNG_UP: u8 = 128 + 1;

/// A process that is about to run in the foreground, and how it runs there.
pub(crate) struct Foreground<'a> {
    pub(crate) client: &'a ExecServerClient,
    pub(crate) process: &'a ExecProcess,
    /// The extensions that the server has.
    pub(crate) server: &'a Capabilities,
    /// How long the process may run. A server that enforces this time itself gets [`END_PATIENCE`] more before we ask
    /// it to end the process.
    pub(crate) timeout: Option<Duration>,
    /// Whether the process has a terminal.
    pub(crate) tty: bool,
    /// Whether the events of the process are printed as lines of JSON.
    pub(crate) json: bool,
    /// Whether the process belongs to a kept session, which outlives us together with its processes.
    pub(crate) is_kept: bool,
    pub(crate) end_of_input: EndOfInput,
    /// Whether the program is asked to draw its whole screen, because it has drawn on another terminal before.
    pub(crate) redraw: bool,
}

/// How the process learns that our stdin has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndOfInput {
    /// The stdin of the process is closed too.
    Passed,
    /// The stdin of the process is closed too, but only if ours had input. `attach` with an empty stdin only shows
    /// the output.
    PassedIfAnyInput,
    /// The server cannot close a stdin, but the process has a terminal: we type the end-of-file key there.
    Typed,
    /// The server cannot close a stdin. Ours had ended before the start, so the process was started without a stdin.
    EndedBeforeStart,
    /// The server cannot close a stdin, and ours may end while the process runs.
    CannotBePassed,
}

/// The reason why the process is no longer in the foreground.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ForegroundEnd {
    /// The process has ended.
    Exited(ExitStatus),
    /// A person has left the process with `~.`, or the terminal of the person is gone.
    Left,
    /// A signal ends us before the process has ended.
    Signalled(FatalSignal),
    /// The reader of our output has closed the pipe.
    BrokenPipe,
    /// The server was asked to end the process, or to pass a signal on. It did not do so in time, or a person did not
    /// want to wait for it. The number is our exit code.
    Abandoned(u8),
}

/// How to close the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goodbye {
    /// The processes of this command are ended, except those of a kept session, and then the connection is closed.
    InOrder,
    /// The connection is dropped. We have given up waiting for the server.
    Skipped,
}

impl ForegroundEnd {
    pub(crate) fn goodbye(&self) -> Goodbye {
        if matches!(self, Self::Abandoned(_)) { Goodbye::Skipped } else { Goodbye::InOrder }
    }

    /// Our exit code. To leave a process of a kept session (`is_kept`) is a success, because the process goes on.
    pub(crate) fn exit_code(&self, is_kept: bool) -> ExitCode {
        match self {
            Self::Exited(status) => exit_code::of_command(status),
            Self::Left if is_kept => ExitCode::SUCCESS,
            Self::Left => ExitCode::from(HUNG_UP),
            Self::Signalled(fatal) => ExitCode::from(fatal.exit_code()),
            Self::BrokenPipe => ExitCode::from(BROKEN_PIPE),
            Self::Abandoned(code) => ExitCode::from(*code),
        }
    }
}

impl Foreground<'_> {
    /// Runs until the process ends or we leave it. Afterwards the terminal is as it was before.
    pub(crate) async fn run(self, signals: &mut Signals) -> anyhow::Result<ForegroundEnd> {
        let terminal = if self.tty { RawTerminal::enter()? } else { None };
        let mut screen = ScreenModes::default();
        let stdin = StdinReader::start(terminal.as_ref().map(|_| EscapeKeys::default()))?;
        let (output, mut written) = OutputQueue::start()?;
        let event_loop = EventLoop::new(&self, terminal.as_ref(), &output, &mut screen);
        let end = event_loop.run(signals, stdin, &mut written).await;
        // Without the queue, the writing thread ends after the last piece.
        drop(output);
        if let Ok(ForegroundEnd::Exited(_)) = end {
            let earlier_end = finish_writing(&mut written, signals).await?;
            return earlier_end.map_or(end, Ok);
        }
        if terminal.is_some() {
            if !written.is_terminated() {
                let _written_or_slow = tokio::time::timeout(LAST_OUTPUT_PATIENCE, &mut written).await;
            }
            // The program can no longer reset the terminal modes that it has set, because we print no more of its
            // output. So we reset them.
            let _reset_or_terminal_gone =
                io::stdout().write_all(&screen.take_reset_sequences()).and_then(|()| io::stdout().flush());
        }
        end
    }
}

/// Waits until all output is written, which a slow reader may delay, and then returns `None`. If a fatal signal comes
/// or the reader closes the pipe before that, returns the end that this means for us.
async fn finish_writing(written: &mut OutputWritten, signals: &mut Signals) -> anyhow::Result<Option<ForegroundEnd>> {
    tokio::select! {
        result = written => match result {
            Ok(Ok(())) => Ok(None),
            result => writer_failure(result).map(Some),
        },
        fatal = signals.next_fatal() => Ok(Some(ForegroundEnd::Signalled(fatal))),
    }
}

/// Called when the thread that writes our output has ended before it has written all output.
fn writer_failure(
    result: Result<io::Result<()>, tokio::sync::oneshot::error::RecvError>,
) -> anyhow::Result<ForegroundEnd> {
    match result {
        Ok(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ForegroundEnd::BrokenPipe),
        Ok(Err(error)) => Err(anyhow::Error::new(error).context("cannot write the output")),
        Ok(Ok(())) | Err(_) => anyhow::bail!("the output was not written to its end"),
    }
}
