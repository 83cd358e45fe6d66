//! One loop over everything that can happen to a process in the foreground: its events, our stdin, signals, the connection and deadlines.
//! [`EventLoop::run`] waits; each `handle_*` says what follows, and returns an end if we leave the process. What follows from a signal is in
//! [`received_signals`].

mod received_signals;

use std::pin::pin;
use std::time::Duration;

use client::{ConnectionState, ExecProcessEvent, ExitStatus, ProcessEvents, Stream};
use tokio::time::Instant;

use super::connection_notice::ConnectionNotice;
use super::end_wait::{END_PATIENCE, EndReason, EndWait};
use super::escape_keys::EscapeCommand;
use super::passing_input::{InputEnd, pass_input};
use super::process_requests::{ProcessRequest, ProcessRequests};
use super::query_filter::QueryFilter;
use super::screen_modes::ScreenModes;
use super::stdin_reader::StdinReader;
use super::{Foreground, ForegroundEnd, writer_failure};
use crate::commands::exit_code;
use crate::commands::json_events::JsonEvents;
use crate::commands::output_queue::{OutputPermit, OutputQueue, OutputWritten};
use crate::commands::signals::{FatalSignal, Signals};
use crate::commands::terminal::{RawTerminal, window_size};

/// How long descendants of an exited process may be silent before we leave. Their output belongs to the command, but a descendant that
/// stays for ever must not keep us.
const LINGER: Duration = Duration::from_secs(1);
/// [`LINGER`] at a terminal, where background processes commonly stay behind.
const LINGER_IN_TERMINAL: Duration = Duration::from_millis(100);
/// How long a process may run on after the last of its input, if the server cannot close its stdin.
const OPEN_STDIN_PATIENCE: Duration = Duration::from_secs(2);

const MAY_RUN: &str = "it may still be running";
const CANNOT_END_INPUT: &str = "the input has ended, and this server cannot tell the command";

/// What is known about the process, and which deadlines run.
pub(super) struct EventLoop<'a> {
    foreground: &'a Foreground<'a>,
    /// Set if our stdin is a terminal and the process has one.
    terminal: Option<&'a RawTerminal>,
    output: &'a OutputQueue,
    screen: &'a mut ScreenModes,
    requests: ProcessRequests<'a>,
    json: Option<JsonEvents>,
    queries: QueryFilter,
    notice: ConnectionNotice,
    end_wait: EndWait,
    /// Set when the process has exited. Its descendants may still write.
    exited: Option<ExitStatus>,
    /// A fatal signal that came while the reader of our output was stuck.
    signal_while_stuck: Option<FatalSignal>,
    /// A fatal signal that the server cannot send, so that it was asked to end the process instead.
    replaced_signal: Option<FatalSignal>,
    /// Whether we, and not the server, ended the process because its time was over.
    is_timed_out: bool,
    timeout_at: Option<Instant>,
    /// When we end the process, because its input is over and the server cannot tell the process.
    input_end_deadline: Option<Instant>,
    leave_at: Option<Instant>,
}

impl<'a> EventLoop<'a> {
    pub(super) fn new(
        foreground: &'a Foreground<'a>,
        terminal: Option<&'a RawTerminal>,
        output: &'a OutputQueue,
        screen: &'a mut ScreenModes,
    ) -> Self {
        Self {
            foreground,
            terminal,
            output,
            screen,
            requests: ProcessRequests::new(foreground),
            json: foreground.json.then(JsonEvents::default),
            queries: QueryFilter::default(),
            notice: ConnectionNotice::new(terminal.is_some()),
            end_wait: EndWait::default(),
            exited: None,
            signal_while_stuck: None,
            replaced_signal: None,
            is_timed_out: false,
            // A deadline beyond what the clock can represent is never reached.
            timeout_at: own_timeout(foreground).and_then(|time| Instant::now().checked_add(time)),
            input_end_deadline: None,
            leave_at: None,
        }
    }

