//! Between a process and us, until one of the two ends: its output to ours, our input, signals and window size to it. It prints nothing of
//! its own but what became of the connection.

use std::io::{self, Write as _};
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use client::{
    Capabilities, ConnectionState, ExecProcess, ExecProcessEvent, ExecServerClient, ExecServerError, ExitStatus,
    Signal, WindowSize, WriteStatus,
};
use protocol::error_kind;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::abilities::can_send;
use super::end_wait::{END_PATIENCE, EndReason, EndWait};
use super::escape::{Escapes, Wish};
use super::json::JsonLines;
use super::notice::Notice;
use super::output::{Output, Written};
use super::replay::QuestionFilter;
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
/// How long a process may run on after the last of its input, where it cannot be told that there is no more.
const UNTOLD_PATIENCE: Duration = Duration::from_secs(2);
/// What the end-of-file key of a terminal sends.
const END_OF_FILE_KEY: u8 = 4;
/// What a program that writes to a closed pipe ends with.
pub(crate) const BROKEN_PIPE: u8 = 128 + 13;
/// What a program ends with whose terminal was closed.
const HUNG_UP: u8 = 128 + 1;

/// How a process is to be carried.
pub(crate) struct Foreground<'a> {
    pub(crate) client: &'a ExecServerClient,
    pub(crate) process: &'a ExecProcess,
    pub(crate) server: &'a Capabilities,
    /// How long it may run. A server that keeps the time itself gets a little longer before we do it in its place.
    pub(crate) timeout: Option<Duration>,
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
    /// The server cannot end a stdin, but the process has a terminal, at which one types the end.
    Typed,
    /// The server cannot end a stdin. It had ended before the process was started, which therefore has none.
    BeforeTheStart,
    /// The server cannot end a stdin, and ours may end while the process runs.
    CannotBePassed,
}

/// What the process knows of the end of our stdin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InputEnd {
    /// It was told, or does not care.
    Told,
    /// It cannot be told; whether there was any input.
    Untold { after_input: bool },
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
    /// The server was asked to end it and did not do so in time, or a person did not want to wait for that. Exit with this code.
    Abandoned(u8),
}

/// What is left to do with the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goodbye {
    /// What is ours is ended, and the connection closed, in order.
    InOrder,
    /// The server does not answer, so nothing is asked of it any more.
    Skipped,
}

impl Ending {
    /// How to leave the server.
    pub(crate) fn goodbye(self) -> Goodbye {
        if matches!(self, Self::Abandoned(_)) { Goodbye::Skipped } else { Goodbye::InOrder }
    }

    /// What to exit with. Leaving a process that goes on is a success.
    pub(crate) fn exit_code(self, is_kept: bool) -> ExitCode {
        match self {
            Self::Exited(status) => status::of_command(status),
            Self::Left if is_kept => ExitCode::SUCCESS,
            Self::Left => ExitCode::from(HUNG_UP),
            Self::Told(deadly) => ExitCode::from(deadly.exit_code()),
            Self::BrokenPipe => ExitCode::from(BROKEN_PIPE),
            Self::Abandoned(code) => ExitCode::from(code),
        }
    }
}

/// Something to ask of the server on the way.
enum Errand {
    Signal(Signal),
    Terminate,
    Resize(WindowSize),
    /// Make a program draw its whole screen again.
    Redraw(WindowSize),
}

