//! Limits on open files and on work with files.

use std::time::Duration;

use testkit::{Client, TestServer, eventually, eventually_async, json};
use transport::Framing;

const INVALID_REQUEST: i64 = -32600;

/// Opens files under many names, and returns the error of the last one.
async fn open_one_too_many(client: &mut Client, limit: usize) -> testkit::Value {
    let open = |number: usize| json!({"handleId": number.to_string(), "path": "file:///proc/self/status"});
    for number in 0..limit {
        client.call("fs/open", open(number)).await;
    }
    client.call_error("fs/open", open(limit)).await
}

#[tokio::test]
async fn file_handles_beyond_the_limit_are_refused_until_one_is_closed() {
    let directory = tempfile::tempdir().unwrap();
    let upload = format!("file://{}/upload", directory.path().display());
    for (args, limit) in [(vec![], 128), (vec!["--max-file-handles", "3"], 3)] {
        let server = TestServer::with_args(&args).await;
        let mut client = server.client().await;
        // The words are published, and so do not name the flag.
        let message = format!("at most {limit} file reads may be open per connection");
        let expected = json!({"code": INVALID_REQUEST, "message": message});
        assert_eq!(open_one_too_many(&mut client, limit).await, expected);
        let create = json!({"handleId": "upload", "path": upload});
        assert_eq!(client.call_error("fs/create", create.clone()).await, expected);
        // Another session has a limit of its own.
        assert_eq!(open_one_too_many(&mut server.client().await, limit).await, expected);
        client.call("fs/close", json!({"handleId": "0"})).await;
        client.call("fs/create", create.clone()).await;
        client.call("fs/commit", json!({"handleId": "upload"})).await;
        // An upload that is in its place is remembered, but takes nobody's room.
        client.call("fs/open", json!({"handleId": "0", "path": upload})).await;
    }
}

const LARGE: u64 = 128 << 20;

/// Makes a directory while a large file is copied, and returns how much was copied when that was done.
async fn copied_meanwhile(client: &mut Client, place: &std::path::Path) -> u64 {
    let uri = |name: &str| format!("file://{}/{name}", place.display());
    let copied = || std::fs::metadata(place.join("copy")).map_or(0, |found| found.len());
    let _ = std::fs::remove_file(place.join("copy"));
    let copy = json!({"sourcePath": uri("large"), "destinationPath": uri("copy"), "recursive": false});
    let copying = client.send("fs/copy", copy).await;
    eventually("the copy has begun", || (copied() > 0).then_some(())).await;
    client.call("fs/createDirectory", json!({"path": uri("directory")})).await;
    let seen = copied();
    assert_eq!(client.answer(copying).await["result"], json!({}));
    seen
}

#[tokio::test]
async fn operations_on_files_beyond_the_limit_wait() {
    // In memory, where no file system copies without copying.
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    std::fs::write(place.path().join("large"), vec![7; LARGE as usize]).unwrap();
    let server = TestServer::with_args(&["--max-file-operations", "1"]).await;
    let mut client = server.client().await;
    for _ in 0..5 {
        assert_eq!(copied_meanwhile(&mut client, place.path()).await, LARGE, "one at a time");
    }
    let server = TestServer::start().await;
    let mut client = server.client().await;
    eventually_async("another is done meanwhile", async || {
        (copied_meanwhile(&mut client, place.path()).await < LARGE).then_some(())
    })
    .await;
}

/// Looks in a row, five milliseconds apart, at which the server has used no more processor time. The kernel counts that time in
/// hundredths of a second, so that a few looks prove nothing.
const QUIET_LOOKS: usize = 50;

/// Nothing here takes this long, even on a loaded machine, unless it waits for somebody else.
const AT_LAST: Duration = Duration::from_secs(20);

#[tokio::test]
async fn clients_that_do_not_read_hold_up_nobody_else() {
    let place = tempfile::tempdir().unwrap();
    let large = place.path().join("large");
    std::fs::create_dir(&large).unwrap();
    for number in 0..2000 {
        std::fs::write(large.join(format!("{number}{}", "x".repeat(100))), "").unwrap();
    }
    let uri = format!("file://{}", place.path().display());
    // In one piece, so that the server reads all requests before the first large answer stops it.
    let mut requests = Vec::new();
    for id in 100..300 {
        let params = json!({"path": format!("{uri}/large")});
        let request = json!({"id": id, "method": "fs/readDirectory", "params": params}).to_string();
        Framing::WebSocketClient.frame(&mut requests, request.len(), |out| out.extend_from_slice(request.as_bytes()));
    }
    // Three of them have more finished answers waiting than all sessions together may have operations.
    let server = TestServer::with_args(&["--max-file-operations", "200"]).await;
    let mut silent = Vec::new();
    for _ in 0..3 {
        let mut client = server.client().await;
        client.send_bytes(&requests).await.unwrap();
        silent.push(client);
    }
    let (mut before, mut quiet_looks) = (None, 0);
    eventually("their answers wait", || {
        let now = testkit::cpu_time(server.pid());
        quiet_looks = if before.replace(now) == Some(now) { quiet_looks + 1 } else { 0 };
        (quiet_looks == QUIET_LOOKS).then_some(())
    })
    .await;
    let mut other = server.client().await;
    let listing = other.call("fs/readDirectory", json!({"path": uri}));
    let listed = tokio::time::timeout(AT_LAST, listing).await.expect("it waits for clients that do not read");
    assert_eq!(listed["entries"][0]["fileName"], "large");
}
