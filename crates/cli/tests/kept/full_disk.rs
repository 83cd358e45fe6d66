//! Commands about kept sessions whose stdout is on a full disk or is a closed pipe.

use std::fs::File;
use std::process::Stdio;
use std::time::Duration;

use client::ProcessState;
use testkit::{eventually_async, is_alive};
use tokio::io::AsyncReadExt as _;

use crate::support::{KeptSession, PATIENCE, sh};

const TRIES: usize = 10;

/// The exit code and the stderr of a command whose stdout is a full disk.
async fn with_full_stdout(kept: &KeptSession, args: &[&str]) -> (i32, String) {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let child = kept.command(args).stdout(full).stderr(Stdio::piped()).spawn().unwrap();
    let output =
        tokio::time::timeout(PATIENCE, child.wait_with_output()).await.expect("the command does not end").unwrap();
    (output.status.code().expect("a signal ended the command"), String::from_utf8(output.stderr).unwrap())
}

#[tokio::test]
async fn output_of_a_kept_command_that_cannot_be_written_is_our_failure() {
    let kept = KeptSession::start().await;
    kept.process(sh("p", "echo hello")).await;
    eventually_async("the process has closed", async || {
        (kept.only_process().await.state == ProcessState::Closed).then_some(())
    })
    .await;
    let words = "exec-server: cannot write the output: No space left on device\n";
    for _ in 0..TRIES {
        assert_eq!(with_full_stdout(&kept, &["attach", "p"]).await, (125, words.to_owned()));
        assert_eq!(with_full_stdout(&kept, &["logs", "-f", "p"]).await, (125, words.to_owned()));
    }
    for args in [&["logs", "p"][..], &["logs", "--json", "p"], &["ps"], &["ps", "--json"]] {
        assert_eq!(with_full_stdout(&kept, args).await, (1, words.to_owned()), "{args:?}");
    }
}

#[tokio::test]
async fn an_id_that_cannot_be_written_is_part_of_the_error() {
    let kept = KeptSession::start().await;
    let expected = "exec-server: the command runs as `1`, but its id cannot be written: No space left on device\n";
    let said = with_full_stdout(&kept, &["run", "-d", "--", "sleep", "1000"]).await;
    assert_eq!(said, (125, expected.to_owned()));
    let process = kept.only_process().await;
    assert!(process.process_id.as_str() == "1" && is_alive(process.pid.unwrap()));
}

#[tokio::test]
async fn following_ends_when_stdout_is_closed_even_without_output() {
    let kept = KeptSession::start().await;
    kept.process(sh("p", "echo ready; exec sleep 1000")).await;
    let mut follower = kept.command(&["logs", "-f", "p"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = [0; 6];
    follower.stdout.take().unwrap().read_exact(&mut line).await.unwrap();
    let status =
        tokio::time::timeout(Duration::from_secs(20), follower.wait()).await.expect("the command does not end");
    assert_eq!(status.unwrap().code(), Some(141));
    assert_eq!(kept.only_process().await.state, ProcessState::Running);
}
