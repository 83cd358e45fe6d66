//! Limits on open files and on work with files.

use std::time::Duration;

use testkit::{Client, TestServer, eventually, eventually_async, json};
use transport::Framing;

const INVALID_REQUEST: i64 = -32600;

/// Opens files until one is refused, and returns that error.
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
        // The text is published, so it does not name the flag.
        let message = format!("at most {limit} file reads may be open per connection");
        let expected = json!({"code": INVALID_REQUEST, "message": message});
        assert_eq!(open_one_too_many(&mut client, limit).await, expected);
        let create = json!({"handleId": "upload", "path": upload});
        assert_eq!(client.call_error("fs/create", create.clone()).await, expected);
        // Another session has its own limit.
        assert_eq!(open_one_too_many(&mut server.client().await, limit).await, expected);
        client.call("fs/close", json!({"handleId": "0"})).await;
        client.call("fs/create", create.clone()).await;
        client.call("fs/commit", json!({"handleId": "upload"})).await;
        // A committed upload stays known, but does not count.
        client.call("fs/open", json!({"handleId": "0", "path": upload})).await;
    }
}

const LARGE: u64 = 128 << 20;

/// Creates a directory while a large file is copied. Returns how many bytes were copied when the directory was created.
async fn copied_meanwhile(client: &mut Client, place: &std::path::Path) -> u64 {
    let uri = format!("file://{}/directory", place.display());
    copied_while(client, place, async |client| client.call("fs/createDirectory", json!({"path": uri})).await).await
}

/// Copies a large file and does something else as soon as the copy has begun. Returns how much was copied when that was done.
async fn copied_while<R>(
    client: &mut Client,
    place: &std::path::Path,
    other: impl AsyncFnOnce(&mut Client) -> R,
) -> u64 {
    let uri = |name: &str| format!("file://{}/{name}", place.display());
    let copied = || std::fs::metadata(place.join("copy")).map_or(0, |found| found.len());
    let _ = std::fs::remove_file(place.join("copy"));
    let copy = json!({"sourcePath": uri("large"), "destinationPath": uri("copy"), "recursive": false});
    let copying = client.send("fs/copy", copy).await;
    eventually("the copy has begun", || (copied() > 0).then_some(())).await;
    other(client).await;
    let seen = copied();
    assert_eq!(client.answer(copying).await["result"], json!({}));
    seen
}

#[tokio::test]
async fn operations_on_files_beyond_the_limit_wait() {
    // In memory, because some disk file systems copy by sharing blocks.
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    std::fs::write(place.path().join("large"), vec![7; LARGE as usize]).unwrap();
    let server = TestServer::with_args(&["--max-file-operations", "1"]).await;
    let mut client = server.client().await;
    for _ in 0..5 {
        assert_eq!(copied_meanwhile(&mut client, place.path()).await, LARGE, "one operation at a time");
    }
    let server = TestServer::start().await;
    let mut client = server.client().await;
    eventually_async("a second operation is done meanwhile", async || {
        (copied_meanwhile(&mut client, place.path()).await < LARGE).then_some(())
    })
    .await;
}

#[tokio::test]
async fn operations_of_all_sessions_beyond_the_limit_wait() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    std::fs::write(place.path().join("large"), vec![7; LARGE as usize]).unwrap();
    let server = TestServer::with_args(&["--max-file-operations-total", "1"]).await;
    let (mut client, mut other) = (server.client().await, server.client().await);
    let params = json!({"path": format!("file://{}/directory", place.path().display())});
    let copied = copied_while(&mut client, place.path(), async |_| other.call("fs/createDirectory", params).await);
    assert_eq!(copied.await, LARGE, "the directory of another session is made after the copy");
}

#[tokio::test]
async fn more_changes_than_a_watch_may_hold_are_an_overflow() {
    let place = tempfile::tempdir().unwrap();
    let (tree, outside) = (place.path().join("tree"), place.path().join("outside"));
    std::fs::create_dir(&tree).unwrap();
    std::fs::create_dir(&outside).unwrap();
    for number in 0..100 {
        std::fs::write(outside.join(number.to_string()), "").unwrap();
    }
    for (limit, is_overflow) in [("10", true), ("1000", false)] {
        let server = TestServer::with_args(&["--max-watch-changes", limit]).await;
        let mut client = server.client().await;
        let params = json!({"watchId": "w", "path": format!("file://{}", tree.display())});
        client.call("fs/watch", params).await;
        // The watch finds all the files at once, when it looks into the directory.
        let moved = tree.join(limit);
        std::fs::rename(&outside, &moved).unwrap();
        let told = client.take(|message| message["method"] == "fs/changed").await;
        assert_eq!(told["params"]["overflow"], is_overflow, "{limit}");
        std::fs::rename(&moved, &outside).unwrap();
    }
}

/// Consecutive checks, five milliseconds apart, at which the server has used no more CPU time. The kernel counts CPU time in hundredths
/// of a second, so a few checks prove nothing.
const QUIET_CHECKS: usize = 50;

/// Nothing here takes this long, even on a loaded machine, unless it waits for another client.
const AT_LAST: Duration = Duration::from_secs(20);

