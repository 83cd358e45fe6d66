//! The commands, such as `run` and `cp`. They use the client library that other programs can embed. Each command has
//! a module of its name. [`args`] has the flags of all commands, [`destination`] connects to the server, and
//! [`foreground`] runs a process in the terminal.

pub(crate) mod args;
mod attach;
mod background_server;
mod capabilities;
mod completions;
mod destination;
mod doctor;
mod env;
mod environment_hint;
mod event_printer;
mod exit_code;
mod files;
mod flag_file;
mod foreground;
mod forward;
mod help_texts;
mod hidden_input;
mod json_events;
mod kept_session;
mod kill;
mod limit_args;
mod login;
mod logout;
mod logs;
mod man;
mod mcp_stdio;
mod output_queue;
mod port;
mod print;
mod process_start;
mod progress;
mod ps;
mod reattach_hint;
mod remote_path;
mod run;
mod sandbox;
mod sandbox_flags;
mod saved_sessions;
mod search;
mod shell;
mod signals;
mod table;
mod terminal;
mod typed_path;
mod watch;
mod whoami;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use args::Command;
pub(crate) use saved_sessions::state_directory;
use tokio::runtime::Builder;

use crate::log::ServerLog;
use crate::runtime::{start_runtime, start_server_runtime};

/// Longest time that the program waits at its end for threads that write files.
const LAST_WRITES_PATIENCE: Duration = Duration::from_secs(2);

/// Runs one command to its end and returns the exit code of the program.
pub(crate) fn run(command: Command) -> anyhow::Result<ExitCode> {
    // A forwarder serves many clients for a long time, so it gets the log and the threads of a server.
    let is_server = matches!(command, Command::Forward(_));
    if is_server {
        // The parent process may have blocked signals, and SIGTERM must end the forwarder.
        spawn::unblock_signals();
    }
    let _log = if is_server {
        Some(ServerLog::start("warn").context("cannot start the thread of the log")?)
    } else {
        // A command logs only if `RUST_LOG` is set.
        crate::log::start_unqueued("off");
        None
    };
    // Limits the freed memory that the allocator keeps for later use. The limits are so large that it keeps the
    // memory of output buffers. Otherwise the kernel would have to map and clear new memory for each buffer.
    spawn::limit_kept_freed_memory();
    // One thread suffices. Output passes through several tasks, and is faster if no task has to wake another thread.
    // Blocking work has threads of its own.
    let runtime =
        if is_server { start_server_runtime()? } else { start_runtime(&mut Builder::new_current_thread())? };
    let writes_files = matches!(command, Command::Cp(_));
    let result = runtime.block_on(dispatch(command));
    if writes_files {
        // If the copy was interrupted, a thread may still be writing a file. It removes the incomplete file at its
        // end.
        runtime.shutdown_timeout(LAST_WRITES_PATIENCE);
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
        Command::Ps(args) => exit_one_on_error(ps::ps(args).await),
        Command::Kill(args) => exit_one_on_error(kill::kill(args).await),
        Command::Logs(args) if args.follow => logs::logs(args).await,
        Command::Logs(args) => exit_one_on_error(logs::logs(args).await),
        Command::Attach(args) => attach::attach(args).await,
        Command::Env(args) => exit_one_on_error(env::env(args).await),
        Command::Login(args) => exit_one_on_error(login::login(args).await),
        Command::Logout(args) => exit_one_on_error(logout::logout(args).await),
        Command::Whoami(args) => exit_one_on_error(whoami::whoami(args).await),
        Command::Search(args) => Ok(search::search(args).await),
        Command::Watch(args) => exit_one_on_error(watch::watch(args).await),
        Command::Port(args) => exit_one_on_error(port::port(args).await),
        Command::Cp(args) => exit_one_on_error(files::cp::cp(args).await),
        Command::Ls(args) => exit_one_on_error(files::ls::ls(args).await),
        Command::Cat(args) => exit_one_on_error(files::cat::cat(args).await),
        Command::Rm(args) => exit_one_on_error(files::rm::rm(args).await),
        Command::Mkdir(args) => exit_one_on_error(files::mkdir::mkdir(args).await),
        Command::Sandbox(args) => exit_one_on_error(sandbox::sandbox(args.command).await),
        Command::Forward(args) => forward::forward(args).await,
        Command::Doctor(args) => exit_one_on_error(doctor::doctor(args).await),
        Command::McpStdio(args) => mcp_stdio::mcp_stdio(args).await,
        Command::Man(args) => exit_one_on_error(man::man(args).await),
        Command::Completions(args) => exit_one_on_error(completions::completions(args).await),
    }
}

/// Reports an error and makes it exit code 1. Commands that return the exit code of another program do not use this
/// function. Their own errors become [`OUR_FAILURE`], so that they can be told apart from failures of that program.
///
/// [`OUR_FAILURE`]: crate::OUR_FAILURE
fn exit_one_on_error(result: anyhow::Result<ExitCode>) -> anyhow::Result<ExitCode> {
    Ok(result.unwrap_or_else(|error| {
        crate::report_error(&error);
        ExitCode::FAILURE
    }))
}
