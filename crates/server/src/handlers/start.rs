//! `process/start`, and the part of `command/exec` that is the same. The request is checked and its process id
//! reserved at once. The process is started on another thread, and the answer is queued before the first event of the
//! process.
//!
//! Each start gets a tag: a number that the process and its descendants inherit, and by which they are found and
//! killed.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use protocol::{
    ErrorData, Permissions, ProcessId, SandboxContext, SandboxType, StartParams, StartResult, WireError,
    decode_params, error_kind, shortened,
};
use session::{ConnectionNumber, Delivery, LogLimits, Resend, StartedAs, StdinQueue};
use spawn::{ChildIo, SpawnCommand, SpawnError, SpawnLimits, Spawned, StdinMode, Stdio, TerminalSize};

use super::capture_shell::SessionShell;
use super::check_process_id;
use super::sandbox_lookup::{SandboxLookup, sandbox_for_process};
use crate::config::Config;
use crate::connection::{Call, ConnectionRole};
use crate::environment::{Variables, child_env};
use crate::limits::MAX_SHOWN_ARGUMENTS;
use crate::network_proxy::ProxyPlan;
use crate::process::{CountedDelivery, Dialect, Process, ProcessConfinement, ProcessParts, QueuedStdin};
use crate::process_limits::{limit_error, memory_scope, spawn_limits};
use crate::process_task;
use crate::refused_calls::refuse_calls;
use crate::sandboxes::SessionSandbox;
use crate::server_state::ServerState;
use crate::session::{DeferredRequest, ReserveRefusal, Session, StartOutcome, StartReservation};
use crate::snapshot::{CommandContext, Execution, SnapshotRequest};
use crate::starter::{LONGEST_START, StartPlace, StartRefusal, StartedProcess};
use crate::survive::{survive, survive_call};

/// Read, write and execute for user, group and others. The kernel ignores further bits.
const LARGEST_UMASK: u32 = 0o777;

/// Nothing else says which hosts are allowed.
const MANAGED_NETWORK_NEEDS_PROXY: &str = "enforceManagedNetwork needs networkProxy, which says what the process may reach; add it, or leave enforceManagedNetwork out";

/// A process without a sandbox can reach every host without its proxy.
const PROXY_NEEDS_SANDBOX: &str = "networkProxy needs a sandbox, because a process without a sandbox can use the network without the proxy; add a sandbox, or leave networkProxy out";

/// A start request in a form that is independent of the method (`process/start` or `command/exec`).
pub(super) struct StartSpec {
    pub(super) id: ProcessId,
    pub(super) argv: Vec<String>,
    pub(super) arg0: Option<String>,
    pub(super) cwd: PathBuf,
    pub(super) env: Variables,
    /// None: the process gets pipes.
    pub(super) terminal: Option<TerminalSize>,
    /// Whether stdin is a pipe to which the client can write. Without effect if there is a terminal.
    pub(super) pipe_stdin: bool,
    pub(super) started_as: StartedAs,
    pub(super) timeout: Option<Duration>,
    /// Permission bits that new files of the process do not get. None: the umask of the server.
    pub(super) umask: Option<u32>,
    /// What the process and its descendants may use. None: no limits, and the exit carries no usage.
    pub(super) limits: Option<SpawnLimits>,
    /// Asks that the command begins with a shell snapshot: the state of a login shell after its profile has run.
    pub(super) snapshot: Option<SnapshotRequest>,
    /// The policy that the process is confined by. None: the process is not confined.
    pub(super) sandbox: Option<SandboxContext>,
    /// The proxy through which the process reaches the network. Only with a sandbox.
    pub(super) proxy: Option<ProxyPlan>,
    /// The family of notifications in which the events of the process are sent.
    pub(super) dialect: Dialect,
}

