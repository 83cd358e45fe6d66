//! Connections that break, and a server that restarts, while a file is read or written.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use client::{
    Backoff, ExecServerClient, ExecServerClientConnectOptions, ExecutorFileSystem as _, PathUri, RemoteFileSystem,
    UrlConnector, WriteStreamOptions,
};
use testkit::{CuttingProxy, TestServer};

use crate::support::noise;

const MIB: usize = 1 << 20;
const FILE_BYTES: usize = 24 * MIB;

async fn connect_with_short_backoff(url: &str) -> RemoteFileSystem {
    let options = ExecServerClientConnectOptions {
        backoff: Backoff { first: Duration::from_millis(1), longest: Duration::from_millis(5) },
        ..ExecServerClientConnectOptions::default()
    };
    let connector = UrlConnector::new(url, Default::default());
    ExecServerClient::connect(connector, options).await.unwrap().file_system()
}

async fn read(files: &RemoteFileSystem, path: &Path) -> Vec<u8> {
    let uri = PathUri::from_native(path).unwrap();
    let reader = files.read_file_stream(&uri, None).await.unwrap();
    crate::support::collect(reader).await.0
}

async fn write(files: &RemoteFileSystem, path: &Path, data: &[u8]) {
    let uri = PathUri::from_native(path).unwrap();
    let mut writer = files.write_file_stream(&uri, &WriteStreamOptions::default()).await.unwrap();
    for piece in data.chunks(MIB) {
        writer.write(Bytes::copy_from_slice(piece)).await.unwrap();
    }
    writer.commit().await.unwrap();
}

#[tokio::test]
async fn reading_and_writing_survive_random_cuts() {
    let server = TestServer::with_args(&["--max-file-handles", "8"]).await;
    let proxy = CuttingProxy::start(server.address()).await;
    let files = connect_with_short_backoff(&proxy.url()).await;
    let folder = tempfile::tempdir().unwrap();
    let (source, target) = (folder.path().join("source"), folder.path().join("target"));
    let data = noise(FILE_BYTES);
    fs::write(&source, &data).unwrap();
    for seed in 0..4 {
        // Each of the next 20 connections will be cut within 30 MB. The client makes the first of them after `cut`.
        proxy.cut_at_random(20, 30_000_000, seed);
        proxy.cut();
        assert!(read(&files, &source).await == data, "reading, seed {seed}");
        write(&files, &target, &data).await;
        assert!(fs::read(&target).unwrap() == data, "writing, seed {seed}");
    }
    assert!(proxy.cuts_made() > 10, "{} cuts", proxy.cuts_made());
}

/// The files are small, so that the cuts hit not only the blocks, but also opening, commit and closing.
#[tokio::test]
async fn reading_and_writing_survive_a_cut_at_each_of_many_positions() {
    let server = TestServer::with_args(&["--max-file-handles", "8"]).await;
    let proxy = CuttingProxy::start(server.address()).await;
    let files = connect_with_short_backoff(&proxy.url()).await;
    let folder = tempfile::tempdir().unwrap();
    let (source, target) = (folder.path().join("source"), folder.path().join("target"));
    fs::write(&source, "some text").unwrap();
    for byte in (1..1500).step_by(23) {
        proxy.cut_at(proxy.bytes_passed() + byte);
        assert_eq!(read(&files, &source).await, b"some text");
        let text = format!("text {byte}");
        write(&files, &target, text.as_bytes()).await;
        assert_eq!(fs::read(&target).unwrap(), text.as_bytes());
    }
    assert!(proxy.cuts_made() > 30, "{} cuts", proxy.cuts_made());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "no temporary file is left");
}

#[tokio::test]
async fn a_restarted_server_ends_open_streams_with_an_error() {
    let server = TestServer::start().await;
    let address = server.address().to_owned();
    let files = connect_with_short_backoff(server.url()).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    fs::write(&path, noise(FILE_BYTES)).unwrap();
    let uri = PathUri::from_native(&path).unwrap();
    let mut reader = files.read_file_stream(&uri, None).await.unwrap();
    reader.next().await.unwrap().unwrap();
    let target = PathUri::from_native(&folder.path().join("b")).unwrap();
    let mut writer = files.write_file_stream(&target, &WriteStreamOptions::default()).await.unwrap();
    server.kill().await;
    let _restarted = TestServer::with_args(&["--listen", &format!("ws://{address}")]).await;
    let error = loop {
        match reader.next().await {
            Some(Ok(_)) => {}
            Some(Err(error)) => break error,
            None => panic!("the error must not look like the end of the file"),
        }
    };
    assert_eq!(error.kind, ErrorKind::BrokenPipe);
    assert!(error.message.contains("session"), "{error}");
    let written = async {
        writer.write(noise(MIB).into()).await?;
        writer.commit().await
    };
    assert_eq!(written.await.unwrap_err().kind, ErrorKind::BrokenPipe);
    assert!(reader.next().await.is_none());
}
