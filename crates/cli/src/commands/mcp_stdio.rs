//! `mcp-stdio`: an MCP server that runs elsewhere, on our stdin and stdout. Its lines pass unchanged and without a gap through lost
//! connections, or we end with an error. Nothing of ours is ever written to stdout.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use client::{
    ExecProcess, ExecProcessEvent, ExecServerClient, ExitStatus, ProcessEvents, ProcessStdin, Signal, Stream,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::args::McpStdioArgs;
use super::capabilities::environment_info;

use super::destination::{Destination, leave};
use super::exit_code;
use super::foreground::{END_PATIENCE, Goodbye};
use super::process_start::{StartContext, StartFlags};
use super::run::{Started, start};
use super::signals::Signals;

/// The only process of its session.
const PROCESS_ID: &str = "mcp-stdio-1";

/// How long it may take to exit once its stdin has ended.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long it may take to exit once it was interrupted, where its stdin cannot be ended.
const INTERRUPT_PATIENCE: Duration = Duration::from_secs(2);

/// Runs it to its end, or to ours.
pub(crate) async fn mcp_stdio(args: McpStdioArgs) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::listen()?;
    let destination = Destination::choose(&args.target)?;
    let here = StartContext::new(&destination.way, false);
    let client = tokio::select! {
        client = destination.connect() => client?,
        fatal = signals.next_fatal() => return Ok(ExitCode::from(fatal.exit_code())),
    };
    let code = run(&client, &here, &args, &mut signals).await;
    // The handle is gone, so what still runs is ended before the connection is.
    leave(client, Goodbye::InOrder).await;
    code
}

async fn run(
    client: &ExecServerClient,
    here: &StartContext,
    args: &McpStdioArgs,
    signals: &mut Signals,
) -> anyhow::Result<ExitCode> {
    let flags = StartFlags { cwd: args.cwd.as_deref(), env: &args.env, tty: false };
    let info = match signals.or_fatal(environment_info(client)).await {
        Ok(info) => info?,
        Err(fatal) => return Ok(ExitCode::from(fatal.exit_code())),
    };
    let params = here.start(&info, PROCESS_ID.into(), &args.command, flags)?;
    let process = match start(client, params, signals).await? {
        Started::Process(process) => process,
        Started::Nothing(code) => return Ok(code),
    };
    tokio::select! {
        status = bridge(&process, info.capabilities.process_close_stdin) => Ok(exit_code::of_command(status?)),
        fatal = signals.next_fatal() => Ok(ExitCode::from(fatal.exit_code())),
    }
}

/// `can_end_stdin`: it can be told that nobody will ask it anything more.
async fn bridge(process: &ExecProcess, can_end_stdin: bool) -> anyhow::Result<ExitStatus> {
    let (input, output) = (forward_input(process.stdin(), can_end_stdin), forward_output(process.events()));
    tokio::pin!(input, output);
    tokio::select! {
        status = &mut output => return status,
        ended = &mut input => ended?,
    }
    if let Ok(status) = tokio::time::timeout(PATIENCE, &mut output).await {
        return status;
    }
    if can_end_stdin {
        return ended(process, &mut output).await;
    }
    // It could not know that it was to exit, so a signal that ends it now is our doing.
    let interrupting = tokio::time::timeout(INTERRUPT_PATIENCE, process.signal(Signal::Interrupt)).await;
    interrupting.unwrap_or(Ok(()))?;
    let status = match tokio::time::timeout(INTERRUPT_PATIENCE, &mut output).await {
        Ok(status) => status?,
        Err(_) => ended(process, &mut output).await?,
    };
    let code = if is_by_signal(status.code) { 0 } else { status.code };
    Ok(ExitStatus { code, ..status })
}

/// Whether it did not exit by itself. Some servers know no better number for a signal than -1.
fn is_by_signal(code: i32) -> bool {
    !(0..=128).contains(&code)
}

/// Ends it. A server that does not do so in time is not waited for.
async fn ended(
    process: &ExecProcess,
    output: &mut (impl Future<Output = anyhow::Result<ExitStatus>> + Unpin),
) -> anyhow::Result<ExitStatus> {
    let ending = async {
        process.terminate().await?;
        output.await
    };
    tokio::time::timeout(END_PATIENCE, ending).await.unwrap_or_else(|_| {
        anyhow::bail!("the server did not end the MCP server within {END_PATIENCE:?}; it may still be running")
    })
}

/// Passes our stdin on until it ends, and then ends theirs if that can be done.
async fn forward_input(mut theirs: ProcessStdin, can_end_stdin: bool) -> anyhow::Result<()> {
    let mut ours = tokio::io::stdin();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = ours.read(&mut buffer).await.context("cannot read stdin")?;
        let passed = match count {
            0 if can_end_stdin => theirs.shutdown().await,
            0 => Ok(()),
            count => pass(&mut theirs, &buffer[..count]).await,
        };
        match passed {
            // It wants no more. What that means is for it to say, by what it writes or how it exits.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            passed => passed.context("cannot write to the MCP server")?,
        }
        if count == 0 {
            return Ok(());
        }
    }
}

async fn pass(theirs: &mut ProcessStdin, bytes: &[u8]) -> io::Result<()> {
    theirs.write_all(bytes).await?;
    theirs.flush().await
}

/// Passes on what it writes until it exits: what it has written before comes before.
async fn forward_output(mut events: ProcessEvents) -> anyhow::Result<ExitStatus> {
    let (mut stdout, mut stderr) = (tokio::io::stdout(), tokio::io::stderr());
    while let Some(event) = events.next().await {
        match event {
            ExecProcessEvent::Output(output) if output.stream == Stream::Stderr => {
                stderr.write_all(&output.chunk).await.context("cannot write to stderr")?;
                stderr.flush().await.context("cannot write to stderr")?;
            }
            ExecProcessEvent::Output(output) => {
                stdout.write_all(&output.chunk).await.context("cannot write to stdout")?;
                stdout.flush().await.context("cannot write to stdout")?;
            }
            ExecProcessEvent::Exited { exit_code: code, sandbox_denied, timed_out, .. } => {
                let sandbox_denied = sandbox_denied.unwrap_or(false);
                return Ok(ExitStatus { code, sandbox_denied, timed_out });
            }
            ExecProcessEvent::Closed { .. } => break,
            ExecProcessEvent::Failed(text) => anyhow::bail!("the MCP server is lost: {text}"),
        }
    }
    anyhow::bail!("the MCP server ended and did not say how")
}