/// `process/start`: starts a process, and answers when the program is running or cannot be executed.
pub(super) fn start(call: Call, params: StartParams, session: &Arc<Session>) {
    // An observing connection reads from a session to which another connection may be attached.
    let observes = matches!(call.connection.role(), Some(ConnectionRole::Observing(_)));
    match to_spec(&call.connection.shared, params, observes) {
        Ok(spec) => {
            let sandbox_type = if spec.sandbox.is_some() { SandboxType::LinuxSeccomp } else { SandboxType::None };
            let limits_memory = spec.limits.is_some_and(|limits| limits.memory_bytes.is_some());
            let memory_limit_scope = limits_memory.then(|| memory_scope(&call.connection.shared.spawner));
            begin(call, spec, session, move |call, process_id| {
                call.finish(Ok(StartResult { process_id, sandbox_type: Some(sandbox_type), memory_limit_scope }));
            });
        }
        Err(error) => call.finish::<()>(Err(error)),
    }
}

fn to_spec(shared: &ServerState, params: StartParams, observes: bool) -> Result<StartSpec, WireError> {
    let started_as = match (observes, params.paused) {
        // The client of the attached connection has not asked for this process, so it is sent no events of it yet.
        (true, true) => StartedAs::Unrequested,
        (true, false) => {
            return Err(WireError::invalid_params(
                "a connection that only observes is sent no events; start the process with `paused`",
            ));
        }
        (false, true) => StartedAs::Paused,
        (false, false) => StartedAs::Followed,
    };
    let proxy = params.network_proxy.as_ref().map(|launch| ProxyPlan::new(launch, &params.process_id)).transpose()?;
    let cwd = params.cwd.to_native().map_err(|error| {
        WireError::invalid_params(format!("cwd URI `{}` is not valid on this exec-server host: {error}", params.cwd))
    })?;
    let sandbox = match &params.sandbox {
        Some(sandbox) => Some(decode_params::<SandboxContext>(Some(sandbox))?),
        None => None,
    };
    // A proxy is enforced by a sandbox that allows no other network, also if the policy forbids nothing else.
    let is_managed = |context: &SandboxContext| matches!(context.permissions, Permissions::Managed { .. });
    let sandbox =
        sandbox.filter(|context| !context.needs_no_enforcement() || (proxy.is_some() && is_managed(context)));
    if proxy.is_some() && sandbox.is_none() {
        return Err(WireError::invalid_params(PROXY_NEEDS_SANDBOX));
    }
    if params.enforce_managed_network && proxy.is_none() {
        return Err(WireError::invalid_params(MANAGED_NETWORK_NEEDS_PROXY));
    }
    let env = child_env(&shared.env, params.env_policy.as_ref(), &params.env);
    let snapshot = match params.shell_snapshot {
        Some(snapshot) => {
            let context = CommandContext {
                cwd: &cwd,
                policy: params.env_policy,
                overlay: params.env,
                env: &env,
                sandbox: sandbox.clone(),
            };
            SnapshotRequest::check(snapshot, &params.argv, params.arg0.as_deref(), context)?
        }
        None => None,
    };
    let size = params.size.map_or(TerminalSize::default(), |size| TerminalSize { rows: size.rows, cols: size.cols });
    Ok(StartSpec {
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
        limits: params.limits.map(|limits| spawn_limits(&limits)),
        snapshot,
        sandbox,
        proxy,
        dialect: Dialect::Current,
    })
}

