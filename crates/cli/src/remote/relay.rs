//! Between a process and us, until one of the two ends: its output to ours, our input, signals and window size to it. It prints nothing of
//! its own but what became of the connection.

use std::io::{self, Write as _};
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use client::{
    ConnectionState, ExecProcess, ExecProcessEvent, ExecServerClient, ExecServerError, ExitStatus, Signal,
    WindowSize, WriteStatus,
};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::escape::{Escapes, Wish};
use super::json::JsonLines;
use super::notice::Notice;
use super::output::{Output, Written};
use super::screen::Screen;
use super::signals::{Deadly, Signals, Told, stop_ourselves};
use super::status;
use super::stdin::{Input, Stdin};
use super::terminal::{RawTerminal, window_size};

/// How long descendants of a process that has exited may be silent before we leave. What they still have to say is part of what the
/// command printed, but one that stays for ever must not keep us.
const LINGER: Duration = Duration::from_secs(1);
/// The same for a terminal, which a process leaves behind as it likes.
const LINGER_IN_TERMINAL: Duration = Duration::from_millis(100);
/// How long whoever should read our output may do nothing after we were told to end.
const STUCK: Duration = Duration::from_secs(2);
/// How long the server may take to stop the process before we stop ourselves.
const STOP_PATIENCE: Duration = Duration::from_millis(500);
/// How long a terminal may take to show what was received before we left.
const LAST_OUTPUT: Duration = Duration::from_millis(100);
/// What a program that writes to a closed pipe ends with.
const BROKEN_PIPE: u8 = 128 + 13;
/// What a program ends with whose terminal was closed.
const HUNG_UP: u8 = 128 + 1;

/// How a process is to be carried.
pub(crate) struct Relay<'a> {
    pub(crate) client: &'a ExecServerClient,
    pub(crate) process: &'a ExecProcess,
    /// It has a terminal.
    pub(crate) tty: bool,
    /// Its output as lines of JSON.
    pub(crate) json: bool,
    /// It outlives us.
    pub(crate) is_kept: bool,
    pub(crate) end_of_input: EndOfInput,
    /// It has drawn on another screen before.
    pub(crate) redraw: bool,
}

/// What the end of our stdin means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndOfInput {
    /// The end of its stdin.
    Passed,
    /// The same, unless nothing was there at all: somebody without a stdin looks at a process that others talk to.
    PassedAfterInput,
}

/// Why we stop to carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It has ended.
    Exited(ExitStatus),
    /// A person has left.
    Left,
    /// We were told to end, and it does not come first.
    Told(Deadly),
    /// Nobody reads our output any more.
    BrokenPipe,
}

impl Ending {
    /// What to exit with. Leaving a process that goes on is a success.
    pub(crate) fn exit_code(self, is_kept: bool) -> ExitCode {
        match self {
            Self::Exited(status) => status::of_command(status),
            Self::Left if is_kept => ExitCode::SUCCESS,
            Self::Left => ExitCode::from(HUNG_UP),
            Self::Told(deadly) => ExitCode::from(deadly.exit_code()),
            Self::BrokenPipe => ExitCode::from(BROKEN_PIPE),
        }
    }
}

/// Something to ask of the server on the way.
enum Errand {
    Signal(Signal),
    Resize(WindowSize),
    /// Make a program draw its whole screen again.
    Redraw(WindowSize),
}

