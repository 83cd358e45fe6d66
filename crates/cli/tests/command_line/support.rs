//! The binary on pipes, in surroundings in which nothing is configured.

use std::process::{Output, Stdio};
use std::time::Duration;

use testkit::{binary, without_configuration};
use tokio::process::{Child, Command};

/// Longer than anything here takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    without_configuration(&mut command);
    command
}

/// Waits for the end of a command.
pub(crate) async fn finished(child: Child) -> Output {
    tokio::time::timeout(PATIENCE, child.wait_with_output()).await.expect("it does not end").unwrap()
}
