//! Starts the binary `exec-server` so that a configuration of the developer has no effect, and waits for its output.

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use testkit::{binary, eventually, hide_configuration};
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};

/// Time limit for one command. Even on a loaded machine a command takes less.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// The binary with pipes as stdout and stderr and an empty stdin.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    hide_configuration(&mut command);
    command
}

/// Runs the binary to its end.
pub(crate) async fn output(args: &[&str]) -> Output {
    wait_for_output(command(args).spawn().unwrap()).await
}

/// Runs the binary to its end with `input` on stdin.
pub(crate) async fn output_with_input(args: &[&str], input: &[u8]) -> Output {
    let mut child = command(args).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let write = async {
        // The write fails if the command ends before it has read all input.
        let _ = stdin.write_all(input).await;
        drop(stdin);
    };
    tokio::join!(wait_for_output(child), write).0
}

/// Waits until a command has ended, and returns its exit code and the output that was not read yet.
pub(crate) async fn wait_for_output(child: Child) -> Output {
    tokio::time::timeout(COMMAND_TIMEOUT, child.wait_with_output()).await.expect("the command does not end").unwrap()
}

/// Stdout, stderr and exit code.
pub(crate) fn text_and_code(output: &Output) -> (String, String, Option<i32>) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

/// Waits until a process under test has written a pid to a file, and returns the pid.
pub(crate) async fn read_pid(path: &Path) -> u32 {
    eventually("the pid is in the file", || {
        std::fs::read_to_string(path).ok().filter(|text| text.ends_with('\n'))?.trim().parse().ok()
    })
    .await
}
