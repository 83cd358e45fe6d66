//! Transfers over connections that all break after 5 to 80 kilobytes. The transfers must finish nevertheless.

use std::time::Duration;

use bytes::Bytes;
use client::{ExecutorFileSystem as _, PathUri, ReadParams, StartParams, WriteStatus, WriteStreamOptions};
use testkit::{CuttingProxy, TestServer};
use tokio::io::AsyncWriteExt as _;

use crate::support::{connect_to, sh_with_stdin};

/// Timeout of each wait. Longer than any wait takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The first `bytes` bytes of the lines 0, 1, 2 and so on.
fn numbers(bytes: usize) -> Vec<u8> {
    (0_u64..).flat_map(|number| format!("{number}\n").into_bytes()).take(bytes).collect()
}

/// Writes input to a process, and checks that each byte arrives exactly once.
async fn check_input(bytes_per_connection: u64, input: &[u8]) {
    let server = TestServer::start().await;
    let proxy = CuttingProxy::start(server.address()).await;
    let client = connect_to(&proxy.url()).await;
    let folder = tempfile::tempdir().unwrap();
    let arrived = folder.path().join("arrived");
    let process = client.start(sh_with_stdin("p", &format!("exec cat > {}", arrived.display()))).await.unwrap();
    let mut stdin = process.stdin();
    // The limit holds for new connections, so the present connection is cut.
    proxy.cut_each_after(bytes_per_connection);
    proxy.cut();
    let write = async {
        stdin.write_all(input).await.unwrap();
        stdin.shutdown().await.unwrap();
    };
    tokio::time::timeout(PATIENCE, write).await.expect("the input does not arrive");
    // From now on connections are not cut.
    proxy.cut_each_after(0);
    let status = tokio::time::timeout(PATIENCE, process.wait()).await.expect("the process does not end").unwrap();
    assert!(status.success());
    assert!(std::fs::read(&arrived).unwrap() == input, "the bytes that arrived are not those that were sent");
    assert!(proxy.cuts_made() > 2, "{} connections were cut", proxy.cuts_made());
}

#[tokio::test]
async fn input_arrives_over_connections_of_five_kilobytes() {
    check_input(5_000, &numbers(24 << 10)).await;
}

#[tokio::test]
async fn input_arrives_over_connections_of_twenty_kilobytes() {
    check_input(20_000, &numbers(256 << 10)).await;
}

#[tokio::test]
async fn input_arrives_over_connections_of_eighty_kilobytes() {
    check_input(80_000, &numbers(1 << 20)).await;
}

#[tokio::test]
async fn files_pass_over_connections_of_twenty_kilobytes() {
    let contents = numbers(300 << 10);
    let server = TestServer::start().await;
    let proxy = CuttingProxy::start(server.address()).await;
    let client = connect_to(&proxy.url()).await;
    let folder = tempfile::tempdir().unwrap();
    let path = PathUri::from_native(&folder.path().join("file")).unwrap();
    proxy.cut_each_after(20_000);
    proxy.cut();
    let files = client.file_system();
    let write_and_read = async {
        let mut writer = files.write_file_stream(&path, &WriteStreamOptions::default()).await.unwrap();
        writer.write(Bytes::from(contents.clone())).await.unwrap();
        writer.commit().await.unwrap();
        let mut reader = files.read_file_stream(&path, None).await.unwrap();
        let mut read = Vec::new();
        while let Some(chunk) = reader.next().await {
            read.extend_from_slice(&chunk.unwrap());
        }
        read
    };
    let read = tokio::time::timeout(PATIENCE, write_and_read).await.expect("files make no progress");
    assert!(read == contents, "{} bytes arrived, not the {} expected", read.len(), contents.len());
}

#[tokio::test]
async fn input_and_output_pass_at_the_same_time() {
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
    let output = tokio::time::timeout(PATIENCE, both).await.expect("there is no progress");
    assert!(output.stdout == input, "{} bytes arrived, not the {} expected", output.stdout.len(), input.len());
}

/// A script that waits for a line and then writes this output. The folder holds the output, so it must exist until
/// the script has ended.
fn script_that_writes(output: &[u8]) -> (String, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("output");
    std::fs::write(&file, output).unwrap();
    (format!("read go; cat {}", file.display()), folder)
}

