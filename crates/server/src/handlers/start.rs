//! `process/start`: validated and its id taken at once, spawned off the async threads, answered before its events.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use protocol::{
    ErrorData, ProcessId, SandboxContext, SandboxType, StartParams, StartResult, WireError, decode_params,
    error_kind, shortened,
};
use session::{ConnectionNumber, Delivery, LogLimits, Resend, StartedAs, StdinQueue};
use spawn::{ChildIo, SpawnCommand, SpawnError, Spawned, StdinMode, Stdio, TerminalSize};

use super::capture_shell::SessionShell;
use crate::config::Config;
use crate::connection::{Call, Role};
use crate::environment::{Variables, child_env};
use crate::limits::MAX_SHOWN_ARGUMENTS;
use crate::process::{CountedDelivery, Dialect, Process, ProcessParts, StdinFeed};
use crate::process_task;
use crate::server_state::ServerState;
use crate::session::{DeferredRequest, ReserveRefusal, Session, StartOutcome, StartReservation};
use crate::snapshot::{Execution, SnapshotRequest, Surroundings};
use crate::starter::LONGEST_START;
use crate::survive::{survive, survive_call};

/// Read, write and execute for owner, group and others. The kernel ignores further bits.
const LARGEST_UMASK: u32 = 0o777;

/// A start, freed of how it was asked for.
pub(super) struct Wanted {
    pub(super) id: ProcessId,
    pub(super) argv: Vec<String>,
    pub(super) arg0: Option<String>,
    pub(super) cwd: PathBuf,
    pub(super) env: Variables,
    pub(super) terminal: Option<TerminalSize>,
    pub(super) pipe_stdin: bool,
    pub(super) started_as: StartedAs,
    pub(super) timeout: Option<Duration>,
    /// Permissions that its files do not get; the server's if not given.
    pub(super) umask: Option<u32>,
    pub(super) snapshot: Option<SnapshotRequest>,
    pub(super) dialect: Dialect,
}

pub(super) fn start(call: Call, params: StartParams, session: &Arc<Session>) {
    let observes = matches!(call.connection.role(), Some(Role::Observing(_)));
    match wanted(&call.connection.shared, params, observes) {
        Ok(wanted) => begin(call, wanted, session, |call, process_id| {
            call.finish(Ok(StartResult { process_id, sandbox_type: Some(SandboxType::None) }));
        }),
        Err(error) => call.finish::<()>(Err(error)),
    }
}

fn wanted(shared: &ServerState, params: StartParams, observes: bool) -> Result<Wanted, WireError> {
    let started_as = match (observes, params.paused) {
        (true, true) => StartedAs::Unrequested,
        (true, false) => {
            return Err(WireError::invalid_params(
                "a connection that only observes is sent no events; start the process with `paused`",
            ));
        }
        (false, true) => StartedAs::Paused,
        (false, false) => StartedAs::Followed,
    };
    if params.network_proxy.is_some() {
        return Err(WireError::invalid_params("a network proxy cannot be launched on this executor yet"));
    }
    let cwd = params.cwd.to_native().map_err(|error| {
        WireError::invalid_params(format!("cwd URI `{}` is not valid on this exec-server host: {error}", params.cwd))
    })?;
    if let Some(sandbox) = &params.sandbox
        && !decode_params::<SandboxContext>(Some(sandbox))?.needs_no_enforcement()
    {
        return Err(WireError::invalid_params(
            "sandbox intent cannot be enforced on this executor yet; start the process without a sandbox",
        ));
    }
    if params.enforce_managed_network {
        return Err(WireError::invalid_params("managed network cannot be enforced on this executor yet"));
    }
    let env = child_env(&shared.env, params.env_policy.as_ref(), &params.env);
    let snapshot = match params.shell_snapshot {
        Some(snapshot) => {
            let surroundings = Surroundings { cwd: &cwd, policy: params.env_policy, overlay: params.env, env: &env };
            SnapshotRequest::check(snapshot, &params.argv, params.arg0.as_deref(), surroundings)?
        }
        None => None,
    };
    let size = params.size.map_or(TerminalSize::default(), |size| TerminalSize { rows: size.rows, cols: size.cols });
    Ok(Wanted {
        id: params.process_id,
        argv: params.argv,
        arg0: params.arg0,
        cwd,
        env,
        terminal: params.tty.then_some(size),
        pipe_stdin: params.pipe_stdin,
        started_as,
        timeout: params.timeout_ms.map(Duration::from_millis),
        umask: params.umask,
        snapshot,
        dialect: Dialect::Current,
    })
}

