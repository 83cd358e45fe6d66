//! `exec-server forward`: this program is the executor of an environment, and another server does the work.

use std::process::ExitCode;

use anyhow::Context as _;
use exec_server::{ForwardDestination, forward_remote_environment};

use super::args::ForwardArgs;
use super::destination::connect_options;
use super::flag_file::FlagFile;

/// Forwards until a signal ends it.
pub(crate) async fn forward(args: ForwardArgs) -> anyhow::Result<ExitCode> {
    let setting = |file: &Option<FlagFile>| file.as_ref().map(|file| file.setting.clone());
    let (token_setting, ca_setting) = (setting(&args.client_token_file), setting(&args.ca_file));
    let token = args.client_token_file.as_ref().map(|file| (file.path.as_path(), &token_setting));
    let certificates = args.ca_file.as_ref().map(|file| (file.path.as_path(), &ca_setting));
    let destination = ForwardDestination { url: args.connect, options: connect_options(token, certificates)? };
    let environment = args.remote.environment()?.context("forward needs --remote and --environment-id")?;
    forward_remote_environment(environment, destination).await?;
    Ok(ExitCode::SUCCESS)
}