/// Checks the request, reserves the process id, and starts the process in a task. `answer` is called when the process
/// runs. If the start fails, the call is answered with an error here.
pub(super) fn begin(
    call: Call,
    spec: StartSpec,
    session: &Arc<Session>,
    answer: impl FnOnce(Call, ProcessId) + Send + 'static,
) {
    let shared = Arc::clone(&call.connection.shared);
    let reservation = match check(&shared, &spec).and_then(|()| reserve(&shared, &spec, session)) {
        Ok(reservation) => reservation,
        Err(error) => return call.finish::<()>(Err(error)),
    };
    let session = Arc::clone(session);
    // A task of the server and not of the connection: a started process must enter the process table of the session
    // even if the connection ends.
    shared.clone().tasks.spawn(async move {
        let id = spec.id.clone();
        // From now on there may be processes to reap, even if this start is cancelled.
        shared.janitor.start_sweeping();
        let requester = call.connection.number();
        let launched = survive(launch(&shared, spec, &session, &reservation, requester)).await.unwrap_or_else(|| {
            // The start has panicked. If it has made a process, that process has no process task, so it is killed.
            shared.kill_leftovers_in_background(reservation.tag, Arc::clone(&session));
            Err(WireError::internal("the server has failed to start the process; its log says why"))
        });
        match launched {
            Ok((process, io, timeout)) => {
                let process_task = process_task::run(
                    Arc::clone(&process),
                    Arc::downgrade(&session),
                    io,
                    timeout,
                    Arc::clone(&shared),
                );
                let answered = survive_call(|| {
                    shared.metrics.process_started();
                    answer(call, id);
                    process.delivery(|delivery| delivery.note_answer_queued(requester));
                });
                shared.process_tasks.spawn(process_task);
                schedule_push_of_late_start(&shared, &session, requester);
                if answered.is_none() {
                    // The answer has panicked, so the client takes the start for failed.
                    shared.kill_in_background(Arc::clone(&process), Some(Arc::clone(&session)));
                }
                // Requests that arrived during the start are handled first. When none is left, `take_deferred` lets
                // new requests find the process.
                while let Some(waiting) = session.table.take_deferred(&process) {
                    dispatch_all(waiting, || StartOutcome::Started(Arc::clone(&process)));
                }
            }
            Err(error) => {
                // Frees the process id, and returns the requests that waited for the start.
                let waiting = session.table.abandon(&reservation);
                call.finish::<()>(Err(error));
                dispatch_all(waiting.unwrap_or_default(), || StartOutcome::Failed);
            }
        }
    });
}

/// Called when a start has succeeded. If another connection was attached to the session meanwhile, its client is sent
/// events of this process only after it has read from the process, or after a short time, which begins now.
fn schedule_push_of_late_start(shared: &ServerState, session: &Arc<Session>, requester: ConnectionNumber) {
    if let Some(outbound) = session.outbound().filter(|outbound| outbound.number != requester)
        && outbound.is_initialized()
    {
        shared.janitor.schedule_push_without_read(session, outbound.number);
    }
}

/// Handles the requests that waited for a start. If a handler panics, its request is answered with an error, and the
/// other requests are still handled.
fn dispatch_all(waiting: impl IntoIterator<Item = DeferredRequest>, outcome: impl Fn() -> StartOutcome) {
    for deferred in waiting {
        let _none_if_panicked = survive_call(|| deferred(outcome()));
    }
}

fn check(shared: &ServerState, spec: &StartSpec) -> Result<(), WireError> {
    if shared.closing.is_cancelled() {
        return Err(WireError::invalid_request("server is shutting down"));
    }
    if spec.argv.is_empty() {
        return Err(WireError::invalid_params("argv must not be empty"));
    }
    check_process_id(&shared.config, &spec.id)?;
    let bytes = start_bytes(&spec.argv, &spec.env);
    let limit = shared.config.max_start_bytes;
    if bytes > limit {
        return Err(WireError::invalid_params(format!(
            "argv and env have {bytes} bytes and exceed the limit of {limit} (--max-start-bytes)"
        )));
    }
    if spec.timeout.is_some_and(|timeout| timeout.is_zero()) {
        return Err(WireError::invalid_params("timeoutMs must not be 0"));
    }
    if spec.umask.is_some_and(|mask| mask > LARGEST_UMASK) {
        return Err(WireError::invalid_params(format!("umask must be at most {LARGEST_UMASK}")));
    }
    // Checked again by the start itself. Here a limit that cannot be enforced is refused before anything runs, for example the capture
    // of a shell snapshot.
    spec.limits.map_or(Ok(()), |limits| shared.spawner.check_limits(&limits).map_err(|error| limit_error(&error)))
}