/// Checks what needs no system call, takes the id, and leaves the rest to a task.
pub(super) fn begin(
    call: Call,
    wanted: Wanted,
    session: &Arc<Session>,
    answer: impl FnOnce(Call, ProcessId) + Send + 'static,
) {
    let shared = Arc::clone(&call.connection.shared);
    let reservation = match check(&shared, &wanted).and_then(|()| reserve(&shared, &wanted, session)) {
        Ok(reservation) => reservation,
        Err(error) => return call.finish::<()>(Err(error)),
    };
    let session = Arc::clone(session);
    // Not a task of the connection: a process that exists must get its place whoever is listening.
    shared.clone().tasks.spawn(async move {
        let id = wanted.id.clone();
        // From now on there may be a process, also one that was cancelled and that nobody waits for.
        shared.janitor.start_sweeping();
        let starter = call.connection.number();
        let launched = survive(launch(&shared, wanted, &session, &reservation, starter)).await.unwrap_or_else(|| {
            // Whatever was started has nobody to look after it.
            shared.end_rest_in_background(reservation.tag, Arc::clone(&session));
            Err(WireError::internal("the server has failed to start the process; its log says why"))
        });
        match launched {
            Ok((process, io, timeout)) => {
                let actor = process_task::run(
                    Arc::clone(&process),
                    Arc::downgrade(&session),
                    io,
                    timeout,
                    Arc::clone(&shared),
                );
                let answered = survive_call(|| {
                    shared.metrics.process_started();
                    answer(call, id);
                    process.delivery(|delivery| delivery.answer_queued(starter));
                });
                shared.actors.spawn(actor);
                push_late_start_later(&shared, &session, starter);
                if answered.is_none() {
                    shared.kill_in_background(Arc::clone(&process), Some(Arc::clone(&session)));
                }
                while let Some(waiting) = session.table.settle(&process) {
                    dispatch_all(waiting, || StartOutcome::Started(Arc::clone(&process)));
                }
            }
            Err(error) => {
                let waiting = session.table.abandon(&reservation);
                call.finish::<()>(Err(error));
                dispatch_all(waiting.unwrap_or_default(), || StartOutcome::Failed);
            }
        }
    });
}

/// A start may finish after another connection has attached to the session. If the client of that connection is expected to read first,
/// its time for that begins now.
fn push_late_start_later(shared: &ServerState, session: &Arc<Session>, starter: ConnectionNumber) {
    if let Some(outbound) = session.outbound().filter(|outbound| outbound.number != starter)
        && outbound.is_initialized()
    {
        shared.janitor.push_without_read_later(session, outbound.number);
    }
}

/// Handles the requests that waited for a start. One that panics, which answers it with an error, costs no other.
fn dispatch_all(waiting: impl IntoIterator<Item = DeferredRequest>, outcome: impl Fn() -> StartOutcome) {
    for deferred in waiting {
        let _panicked = survive_call(|| deferred(outcome()));
    }
}

fn check(shared: &ServerState, wanted: &Wanted) -> Result<(), WireError> {
    if shared.closing.is_cancelled() {
        return Err(WireError::invalid_request("server is shutting down"));
    }
    if wanted.argv.is_empty() {
        return Err(WireError::invalid_params("argv must not be empty"));
    }
    let limit = shared.config.max_id_bytes;
    if wanted.id.as_str().len() > limit {
        return Err(WireError::invalid_params(format!(
            "processId exceeds the limit of {limit} bytes (--max-id-bytes)"
        )));
    }
    let bytes = start_bytes(&wanted.argv, &wanted.env);
    let limit = shared.config.max_start_bytes;
    if bytes > limit {
        return Err(WireError::invalid_params(format!(
            "argv and env have {bytes} bytes and exceed the limit of {limit} (--max-start-bytes)"
        )));
    }
    if wanted.timeout.is_some_and(|timeout| timeout.is_zero()) {
        return Err(WireError::invalid_params("timeoutMs must not be 0"));
    }
    if wanted.umask.is_some_and(|mask| mask > LARGEST_UMASK) {
        return Err(WireError::invalid_params(format!("umask must be at most {LARGEST_UMASK}")));
    }
    Ok(())
}

