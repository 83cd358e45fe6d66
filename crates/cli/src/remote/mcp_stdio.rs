//! `mcp-stdio`: an MCP server that runs elsewhere, on our stdin and stdout. Its lines pass unchanged and without a gap through lost
//! connections, or we end with an error. Nothing of ours is ever written to stdout.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use client::{ExecProcess, ExecProcessEvent, ExecServerClient, ProcessEvents, ProcessStdin, StartParams, Stream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::args::McpStdioArgs;
use super::exit_code;
use super::reach::Destination;
use super::start_params::start_params;

/// The only process of its session.
const PROCESS_ID: &str = "mcp-stdio-1";

/// How long it may take to exit once its stdin has ended.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs it to its end, or to ours.
pub(crate) async fn mcp_stdio(args: McpStdioArgs) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::new()?;
    let client = tokio::select! {
        client = connect(&args) => client?,
        code = signals.next() => return Ok(exit_code(code)),
    };
    let bridged = tokio::select! {
        bridged = run(&client, &args) => bridged,
        code = signals.next() => Ok(code),
    };
    // The handle is gone, so what still runs is ended before the connection is.
    client.close().await;
    Ok(exit_code(bridged?))
}

async fn connect(args: &McpStdioArgs) -> anyhow::Result<ExecServerClient> {
    Destination::choose(&args.r#where)?.connect().await
}

async fn run(client: &ExecServerClient, args: &McpStdioArgs) -> anyhow::Result<i32> {
    let params = start_params(client, PROCESS_ID, &args.command, args.cwd.as_deref(), &args.env).await?;
    let process = client.start(StartParams { pipe_stdin: true, ..params }).await;
    let process = process.with_context(|| format!("cannot start `{}`", args.command.join(" ")))?;
    bridge(&process).await
}

async fn bridge(process: &ExecProcess) -> anyhow::Result<i32> {
    let (input, output) = (forward_input(process.stdin()), forward_output(process.events()));
    tokio::pin!(input, output);
    tokio::select! {
        code = &mut output => return code,
        ended = &mut input => ended?,
    }
    if let Ok(code) = tokio::time::timeout(PATIENCE, &mut output).await {
        return code;
    }
    process.terminate().await?;
    output.await
}

/// Passes our stdin on until it ends, and then ends theirs.
async fn forward_input(mut theirs: ProcessStdin) -> anyhow::Result<()> {
    let mut ours = tokio::io::stdin();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = ours.read(&mut buffer).await.context("cannot read stdin")?;
        let passed = if count == 0 { theirs.shutdown().await } else { pass(&mut theirs, &buffer[..count]).await };
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
async fn forward_output(mut events: ProcessEvents) -> anyhow::Result<i32> {
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
            ExecProcessEvent::Exited { exit_code, .. } => return Ok(exit_code),
            ExecProcessEvent::Closed { .. } => break,
            ExecProcessEvent::Failed(text) => anyhow::bail!("the MCP server is lost: {text}"),
        }
    }
    anyhow::bail!("the MCP server ended and did not say how")
}

/// Requests to end.
struct Signals {
    hangup: Signal,
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for one; returns what to exit with.
    async fn next(&mut self) -> i32 {
        tokio::select! {
            _ = self.hangup.recv() => 129,
            _ = self.interrupt.recv() => 130,
            _ = self.terminate.recv() => 143,
        }
    }
}