/// Size of argv and environment in the memory of the new process: a NUL follows each argument, and each variable is
/// `NAME=VALUE` with a NUL.
fn start_bytes(argv: &[impl AsRef<OsStr>], env: &Variables) -> usize {
    let argv: usize = argv.iter().map(|argument| argument.as_ref().len() + 1).sum();
    let env: usize = env.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
    argv + env
}

/// Reserves the process id. If the session has too many processes, closed processes that are kept beyond
/// `--process-retention` are forgotten first.
fn reserve(shared: &ServerState, spec: &StartSpec, session: &Session) -> Result<StartReservation, WireError> {
    let limit = shared.config.max_processes;
    let id = &spec.id;
    let tag = session.tags.next();
    let mut reserved = session.table.reserve(id, shown_arguments(&spec.argv), tag, limit);
    while matches!(reserved, Err(ReserveRefusal::Full))
        && let Some(oldest) = session.take_oldest_kept()
    {
        shared.janitor.note_forgotten(session.forget(&oldest), &shared.metrics);
        reserved = session.table.reserve(id, shown_arguments(&spec.argv), tag, limit);
    }
    reserved.map_err(|refusal| {
        WireError::invalid_request(match refusal {
            ReserveRefusal::Duplicate => format!("process {id} already exists"),
            ReserveRefusal::Full => format!("session has reached its limit of {limit} processes (--max-processes)"),
        })
    })
}

