//! The client's side of the command line: commands for people, over the same client that programs embed.

pub(crate) mod args;
mod completions;
mod event_printer;
mod kill;
mod local_server;
mod logs;
mod mcp_stdio;
mod named;
mod print;
mod ps;
mod reach;
mod start_params;

use std::process::ExitCode;

use args::Command;

/// Runs one command to its end; the result is what the program exits with.
pub(crate) fn run(command: Command) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let result = runtime.block_on(dispatch(command));
    // A thread may still be waiting for stdin; nothing of ours is.
    runtime.shutdown_background();
    result
}

async fn dispatch(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Run(_) => anyhow::bail!("run: to come"),
        Command::Shell(_) => anyhow::bail!("shell: to come"),
        Command::Ps(args) => fails_with_one(ps::ps(args).await),
        Command::Kill(args) => fails_with_one(kill::kill(args).await),
        Command::Logs(args) if args.follow => logs::logs(args).await,
        Command::Logs(args) => fails_with_one(logs::logs(args).await),
        Command::Attach(_) => anyhow::bail!("attach: to come"),
        Command::McpStdio(args) => mcp_stdio::mcp_stdio(args).await,
        Command::Completions(args) => fails_with_one(completions::completions(args).await),
    }
}

/// For commands whose exit code says nothing of another command, so that a failure of ours need not be told apart.
fn fails_with_one(result: anyhow::Result<ExitCode>) -> anyhow::Result<ExitCode> {
    Ok(result.unwrap_or_else(|error| {
        crate::complain(&error);
        ExitCode::FAILURE
    }))
}

/// The exit code of a process there as ours.
fn exit_code(code: i32) -> ExitCode {
    // Codes beyond a byte come from servers on other systems; they must not look like success.
    ExitCode::from(u8::try_from(code).unwrap_or(crate::OUR_FAILURE))
}
