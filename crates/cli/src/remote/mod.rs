//! The client's side of the command line: commands for people, over the same client that programs embed.

pub(crate) mod args;
mod attach;
mod escape;
mod json;
mod local_server;
mod named;
mod notice;
mod output;
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
        Command::Ps(_) => anyhow::bail!("ps: to come"),
        Command::Kill(_) => anyhow::bail!("kill: to come"),
        Command::Logs(_) => anyhow::bail!("logs: to come"),
        Command::Attach(args) => attach::attach(args).await,
        Command::McpStdio(_) => anyhow::bail!("mcp-stdio: to come"),
        Command::Completions(_) => anyhow::bail!("completions: to come"),
    }
}
