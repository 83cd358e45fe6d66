//! Watches, searches and HTTP bodies with a real server, over connections that are cut.

use std::collections::BTreeSet;
use std::fs;

use client::{ChangeKind, ExecServerClient, HttpRequestParams, PathUri, SearchParams, Watch};
use testkit::{CuttingProxy, TestServer, eventually};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{connect, connect_to};

/// A new directory, by a path without symbolic links.
fn tree() -> tempfile::TempDir {
    tempfile::tempdir_in(fs::canonicalize(std::env::temp_dir()).unwrap()).unwrap()
}

fn uri(path: &std::path::Path) -> PathUri {
    PathUri::from_native(path).unwrap()
}

/// Waits until this file is reported as created. Returns all files that were reported as created up to then.
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
async fn cuts_lose_no_change_and_repeat_none() {
    let (server, tree) = (TestServer::start().await, tree());
    let proxy = CuttingProxy::start(server.address()).await;
    let client = connect_to(&proxy.url()).await;
    let mut watch = client.watch(&uri(tree.path()), true).await.unwrap();
    proxy.cut_at_random(30, 3000, 7);
    proxy.cut();
    let mut created = Vec::new();
    for number in 0..150 {
        let file = tree.path().join(number.to_string());
        fs::write(&file, "").unwrap();
        if number % 5 == 0 {
            created.extend(wait_until_created(&mut watch, &file).await);
        }
    }
    let last = tree.path().join("last");
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
async fn a_watch_ends_when_it_is_dropped_or_its_root_is_removed() {
    let (server, tree) = (TestServer::start().await, tree());
    let client = connect(&server).await;
    let watch = client.watch(&uri(tree.path()), true).await.unwrap();
    assert_eq!(inotify_fds(&server), 1);
    drop(watch);
    eventually("the watch has ended", || (inotify_fds(&server) == 0).then_some(())).await;
    let root = tree.path().join("root");
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
    let (server, tree) = (TestServer::start().await, tree());
    for number in 0..50 {
        fs::write(tree.path().join(number.to_string()), "needle\n".repeat(number)).unwrap();
    }
    let client = connect(&server).await;
    let params = SearchParams { pattern: Some("needle".into()), ..SearchParams::below(uri(tree.path())) };
    let mut search = client.search(params).await.unwrap();
    let mut lines = 0;
    while let Some(file) = search.recv().await {
        lines += file.unwrap().lines.len();
    }
    let result = search.result().unwrap();
    assert_eq!((lines as u64, result.matches, result.files_searched), (49 * 50 / 2, 49 * 50 / 2, 50));
}

/// An HTTP server that sends a body without end. Its task returns how many bytes it sent until the connection was closed.
async fn endless_body() -> (String, tokio::task::JoinHandle<usize>) {
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
async fn a_body_comes_no_faster_than_it_is_read_and_ends_when_it_is_dropped() {
    let server = TestServer::start_with(&[], |command| command.env("NO_PROXY", "*").env("no_proxy", "*")).await;
    let client = connect(&server).await;
    let (url, serving) = endless_body().await;
    let mut body = stream_body(&client, url).await;
    let mut received = 0;
    while received < 100 << 20 {
        received += body.recv().await.unwrap().unwrap().len();
    }
    drop(body);
    let sent = serving.await.unwrap();
    assert!(sent < received + (96 << 20), "{sent} bytes were sent, {received} received");
}