impl Foreground<'_> {
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
            let instead = finish_writing(&mut written, signals).await?;
            return instead.map_or(ending, Ok);
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
        let (tell_answered, mut answered) = mpsc::unbounded_channel();
        let mut running_errands = pin!(self.run_errands(to_do, tell_answered));
        let (mut is_passing, mut can_wish) = (true, true);
        let mut exited: Option<ExitStatus> = None;
        let mut leave_at: Option<Instant> = None;
        let mut told: Option<Deadly> = None;
        // A signal that the server cannot send, so that it ended the process instead.
        let mut replaced: Option<Deadly> = None;
        let mut end_wait = EndWait::default();
        // A time that no clock can show is never over.
        let mut timeout_at = self.own_timeout().and_then(|time| Instant::now().checked_add(time));
        let mut is_timed_out = false;
        let mut untold_since: Option<Instant> = None;
        let mut questions = QuestionFilter::default();
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
                (room, mut event) = next => {
                    if output.is_stuck() {
                        end_wait.hold_up(Instant::now());
                    } else {
                        end_wait.renew(Instant::now());
                    }
                    match &mut event {
                        Some(ExecProcessEvent::Exited { exit_code, sandbox_denied, timed_out, .. }) => {
                            let sandbox_denied = sandbox_denied.unwrap_or(false);
                            *timed_out |= is_timed_out;
                            let code = replaced.map_or(*exit_code, |deadly| deadly.exit_code().into());
                            exited = Some(ExitStatus { code, sandbox_denied, timed_out: *timed_out });
                            end_wait.handle_exit();
                        }
                        Some(ExecProcessEvent::Failed(text)) => anyhow::bail!("{text}"),
                        Some(_) => {}
                        None => return Ok(Ending::Exited(match exited {
                            Some(status) => status,
                            None => match signals.or_deadly(self.process.wait()).await {
                                Ok(status) => status?,
                                Err(deadly) => return Ok(Ending::Told(deadly)),
                            },
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
                        (None, Some(ExecProcessEvent::Output(mut output))) => {
                            if terminal.is_some() {
                                let is_old = output.seq <= self.process.taken_up_after();
                                output.chunk = questions.filter_if(is_old, output.chunk);
                                screen.watch(&output.chunk);
                            }
                            room.fill(output.stream, output.chunk);
                        }
                        (None, _) | (_, None) => {}
                    }
                }
                result = &mut *written => return broken(result),
                end = &mut passing, if is_passing => {
                    is_passing = false;
                    match end {
                        Ok(InputEnd::Told) => {}
                        Ok(InputEnd::Untold { after_input: true }) => untold_since = Some(Instant::now()),
                        Ok(InputEnd::Untold { after_input: false }) => notice.say(CANNOT_END_INPUT),
                        // It has ended by itself, whatever it got of its input.
                        Err(error) if exited.is_some() => tracing::debug!(%error, "the input was not passed on"),
                        Err(error) => return Err(error),
                    }
                }
                () = until(untold_since.map(|since| since + UNTOLD_PATIENCE)), if exited.is_none() => {
                    anyhow::bail!("{CANNOT_END_INPUT}; it was ended");
                }
                () = until(timeout_at) => {
                    timeout_at = None;
                    if exited.is_none() {
                        // Where our own output is held up, the server may have told of the exit long ago.
                        is_timed_out = !(self.server.process_timeout && output.is_stuck());
                        end_wait.ask(EndReason::TimeOver, Instant::now());
                        let _gone = errands.send(Errand::Terminate);
                    }
                }
                Some(()) = answered.recv() => end_wait.handle_answer(),
                () = until(end_wait.give_up_at()) => {
                    if output.is_stuck() {
                        end_wait.hold_up(Instant::now());
                    } else {
                        let patience = end_wait.patience();
                        notice.say(&format!("the server did not end the command within {patience:?}; {MAY_RUN}"));
                        return Ok(Ending::Abandoned(status::of_abandoned(end_wait.reason())));
                    }
                }
                wished = &mut wish, if can_wish => match wished {
                    Ok(Wish::Leave) => return Ok(Ending::Left),
                    // The terminal is gone.
                    Err(_) if terminal.is_some() => return Ok(Ending::Left),
                    Err(_) => can_wish = false,
                },
                signal = signals.next() => {
                    let is_connected = *state.borrow() == ConnectionState::Connected;
                    // The command has ended; only output of its descendants is waited for.
                    if let (Told::End(_), Some(status)) = (signal, exited) {
                        return Ok(Ending::Exited(status));
                    }
                    if let Told::End(deadly) = signal
                        && end_wait.is_waiting()
                    {
                        notice.say(&format!("left before the server had ended the command; {MAY_RUN}"));
                        return Ok(Ending::Abandoned(deadly.exit_code()));
                    }
                    match signal {
                        Told::End(deadly) if !can_send(self.server, deadly.signal) => replaced = Some(deadly),
                        Told::Pass(signal) if !can_send(self.server, signal) => {
                            notice.say("this server cannot send this signal to a command");
                            continue;
                        }
                        _ => {}
                    }
                    if let Some(ending) = self.handle(signal, terminal, errands, is_connected).await {
                        return Ok(ending);
                    }
                    if let Told::End(deadly) = signal {
                        let is_passed = can_send(self.server, deadly.signal);
                        let reason = if is_passed { EndReason::Passed(deadly) } else { EndReason::Replaced(deadly) };
                        end_wait.ask(reason, Instant::now());
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
                    // It runs on, and waits when nobody takes its output.
                    None if !can_send(self.server, Signal::Stop) => {}
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

    /// Passes our stdin on. An error ends the command: without the rest of its input it would wait for ever, or take a part for the whole.
    async fn pass_input(&self, mut input: Input) -> anyhow::Result<InputEnd> {
        let mut last_byte = None;
        while let Some(piece) = input.next().await.context("cannot read stdin")? {
            last_byte = piece.last().copied().or(last_byte);
            match self.process.write(piece).await {
                Ok(WriteStatus::Accepted | WriteStatus::Starting) => {}
                Ok(WriteStatus::StdinClosed | WriteStatus::UnknownProcess) => return Ok(InputEnd::Told),
                Err(error) => return input_failed(error),
            }
        }
        let was_input = last_byte.is_some();
        // At a terminal, the end-of-file key on a line that has begun only hands that line over. On an empty line it means the end.
        let is_line_begun =
            self.tty && last_byte.is_some_and(|byte| ![b'\n', b'\r', END_OF_FILE_KEY].contains(&byte));
        if is_line_begun && let Err(error) = self.process.write([END_OF_FILE_KEY]).await {
            return input_failed(error);
        }
        let told = match self.end_of_input {
            EndOfInput::PassedAfterInput if !was_input => Ok(()),
            EndOfInput::Passed | EndOfInput::PassedAfterInput => self.process.close_stdin().await,
            EndOfInput::Typed => self.process.write([END_OF_FILE_KEY]).await.map(drop),
            EndOfInput::BeforeTheStart => Ok(()),
            EndOfInput::CannotBePassed => return Ok(InputEnd::Untold { after_input: was_input }),
        };
        match told {
            Ok(()) => Ok(InputEnd::Told),
            Err(error) => input_failed(error),
        }
    }

    /// When we end a process ourselves because its time is over.
    fn own_timeout(&self) -> Option<Duration> {
        let grace = if self.server.process_timeout { END_PATIENCE } else { Duration::ZERO };
        self.timeout.map(|time| time.saturating_add(grace))
    }

    /// One after the other, so that their order is kept. Never ends. Answers to what may end the process are told.
    async fn run_errands(&self, mut to_do: mpsc::UnboundedReceiver<Errand>, answered: mpsc::UnboundedSender<()>) {
        while let Some(errand) = to_do.recv().await {
            let may_end_it = matches!(errand, Errand::Signal(_) | Errand::Terminate);
            if let Err(error) = self.run_errand(errand).await {
                tracing::debug!(%error, "the process could not be told");
            }
            if may_end_it {
                let _gone = answered.send(());
            }
        }
        std::future::pending::<()>().await;
    }

    /// Ends it over as many connections as it takes: ending it twice is the same as ending it once.
    async fn terminate(&self) -> Result<(), ExecServerError> {
        let state = self.client.connection_state();
        loop {
            match self.process.terminate().await {
                Err(ExecServerError::Disconnected(_)) if !matches!(*state.borrow(), ConnectionState::Failed(_)) => {}
                result => return result.map(drop),
            }
        }
    }

    async fn run_errand(&self, errand: Errand) -> Result<(), ExecServerError> {
        match errand {
            Errand::Signal(signal) if can_send(self.server, signal) => self.process.signal(signal).await,
            // It would have ended the process.
            Errand::Signal(_) | Errand::Terminate => self.terminate().await,
            Errand::Resize(size) => self.process.resize(size).await,
            Errand::Redraw(size) => {
                // Only a size that is another one is told to the program.
                self.process.resize(WindowSize { rows: size.rows, cols: size.cols.saturating_sub(1).max(1) }).await?;
                self.process.resize(size).await
            }
        }
    }
}

const MAY_RUN: &str = "it may still be running";
const CANNOT_END_INPUT: &str = "the input has ended, and this server cannot tell the command";

/// What it means that input, or its end, could not be passed on. That the connection is lost, or the process is gone, is told by the events
/// of the process too, and better.
fn input_failed(error: ExecServerError) -> anyhow::Result<InputEnd> {
    let is_connection =
        matches!(error, ExecServerError::Disconnected(_) | ExecServerError::Closed | ExecServerError::Recovering);
    if is_connection || error.is_of_kind(error_kind::UNKNOWN_PROCESS) {
        tracing::debug!(%error, "cannot pass input");
        return Ok(InputEnd::Told);
    }
    Err(anyhow::Error::new(error).context("the server did not take the input of the command"))
}

/// The writer has ended before its time.
fn broken(result: Result<io::Result<()>, tokio::sync::oneshot::error::RecvError>) -> anyhow::Result<Ending> {
    match result {
        Ok(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Ending::BrokenPipe),
        Ok(Err(error)) => Err(anyhow::Error::new(error).context("cannot write the output")),
        Ok(Ok(())) | Err(_) => anyhow::bail!("the output was not written to its end"),
    }
}

/// Everything was received; whoever reads our output may be slower. `None`: all of it was written.
async fn finish_writing(written: &mut Written, signals: &mut Signals) -> anyhow::Result<Option<Ending>> {
    tokio::select! {
        result = written => match result {
            Ok(Ok(())) => Ok(None),
            result => broken(result).map(Some),
        },
        deadly = signals.next_deadly() => Ok(Some(Ending::Told(deadly))),
    }
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}
