//! `sandbox`: answers questions about policies. `sandbox explain` says what a policy allows for a path, and which
//! entry decides.

mod explain;

use std::process::ExitCode;

use super::args::SandboxCommand;

pub(crate) async fn sandbox(command: SandboxCommand) -> anyhow::Result<ExitCode> {
    match command {
        SandboxCommand::Explain(args) => explain::explain(&args).await,
    }
}
