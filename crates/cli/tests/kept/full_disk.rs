//! Commands whose own stdout is on a full disk or is a closed pipe. They use a kept session, which outlives its
//! connections.

use std::fs::File;
use std::process::Stdio;
use std::time::Duration;

use client::ProcessState;
use testkit::{eventually_async, is_alive};
use tokio::io::AsyncReadExt as _;

use crate::support::{COMMAND_TIMEOUT, KeptSession, sh};

/// How often a command is repeated, so that a race would be found.
const REPETITIONS: usize = 10;

/// Runs a command whose stdout is on a full disk. Returns its exit code and stderr.
async fn run_with_full_stdout(kept: &KeptSession, args: &[&str]) -> (i32, String) {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let child = kept.command(args).stdout(full).stderr(Stdio::piped()).spawn().unwrap();
    let output = tokio::time::timeout(COMMAND_TIMEOUT, child.wait_with_output())
        .await
        .expect("the command does not end")
        .unwrap();
    (output.status.code().expect("a signal ended the command"), String::from_utf8(output.stderr).unwrap())
}

#[tokio::test]
async fn output_that_cannot_be_written_is_an_error() {
    let kept = KeptSession::start().await;
    kept.start_process(sh("p", "echo hello")).await;
    eventually_async("the process has closed", async || {
        (kept.only_process().await.state == ProcessState::Closed).then_some(())
    })
    .await;
    let message = "exec-server: cannot write the output: No space left on device\n";
    for _ in 0..REPETITIONS {
        assert_eq!(run_with_full_stdout(&kept, &["attach", "p"]).await, (125, message.to_owned()));
        assert_eq!(run_with_full_stdout(&kept, &["logs", "-f", "p"]).await, (125, message.to_owned()));
    }
    for args in [&["logs", "p"][..], &["logs", "--json", "p"], &["ps"], &["ps", "--json"]] {
        assert_eq!(run_with_full_stdout(&kept, args).await, (1, message.to_owned()), "{args:?}");
    }
}

#[tokio::test]
async fn an_id_that_cannot_be_written_is_part_of_the_error() {
    let kept = KeptSession::start().await;
    let expected = "exec-server: the command runs as `1`, but its id cannot be written: No space left on device\n";
    let output = run_with_full_stdout(&kept, &["run", "-d", "--", "sleep", "1000"]).await;
    assert_eq!(output, (125, expected.to_owned()));
    let process = kept.only_process().await;
    assert!(process.process_id.as_str() == "1" && is_alive(process.pid.unwrap()));
}

#[tokio::test]
async fn following_ends_when_stdout_is_closed_even_if_no_more_output_comes() {
    let kept = KeptSession::start().await;
    kept.start_process(sh("p", "echo ready; exec sleep 1000")).await;
    let mut follower = kept.command(&["logs", "-f", "p"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = [0; 6];
    follower.stdout.take().unwrap().read_exact(&mut line).await.unwrap();
    let status =
        tokio::time::timeout(Duration::from_secs(20), follower.wait()).await.expect("the command does not end");
    assert_eq!(status.unwrap().code(), Some(141), "the exit code is that of SIGPIPE");
    assert_eq!(kept.only_process().await.state, ProcessState::Running);
}
