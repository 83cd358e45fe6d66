//! Links whose every connection breaks after a few kilobytes: each connection must bring the work further.

use std::time::Duration;

use testkit::{CuttingProxy, TestServer};
use tokio::io::AsyncWriteExt as _;

use crate::support::{connect_to, sh_with_stdin};

/// Longer than anything here takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn numbers(bytes: usize) -> Vec<u8> {
    (0_u64..).flat_map(|number| format!("{number}\n").into_bytes()).take(bytes).collect()
}

/// Whatever is written arrives, and once.
async fn input_arrives_once(bytes_per_connection: u64, input: &[u8]) {
    let server = TestServer::start().await;
    let proxy = CuttingProxy::start(server.address()).await;
    let client = connect_to(&proxy.url()).await;
    let folder = tempfile::tempdir().unwrap();
    let arrived = folder.path().join("arrived");
    let process = client.start(sh_with_stdin("p", &format!("exec cat > {}", arrived.display()))).await.unwrap();
    let mut stdin = process.stdin();
    proxy.cut_each_after(bytes_per_connection);
    let write = async {
        stdin.write_all(input).await.unwrap();
        stdin.shutdown().await.unwrap();
    };
    proxy.cut();
    tokio::time::timeout(PATIENCE, write).await.expect("the input does not arrive");
    proxy.cut_each_after(0);
    let status = tokio::time::timeout(PATIENCE, process.wait()).await.expect("it does not end").unwrap();
    assert!(status.success());
    assert!(std::fs::read(&arrived).unwrap() == input, "something else has arrived than was sent");
    assert!(proxy.cuts_made() > 2, "{} connections were cut", proxy.cuts_made());
}

#[tokio::test]
async fn input_arrives_over_connections_of_five_kilobytes() {
    input_arrives_once(5_000, &numbers(24 << 10)).await;
}

#[tokio::test]
async fn input_arrives_over_connections_of_twenty_kilobytes() {
    input_arrives_once(20_000, &numbers(256 << 10)).await;
}

#[tokio::test]
async fn input_arrives_over_connections_of_eighty_kilobytes() {
    input_arrives_once(80_000, &numbers(1 << 20)).await;
}

#[tokio::test]
async fn what_is_written_and_what_comes_back_pass_together() {
    let input = numbers(12 << 10);
    let server = TestServer::start().await;
    let proxy = CuttingProxy::start(server.address()).await;
    let client = connect_to(&proxy.url()).await;
    let process = client.start(sh_with_stdin("p", "exec cat")).await.unwrap();
    proxy.cut_each_after(5_000);
    proxy.cut();
    let mut stdin = process.stdin();
    let write = async {
        stdin.write_all(&input).await.unwrap();
        stdin.shutdown().await.unwrap();
    };
    let both = async { tokio::join!(write, process.wait_with_output()).1.unwrap() };
    let output = tokio::time::timeout(PATIENCE, both).await.expect("it makes no progress");
    assert!(output.stdout == input, "{} of {} bytes, or others", output.stdout.len(), input.len());
}
