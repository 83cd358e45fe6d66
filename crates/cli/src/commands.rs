//! The client's side of the command line: commands for people, over the same client that programs embed.

pub(crate) mod args;
mod attach;
mod background_server;
mod capabilities;
mod completions;
mod destination;
mod env;
mod environment_hint;
mod event_printer;
mod exit_code;
mod files;
mod foreground;
mod help_texts;
mod json_events;
mod kept_session;
mod kill;
mod logs;
mod man;
mod mcp_stdio;
mod output_queue;
mod print;
mod process_start;
mod progress;
mod ps;
mod reattach_hint;
mod remote_path;
mod run;
mod saved_sessions;
mod search;
mod shell;
mod signals;
mod table;
mod terminal;
mod typed_path;
mod watch;

use std::process::ExitCode;
use std::time::Duration;

use args::Command;
use tokio::runtime::Builder;

use crate::runtime::start_runtime;

/// How long a disk may take for what was given to it last.
const LAST_WRITES: Duration = Duration::from_secs(2);

/// Runs one command to its end; the result is what the program exits with.
pub(crate) fn run(command: Command) -> anyhow::Result<ExitCode> {
    crate::log::start_unqueued("off");
    // One thread: what goes through here is handed from task to task for every piece of output, and what blocks has threads of its own.
    // Output comes in large buffers, which are not to be mapped and cleared anew each time.
    spawn::limit_freed_memory();
    let runtime = start_runtime(&mut Builder::new_current_thread())?;
    let writes_files = matches!(command, Command::Cp(_));
    let result = runtime.block_on(dispatch(command));
    if writes_files {
        // A thread may still have a file that is not whole, and takes it along when it is done.
        runtime.shutdown_timeout(LAST_WRITES);
    } else {
        // A thread may still be waiting for stdin; nothing of ours is.
        runtime.shutdown_background();
    }
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
        Command::Env(args) => fails_with_one(env::env(args).await),
        Command::Search(args) => Ok(search::search(args).await),
        Command::Watch(args) => fails_with_one(watch::watch(args).await),
        Command::Cp(args) => fails_with_one(files::cp::cp(args).await),
        Command::Ls(args) => fails_with_one(files::ls::ls(args).await),
        Command::Cat(args) => fails_with_one(files::cat::cat(args).await),
        Command::Rm(args) => fails_with_one(files::rm::rm(args).await),
        Command::Mkdir(args) => fails_with_one(files::mkdir::mkdir(args).await),
        Command::McpStdio(args) => mcp_stdio::mcp_stdio(args).await,
        Command::Man(args) => fails_with_one(man::man(args).await),
        Command::Completions(args) => fails_with_one(completions::completions(args).await),
    }
}

/// For commands whose exit code says nothing of another command, so that a failure of ours need not be told apart.
fn fails_with_one(result: anyhow::Result<ExitCode>) -> anyhow::Result<ExitCode> {
    Ok(result.unwrap_or_else(|error| {
        crate::report_error(&error);
        ExitCode::FAILURE
    }))
}
