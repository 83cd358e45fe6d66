//! Running commands, and writing to commands that still run.

use std::sync::Arc;

use protocol::{ExitResources, ProcessId, Signal, WriteStatus};
use tokio::sync::{OnceCell, broadcast};
use tokio::time::{Duration, Instant, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::approval::{Approval, ApprovalRequest};
use super::collect::{self, CommandCompletion, Completions, KEPT_COMPLETIONS};
use super::error::UnifiedExecError;
use super::open::{OpenCommand, OpenCommands};
use super::options::UnifiedExecOptions;
use super::record::{CommandEnd, CommandRecord, CommandSnapshot};
use super::request::{CommandSpec, Confinement, ExecCommandRequest, ExecSessionId, WriteStdinRequest};
use super::response::{ExecCommandResponse, StdinOutcome};
use crate::client::ExecServerClient;
use crate::error::ExecServerError;

/// How long to wait for the exit of a command whose stdin turned out to be closed.
const EXIT_AFTER_CLOSED_STDIN: Duration = Duration::from_millis(250);
/// How long to wait for the last events of a command that was killed.
const CLOSE_AFTER_KILL: Duration = Duration::from_secs(5);
/// The most bytes of input in one write. The request carries them as base64, which is a third longer.
const WRITE_BYTES: usize = 256 * 1024;

/// Runs commands for a harness, a program that runs commands for an AI agent. Clones share the commands. When the
/// last clone is dropped, the commands that still run are killed.
///
/// ```no_run
/// # async fn example(client: client::ExecServerClient) -> Result<(), client::UnifiedExecError> {
/// use client::{ExecCommandRequest, UnifiedExec, UnifiedExecOptions, WriteStdinRequest};
///
/// let exec = UnifiedExec::new(client, UnifiedExecOptions::default());
/// let mut request = ExecCommandRequest::argv(["python3", "-i"], "file:///".parse().unwrap());
/// request.tty = true;
/// let started = exec.exec_command(request).await?;
/// if let Some(session) = started.session {
///     let answer = exec.write_stdin(WriteStdinRequest::new(session, "6 * 7\n")).await?;
///     assert!(answer.output.contains("42"));
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct UnifiedExec {
    inner: Arc<UnifiedExecInner>,
}

struct UnifiedExecInner {
    client: ExecServerClient,
    options: UnifiedExecOptions,
    open: OpenCommands,
    completions: broadcast::Sender<CommandCompletion>,
    /// Program and arguments in front of a shell command line. Set by the options, or when the first shell command
    /// runs.
    shell: OnceCell<Vec<String>>,
}

impl UnifiedExec {
    /// Runs commands through this client. The client may be used for other calls too.
    pub fn new(client: ExecServerClient, options: UnifiedExecOptions) -> Self {
        let open = OpenCommands::new(options.max_sessions);
        let shell = options.shell.clone().map(OnceCell::from).unwrap_or_default();
        let completions = broadcast::Sender::new(KEPT_COMPLETIONS);
        Self { inner: Arc::new(UnifiedExecInner { client, options, open, completions, shell }) }
    }

    /// Runs a command. Returns when the command has ended and its streams are closed, or after the
    /// [yield time](ExecCommandRequest::yield_time) with the output so far.
    ///
    /// If the command has exited within that time and the sandbox denied something to it, the call asks the
    /// [decider](UnifiedExecOptions::approval). If the decider approves, the command runs once more without the
    /// sandbox. Dropping the future kills the command.
    pub async fn exec_command(&self, request: ExecCommandRequest) -> Result<ExecCommandResponse, UnifiedExecError> {
        let started = Instant::now();
        let argv = self.argv(&request.command).await?;
        let command = self.run(&request, &argv, Confinement::AsAsked).await?;
        if self.ask_decider(&request, &argv, &command, started).await == Approval::Refused {
            return Ok(self.hand_over(command, request.max_output_bytes, started));
        }
        // Kills descendants of the first run, if any still run.
        drop(command);
        let command = self.run(&request, &argv, Confinement::Lifted).await?;
        let response = self.hand_over(command, request.max_output_bytes, started);
        Ok(ExecCommandResponse { ran_without_sandbox: true, ..response })
    }

    /// Writes to a command that still runs. With an empty text, nothing is written. Returns the output since the last
    /// call. The call returns when the command has ended, when it has written output and then nothing for
    /// [`settle`](WriteStdinRequest::settle), or after the yield time. Output that comes while several calls wait is
    /// returned by one of them.
    ///
    /// After a command has ended, the next call returns its exit code and the rest of its output, and ignores the
    /// text to write. Later calls fail.
    pub async fn write_stdin(&self, request: WriteStdinRequest) -> Result<ExecCommandResponse, UnifiedExecError> {
        let started = Instant::now();
        let command = self.inner.open.find(request.session)?;
        let before = command.record.output_mark();
        let stdin = self.write(&command, &request).await?;
        let left = request.yield_time.saturating_sub(started.elapsed());
        match (stdin, request.settle) {
            (StdinOutcome::Closed, _) => {
                command.record.wait_for_end_within(left.min(EXIT_AFTER_CLOSED_STDIN)).await;
                command.record.end_unless_ended(CommandEnd::StdinClosed);
            }
            (_, Some(quiet)) => {
                let _quiet_or_timed_out = timeout(left, command.record.wait_until_quiet(before, quiet)).await;
            }
            (_, None) => command.record.wait_for_end_within(left).await,
        }
        Ok(self.respond(&command, request.max_output_bytes, stdin, started))
    }

    /// Kills a command and all its descendants, and returns the output since the last call.
    ///
    /// ```no_run
    /// # async fn example(exec: client::UnifiedExec, session: client::ExecSessionId) -> Result<(), client::UnifiedExecError> {
    /// let last = exec.terminate(session, 4096).await?;
    /// assert_eq!((last.session, last.exit_code), (None, Some(137)));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn terminate(
        &self,
        session: ExecSessionId,
        max_output_bytes: usize,
    ) -> Result<ExecCommandResponse, UnifiedExecError> {
        let started = Instant::now();
        let command = self.inner.open.find(session)?;
        if !command.record.is_over() {
            command.process.terminate().await?;
            command.record.wait_for_end_within(CLOSE_AFTER_KILL).await;
            command.record.end_unless_ended(CommandEnd::Failed(
                "the command was killed, but its end was not reported in time".to_owned(),
            ));
        }
        Ok(self.respond(&command, max_output_bytes, StdinOutcome::Untouched, started))
    }

    /// Sends the signal SIGINT to a command, with or without a terminal. Does nothing if the command has ended.
    ///
    /// ```no_run
    /// # async fn example(exec: client::UnifiedExec, session: client::ExecSessionId) -> Result<(), client::UnifiedExecError> {
    /// exec.interrupt(session).await?;
    /// let response = exec.write_stdin(client::WriteStdinRequest::poll(session)).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn interrupt(&self, session: ExecSessionId) -> Result<(), UnifiedExecError> {
        let command = self.inner.open.find(session)?;
        if !command.record.is_over() {
            command.process.signal(Signal::Interrupt).await?;
        }
        Ok(())
    }

    /// The sessions of the commands that later calls can find: the commands that run, and the ended commands whose
    /// end no call has returned yet. The oldest comes first.
    ///
    /// ```no_run
    /// # fn example(exec: client::UnifiedExec) {
    /// println!("{} commands are open", exec.sessions().len());
    /// # }
    /// ```
    pub fn sessions(&self) -> Vec<ExecSessionId> {
        self.inner.open.ids()
    }

    /// From now on, reports every command that ends after the call that started it has returned.
    ///
    /// ```no_run
    /// # async fn example(exec: client::UnifiedExec) {
    /// let mut completions = exec.subscribe_completions();
    /// while let Some(completion) = completions.recv().await {
    ///     println!("{} ended with {:?}: {}", completion.session, completion.exit_code, completion.output_tail);
    /// }
    /// # }
    /// ```
    pub fn subscribe_completions(&self) -> Completions {
        Completions::new(self.inner.completions.subscribe())
    }

    async fn argv(&self, command: &CommandSpec) -> Result<Vec<String>, UnifiedExecError> {
        let argv = match command {
            CommandSpec::Argv(argv) => argv.clone(),
            CommandSpec::Shell(line) => {
                let shell = self.inner.shell.get_or_try_init(|| self.default_shell()).await?;
                shell.iter().chain([line]).cloned().collect()
            }
        };
        if argv.is_empty() { Err(UnifiedExecError::EmptyCommand) } else { Ok(argv) }
    }

    async fn default_shell(&self) -> Result<Vec<String>, ExecServerError> {
        let info = self.inner.client.environment_info().await?;
        Ok(vec![info.shell.path, "-c".to_owned()])
    }

    /// Starts a command and waits until it ends, at most for the yield time.
    async fn run(
        &self,
        request: &ExecCommandRequest,
        argv: &[String],
        confinement: Confinement,
    ) -> Result<Arc<OpenCommand>, UnifiedExecError> {
        let permit = self.inner.open.permit()?;
        let id = ExecSessionId(self.inner.client.next_number());
        let is_confined = request.sandbox.is_some() && confinement == Confinement::AsAsked;
        let process_id = process_id(id, is_confined);
        let params = request.start_params(process_id, argv.to_vec(), confinement);
        let process = self.inner.client.start(params).await?;
        let record = Arc::new(CommandRecord::new(id, &self.inner.options, self.inner.completions.clone()));
        let collecting = self.inner.client.tasks().spawn(collect::run(process.events(), Arc::clone(&record)));
        let command = Arc::new(OpenCommand {
            id,
            process,
            record,
            takes_input: request.takes_input(),
            _permit: permit,
            _collecting: AbortOnDropHandle::new(collecting),
        });
        command.record.wait_for_end_within(request.yield_time).await;
        Ok(command)
    }

    /// Asks the decider whether the command may run again without its sandbox. Refused if there is no decider, or if
    /// no sandbox has denied anything to the command.
    async fn ask_decider(
        &self,
        request: &ExecCommandRequest,
        argv: &[String],
        command: &OpenCommand,
        started: Instant,
    ) -> Approval {
        let Some(decider) = self.inner.options.approval.as_ref().filter(|_| request.sandbox.is_some()) else {
            return Approval::Refused;
        };
        let snapshot = command.record.peek(request.max_output_bytes);
        let denied = response(command.id, snapshot, StdinOutcome::Untouched, started);
        if !denied.sandbox_denied {
            return Approval::Refused;
        }
        decider.decide(ApprovalRequest { argv, cwd: &request.cwd, denied: &denied }).await
    }

    /// Writes the text of the request. Waits until the server has accepted the text or the command has ended, at most
    /// for the yield time.
    async fn write(
        &self,
        command: &OpenCommand,
        request: &WriteStdinRequest,
    ) -> Result<StdinOutcome, UnifiedExecError> {
        if request.chars.is_empty() {
            return Ok(StdinOutcome::Untouched);
        }
        if command.record.is_over() {
            return Ok(StdinOutcome::Closed);
        }
        if !command.takes_input {
            return Err(UnifiedExecError::NoStdin(command.id));
        }
        tokio::select! {
            // An answer that has come is used even if the yield time is over.
            biased;
            written = write_all(command, request.chars.as_bytes()) => Ok(written?),
            () = command.record.wait_for_end() => Ok(StdinOutcome::Closed),
            () = tokio::time::sleep(request.yield_time) => Ok(StdinOutcome::Pending),
        }
    }

    /// Adds the command to the open commands, where later calls find it by its id, and returns the response. The
    /// command is added first, because its end is reported to subscribers from the moment at which the response is
    /// made.
    fn hand_over(&self, command: Arc<OpenCommand>, max_output_bytes: usize, started: Instant) -> ExecCommandResponse {
        self.inner.open.keep(Arc::clone(&command));
        self.respond(&command, max_output_bytes, StdinOutcome::Untouched, started)
    }

    /// Returns the new output. Removes the command from the open commands if it has ended. A command that counts as
    /// ended but still runs is killed then.
    fn respond(
        &self,
        command: &OpenCommand,
        max_output_bytes: usize,
        stdin: StdinOutcome,
        started: Instant,
    ) -> ExecCommandResponse {
        let response = response(command.id, command.record.take(max_output_bytes), stdin, started);
        if response.session.is_none() {
            self.inner.open.forget(command.id, response.exit_code);
        }
        response
    }
}

