//! `completions`: prints a script that lets a shell complete our command line. `clap_complete` makes the script from
//! the definition of the command line.

use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::args::CompletionsArgs;
use super::print::print;
use crate::args::Args;

pub(crate) async fn completions(args: CompletionsArgs) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "exec-server", &mut script);
    let mut script = String::from_utf8(script)?;
    if args.shell == Shell::Bash {
        // `clap_complete` writes the hyphen in our name as `__` where the script chooses a subcommand, but as
        // `__subcmd__` where it lists the flags of that subcommand. Then bash would not find the flags.
        script = script.replace("exec__subcmd__server", "exec__server");
    }
    print(&script).await?;
    Ok(ExitCode::SUCCESS)
}
