//! Servers that are child processes of the client, which speaks with them over their stdin and stdout.

use std::path::Path;

use client::{ChildConnector, ExecServerClient, ExecServerClientConnectOptions, ExecServerError};
use testkit::{binary, eventually, is_alive};

use crate::support::sh;

/// Connects to a child that runs this shell script.
async fn connect_to_script(script: String) -> Result<ExecServerClient, ExecServerError> {
    let args = vec!["-c".into(), script.into()];
    let connector = ChildConnector { program: "/bin/sh".into(), args, ..ChildConnector::default() };
    ExecServerClient::connect(connector, ExecServerClientConnectOptions::default()).await
}

/// Waits until the script has written `count` pids to the file, and returns them.
async fn wait_for_pids(file: &Path, count: usize) -> Vec<u32> {
    eventually("the script has begun", || {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let pids: Vec<u32> = text.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
        (pids.len() == count && text.ends_with('\n')).then_some(pids)
    })
    .await
}

#[tokio::test]
async fn a_child_server_and_its_descendants_end_with_the_client() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pids");
    let server = binary().display().to_string();
    let script = format!("sleep 1000 & echo $! $$ > {}; exec {server} --listen stdio", file.display());
    let client = connect_to_script(script).await.unwrap();
    let output = client.start(sh("p", "echo hello")).await.unwrap().wait_with_output().await.unwrap();
    assert_eq!(output.stdout, b"hello\n");
    // The `sleep` and the server.
    let pids = wait_for_pids(&file, 2).await;
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    drop(client);
    eventually("the server and the sleep are gone", || pids.iter().all(|pid| !is_alive(*pid)).then_some(())).await;
}

#[tokio::test]
async fn a_child_that_prints_an_invalid_message_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pids");
    let script = format!("echo $$ > {}; echo 'no message'; exec sleep 1000", file.display());
    let error = connect_to_script(script).await.err().unwrap();
    assert!(!matches!(error, ExecServerError::InitializeTimedOut { .. }), "{error}");
    let pids = wait_for_pids(&file, 1).await;
    eventually("the child is gone", || (!is_alive(pids[0])).then_some(())).await;
}