fn process_id(id: ExecSessionId, is_confined: bool) -> ProcessId {
    // A server may remember the id of a sandboxed process for a while, even if another client has chosen the id. So
    // the id of a sandboxed process is unique among all clients.
    let text = if is_confined { format!("{id}-{}", uuid::Uuid::new_v4()) } else { id.to_string() };
    ProcessId::from(text)
}

async fn write_all(command: &OpenCommand, bytes: &[u8]) -> Result<StdinOutcome, ExecServerError> {
    for piece in bytes.chunks(WRITE_BYTES) {
        match command.process.write(piece).await? {
            WriteStatus::Accepted => {}
            WriteStatus::UnknownProcess | WriteStatus::StdinClosed => return Ok(StdinOutcome::Closed),
            WriteStatus::Starting => {
                let text = format!("the server says that process {} is still starting", command.process.process_id());
                return Err(ExecServerError::Protocol(text));
            }
        }
    }
    Ok(StdinOutcome::Taken)
}

fn response(
    id: ExecSessionId,
    snapshot: CommandSnapshot,
    stdin: StdinOutcome,
    started: Instant,
) -> ExecCommandResponse {
    let CommandSnapshot { abridged, original_bytes, exit, end } = snapshot;
    ExecCommandResponse {
        output: abridged.text,
        original_bytes,
        omitted_bytes: abridged.omitted_bytes,
        exit_code: exit.as_ref().map(|exit| exit.code),
        session: end.is_none().then_some(id),
        wall_time: started.elapsed(),
        sandbox_denied: exit.as_ref().is_some_and(|exit| exit.sandbox_denied),
        ran_without_sandbox: false,
        timed_out: exit.as_ref().is_some_and(|exit| exit.timed_out),
        resources: exit.as_ref().map_or(ExitResources::NONE, |exit| exit.resources),
        sandbox_denials: exit.map_or_else(Vec::new, |exit| exit.sandbox_denials),
        stdin,
        failure: end.as_ref().and_then(CommandEnd::failure),
    }
}