/// The arguments that `process/list` shows: enough to recognise a command, and short enough to keep for every
/// process.
fn shown_arguments(argv: &[String]) -> Vec<String> {
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

/// Starts the process and puts it into the table. Also returns its streams, and the part of its timeout that is left.
async fn launch(
    shared: &Arc<ServerState>,
    spec: StartSpec,
    session: &Arc<Session>,
    reservation: &StartReservation,
    requester: ConnectionNumber,
) -> Result<(Arc<Process>, ChildIo, Option<Duration>), WireError> {
    let lookup = sandbox_for_process(&spec, session).await?;
    let (sandbox, place) = match lookup {
        SandboxLookup::None => (None, StartPlace::Host),
        SandboxLookup::Found(sandbox) => (Some(Arc::clone(&sandbox)), StartPlace::Sandbox(sandbox)),
        SandboxLookup::Later(find) => (None, StartPlace::ToFind(find)),
    };
    let launched = launch_at(place, sandbox.clone(), shared, spec, session, (reservation, requester)).await;
    if launched.is_err() {
        // If it is the sandbox of this process only, it ends now.
        shared.end_sandboxes_in_background(sandbox.into_iter().collect());
    }
    launched
}

/// Starts the process at `place`, which is in `sandbox` if that was found already.
async fn launch_at(
    place: StartPlace,
    sandbox: Option<Arc<SessionSandbox>>,
    shared: &Arc<ServerState>,
    mut spec: StartSpec,
    session: &Arc<Session>,
    (reservation, requester): (&StartReservation, ConnectionNumber),
) -> Result<(Arc<Process>, ChildIo, Option<Duration>), WireError> {
    let confinement = match place {
        StartPlace::Host => ProcessConfinement::Unconfined,
        StartPlace::Sandbox(_) | StartPlace::ToFind(_) => ProcessConfinement::Sandboxed,
    };
    let Execution { argv, mut env } = execution(shared, &spec, session, sandbox.as_ref()).await;
    let network_proxy = match (spec.proxy.take(), sandbox.as_ref().and_then(|sandbox| sandbox.listener())) {
        (Some(proxy), Some(listener)) => {
            Some(proxy.launch(shared, session, listener, &mut env).map_err(|error| {
                WireError::internal(format!("the network proxy of the process could not be started: {error}"))
            })?)
        }
        (Some(_), None) => return Err(WireError::internal("the sandbox has no socket for the network proxy")),
        (None, _) => None,
    };
    // Capturing a snapshot can take a while. A command that was cancelled meanwhile must not run.
    if shared.closing.is_cancelled() || session.has_ended() || reservation.cancel.is_cancelled() {
        return Err(start_cancelled(&spec.id));
    }
    let stdin = if spec.pipe_stdin { StdinMode::Piped } else { StdinMode::Null };
    let has_stdin = spec.terminal.is_some() || spec.pipe_stdin;
    let command = SpawnCommand {
        argv,
        arg0: spec.arg0.map(Into::into),
        env: env.into_iter().collect(),
        cwd: spec.cwd,
        stdio: spec.terminal.map_or(Stdio::Pipes { stdin }, Stdio::Pty),
        umask: spec.umask,
        limits: spec.limits,
    };
    let begun = Instant::now();
    let start = shared.starter.start(session.job_owner(), command, reservation.tag, &reservation.cancel, place);
    // A hanging start can be cancelled only if tags work, because the child is found by its tag.
    let spawned = match spec.timeout.filter(|_| shared.spawner.tags_work()) {
        // `LONGEST_START` is added, so that only a hanging start runs into this timeout. If `timeout` is shorter than
        // a normal start, the process is started and then killed at once, as the client expects.
        Some(timeout) => match tokio::time::timeout(timeout.saturating_add(LONGEST_START), start).await {
            Ok(spawned) => spawned,
            Err(_) => return Err(cancel_late_start(shared, &spec.id, timeout, session, reservation).await),
        },
        None => start.await,
    };
    let spawned =
        spawned.ok_or_else(|| WireError::internal("the server has failed to start the process; its log says why"))?;
    let StartedProcess { spawned: Spawned { child, io }, filter } = spawned.map_err(|refusal| match refusal {
        StartRefusal::Sandbox(error) => error,
        StartRefusal::Spawn(error) => spawn_error(&spec.id, &error),
    })?;
    let child = Arc::new(child);
    let (terminal, input) = match &io {
        ChildIo::Pipes { stdin, .. } => (None, stdin.clone()),
        ChildIo::Pty { pty, .. } => (Some(pty.clone()), Some(pty.writer())),
        // Only the shell that captures a snapshot has a report and only a launcher has a socket, and neither is started here.
        ChildIo::Report(_) | ChildIo::Socket(_) => (None, None),
    };
    let limits = LogLimits {
        retain_bytes: shared.config.retain_bytes,
        max_chunk_bytes: largest_chunk(&shared.config, &spec.id),
        // Base64 makes four bytes of three, and the JSON around a chunk is shorter than the overhead that the log counts for the chunk. So
        // a page of this size fits into a message.
        max_page_bytes: shared.config.max_message_bytes / 2,
        ..LogLimits::default()
    };
    // Only the notifications `process/*` carry sequence numbers, by which a client recognises events that were sent
    // twice.
    let resend = if spec.dialect == Dialect::Current { Resend::Unacknowledged } else { Resend::Never };
    let queue = if has_stdin { StdinQueue::new(shared.config.max_queued_stdin) } else { StdinQueue::closed() };
    let process = Process::new(ProcessParts {
        id: spec.id,
        dialect: spec.dialect,
        argv: shown_arguments(&spec.argv),
        tag: reservation.tag,
        child: Arc::clone(&child),
        confinement,
        terminal,
        delivery: CountedDelivery::new(Delivery::new(limits, resend, spec.started_as), shared.output_budget.share()),
        stdin: QueuedStdin::new(queue, shared.stdin_budget.share(), input),
        own_sandbox: sandbox.filter(|_| network_proxy.is_some()),
        network_proxy,
    });
    if let Some(filter) = filter {
        shared.tasks.spawn(refuse_calls(filter, Arc::clone(&process)));
    }
    // Puts the process into the table, unless the start was cancelled meanwhile.
    if !session.claim(reservation, &process, requester, Instant::now()) {
        shared.kill_unclaimed(&child, reservation.tag).await;
        shared.end_sandboxes_in_background(process.take_own_sandbox().into_iter().collect());
        return Err(start_cancelled(&process.id));
    }
    Ok((process, io, spec.timeout.map(|timeout| timeout.saturating_sub(begun.elapsed()))))
}

fn start_cancelled(id: &ProcessId) -> WireError {
    WireError::invalid_request(format!("process {id} start was cancelled"))
}

/// Cancels a start that hangs although the timeout of the process is over. If the kernel was just beginning to
/// execute the program, the process is killed. Returns the error for the client.
async fn cancel_late_start(
    shared: &Arc<ServerState>,
    id: &ProcessId,
    timeout: Duration,
    session: &Arc<Session>,
    reservation: &StartReservation,
) -> WireError {
    reservation.cancel.cancel();
    // Survivors are killed again in the background.
    let _survivors = shared.kill_cancelled_start(session, reservation).await;
    let text = format!("process {id} has not started within its timeoutMs of {}", timeout.as_millis());
    WireError::internal(text).with_data(ErrorData::of_kind(error_kind::START_TIMED_OUT))
}

/// The arguments and environment to execute: those of the request, or those that restore a shell snapshot and then run the command.
async fn execution(
    shared: &Arc<ServerState>,
    spec: &StartSpec,
    session: &Session,
    sandbox: Option<&Arc<SessionSandbox>>,
) -> Execution {
    let as_requested = || Execution { argv: spec.argv.iter().map(Into::into).collect(), env: spec.env.clone() };
    let Some(snapshot) = &spec.snapshot else { return as_requested() };
    let shell = || SessionShell::new(shared, session, sandbox.cloned());
    let restored = snapshot.restore(&session.snapshots, shell, &spec.argv, spec.arg0.as_deref(), &spec.env).await;
    let fits = |restored: &Execution| start_bytes(&restored.argv, &restored.env) <= shared.config.max_start_bytes;
    restored.filter(fits).unwrap_or_else(as_requested)
}

/// The largest number of bytes of output in one event. Four such chunks fit into the retained output of a process,
/// and one chunk in base64, with the rest of its notification, fits into a message.
fn largest_chunk(config: &Config, id: &ProcessId) -> usize {
    // A character of the id can take 6 bytes in JSON, as in `\u0000`.
    const LONGEST_ESCAPE: usize = 6;
    const OTHER_MEMBERS_BYTES: usize = 512;
    let around = OTHER_MEMBERS_BYTES + id.as_str().len() * LONGEST_ESCAPE;
    let in_message = config.max_message_bytes.saturating_sub(around) / 4 * 3;
    LogLimits::default().max_chunk_bytes.min(config.retain_bytes / 4).min(in_message).max(1)
}

/// Converts an error of a start. Errors of the operating system carry their cause in `data`. An empty
/// program name is an internal error; other mistakes in the params are invalid params.
fn spawn_error(id: &ProcessId, error: &SpawnError) -> WireError {
    let message = error.to_string();
    match error {
        SpawnError::Cancelled => start_cancelled(id),
        SpawnError::NulByte { .. } | SpawnError::EnvironmentName { .. } => WireError::invalid_params(message),
        SpawnError::MissingPipeProgram | SpawnError::MissingPtyProgram => WireError::internal(message),
        SpawnError::Limit(error) => limit_error(error),
        SpawnError::Cwd { source, path }
        | SpawnError::SandboxedCwd { source, path }
        | SpawnError::Program { source, path }
        | SpawnError::SandboxedProgram { source, path }
        | SpawnError::MemoryLimit { source, path } => {
            WireError::internal(message).with_data(ErrorData::from_io(source, Some(path)))
        }
        SpawnError::Resource { source, .. } => {
            WireError::internal(message).with_data(ErrorData::from_io(source, None))
        }
    }
}