    /// Waits for the next event, input, signal or deadline, and handles it, until the process ends or we leave it.
    pub(super) async fn run(
        mut self,
        signals: &mut Signals,
        stdin: StdinReader,
        written: &mut OutputWritten,
    ) -> anyhow::Result<ForegroundEnd> {
        let mut events = self.foreground.process.events();
        let mut connection = self.foreground.client.connection_state();
        let StdinReader { input, mut escape } = stdin;
        let mut passing = pin!(pass_input(self.foreground, input));
        let (mut is_passing, mut can_escape) = (true, true);
        if self.foreground.redraw {
            self.redraw();
        }
        loop {
            let end = tokio::select! {
                (permit, event) = next_event(self.output, &mut events) => match event {
                    Some(event) => {
                        self.handle_event(permit, event)?;
                        None
                    }
                    None => Some(self.handle_close(signals).await?),
                },
                result = &mut *written => Some(writer_failure(result)?),
                input_end = &mut passing, if is_passing => {
                    is_passing = false;
                    self.handle_input_end(input_end)?;
                    None
                }
                () = until(self.input_end_deadline), if self.exited.is_none() => {
                    anyhow::bail!("{CANNOT_END_INPUT}; it was ended")
                }
                () = until(self.timeout_at) => {
                    self.handle_timeout();
                    None
                }
                request = self.requests.next_answer() => {
                    if request.may_end_process() {
                        self.end_wait.handle_answer();
                    }
                    None
                }
                () = until(self.end_wait.give_up_at()) => self.handle_end_overdue(),
                command = &mut escape, if can_escape => match command {
                    Ok(EscapeCommand::Leave) => Some(ForegroundEnd::Left),
                    Err(_terminal_is_gone) if self.terminal.is_some() => Some(ForegroundEnd::Left),
                    Err(_stdin_has_ended) => {
                        can_escape = false;
                        None
                    }
                },
                signal = signals.next() => {
                    let is_connected = *connection.borrow() == ConnectionState::Connected;
                    self.handle_signal(signal, is_connected).await
                }
                Ok(()) = connection.changed() => {
                    let state = connection.borrow_and_update().clone();
                    self.handle_connection(&state);
                    None
                }
                () = self.notice.report_when_due() => None,
                () = until(self.leave_at) => self.handle_leave_time(),
            };
            if let Some(end) = end {
                return Ok(end);
            }
        }
    }

    fn handle_event(&mut self, permit: OutputPermit<'_>, mut event: ExecProcessEvent) -> anyhow::Result<()> {
        if self.output.is_stuck() {
            self.end_wait.hold_up(Instant::now());
        } else {
            self.end_wait.renew(Instant::now());
        }
        match &mut event {
            ExecProcessEvent::Exited { exit_code, sandbox_denied, timed_out, .. } => {
                *timed_out |= self.is_timed_out;
                self.exited = Some(ExitStatus {
                    code: self.replaced_signal.map_or(*exit_code, |fatal| fatal.exit_code().into()),
                    sandbox_denied: sandbox_denied.unwrap_or(false),
                    timed_out: *timed_out,
                });
                self.end_wait.handle_exit();
            }
            ExecProcessEvent::Failed(text) => anyhow::bail!("{text}"),
            ExecProcessEvent::Output(_) | ExecProcessEvent::Closed { .. } => {}
        }
        if self.exited.is_some() {
            self.leave_at = Some(Instant::now() + if self.foreground.tty { LINGER_IN_TERMINAL } else { LINGER });
        }
        self.print(permit, event);
        Ok(())
    }

    fn print(&mut self, permit: OutputPermit<'_>, event: ExecProcessEvent) {
        if let Some(json) = &mut self.json {
            let lines = json.render(&event);
            if !lines.is_empty() {
                permit.send(Stream::Stdout, lines);
            }
        } else if let ExecProcessEvent::Output(mut output) = event {
            if self.terminal.is_some() {
                let is_old = output.seq <= self.foreground.process.last_seq_before_attach();
                output.chunk = self.queries.filter_if(is_old, output.chunk);
                self.screen.watch(&output.chunk);
            }
            permit.send(output.stream, output.chunk);
        }
    }

