//! `mcp-stdio`: runs an MCP server in an environment, which is a machine with an exec-server, and passes its stdin,
//! stdout and stderr through. The lines arrive unchanged and without a gap even if connections are lost; if lines
//! would be missing, this command fails. It writes nothing of its own to stdout.

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

/// The id of the MCP server, which is the only process of its session.
const PROCESS_ID: &str = "mcp-stdio-1";

/// How long the MCP server may take to exit after our stdin has ended.
const EXIT_PATIENCE: Duration = Duration::from_secs(5);

/// How long the MCP server may take to exit after an interrupt. It gets the interrupt after [`EXIT_PATIENCE`] if the
/// exec-server cannot close its stdin.
const INTERRUPT_PATIENCE: Duration = Duration::from_secs(2);

/// Runs the MCP server until it exits, our stdin ends or a signal ends us.
pub(crate) async fn mcp_stdio(args: McpStdioArgs) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::listen()?;
    let destination = Destination::choose(&args.target)?;
    let context = StartContext::new(&destination.location, false);
    let client = tokio::select! {
        client = destination.connect() => client?,
        fatal = signals.next_fatal() => return Ok(ExitCode::from(fatal.exit_code())),
    };
    let code = run(&client, &context, &args, &mut signals).await;
    // `run` has dropped the handle of the process, so an MCP server that still runs is ended before the connection is
    // closed.
    leave(client, Goodbye::InOrder).await;
    code
}

async fn run(
    client: &ExecServerClient,
    context: &StartContext,
    args: &McpStdioArgs,
    signals: &mut Signals,
) -> anyhow::Result<ExitCode> {
    let flags = StartFlags { cwd: args.cwd.as_deref(), env: &args.env, tty: false, sandbox: &args.sandbox };
    let info = match signals.or_fatal(environment_info(client)).await {
        Ok(info) => info?,
        Err(fatal) => return Ok(ExitCode::from(fatal.exit_code())),
    };
    let params = context.start_params(&info, PROCESS_ID.into(), &args.command, flags)?;
    let process = match start(client, params, signals).await? {
        Started::Process(process) => process,
        Started::Nothing(code) => return Ok(code),
    };
    tokio::select! {
        status = bridge(&process, info.capabilities.process_close_stdin) => Ok(exit_code::of_command(&status?)),
        fatal = signals.next_fatal() => Ok(ExitCode::from(fatal.exit_code())),
    }
}

/// Passes input and output until the MCP server exits. After the end of our stdin the MCP server has to exit soon;
/// otherwise it is ended. `can_end_stdin`: the exec-server can close the stdin of a process.
async fn bridge(process: &ExecProcess, can_end_stdin: bool) -> anyhow::Result<ExitStatus> {
    let (input, output) = (forward_input(process.stdin(), can_end_stdin), forward_output(process.events()));
    tokio::pin!(input, output);
    tokio::select! {
        status = &mut output => return status,
        ended = &mut input => ended?,
    }
    if let Ok(status) = tokio::time::timeout(EXIT_PATIENCE, &mut output).await {
        return status;
    }
    if can_end_stdin {
        return end(process, &mut output).await;
    }
    // The MCP server could not know that it should exit. If the interrupt or `end` kills it, that is a success.
    let interrupting = tokio::time::timeout(INTERRUPT_PATIENCE, process.signal(Signal::Interrupt)).await;
    interrupting.unwrap_or(Ok(()))?;
    let status = match tokio::time::timeout(INTERRUPT_PATIENCE, &mut output).await {
        Ok(status) => status?,
        Err(_) => end(process, &mut output).await?,
    };
    let code = if is_killed_by_signal(status.code) { 0 } else { status.code };
    Ok(ExitStatus { code, ..status })
}

/// Whether this exit code means that a signal has ended the process: 128 plus the number of the signal. Some
/// exec-servers report -1 for every signal.
fn is_killed_by_signal(code: i32) -> bool {
    !(0..=128).contains(&code)
}

/// Ends the MCP server. It is an error if that takes longer than [`END_PATIENCE`].
async fn end(
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

/// Passes our stdin to the MCP server until our stdin ends. Then it closes the stdin of the MCP server, if that is
/// possible.
async fn forward_input(mut remote: ProcessStdin, can_end_stdin: bool) -> anyhow::Result<()> {
    let mut stdin = tokio::io::stdin();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = stdin.read(&mut buffer).await.context("cannot read stdin")?;
        let passed = match count {
            0 if can_end_stdin => remote.shutdown().await,
            0 => Ok(()),
            count => pass(&mut remote, &buffer[..count]).await,
        };
        match passed {
            // The MCP server has closed its stdin, so this input is dropped. Its output and its exit code say why.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            passed => passed.context("cannot write to the MCP server")?,
        }
        if count == 0 {
            return Ok(());
        }
    }
}

async fn pass(remote: &mut ProcessStdin, bytes: &[u8]) -> io::Result<()> {
    remote.write_all(bytes).await?;
    remote.flush().await
}

/// Passes the output of the MCP server on until the MCP server exits. All output from before the exit is passed on.
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
            ExecProcessEvent::Exited { .. } => {
                if let Some(status) = event.exit_status() {
                    return Ok(status);
                }
            }
            ExecProcessEvent::Closed { .. } => break,
            ExecProcessEvent::Failed(text) => anyhow::bail!("the MCP server is lost: {text}"),
        }
    }
    anyhow::bail!("the server did not say how the MCP server ended")
}
