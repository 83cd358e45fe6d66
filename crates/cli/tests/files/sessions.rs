//! File handles belong to a session. They stay open when a connection of the session ends, and are closed when the
//! session ends. An upload that was not committed by then is removed.

use std::path::Path;

use testkit::{TestServer, eventually, json};

use crate::folder::{Folder, chunk, open, read_block};

/// How many descriptors of the server belong to files in a directory, including deleted files.
fn open_files_below(server: &TestServer, directory: &Path) -> usize {
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap();
    let targets = descriptors.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    targets.filter(|target| target.starts_with(directory)).count()
}

#[tokio::test]
async fn transfers_continue_over_the_next_connection_and_a_commit_can_be_repeated() {
    let folder = Folder::new();
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let session = client.session.clone();
    open(&mut client, "down", &folder.file("down", "download")).await;
    assert_eq!(read_block(&mut client, "down", 0, 4).await, (b"down".to_vec(), false));
    client.call("fs/create", json!({"handleId": "up", "path": folder.uri("up")})).await;
    client.call("fs/writeBlock", chunk("up", 0, "up")).await;
    drop(client);

    let mut client = server.resume(&session).await;
    assert_eq!(read_block(&mut client, "down", 4, 9).await, (b"load".to_vec(), true));
    client.call("fs/writeBlock", chunk("up", 2, "load")).await;
    client.call("fs/commit", json!({"handleId": "up"})).await;
    drop(client);

    // A client that lost the answer to its commit sends the commit again.
    let mut client = server.resume(&session).await;
    assert_eq!(client.call("fs/commit", json!({"handleId": "up"})).await, json!({}));
    assert_eq!(folder.read("up"), b"upload");
}

#[tokio::test]
async fn requests_that_were_received_before_the_connection_ended_are_carried_out() {
    let folder = Folder::new();
    let server = TestServer::start().await;
    for round in 0..20 {
        let mut client = server.client().await;
        let name = format!("file {round}");
        client.send("fs/create", json!({"handleId": "u", "path": folder.uri(&name)})).await;
        for block in 0..10u8 {
            client.send("fs/writeBlock", chunk("u", u64::from(block) * 1000, vec![block; 1000])).await;
        }
        client.send("fs/commit", json!({"handleId": "u"})).await;
        let last = client.send("environment/status", json!({})).await;
        // This answer proves that the server has received all requests. The server may not have carried them out yet.
        client.answer(last).await;
        drop(client);
        let expected: Vec<u8> = (0..10).flat_map(|block| vec![block; 1000]).collect();
        let path = folder.path(&name);
        eventually("the upload is committed", || (std::fs::read(&path).ok()? == expected).then_some(())).await;
    }
}

#[tokio::test]
async fn the_end_of_a_session_closes_its_files_and_removes_unfinished_uploads() {
    let folder = Folder::new();
    let server = TestServer::with_args(&["--session-ttl", "200ms"]).await;
    let mut client = server.client().await;
    open(&mut client, "down", &folder.file("file", "kept")).await;
    for number in 0..10 {
        let handle = format!("up {number}");
        client.call("fs/create", json!({"handleId": handle, "path": folder.uri(&handle)})).await;
        client.call("fs/writeBlock", chunk(&handle, 0, vec![1; 100_000])).await;
    }
    assert!(open_files_below(&server, &folder.path("")) >= 11);
    drop(client);
    eventually("all files are closed", || (open_files_below(&server, &folder.path("")) == 0).then_some(())).await;
    assert_eq!(folder.names(""), ["file"]);
}

#[tokio::test]
async fn a_server_that_is_terminated_leaves_no_unfinished_uploads() {
    let folder = Folder::new();
    let mut server = TestServer::start().await;
    let mut client = server.client().await;
    client.call("fs/create", json!({"handleId": "u", "path": folder.uri("file")})).await;
    client.call("fs/writeBlock", chunk("u", 0, "x")).await;
    server.signal(testkit::Signal::TERM);
    assert_eq!(server.wait().await, Some(0));
    assert!(folder.names("").is_empty());
}

#[tokio::test]
async fn handles_stay_open_when_another_connection_takes_over_their_session() {
    let folder = Folder::new();
    let server = TestServer::start().await;
    let mut old = server.client().await;
    open(&mut old, "h", &folder.file("file", "hello")).await;
    let mut new = server.connect_without_handshake().await;
    let params = json!({"clientName": "new", "resumeSessionId": old.session, "takeover": true});
    new.call("initialize", params).await;
    new.notify("initialized", json!({})).await;
    assert_eq!(read_block(&mut new, "h", 0, 9).await, (b"hello".to_vec(), true));
}
