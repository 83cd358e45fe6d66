//! The commands, which use the same client that programs embed. Each has a module of its name; [`args`] has their flags, [`destination`]
//! connects them, and [`foreground`] runs a process in the terminal.

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

/// How long the program waits at its end for threads that write files.
const LAST_WRITES: Duration = Duration::from_secs(2);

/// Runs one command to its end and returns the exit code of the program.
pub(crate) fn run(command: Command) -> anyhow::Result<ExitCode> {
    crate::log::start_unqueued("off");
    // Output comes in large buffers. Memory that was freed is kept, so that the kernel does not have to map and clear it for each of them.
    spawn::limit_freed_memory();
    // One thread suffices, and spares the tasks through which output passes the switch between threads. Blocking work has other threads.
    let runtime = start_runtime(&mut Builder::new_current_thread())?;
    let writes_files = matches!(command, Command::Cp(_));
    let result = runtime.block_on(dispatch(command));
    if writes_files {
        // A thread may still be writing a file. It removes the incomplete file when it is done.
        runtime.shutdown_timeout(LAST_WRITES);
    } else {
        // A thread of tokio may still wait for stdin, which could take for ever.
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

/// Makes every failure exit code 1. For commands that do not return the exit code of another program, from which [`OUR_FAILURE`] would have
/// to be told apart.
///
/// [`OUR_FAILURE`]: crate::OUR_FAILURE
fn fails_with_one(result: anyhow::Result<ExitCode>) -> anyhow::Result<ExitCode> {
    Ok(result.unwrap_or_else(|error| {
        crate::report_error(&error);
        ExitCode::FAILURE
    }))
}
