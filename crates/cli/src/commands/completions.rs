//! `completions`: what a shell needs to complete our command line, made from the command line itself.

use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::args::CompletionsArgs;
use super::print::print;
use crate::args::Args;

/// Prints them.
pub(crate) async fn completions(args: CompletionsArgs) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "exec-server", &mut script);
    let mut script = String::from_utf8(script)?;
    if args.shell == Shell::Bash {
        // The generator takes the hyphen in our name for a subcommand in one place and not in the other.
        script = script.replace("exec__subcmd__server", "exec__server");
    }
    print(&script).await?;
    Ok(ExitCode::SUCCESS)
}
