//! Data that a real server pushes: the changes of a watch, the matches of a search, and HTTP bodies. One test cuts
//! the connections of a watch.

use std::collections::BTreeSet;
use std::fs;

use client::{ChangeKind, ExecServerClient, HttpRequestParams, PathUri, SearchParams, Watch};
use testkit::{CuttingProxy, TestServer, eventually};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{connect, connect_to};

/// A new directory, whose path contains no symbolic links. The server reports changes below this path.
fn new_directory() -> tempfile::TempDir {
    tempfile::tempdir_in(fs::canonicalize(std::env::temp_dir()).unwrap()).unwrap()
}

fn uri(path: &std::path::Path) -> PathUri {
    PathUri::from_native(path).unwrap()
}

/// Waits until the watch reports this file as created. Returns all files that it reported as created up to then.
async fn wait_until_created(watch: &mut Watch, path: &std::path::Path) -> Vec<PathUri> {
    let mut created = Vec::new();
    loop {
        let changes = watch.recv().await.unwrap().unwrap();
        assert!(!changes.overflow);
        let new = changes.changes.iter().filter(|change| change.kind == ChangeKind::Created);
        created.extend(new.map(|change| change.path.clone()));
        if created.contains(&uri(path)) {
            return created;
        }
    }
}

#[tokio::test]
async fn cuts_neither_lose_nor_repeat_a_change_of_a_watch() {
    let (server, directory) = (TestServer::start().await, new_directory());
    let proxy = CuttingProxy::start(server.address()).await;
    let client = connect_to(&proxy.url()).await;
    let mut watch = client.watch(&uri(directory.path()), true).await.unwrap();
    let (cuts, max_bytes, seed) = (30, 3000, 7);
    proxy.cut_at_random(cuts, max_bytes, seed);
    // The random cuts hit only new connections, so the present connection is cut here.
    proxy.cut();
    let mut created = Vec::new();
    for number in 0..150 {
        let file = directory.path().join(number.to_string());
        fs::write(&file, "").unwrap();
        if number % 5 == 0 {
            created.extend(wait_until_created(&mut watch, &file).await);
        }
    }
    let last = directory.path().join("last");
    fs::write(&last, "").unwrap();
    created.extend(wait_until_created(&mut watch, &last).await);
    let distinct: BTreeSet<_> = created.iter().map(PathUri::as_str).collect();
    assert_eq!((created.len(), distinct.len()), (151, 151));
}

/// Number of inotify descriptors of the server.
fn inotify_fds(server: &TestServer) -> usize {
    let links = fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().flatten();
    links.filter_map(|entry| fs::read_link(entry.path()).ok()).filter(|to| to.ends_with("anon_inode:inotify")).count()
}

#[tokio::test]
async fn a_watch_ends_when_it_is_dropped_or_its_root_is_removed_and_a_missing_root_is_an_error() {
    let (server, directory) = (TestServer::start().await, new_directory());
    let client = connect(&server).await;
    let watch = client.watch(&uri(directory.path()), true).await.unwrap();
    assert_eq!(inotify_fds(&server), 1);
    drop(watch);
    eventually("the watch has ended", || (inotify_fds(&server) == 0).then_some(())).await;
    let root = directory.path().join("root");
    fs::create_dir(&root).unwrap();
    let mut watch = client.watch(&uri(&root), true).await.unwrap();
    fs::remove_dir(&root).unwrap();
    while let Some(changes) = watch.recv().await {
        changes.unwrap();
    }
    assert!(client.watch(&uri(&root.join("below")), true).await.is_err());
}

#[tokio::test]
async fn a_search_returns_its_matches_and_its_summary() {
    let (server, directory) = (TestServer::start().await, new_directory());
    for number in 0..50 {
        fs::write(directory.path().join(number.to_string()), "needle\n".repeat(number)).unwrap();
    }
    let client = connect(&server).await;
    let params = SearchParams { pattern: Some("needle".into()), ..SearchParams::below(uri(directory.path())) };
    let mut search = client.search(params).await.unwrap();
    let mut lines = 0;
    while let Some(file) = search.recv().await {
        lines += file.unwrap().lines.len();
    }
    let result = search.result().unwrap();
    assert_eq!((lines as u64, result.matches, result.files_searched), (49 * 50 / 2, 49 * 50 / 2, 50));
}

/// Starts an HTTP server that sends a body without end. Returns its URL, and a task that returns how many bytes the
/// server sent until its connection was closed.
async fn serve_endless_body() -> (String, tokio::task::JoinHandle<usize>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _request = stream.read(&mut [0; 4096]).await.unwrap();
        let mut sent = 0;
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        let block = vec![b'x'; 64 << 10];
        while stream.write_all(&block).await.is_ok() {
            sent += block.len();
        }
        sent
    });
    (url, serving)
}

async fn stream_body(client: &ExecServerClient, url: String) -> client::HttpResponseBodyStream {
    let (response, body) = client.http_request_stream(HttpRequestParams::new("GET", url)).await.unwrap();
    assert_eq!(response.status, 200);
    body
}

#[tokio::test]
async fn a_limited_part_of_a_body_is_fetched_ahead_of_its_reader_and_a_dropped_body_ends() {
    // The server must not send the request through the proxy of this machine.
    let server = TestServer::start_with(&[], |command| command.env("NO_PROXY", "*").env("no_proxy", "*")).await;
    let client = connect(&server).await;
    let (url, serving) = serve_endless_body().await;
    let mut body = stream_body(&client, url).await;
    let mut received = 0;
    while received < 100 << 20 {
        received += body.recv().await.unwrap().unwrap().len();
    }
    drop(body);
    let sent = serving.await.unwrap();
    // Buffers on the way may hold some of the body, but not without limit.
    assert!(sent < received + (96 << 20), "{sent} bytes were sent, {received} received");
}