fn start_bytes(argv: &[impl AsRef<OsStr>], env: &Variables) -> usize {
    let argv: usize = argv.iter().map(|argument| argument.as_ref().len() + 1).sum();
    let env: usize = env.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
    argv + env
}

fn reserve(shared: &ServerState, wanted: &Wanted, session: &Session) -> Result<StartReservation, WireError> {
    let limit = shared.config.max_processes;
    let id = &wanted.id;
    let tag = session.tags.next();
    let mut reserved = session.table.reserve(id, shown(&wanted.argv), tag, limit);
    while matches!(reserved, Err(ReserveRefusal::Full))
        && let Some(oldest) = session.take_oldest_kept()
    {
        shared.janitor.note_freed(session.forget(&oldest));
        reserved = session.table.reserve(id, shown(&wanted.argv), tag, limit);
    }
    reserved.map_err(|refusal| {
        WireError::invalid_request(match refusal {
            ReserveRefusal::Duplicate => format!("process {id} already exists"),
            ReserveRefusal::Full => format!("session has reached its limit of {limit} processes (--max-processes)"),
        })
    })
}

/// What `process/list` shows of a command: enough to recognise it, and little enough to keep for every process.
fn shown(argv: &[String]) -> Vec<String> {
    let mut left = MAX_SHOWN_ARGUMENTS;
    let mut shown = Vec::new();
    for argument in argv {
        if left == 0 {
            shown.push("…".to_owned());
            break;
        }
        left -= 1;
        shown.push(shortened(argument).into_owned());
    }
    shown
}

async fn launch(
    shared: &Arc<ServerState>,
    wanted: Wanted,
    session: &Arc<Session>,
    reservation: &StartReservation,
    starter: ConnectionNumber,
) -> Result<(Arc<Process>, ChildIo, Option<Duration>), WireError> {
    let Execution { argv, env } = execution(shared, &wanted, session).await;
    // That can take a while, and a command that nobody wants any more must not run.
    if shared.closing.is_cancelled() || session.has_ended() || reservation.cancel.is_cancelled() {
        return Err(start_cancelled(&wanted.id));
    }
    let stdin = if wanted.pipe_stdin { StdinMode::Piped } else { StdinMode::Null };
    let has_stdin = wanted.terminal.is_some() || wanted.pipe_stdin;
    let command = SpawnCommand {
        argv,
        arg0: wanted.arg0.map(Into::into),
        env: env.into_iter().collect(),
        cwd: wanted.cwd,
        stdio: wanted.terminal.map_or(Stdio::Pipes { stdin }, Stdio::Pty),
        umask: wanted.umask,
    };
    let begun = Instant::now();
    let start = shared.starter.start(session.asker(), command, reservation.tag, &reservation.cancel);
    // A child that is not found by its tag cannot be ended before its program is executed.
    let spawned = match wanted.timeout.filter(|_| shared.spawner.tags_work()) {
        // A start that does not hang is never refused for its time: the program runs, and is ended.
        Some(timeout) => match tokio::time::timeout(timeout.saturating_add(LONGEST_START), start).await {
            Ok(spawned) => spawned,
            Err(_) => return Err(give_up_late_start(shared, &wanted.id, timeout, session, reservation).await),
        },
        None => start.await,
    };
    let spawned =
        spawned.ok_or_else(|| WireError::internal("the server has failed to start the process; its log says why"))?;
    let Spawned { child, io } = spawned.map_err(|error| spawn_error(&wanted.id, &error))?;
    let child = Arc::new(child);
    let (terminal, input) = match &io {
        ChildIo::Pipes { stdin, .. } => (None, stdin.clone()),
        ChildIo::Pty { pty, .. } => (Some(pty.clone()), Some(pty.writer())),
        ChildIo::Report(_) => (None, None),
    };
    let limits = LogLimits {
        retain_bytes: shared.config.retain_bytes,
        max_chunk_bytes: largest_chunk(&shared.config, &wanted.id),
        ..LogLimits::default()
    };
    // Only the current family numbers its events.
    let resend = if wanted.dialect == Dialect::Current { Resend::Unacknowledged } else { Resend::Never };
    let queue = if has_stdin { StdinQueue::new(shared.config.max_queued_stdin) } else { StdinQueue::closed() };
    let birth = ProcessParts {
        id: wanted.id,
        dialect: wanted.dialect,
        argv: shown(&wanted.argv),
        tag: reservation.tag,
        child: Arc::clone(&child),
        terminal,
        delivery: CountedDelivery::new(Delivery::new(limits, resend, wanted.started_as), shared.budget.account()),
        stdin: StdinFeed::new(queue, shared.stdin_budget.account(), input),
    };
    let process = Process::new(birth);
    if !session.claim(reservation, &process, starter, Instant::now()) {
        shared.kill_unclaimed(&child, reservation.tag).await;
        return Err(start_cancelled(&process.id));
    }
    Ok((process, io, wanted.timeout.map(|timeout| timeout.saturating_sub(begun.elapsed()))))
}

