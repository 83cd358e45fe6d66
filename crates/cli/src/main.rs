//! The binary `exec-server`: reads the command line, and is a server or a client.
#![forbid(unsafe_code)]

mod args;
mod limits;
mod log;
mod remote;
mod sentence;
mod serve;
mod units;

use std::process::ExitCode;

use clap::Parser as _;

/// Our own failures, as opposed to those of a command that was run.
const OUR_FAILURE: u8 = 125;

fn main() -> ExitCode {
    if let Some(code) = exec_server::become_guard_if_asked() {
        return ExitCode::from(u8::from(code != 0));
    }
    let args = args::Args::parse();
    if args.help_limits {
        limits::print();
        return ExitCode::SUCCESS;
    }
    let result = match args.command {
        Some(command) => remote::run(command),
        None => serve::serve(args).map(|()| ExitCode::SUCCESS),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            complain(&error);
            ExitCode::from(OUR_FAILURE)
        }
    }
}

#[expect(clippy::print_stderr, reason = "errors are for the person at the terminal")]
pub(crate) fn complain(error: &anyhow::Error) {
    eprintln!("exec-server: {}", sentence::sentence(error));
}
