//! Runs the binary with its output on pipes. The binary sees neither the developer's configuration files nor the
//! environment variables by which a developer configures `exec-server`.

use std::process::{Output, Stdio};
use std::time::Duration;

use testkit::{binary, hide_configuration};
use tokio::process::{Child, Command};

/// Longer than any command of these tests takes on a loaded machine.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    hide_configuration(&mut command);
    command
}

/// Waits for the end of a command, and returns its output and exit code.
pub(crate) async fn wait_for_output(child: Child) -> Output {
    tokio::time::timeout(COMMAND_TIMEOUT, child.wait_with_output()).await.expect("the command does not end").unwrap()
}
