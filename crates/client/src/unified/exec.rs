//! Running commands and going on with them.

use std::sync::Arc;

use protocol::{ProcessId, Signal, WriteStatus};
use tokio::sync::{OnceCell, broadcast};
use tokio::time::{Duration, Instant, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::approval::{Approval, ApprovalRequest};
use super::collect::{self, CommandCompletion, Completions, KEPT_COMPLETIONS};
use super::error::UnifiedExecError;
use super::open::{OpenCommand, OpenCommands};
use super::options::UnifiedExecOptions;
use super::record::{End, Moment, Record};
use super::request::{Command, Confinement, ExecCommandRequest, ExecSessionId, WriteStdinRequest};
use super::response::{ExecCommandResponse, StdinOutcome};
use crate::client::ExecServerClient;
use crate::error::ExecServerError;

/// How long a command that takes no input any more may take to say how it ended.
const LAST_WORDS: Duration = Duration::from_millis(250);
/// How long a command that was ended may take to be gone.
const TERMINATION: Duration = Duration::from_secs(5);
/// A message holds a third more than this.
const PIECE: usize = 256 * 1024;

/// Runs commands for a harness. Clones share it; when the last one is gone, what still runs is ended.
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
    shared: Arc<Shared>,
}

struct Shared {
    client: ExecServerClient,
    options: UnifiedExecOptions,
    open: OpenCommands,
    completions: broadcast::Sender<CommandCompletion>,
    /// Program and arguments before a line for the shell.
    shell: OnceCell<Vec<String>>,
}

impl UnifiedExec {
    /// Over a client, which may be used for other things too.
    pub fn new(client: ExecServerClient, options: UnifiedExecOptions) -> Self {
        let open = OpenCommands::new(options.max_sessions);
        let shell = options.shell.clone().map(OnceCell::from).unwrap_or_default();
        let completions = broadcast::Sender::new(KEPT_COMPLETIONS);
        Self { shared: Arc::new(Shared { client, options, open, completions, shell }) }
    }

    /// Runs a command, and returns when it has ended and its streams are closed, or after the yield time with what it wrote so far.
    ///
    /// If the sandbox refused it something within that time, the decider is asked, and with its approval the command is run once more
    /// without the sandbox. Dropping the future ends the command.
    pub async fn exec_command(&self, request: ExecCommandRequest) -> Result<ExecCommandResponse, UnifiedExecError> {
        let started = Instant::now();
        let argv = self.argv(&request.command).await?;
        let command = self.run(&request, &argv, Confinement::AsAsked).await?;
        if self.may_lift_sandbox(&request, &argv, &command, started).await == Approval::Refused {
            return Ok(self.hand_over(command, request.max_output_bytes, started));
        }
        drop(command);
        let command = self.run(&request, &argv, Confinement::Lifted).await?;
        let response = self.hand_over(command, request.max_output_bytes, started);
        Ok(ExecCommandResponse { ran_without_sandbox: true, ..response })
    }

    /// Writes to a command that still runs, or only looks at it, and returns what it wrote since the last call: when it has ended, when it
    /// has settled if that is asked for, or after the yield time. What it writes while several calls wait goes to one of them.
    ///
    /// When a command has ended, the first call tells how and returns the rest of its output, whatever is written to it; later ones fail.
    pub async fn write_stdin(&self, request: WriteStdinRequest) -> Result<ExecCommandResponse, UnifiedExecError> {
        let started = Instant::now();
        let command = self.shared.open.find(request.session)?;
        let mark = command.record.mark();
        let stdin = self.write(&command, &request).await?;
        let left = request.yield_time.saturating_sub(started.elapsed());
        match (stdin, request.settle) {
            (StdinOutcome::Closed, _) => {
                command.record.over_within(left.min(LAST_WORDS)).await;
                command.record.finish(End::StdinClosed);
            }
            (_, Some(quiet)) => {
                let _out_of_time = timeout(left, command.record.settled(mark, quiet)).await;
            }
            (_, None) => command.record.over_within(left).await,
        }
        Ok(self.respond(&command, request.max_output_bytes, stdin, started))
    }