#[tokio::test]
async fn clients_that_do_not_read_delay_no_other_client() {
    let place = tempfile::tempdir().unwrap();
    let large = place.path().join("large");
    std::fs::create_dir(&large).unwrap();
    for number in 0..2000 {
        std::fs::write(large.join(format!("{number}{}", "x".repeat(100))), "").unwrap();
    }
    let uri = format!("file://{}", place.path().display());
    // In one write, so that the server reads all requests before the first large answer blocks it.
    let mut requests = Vec::new();
    for id in 100..300 {
        let params = json!({"path": format!("{uri}/large")});
        let request = json!({"id": id, "method": "fs/readDirectory", "params": params}).to_string();
        Framing::WebSocketClient.frame(&mut requests, request.len(), |out| out.extend_from_slice(request.as_bytes()));
    }
    // Three of the clients have more finished answers than the operations that all sessions together may have.
    let server = TestServer::with_args(&["--max-file-operations", "200"]).await;
    let mut silent = Vec::new();
    for _ in 0..3 {
        let mut client = server.client().await;
        client.send_bytes(&requests).await.unwrap();
        silent.push(client);
    }
    let (mut before, mut quiet_checks) = (None, 0);
    eventually("their answers wait", || {
        let now = testkit::cpu_time(server.pid());
        quiet_checks = if before.replace(now) == Some(now) { quiet_checks + 1 } else { 0 };
        (quiet_checks == QUIET_CHECKS).then_some(())
    })
    .await;
    let mut other = server.client().await;
    let listing = other.call("fs/readDirectory", json!({"path": uri}));
    let listed =
        tokio::time::timeout(AT_LAST, listing).await.expect("the request waits for clients that do not read");
    assert_eq!(listed["entries"][0]["fileName"], "large");
}

/// A folder with one file of this many zeros.
fn zeros(bytes: usize) -> (tempfile::TempDir, testkit::Value) {
    let place = tempfile::tempdir().unwrap();
    std::fs::File::create(place.path().join("zeros")).unwrap().set_len(bytes as u64).unwrap();
    let params = json!({"path": format!("file://{}/zeros", place.path().display())});
    (place, params)
}

/// Waits until the server has nothing left to do: it uses no CPU time in several checks.
async fn at_rest(server: &TestServer) {
    let (mut before, mut looks) = (None, 0);
    eventually("the server rests", || {
        let now = testkit::cpu_time(server.pid());
        looks = if before.replace(now) == Some(now) { looks + 1 } else { 0 };
        (looks == 30).then_some(())
    })
    .await;
}

#[tokio::test]
async fn large_files_are_not_read_for_a_client_that_does_not_read() {
    const SIZE: usize = 24 << 20;
    let (_place, params) = zeros(SIZE);
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let before = testkit::peak_resident_bytes(server.pid());
    let mut ids = Vec::new();
    for _ in 0..6 {
        ids.push(client.send("fs/readFile", params.clone()).await);
    }
    at_rest(&server).await;
    for id in ids {
        let answer = client.answer(id).await;
        assert_eq!(answer["result"]["dataBase64"].as_str().unwrap().len(), SIZE / 3 * 4);
    }
    let grown = testkit::peak_resident_bytes(server.pid()) - before;
    // Two answers at a time: the contents, the answer, and its copy in the buffer of the writer.
    assert!(grown < 4 * SIZE, "{grown} bytes for answers that are made one at a time");
}

#[tokio::test]
async fn large_answers_of_all_connections_together_are_limited() {
    let (place, params) = zeros(12 << 20);
    std::fs::write(place.path().join("small"), vec![0; 1 << 20]).unwrap();
    let small = json!({"path": format!("file://{}/small", place.path().display())});
    let server = TestServer::with_args(&["--max-large-answers", "64MiB"]).await;
    let mut silent = Vec::new();
    for _ in 0..4 {
        let mut client = server.client().await;
        client.send("fs/readFile", params.clone()).await;
        client.send("fs/readFile", params.clone()).await;
        silent.push(client);
    }
    at_rest(&server).await;
    let mut client = server.client().await;
    let large = client.send("fs/readFile", params.clone()).await;
    // Small answers do not wait for the large ones, and neither do answers below 4 MiB.
    for _ in 0..40 {
        let answer = client.request("fs/readFile", small.clone()).await;
        assert_eq!(answer["result"]["dataBase64"].as_str().unwrap().len(), (1_usize << 20).div_ceil(3) * 4);
    }
    drop(silent.pop());
    let answer = client.answer(large).await;
    assert_eq!(answer["result"]["dataBase64"].as_str().unwrap().len(), 16 << 20);
}

#[tokio::test]
async fn listings_are_not_made_for_a_client_that_does_not_read_and_are_complete_later() {
    // In memory, where many files are created quickly.
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    // In an answer, each of these characters takes six bytes.
    let name = |number: usize| format!("{number}{}", "\u{1}".repeat(240));
    for number in 0..3000 {
        std::fs::write(place.path().join(name(number)), "").unwrap();
    }
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let uri = format!("file://{}", place.path().display());
    let before = testkit::peak_resident_bytes(server.pid());
    let mut ids = Vec::new();
    for _ in 0..24 {
        ids.push(client.send("fs/readDirectory", json!({"path": uri})).await);
    }
    at_rest(&server).await;
    let grown = testkit::peak_resident_bytes(server.pid()) - before;
    assert!(grown < 64 << 20, "{grown} bytes for answers of which one can be sent");
    for id in ids.into_iter().take(3) {
        let answer = client.answer(id).await;
        assert_eq!(answer["result"]["entries"].as_array().map(Vec::len), Some(3000));
    }
}