/// Starts a process that writes this much output without a pause, and checks that each byte arrives exactly once.
async fn check_output(bytes_per_connection: u64, output_bytes: usize) {
    let expected = numbers(output_bytes);
    let (script, _folder) = script_that_writes(&expected);
    let server = TestServer::start().await;
    let proxy = CuttingProxy::start(server.address()).await;
    let client = connect_to(&proxy.url()).await;
    let process = client.start(sh_with_stdin("p", &script)).await.unwrap();
    proxy.cut_each_after(bytes_per_connection);
    proxy.cut();
    process.write("go\n").await.unwrap();
    let output = tokio::time::timeout(PATIENCE, process.wait_with_output()).await.expect("there is no progress");
    let output = output.unwrap();
    assert!(output.stdout == expected, "{} bytes arrived, not the {} expected", output.stdout.len(), expected.len());
    assert!(output.status.success());
    assert!(proxy.cuts_made() > 2, "{} connections were cut", proxy.cuts_made());
}

#[tokio::test]
async fn output_arrives_over_connections_of_five_kilobytes() {
    check_output(5_000, 48 << 10).await;
}

#[tokio::test]
async fn output_arrives_over_connections_of_twenty_kilobytes() {
    check_output(20_000, 400 << 10).await;
}

#[tokio::test]
async fn retained_output_is_read_over_connections_of_five_kilobytes() {
    let expected = numbers(48 << 10);
    let (script, _folder) = script_that_writes(&expected);
    let server = TestServer::start().await;
    let proxy = CuttingProxy::start(server.address()).await;
    let client = connect_to(&proxy.url()).await;
    let params = sh_with_stdin("p", &format!("{script}; exit 3"));
    // With `paused` the server retains the output and does not push it.
    client.exec(StartParams { paused: true, ..params }).await.unwrap();
    proxy.cut_each_after(5_000);
    proxy.cut();
    let write_id = Some("1".into());
    client.write(&"p".into(), b"go\n".to_vec(), write_id).await.unwrap();
    let read_all = async {
        let (mut read, mut after) = (Vec::new(), 0);
        loop {
            let params = ReadParams { wait_ms: Some(1_000), ..ReadParams::after("p".into(), after) };
            let page = client.read(params).await.unwrap();
            assert!(!page.partial && !page.gap);
            let is_last = page.closed && page.chunks.is_empty();
            read.extend(page.chunks.into_iter().flat_map(|chunk| chunk.chunk.0));
            if is_last {
                return (read, page.exit_code);
            }
            after = page.next_seq - 1;
        }
    };
    let (read, code) = tokio::time::timeout(PATIENCE, read_all).await.expect("there is no progress");
    assert!(read == expected, "{} bytes arrived, not the {} expected", read.len(), expected.len());
    assert_eq!(code, Some(3));
}

#[tokio::test]
async fn writes_at_the_same_time_are_not_interleaved() {
    let server = TestServer::start().await;
    let proxy = CuttingProxy::start(server.address()).await;
    let client = connect_to(&proxy.url()).await;
    let folder = tempfile::tempdir().unwrap();
    let arrived = folder.path().join("arrived");
    let process = client.start(sh_with_stdin("p", &format!("exec cat > {}", arrived.display()))).await.unwrap();
    proxy.cut_each_after(5_000);
    proxy.cut();
    // The client sends each write in several pieces, because no connection carries all of it.
    let bytes_of = |byte: u8| vec![byte; 6 << 10];
    let write = async {
        let (first, second) = tokio::join!(process.write(bytes_of(b'a')), process.write(bytes_of(b'b')));
        assert_eq!((first.unwrap(), second.unwrap()), (WriteStatus::Accepted, WriteStatus::Accepted));
        process.close_stdin().await.unwrap();
    };
    tokio::time::timeout(PATIENCE, write).await.expect("the input does not arrive");
    proxy.cut_each_after(0);
    let status = tokio::time::timeout(PATIENCE, process.wait()).await.expect("the process does not end").unwrap();
    assert!(status.success());
    let arrived = std::fs::read(&arrived).unwrap();
    let changes = arrived.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert_eq!((arrived.len(), changes), (12 << 10, 1), "one write follows the other");
}
