//! `run`: runs a command in an environment, which is a machine with a server, as if it ran on this machine. With `-d`
//! it starts the command in a kept session, which outlives `run`, and leaves it there.

use std::io::{self, Write as _};
use std::process::ExitCode;

use client::{
    ExecProcess, ExecServerClient, ExecServerError, ProcessId, ProcessLimits, SandboxContext, SandboxType,
    StartParams,
};

use super::args::RunArgs;
use super::capabilities::environment_info;
use super::foreground::{BROKEN_PIPE, EndOfInput, Foreground, Goodbye, input_plan};

use super::destination::{Destination, leave};
use super::exit_code;
use super::kept_session::{SessionCreation, SessionUse};
use super::process_start::{StartContext, StartFlags, unused_id};
use super::reattach_hint::{ReattachHint, run_in_foreground};
use super::signals::Signals;

/// The kept session of `run -d` without `--session`.
const DEFAULT_SESSION: &str = "default";
/// The id of a process that is alone in its session.
const ONLY_PROCESS: &str = "1";

/// Runs a command to its end, or starts it and leaves.
pub(crate) async fn run(args: RunArgs) -> anyhow::Result<ExitCode> {
    args.id.as_deref().map_or(Ok(()), check_id)?;
    let destination = Destination::choose(&args.target)?;
    let session = args.session.clone().or_else(|| args.detach.then(|| DEFAULT_SESSION.to_owned()));
    for (is_given, flag) in [(args.id.is_some(), "--id"), (args.keep.is_some(), "--keep")] {
        anyhow::ensure!(
            !is_given || session.is_some(),
            "{flag} is about a kept session; give --session or --detach too"
        );
    }
    let context = StartContext::new(&destination.location, session.is_some());
    let client = match &session {
        Some(name) => {
            let session_use = if args.detach { SessionUse::Observe } else { SessionUse::Run };
            let creation = SessionCreation::IfMissing { keep: args.keep.map(|time| time.0) };
            destination.connect_to_session(name, creation, session_use).await?
        }
        None => destination.connect().await?,
    };
    let ended = run_with(&client, &context, &args, session.as_deref()).await;
    leave(client, ended.as_ref().map_or(Goodbye::InOrder, |(_, goodbye)| *goodbye)).await;
    ended.map(|(code, _)| code)
}

async fn run_with(
    client: &ExecServerClient,
    context: &StartContext,
    args: &RunArgs,
    session: Option<&str>,
) -> anyhow::Result<(ExitCode, Goodbye)> {
    let is_kept = session.is_some();
    let info = environment_info(client).await?;
    let server = &info.capabilities;
    // With `-d` no input is passed on. The stdin of the command stays open for a later `attach`.
    let end_of_input = if args.detach { EndOfInput::Passed } else { input_plan::plan(server, args.tty).await? };
    anyhow::ensure!(
        server.process_timeout || args.timeout.is_none() || !is_kept,
        "this server cannot end a command when its time is over, and a kept session outlives `run`; leave out \
         --timeout or --session"
    );
    let limits = args.limits.limits(server)?;
    let id = choose_id(client, args.id.as_deref(), is_kept).await?;
    let flags = StartFlags { cwd: args.cwd.as_deref(), env: &args.env, tty: args.tty, sandbox: &args.sandbox };
    let mut params = context.start_params(&info, id, &args.command, flags)?;
    params.pipe_stdin &= end_of_input != EndOfInput::EndedBeforeStart;
    params.timeout_ms = args.timeout.map(|time| u64::try_from(time.0.as_millis()).unwrap_or(u64::MAX));
    // Without any limit in them, they ask only for the usage that `--json` shows.
    params.limits = limits.or_else(|| (args.json && server.process_limits).then(ProcessLimits::default));
    // This command leaves at once, so the server must not push output that a later command will read.
    params.paused = args.detach;
    let may_be_renamed = is_kept && args.id.is_none();
    // From here on, a signal must not leave a process behind.
    let mut signals = Signals::listen()?;
    let starting = start_under_free_id(client, params, may_be_renamed);
    let process = match unless_signalled(&mut signals, starting).await? {
        Started::Process(process) => process,
        Started::Nothing(code) => return Ok((code, Goodbye::InOrder)),
    };
    if is_kept {
        process.detach();
    }
    if args.detach {
        return Ok((print_id(process.process_id())?, Goodbye::InOrder));
    }
    let foreground = Foreground {
        client,
        process: &process,
        server,
        timeout: args.timeout.map(|time| time.0),
        tty: args.tty,
        json: args.json,
        is_kept,
        end_of_input,
        redraw: false,
    };
    let reattach_hint =
        session.map(|session| ReattachHint { target: &args.target, session, id: process.process_id() });
    run_in_foreground(foreground, &mut signals, reattach_hint.as_ref()).await
}