fn start_cancelled(id: &ProcessId) -> WireError {
    WireError::invalid_request(format!("process {id} start was cancelled"))
}

/// The time of a process is over, and its start hangs. Returns when it is certain that its program does not run, or not any more if the kernel
/// has executed it in this very moment.
async fn give_up_late_start(
    shared: &Arc<ServerState>,
    id: &ProcessId,
    timeout: Duration,
    session: &Arc<Session>,
    reservation: &StartReservation,
) -> WireError {
    reservation.cancel.cancel();
    // What cannot be ended now is ended later, and nothing of it runs.
    let _survivors = shared.kill_cancelled_start(session, reservation).await;
    let text = format!("process {id} has not started within its timeoutMs of {}", timeout.as_millis());
    WireError::internal(text).with_data(ErrorData::of_kind(error_kind::START_TIMED_OUT))
}

/// What is wanted, or the same with the profile of its shell already run.
async fn execution(shared: &Arc<ServerState>, wanted: &Wanted, session: &Session) -> Execution {
    let as_asked = || Execution { argv: wanted.argv.iter().map(Into::into).collect(), env: wanted.env.clone() };
    let Some(snapshot) = &wanted.snapshot else { return as_asked() };
    let shell = || SessionShell::new(shared, session);
    let restored =
        snapshot.restore(&session.snapshots, shell, &wanted.argv, wanted.arg0.as_deref(), &wanted.env).await;
    let fits = |it: &Execution| start_bytes(&it.argv, &it.env) <= shared.config.max_start_bytes;
    restored.filter(fits).unwrap_or_else(as_asked)
}

/// Small enough that a few fit into what is retained, and that one fits into a message, in base64 and with what else
/// stands in it.
fn largest_chunk(config: &Config, id: &ProcessId) -> usize {
    const LONGEST_ESCAPE: usize = 6;
    const REST_OF_THE_MESSAGE: usize = 512;
    let around = REST_OF_THE_MESSAGE + id.as_str().len() * LONGEST_ESCAPE;
    let in_message = config.max_message_bytes.saturating_sub(around) / 4 * 3;
    LogLimits::default().max_chunk_bytes.min(config.retain_bytes / 4).min(in_message).max(1)
}

/// What the client got wrong is its params' fault; what the operating system refused carries its cause.
fn spawn_error(id: &ProcessId, error: &SpawnError) -> WireError {
    let message = error.to_string();
    match error {
        SpawnError::Cancelled => start_cancelled(id),
        SpawnError::NulByte { .. } | SpawnError::EnvironmentName { .. } => WireError::invalid_params(message),
        SpawnError::MissingPipeProgram | SpawnError::MissingPtyProgram => WireError::internal(message),
        SpawnError::Cwd { source, path } | SpawnError::Program { source, path } => {
            WireError::internal(message).with_data(ErrorData::from_io(source, Some(path)))
        }
        SpawnError::Resource { source, .. } => {
            WireError::internal(message).with_data(ErrorData::from_io(source, None))
        }
    }
}
