//! The binary with arguments, in surroundings in which nothing is configured.

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use testkit::{binary, eventually, without_configuration};
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};

/// Longer than anything here takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The binary, on pipes.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    without_configuration(&mut command);
    command
}

/// Runs it to its end.
pub(crate) async fn output(args: &[&str]) -> Output {
    finished(command(args).spawn().unwrap()).await
}

/// Runs it to its end with this stdin.
pub(crate) async fn output_of(args: &[&str], input: &[u8]) -> Output {
    let mut child = command(args).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let write = async {
        // A command may end before it has read all.
        let _ = stdin.write_all(input).await;
        drop(stdin);
    };
    tokio::join!(finished(child), write).0
}

/// Waits for its end.
pub(crate) async fn finished(child: Child) -> Output {
    tokio::time::timeout(PATIENCE, child.wait_with_output()).await.expect("it does not end").unwrap()
}

/// What it has said, and its exit code.
pub(crate) fn told(output: &Output) -> (String, String, Option<i32>) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

/// Waits until a file holds a number, which a process under test has written there.
pub(crate) async fn number_in(path: &Path) -> u32 {
    eventually("the process says its number", || {
        std::fs::read_to_string(path).ok().filter(|text| text.ends_with('\n'))?.trim().parse().ok()
    })
    .await
}
