//! Servers that are child processes of the client and communicate over their pipes.

use std::path::Path;

use client::{ChildConnector, ExecServerClient, ExecServerClientConnectOptions, ExecServerError};
use testkit::{binary, eventually, is_alive};

use crate::support::sh;

async fn connect(script: String) -> Result<ExecServerClient, ExecServerError> {
    let args = vec!["-c".into(), script.into()];
    let connector = ChildConnector { program: "/bin/sh".into(), args, ..ChildConnector::default() };
    ExecServerClient::connect(connector, ExecServerClientConnectOptions::default()).await
}

/// The pids that a script has written to a file.
async fn pids(file: &Path, count: usize) -> Vec<u32> {
    eventually("the script has begun", || {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let pids: Vec<u32> = text.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
        (pids.len() == count && text.ends_with('\n')).then_some(pids)
    })
    .await
}

#[tokio::test]
async fn a_child_server_ends_with_its_client_and_ends_its_processes() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pids");
    let server = binary().display().to_string();
    let script = format!("sleep 1000 & echo $! $$ > {}; exec {server} --listen stdio", file.display());
    let client = connect(script).await.unwrap();
    let output = client.start(sh("p", "echo hello")).await.unwrap().wait_with_output().await.unwrap();
    assert_eq!(output.stdout, b"hello\n");
    let pids = pids(&file, 2).await;
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    drop(client);
    eventually("the server and the process of the script are gone", || {
        pids.iter().all(|pid| !is_alive(*pid)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_child_that_prints_an_invalid_message_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pids");
    let connected = connect(format!("echo $$ > {}; echo 'no message'; exec sleep 1000", file.display())).await;
    let error = connected.err().unwrap();
    assert!(!matches!(error, ExecServerError::InitializeTimedOut { .. }), "{error}");
    let pids = pids(&file, 1).await;
    eventually("the server is gone", || (!is_alive(pids[0])).then_some(())).await;
}
