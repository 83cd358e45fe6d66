//! The binary `exec-server`: reads the command line, and is a server or a client.
#![forbid(unsafe_code)]

mod args;
mod colours;
mod commands;
mod limit_flags;
mod log;
mod man_pages;
mod runtime;
mod serve;
mod terminal_text;
mod units;

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;
/// Our own failures, as opposed to those of a command that was run.
const OUR_FAILURE: u8 = 125;

fn main() -> ExitCode {
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

pub(crate) fn report_error(error: &anyhow::Error) {
    write_to_stderr(&format!("exec-server: {}\n", terminal_text::error_line(error)));
}

/// Writes to stderr. If that fails there is nowhere to say so; the exit code stays what it is. `eprintln!` would panic instead.
pub(crate) fn write_to_stderr(text: &str) {
    let _nobody_listens = io::stderr().write_all(text.as_bytes());
}