impl Relay<'_> {
    /// Carries until the end.
    pub(crate) async fn run(self, signals: &mut Signals) -> anyhow::Result<Ending> {
        let terminal = if self.tty { RawTerminal::enter()? } else { None };
        let mut screen = Screen::default();
        let stdin = Stdin::start(terminal.as_ref().map(|_| Escapes::default()))?;
        let (output, mut written) = Output::start()?;
        let (errands, to_do) = mpsc::unbounded_channel();
        let ending =
            self.carry(signals, terminal.as_ref(), stdin, output, &mut written, &mut screen, &errands, to_do).await;
        if let Ok(Ending::Exited(_)) = ending {
            return Ok(finish_writing(&mut written, signals).await.unwrap_or(ending?));
        }
        if terminal.is_some() {
            if !written.is_terminated() {
                let _slow = tokio::time::timeout(LAST_OUTPUT, &mut written).await;
            }
            // The program cannot tidy up after itself any more.
            let _nobody_looks = io::stdout().write_all(&screen.tidy()).and_then(|()| io::stdout().flush());
        }
        ending
    }

    #[expect(clippy::too_many_arguments, reason = "one loop over everything that can happen")]
    async fn carry(
        &self,
        signals: &mut Signals,
        terminal: Option<&RawTerminal>,
        stdin: Stdin,
        output: Output,
        written: &mut Written,
        screen: &mut Screen,
        errands: &mpsc::UnboundedSender<Errand>,
        to_do: mpsc::UnboundedReceiver<Errand>,
    ) -> anyhow::Result<Ending> {
        let mut events = self.process.events();
        let mut json = self.json.then(JsonLines::default);
        let mut state = self.client.connection_state();
        let mut notice = Notice::new(terminal.is_some());
        let Stdin { input, mut wish } = stdin;
        let mut passing = pin!(self.pass_input(input));
        let mut running_errands = pin!(self.run_errands(to_do));
        let (mut is_passing, mut can_wish) = (true, true);
        let mut exited: Option<ExitStatus> = None;
        let mut leave_at: Option<Instant> = None;
        let mut told: Option<Deadly> = None;
        if self.redraw {
            self.redraw(errands);
        }
        loop {
            let next = async {
                // If nothing can be written any more, the writer has said why.
                let Some(room) = output.room().await else { std::future::pending().await };
                (room, events.next().await)
            };
            tokio::select! {
                (room, event) = next => {
                    match &event {
                        Some(ExecProcessEvent::Exited { exit_code, sandbox_denied, timed_out, .. }) => {
                            let sandbox_denied = sandbox_denied.unwrap_or(false);
                            exited = Some(ExitStatus { code: *exit_code, sandbox_denied, timed_out: *timed_out });
                        }
                        Some(ExecProcessEvent::Failed(text)) => anyhow::bail!("{text}"),
                        Some(_) => {}
                        None => return Ok(Ending::Exited(match exited {
                            Some(status) => status,
                            None => self.process.wait().await?,
                        })),
                    }
                    if exited.is_some() {
                        leave_at = Some(Instant::now() + if self.tty { LINGER_IN_TERMINAL } else { LINGER });
                    }
                    match (&mut json, event) {
                        (Some(json), Some(event)) => {
                            let lines = json.render(&event);
                            if !lines.is_empty() {
                                room.fill(client::Stream::Stdout, lines);
                            }
                        }
                        (None, Some(ExecProcessEvent::Output(output))) => {
                            if terminal.is_some() {
                                screen.watch(&output.chunk);
                            }
                            room.fill(output.stream, output.chunk);
                        }
                        (None, _) | (_, None) => {}
                    }
                }
                result = &mut *written => return broken(result),
                () = &mut passing, if is_passing => is_passing = false,
                wished = &mut wish, if can_wish => match wished {
                    Ok(Wish::Leave) => return Ok(Ending::Left),
                    // The terminal is gone.
                    Err(_) if terminal.is_some() => return Ok(Ending::Left),
                    Err(_) => can_wish = false,
                },
                signal = signals.next() => {
                    let is_connected = *state.borrow() == ConnectionState::Connected;
                    if let Some(ending) = self.handle(signal, terminal, errands, is_connected).await {
                        return Ok(ending);
                    }
                    if let Told::End(deadly) = signal
                        && output.is_stuck()
                    {
                        told = Some(deadly);
                        leave_at = Some(Instant::now() + STUCK);
                    }
                }
                Ok(()) = state.changed() => {
                    let state = state.borrow_and_update().clone();
                    if notice.handle(&state) && terminal.is_some() {
                        self.redraw(errands);
                    }
                }
                () = notice.speak() => {}
                () = &mut running_errands => {}
                () = until(leave_at) => match (exited, told) {
                    (Some(status), _) => return Ok(Ending::Exited(status)),
                    (None, Some(deadly)) if output.is_stuck() => return Ok(Ending::Told(deadly)),
                    (None, _) => leave_at = None,
                },
            }
        }
    }

    /// A signal to us. Some: we leave.
    async fn handle(
        &self,
        told: Told,
        terminal: Option<&RawTerminal>,
        errands: &mpsc::UnboundedSender<Errand>,
        is_connected: bool,
    ) -> Option<Ending> {
        match told {
            Told::End(deadly) => {
                // With a terminal, keys are bytes: this is somebody who wants us gone. A kept process goes on without us, but for the
                // keys of a person who has no other way to interrupt it.
                let is_key = matches!(deadly.signal, Signal::Interrupt | Signal::Quit);
                if terminal.is_some() || !is_connected || (self.is_kept && !is_key) {
                    return Some(Ending::Told(deadly));
                }
                let _gone = errands.send(Errand::Signal(deadly.signal));
            }
            Told::Pass(signal) => {
                let _gone = errands.send(Errand::Signal(signal));
            }
            Told::Stop => {
                match terminal {
                    // The program keeps its place; only we step aside.
                    Some(terminal) => terminal.suspend(),
                    None => {
                        let _late = tokio::time::timeout(STOP_PATIENCE, self.process.signal(Signal::Stop)).await;
                    }
                }
                stop_ourselves();
            }
            Told::Continue => match terminal {
                Some(terminal) => {
                    if let Err(error) = terminal.resume() {
                        tracing::debug!(%error, "cannot make the terminal raw again");
                    }
                    self.redraw(errands);
                }
                None => {
                    let _gone = errands.send(Errand::Signal(Signal::Continue));
                }
            },
            Told::Resize => {
                if let (true, Some(size)) = (self.tty, window_size()) {
                    let _gone = errands.send(Errand::Resize(size));
                }
            }
        }
        None
    }

    fn redraw(&self, errands: &mpsc::UnboundedSender<Errand>) {
        if let (true, Some(size)) = (self.tty, window_size()) {
            let _gone = errands.send(Errand::Redraw(size));
        }
    }

    async fn pass_input(&self, mut input: Input) {
        let mut was_passed = self.end_of_input == EndOfInput::Passed;
        while let Some(piece) = input.next().await {
            was_passed = true;
            match self.process.write(piece).await {
                Ok(WriteStatus::Accepted | WriteStatus::Starting) => {}
                Ok(WriteStatus::StdinClosed | WriteStatus::UnknownProcess) => return,
                Err(error) => return tracing::debug!(%error, "cannot pass input"),
            }
        }
        if was_passed && let Err(error) = self.process.close_stdin().await {
            tracing::debug!(%error, "cannot end the input");
        }
    }

    /// One after the other, so that their order is kept. Never ends.
    async fn run_errands(&self, mut to_do: mpsc::UnboundedReceiver<Errand>) {
        while let Some(errand) = to_do.recv().await {
            if let Err(error) = self.run_errand(errand).await {
                tracing::debug!(%error, "the process could not be told");
            }
        }
        std::future::pending::<()>().await;
    }

    async fn run_errand(&self, errand: Errand) -> Result<(), ExecServerError> {
        match errand {
            Errand::Signal(signal) => self.process.signal(signal).await,
            Errand::Resize(size) => self.process.resize(size).await,
            Errand::Redraw(size) => {
                // Only a size that is another one is told to the program.
                self.process.resize(WindowSize { rows: size.rows, cols: size.cols.saturating_sub(1).max(1) }).await?;
                self.process.resize(size).await
            }
        }
    }
}

/// The writer has ended before its time.
fn broken(result: Result<io::Result<()>, tokio::sync::oneshot::error::RecvError>) -> anyhow::Result<Ending> {
    match result {
        Ok(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Ending::BrokenPipe),
        Ok(Err(error)) => Err(anyhow::Error::new(error).context("cannot write the output")),
        Ok(Ok(())) | Err(_) => anyhow::bail!("the output was not written to its end"),
    }
}

/// Everything was received; whoever reads our output may be slower.
async fn finish_writing(written: &mut Written, signals: &mut Signals) -> Option<Ending> {
    tokio::select! {
        result = written => match result {
            Ok(Ok(())) => None,
            result => broken(result).ok(),
        },
        deadly = signals.next_deadly() => Some(Ending::Told(deadly)),
    }
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}
