//! The client's side of the command line: commands for people, over the same client that programs embed.

pub(crate) mod args;
mod attach;
mod completions;
mod escape;
mod event_printer;
mod json;
mod kill;
mod local_server;
mod logs;
mod mcp_stdio;
mod named;
mod notice;
mod output;
mod print;
mod ps;
mod reach;
mod relay;
mod run;
mod screen;
mod shell;
mod signals;
mod start;
mod status;
mod stdin;
mod terminal;

use std::process::ExitCode;

use args::Command;

/// Runs one command to its end; the result is what the program exits with.
pub(crate) fn run(command: Command) -> anyhow::Result<ExitCode> {
    crate::serve::start_log("off");
    // One thread: what goes through here is handed from task to task for every piece of output, and what blocks has threads of its own.
    // Output comes in large buffers, which are not to be mapped and cleared anew each time.
    spawn::give_freed_memory_back();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(dispatch(command));
    // A thread may still be waiting for stdin; nothing of ours is.
    runtime.shutdown_background();
    result
}

async fn dispatch(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Run(args) => run::run(args).await,
        Command::Shell(args) => shell::shell(args).await,
        Command::Ps(args) => fails_with_one(ps::ps(args).await),
        Command::Kill(args) => fails_with_one(kill::kill(args).await),
        Command::Logs(args) if args.follow => logs::logs(args).await,
        Command::Logs(args) => fails_with_one(logs::logs(args).await),
        Command::Attach(args) => attach::attach(args).await,
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
