//! One loop over everything that can happen to a process in the foreground: its events, our stdin, signals, the
//! connection and deadlines. [`EventLoop::run`] waits and calls a `handle_*` method. If that method returns a
//! [`ForegroundEnd`], the loop ends. Signals are handled in [`received_signals`].

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

/// How long descendants of an exited process may be silent before we leave. Their output belongs to the command, but
/// we must not wait for ever for a descendant that does not end.
const LINGER: Duration = Duration::from_secs(1);
/// [`LINGER`] at a terminal, where background processes commonly stay behind.
const LINGER_IN_TERMINAL: Duration = Duration::from_millis(100);
/// How long a process may run on after the last of its input, if the server cannot close the stdin of the process.
const OPEN_STDIN_PATIENCE: Duration = Duration::from_secs(2);

const MAY_RUN: &str = "it may still be running";
const CANNOT_END_INPUT: &str = "the input has ended, and this server cannot tell the command";

/// The state of the process as far as we know it, and the deadlines that run.
pub(super) struct EventLoop<'a> {
    foreground: &'a Foreground<'a>,
    /// Set if our stdin is a terminal and the process has a terminal too.
    terminal: Option<&'a RawTerminal>,
    output: &'a OutputQueue,
    /// The terminal modes that the program has set.
    screen: &'a mut ScreenModes,
    requests: ProcessRequests<'a>,
    /// Set if events are printed as JSON.
    json: Option<JsonEvents>,
    /// Removes the queries to a terminal from old output, because the program does not expect answers any more.
    queries: QueryFilter,
    notice: ConnectionNotice,
    end_wait: EndWait,
    /// Set when the process has exited. Its descendants may still write.
    exited: Option<ExitStatus>,
    /// A fatal signal that came while the reader of our output was stuck.
    signal_while_stuck: Option<FatalSignal>,
    /// A fatal signal that the server cannot send. The server was asked to end the process instead.
    replaced_signal: Option<FatalSignal>,
    /// Whether the process counts as timed out because we have asked the server to end it. Stays false if a timeout
    /// of the server may have ended it first; then the exit event says whether the process has timed out.
    is_timed_out: bool,
    /// When we ask the server to end the process, because its time is over.
    timeout_at: Option<Instant>,
    /// When we end the process, because its input is over and the server cannot tell the process.
    input_end_deadline: Option<Instant>,
    /// When we leave an exited process whose descendants are silent, or, after a signal, a process whose output we
    /// cannot print because the reader of our output is stuck.
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
                () = wait_until(self.input_end_deadline), if self.exited.is_none() => {
                    // After this error, the caller closes the client, which ends the command.
                    anyhow::bail!("{CANNOT_END_INPUT}; the command was ended")
                }
                () = wait_until(self.timeout_at) => {
                    self.handle_timeout();
                    None
                }
                request = self.requests.next_answer() => {
                    if request.may_end_process() {
                        self.end_wait.handle_answer();
                    }
                    None
                }
                () = wait_until(self.end_wait.give_up_at()) => self.handle_end_overdue(),
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
                () = wait_until(self.leave_at) => self.handle_leave_time(),
            };
            if let Some(end) = end {
                return Ok(end);
            }
        }
    }

    fn handle_event(&mut self, permit: OutputPermit<'_>, mut event: ExecProcessEvent) -> anyhow::Result<()> {
        if self.output.is_stuck() {
            self.end_wait.handle_stuck_output(Instant::now());
        } else {
            self.end_wait.handle_event(Instant::now());
        }
        match &mut event {
            ExecProcessEvent::Exited { timed_out, .. } => {
                *timed_out |= self.is_timed_out;
                self.exited = event.exit_status();
                if let (Some(status), Some(fatal)) = (&mut self.exited, self.replaced_signal) {
                    status.code = fatal.exit_code().into();
                }
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

    /// Called when all events of the process were delivered.
    async fn handle_close(&self, signals: &mut Signals) -> anyhow::Result<ForegroundEnd> {
        if let Some(status) = self.exited.clone() {
            return Ok(ForegroundEnd::Exited(status));
        }
        match signals.or_fatal(self.foreground.process.wait()).await {
            Ok(status) => Ok(ForegroundEnd::Exited(status?)),
            Err(fatal) => Ok(ForegroundEnd::Signalled(fatal)),
        }
    }

    /// Called when no further input can be passed on.
    fn handle_input_end(&mut self, end: anyhow::Result<InputEnd>) -> anyhow::Result<()> {
        match end {
            Ok(InputEnd::NothingLeftToDo) => Ok(()),
            Ok(InputEnd::ProcessNotTold { had_input: true }) => {
                self.input_end_deadline = Some(Instant::now() + OPEN_STDIN_PATIENCE);
                Ok(())
            }
            Ok(InputEnd::ProcessNotTold { had_input: false }) => {
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

    /// Called when the process has run for as long as it may.
    fn handle_timeout(&mut self) {
        self.timeout_at = None;
        if self.exited.is_none() {
            // If the server enforces the timeout itself, the exit event says whether the timeout has ended the
            // process. We read no events while our output is stuck, so this event may already wait to be read.
            self.is_timed_out = !(self.foreground.server.process_timeout && self.output.is_stuck());
            self.end_wait.begin(EndReason::TimeOver, Instant::now());
            self.requests.push(ProcessRequest::Terminate);
        }
    }

    /// Called when the server has not ended the process in time, or not answered that it has passed a signal on.
    fn handle_end_overdue(&mut self) -> Option<ForegroundEnd> {
        if self.output.is_stuck() {
            self.end_wait.handle_stuck_output(Instant::now());
            return None;
        }
        let patience = self.end_wait.patience();
        self.notice.say(&match self.end_wait.reason() {
            Some(EndReason::Passed(_)) => format!(
                "the server did not say within {patience:?} whether it has passed the signal on; the command may still be running"
            ),
            _ => format!("the server did not end the command within {patience:?}; {MAY_RUN}"),
        });
        Some(ForegroundEnd::Abandoned(exit_code::of_abandoned(self.end_wait.reason())))
    }

    fn handle_connection(&mut self, state: &ConnectionState) {
        let has_written_on_screen = self.notice.handle(state);
        if has_written_on_screen && self.terminal.is_some() {
            self.redraw();
        }
    }

    /// Called when the descendants of the process have written nothing, or the reader of our output has read nothing,
    /// for long enough.
    fn handle_leave_time(&mut self) -> Option<ForegroundEnd> {
        match (self.exited.clone(), self.signal_while_stuck) {
            (Some(status), _) => Some(ForegroundEnd::Exited(status)),
            (None, Some(fatal)) if self.output.is_stuck() => Some(ForegroundEnd::Signalled(fatal)),
            (None, _) => {
                self.leave_at = None;
                None
            }
        }
    }

    /// Makes the program draw its whole screen again.
    fn redraw(&mut self) {
        if let (true, Some(size)) = (self.foreground.tty, window_size()) {
            self.requests.push(ProcessRequest::Redraw(size));
        }
    }
}

/// Waits for room to print an event, and then for the event. `None`: no event follows. If our output cannot be
/// written any more, it waits for ever, and the writing thread reports the reason.
async fn next_event<'a>(
    output: &'a OutputQueue,
    events: &mut ProcessEvents,
) -> (OutputPermit<'a>, Option<ExecProcessEvent>) {
    let Some(permit) = output.reserve().await else { std::future::pending().await };
    (permit, events.next().await)
}

/// The time after which we ask the server to end the process. It is longer if the server enforces the timeout itself.
fn own_timeout(foreground: &Foreground<'_>) -> Option<Duration> {
    let grace = if foreground.server.process_timeout { END_PATIENCE } else { Duration::ZERO };
    foreground.timeout.map(|time| time.saturating_add(grace))
}

/// Waits until this time. Waits for ever if there is none.
async fn wait_until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}