    /// Ends a command and everything it has started, and returns what it wrote since the last call.
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
        let command = self.shared.open.find(session)?;
        if !command.record.is_over() {
            command.process.terminate().await?;
            command.record.over_within(TERMINATION).await;
            command.record.finish(End::Failed("the command was ended and is not known to be gone".to_owned()));
        }
        Ok(self.respond(&command, max_output_bytes, StdinOutcome::Untouched, started))
    }

    /// Interrupts a command as Ctrl-C does, terminal or not.
    ///
    /// ```no_run
    /// # async fn example(exec: client::UnifiedExec, session: client::ExecSessionId) -> Result<(), client::UnifiedExecError> {
    /// exec.interrupt(session).await?;
    /// let response = exec.write_stdin(client::WriteStdinRequest::poll(session)).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn interrupt(&self, session: ExecSessionId) -> Result<(), UnifiedExecError> {
        let command = self.shared.open.find(session)?;
        if !command.record.is_over() {
            command.process.signal(Signal::Interrupt).await?;
        }
        Ok(())
    }

    /// Commands whose end was not told by a call yet, oldest first.
    ///
    /// ```no_run
    /// # fn example(exec: client::UnifiedExec) {
    /// println!("{} commands can be gone on with", exec.sessions().len());
    /// # }
    /// ```
    pub fn sessions(&self) -> Vec<ExecSessionId> {
        self.shared.open.ids()
    }

    /// Tells of every command that ends after the call that started it has returned, from now on.
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
        Completions::new(self.shared.completions.subscribe())
    }

    async fn argv(&self, command: &Command) -> Result<Vec<String>, UnifiedExecError> {
        let argv = match command {
            Command::Argv(argv) => argv.clone(),
            Command::Shell(line) => {
                let shell = self.shared.shell.get_or_try_init(|| self.environments_shell()).await?;
                shell.iter().chain([line]).cloned().collect()
            }
        };
        if argv.is_empty() { Err(UnifiedExecError::EmptyCommand) } else { Ok(argv) }
    }

    async fn environments_shell(&self) -> Result<Vec<String>, ExecServerError> {
        let info = self.shared.client.environment_info().await?;
        Ok(vec![info.shell.path, "-c".to_owned()])
    }

    /// Starts a command and waits for its end or the yield time.
    async fn run(
        &self,
        request: &ExecCommandRequest,
        argv: &[String],
        confinement: Confinement,
    ) -> Result<Arc<OpenCommand>, UnifiedExecError> {
        let place = self.shared.open.place()?;
        let id = ExecSessionId(self.shared.client.next_number());
        let is_confined = request.sandbox.is_some() && confinement == Confinement::AsAsked;
        let process_id = process_id(id, is_confined);
        let params = request.start_params(process_id, argv.to_vec(), confinement);
        let process = self.shared.client.start(params).await?;
        let record = Arc::new(Record::new(id, &self.shared.options, self.shared.completions.clone()));
        let collecting = self.shared.client.tasks().spawn(collect::run(process.events(), Arc::clone(&record)));
        let command = Arc::new(OpenCommand {
            id,
            process,
            record,
            takes_input: request.takes_input(),
            _place: place,
            _collecting: AbortOnDropHandle::new(collecting),
        });
        command.record.over_within(request.yield_time).await;
        Ok(command)
    }

    async fn may_lift_sandbox(
        &self,
        request: &ExecCommandRequest,
        argv: &[String],
        command: &OpenCommand,
        started: Instant,
    ) -> Approval {
        let Some(decider) = self.shared.options.approval.as_ref().filter(|_| request.sandbox.is_some()) else {
            return Approval::Refused;
        };
        let moment = command.record.peek(request.max_output_bytes);
        let denied = response(command.id, moment, StdinOutcome::Untouched, started);
        if !denied.sandbox_denied {
            return Approval::Refused;
        }
        decider.decide(ApprovalRequest { argv, cwd: &request.cwd, denied: &denied }).await
    }

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
            // An answer counts before the clock does.
            biased;
            written = write_all(command, request.chars.as_bytes()) => Ok(written?),
            () = command.record.over() => Ok(StdinOutcome::Closed),
            () = tokio::time::sleep(request.yield_time) => Ok(StdinOutcome::Pending),
        }
    }

    /// From now on it is gone on with by its id. It can be found before anybody is told of its end.
    fn hand_over(&self, command: Arc<OpenCommand>, max_output_bytes: usize, started: Instant) -> ExecCommandResponse {
        self.shared.open.keep(Arc::clone(&command));
        self.respond(&command, max_output_bytes, StdinOutcome::Untouched, started)
    }

    /// Tells what is new, and forgets a command of which nothing more will come.
    fn respond(
        &self,
        command: &OpenCommand,
        max_output_bytes: usize,
        stdin: StdinOutcome,
        started: Instant,
    ) -> ExecCommandResponse {
        let response = response(command.id, command.record.take(max_output_bytes), stdin, started);
        if response.session.is_none() {
            self.shared.open.forget(command.id, response.exit_code);
        }
        response
    }
}

fn process_id(id: ExecSessionId, is_confined: bool) -> ProcessId {
    // A server may remember a confined one under its id for a while, whoever started it.
    let text = if is_confined { format!("{id}-{}", uuid::Uuid::new_v4()) } else { id.to_string() };
    ProcessId::from(text)
}

async fn write_all(command: &OpenCommand, bytes: &[u8]) -> Result<StdinOutcome, ExecServerError> {
    for piece in bytes.chunks(PIECE) {
        match command.process.write(piece).await? {
            WriteStatus::Accepted => {}
            WriteStatus::UnknownProcess | WriteStatus::StdinClosed => return Ok(StdinOutcome::Closed),
            WriteStatus::Starting => {
                let text = format!("process {} was started and is said to be starting", command.process.process_id());
                return Err(ExecServerError::Protocol(text));
            }
        }
    }
    Ok(StdinOutcome::Taken)
}

fn response(id: ExecSessionId, moment: Moment, stdin: StdinOutcome, started: Instant) -> ExecCommandResponse {
    let Moment { abridged, original_bytes, exit, end } = moment;
    ExecCommandResponse {
        output: abridged.text,
        original_bytes,
        omitted_bytes: abridged.omitted_bytes,
        exit_code: exit.map(|exit| exit.code),
        session: end.is_none().then_some(id),
        wall_time: started.elapsed(),
        sandbox_denied: exit.is_some_and(|exit| exit.sandbox_denied == Some(true)),
        ran_without_sandbox: false,
        timed_out: exit.is_some_and(|exit| exit.timed_out),
        stdin,
        failure: end.as_ref().and_then(End::failure),
    }
}