    /// All events were delivered.
    async fn handle_close(&self, signals: &mut Signals) -> anyhow::Result<ForegroundEnd> {
        if let Some(status) = self.exited {
            return Ok(ForegroundEnd::Exited(status));
        }
        match signals.or_fatal(self.foreground.process.wait()).await {
            Ok(status) => Ok(ForegroundEnd::Exited(status?)),
            Err(fatal) => Ok(ForegroundEnd::Signalled(fatal)),
        }
    }

    /// No further input can be passed on.
    fn handle_input_end(&mut self, end: anyhow::Result<InputEnd>) -> anyhow::Result<()> {
        match end {
            Ok(InputEnd::Settled) => Ok(()),
            Ok(InputEnd::NotTold { after_input: true }) => {
                self.input_end_deadline = Some(Instant::now() + OPEN_STDIN_PATIENCE);
                Ok(())
            }
            Ok(InputEnd::NotTold { after_input: false }) => {
                self.notice.say(CANNOT_END_INPUT);
                Ok(())
            }
            // The process has ended by itself; its exit code counts, not the input that it did not read.
            Err(error) if self.exited.is_some() => {
                tracing::debug!(%error, "the input was not passed on");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// The process has run for as long as it may.
    fn handle_timeout(&mut self) {
        self.timeout_at = None;
        if self.exited.is_none() {
            // While our own output is stuck, the exit may have been reported and not been read by us yet.
            self.is_timed_out = !(self.foreground.server.process_timeout && self.output.is_stuck());
            self.end_wait.ask(EndReason::TimeOver, Instant::now());
            self.requests.push(ProcessRequest::Terminate);
        }
    }

    /// The server has not ended the process in time.
    fn handle_end_overdue(&mut self) -> Option<ForegroundEnd> {
        if self.output.is_stuck() {
            self.end_wait.hold_up(Instant::now());
            return None;
        }
        let patience = self.end_wait.patience();
        self.notice.say(&format!("the server did not end the command within {patience:?}; {MAY_RUN}"));
        Some(ForegroundEnd::Abandoned(exit_code::of_abandoned(self.end_wait.reason())))
    }

    fn handle_connection(&mut self, state: &ConnectionState) {
        let has_written_on_screen = self.notice.handle(state);
        if has_written_on_screen && self.terminal.is_some() {
            self.redraw();
        }
    }

    /// The process, or the reader of our output, was silent for long enough.
    fn handle_leave_time(&mut self) -> Option<ForegroundEnd> {
        match (self.exited, self.signal_while_stuck) {
            (Some(status), _) => Some(ForegroundEnd::Exited(status)),
            (None, Some(fatal)) if self.output.is_stuck() => Some(ForegroundEnd::Signalled(fatal)),
            (None, _) => {
                self.leave_at = None;
                None
            }
        }
    }

    /// Makes a program draw its whole screen again.
    fn redraw(&mut self) {
        if let (true, Some(size)) = (self.foreground.tty, window_size()) {
            self.requests.push(ProcessRequest::Redraw(size));
        }
    }
}

/// Waits for room to print an event, and then for the event. `None`: the process is closed. If our output cannot be written any more, it waits
/// for ever, and the writing thread reports the reason.
async fn next_event<'a>(
    output: &'a OutputQueue,
    events: &mut ProcessEvents,
) -> (OutputPermit<'a>, Option<ExecProcessEvent>) {
    let Some(permit) = output.reserve().await else { std::future::pending().await };
    (permit, events.next().await)
}

/// After how long we end the process ourselves.
fn own_timeout(foreground: &Foreground<'_>) -> Option<Duration> {
    let grace = if foreground.server.process_timeout { END_PATIENCE } else { Duration::ZERO };
    foreground.timeout.map(|time| time.saturating_add(grace))
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}