/// Checks that a person can type this id later, for `logs` or `kill`. The server itself accepts any text.
fn check_id(id: &str) -> anyhow::Result<()> {
    anyhow::ensure!(!id.is_empty(), "an id of no characters names nothing; leave --id out to get a number");
    anyhow::ensure!(!id.chars().any(char::is_control), "`{id}` is no id: it has characters that cannot be seen");
    Ok(())
}

/// The id that `--id` gives, or one that is free. A process that is not for a kept session is alone in its session.
pub(crate) async fn choose_id(
    client: &ExecServerClient,
    given: Option<&str>,
    is_kept: bool,
) -> anyhow::Result<ProcessId> {
    Ok(match given {
        Some(id) => ProcessId::from(id),
        None if is_kept => unused_id(client).await?,
        None => ProcessId::from(ONLY_PROCESS),
    })
}

/// Whether a start was refused, most likely because another process has the id.
async fn is_id_taken(client: &ExecServerClient, id: &ProcessId, error: &anyhow::Error) -> bool {
    let is_refused = matches!(error.downcast_ref(), Some(ExecServerError::Server { .. }));
    is_refused
        && client.processes().await.is_ok_and(|processes| processes.iter().any(|process| process.process_id == *id))
}

/// The result of a start.
pub(crate) enum Started {
    /// The process runs.
    Process(ExecProcess),
    /// No process runs, and this is our exit code. The user has been told why, unless a signal has ended the start.
    Nothing(ExitCode),
}

/// Starts a process. A fatal signal that comes before the answer ends the attempt.
pub(crate) async fn start(
    client: &ExecServerClient,
    params: StartParams,
    signals: &mut Signals,
) -> anyhow::Result<Started> {
    unless_signalled(signals, try_start(client, params)).await
}

/// Waits for a start, or for a fatal signal if that comes first.
async fn unless_signalled(
    signals: &mut Signals,
    starting: impl Future<Output = anyhow::Result<Started>>,
) -> anyhow::Result<Started> {
    match signals.or_fatal(starting).await {
        Ok(started) => started,
        Err(fatal) => Ok(Started::Nothing(ExitCode::from(fatal.exit_code()))),
    }
}

/// Starts a process. With `may_be_renamed`, the process gets another id if another command has taken its id
/// meanwhile.
async fn start_under_free_id(
    client: &ExecServerClient,
    mut params: StartParams,
    may_be_renamed: bool,
) -> anyhow::Result<Started> {
    loop {
        match try_start(client, params.clone()).await {
            Err(error) if may_be_renamed && is_id_taken(client, &params.process_id, &error).await => {
                params.process_id = unused_id(client).await?;
            }
            started => return started,
        }
    }
}

/// Starts a process. If the start fails because of the command itself, for example because it was not found, this
/// prints the reason.
async fn try_start(client: &ExecServerClient, params: StartParams) -> anyhow::Result<Started> {
    match client.start(params.clone()).await {
        Ok(process) => {
            ensure_sandboxed(&params, &process)?;
            Ok(Started::Process(process))
        }
        Err(error @ ExecServerError::Disconnected(_)) => Err(anyhow::Error::new(error).context(
            "the connection was lost before the server had said whether the command began; it is ended if the server can be reached",
        )),
        Err(error @ ExecServerError::Json(_)) => Err(anyhow::Error::new(error).context(
            "the server has not said in a known form whether and in which sandbox the command began, so the command is ended",
        )),
        Err(error) => {
            let (code, reason) = exit_code::of_refused_start(client, error, &params).await?;
            crate::report_error(&reason);
            Ok(Started::Nothing(code))
        }
    }
}

/// Fails if the server has started the process without the sandbox that it was asked for. The caller drops the handle of
/// the process, which ends it.
fn ensure_sandboxed(params: &StartParams, process: &ExecProcess) -> anyhow::Result<()> {
    let Some(sandbox) = &params.sandbox else { return Ok(()) };
    let sandbox: SandboxContext = serde_json::from_str(sandbox.get())?;
    let is_sandboxed = process.sandbox_type().is_some_and(|kind| kind != SandboxType::None);
    anyhow::ensure!(
        is_sandboxed || sandbox.needs_no_enforcement(),
        "the server has started the command without the sandbox, so the command is ended; use a server that enforces \
         sandboxes, or leave out --sandbox"
    );
    Ok(())
}

/// Prints the id of a command that was left running. If that fails, the error names the id, without which the user
/// could not find the command.
fn print_id(id: &ProcessId) -> anyhow::Result<ExitCode> {
    let mut stdout = io::stdout();
    match writeln!(stdout, "{id}").and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::from(BROKEN_PIPE)),
        Err(error) => {
            Err(anyhow::Error::new(error)
                .context(format!("the command runs as `{id}`, but its id cannot be written")))
        }
        Ok(()) => Ok(ExitCode::SUCCESS),
    }
}
