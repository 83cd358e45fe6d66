//! The binary `exec-server`. If the command line names a command, such as `run` or `man`, the program runs it
//! ([`commands`]); most commands are clients of a server. Without a command the program is a server ([`serve`]).
#![forbid(unsafe_code)]

mod args;
mod colours;
mod commands;
mod limit_flags;
mod log;
mod man_pages;
mod remote_args;
mod runtime;
mod serve;
mod terminal_text;
mod units;

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;

/// Exit code if a server fails, or a command that otherwise returns the exit code of another program, such as `run`.
/// docker uses the same code, and few other programs do. A failure of most other commands has the exit code 1.
const OUR_FAILURE: u8 = 125;

fn main() -> ExitCode {
    // A server starts this program again as its guard and as launcher of sandboxes. The guard kills the processes that
    // the server has started if the server dies. Both are done when this returns.
    if let Some(code) = exec_server::become_guard_if_asked() {
        return ExitCode::from(u8::from(code != 0));
    }
    let args = args::Args::of_this_process();
    let result = match args.command {
        _ if args.help_limits => {
            limit_flags::print().map(|()| ExitCode::SUCCESS).context("cannot write the list of limits")
        }
        Some(command) => commands::run(command),
        None => serve::serve(args).map(|()| ExitCode::SUCCESS),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            report_error(&error);
            ExitCode::from(OUR_FAILURE)
        }
    }
}

/// Prints an error and its causes as one line on stderr.
pub(crate) fn report_error(error: &anyhow::Error) {
    write_to_stderr(&format!("exec-server: {}\n", terminal_text::error_line(error)));
}

/// Writes to stderr. An error is ignored: there is no other place to report it, and the exit code must not change.
/// `eprintln!` would panic instead.
pub(crate) fn write_to_stderr(text: &str) {
    let _unreportable_error = io::stderr().write_all(text.as_bytes());
}
