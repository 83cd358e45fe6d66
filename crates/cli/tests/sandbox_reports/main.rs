//! Whether the program says the truth about sandboxes: why a process ended, and what a machine can enforce.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

mod ended_processes;
mod poor_machines;

use std::process::{Output, Stdio};
use std::time::Duration;

use testkit::hide_configuration;
use tokio::process::Command;

/// Time limit for one command. Even on a loaded machine a command takes less.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs a command line to its end. Returns stdout, stderr and exit code.
async fn run(words: &[&str]) -> (String, String, Option<i32>) {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).kill_on_drop(true);
    hide_configuration(&mut command);
    let ended = tokio::time::timeout(COMMAND_TIMEOUT, command.output()).await;
    let Output { stdout, stderr, status } = ended.expect("the command does not end").unwrap();
    (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap(), status.code())
}
