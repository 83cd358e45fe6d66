//! Limits for open files, for file operations, for the changes that a watch finds, and for large answers about files.

use std::time::Duration;

use testkit::{Client, TestServer, eventually, eventually_async, json};
use transport::Framing;

const INVALID_REQUEST: i64 = -32600;

/// Opens `limit` files, which must succeed, and one more, which must fail. Returns the error.
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
        // This error text comes from the published protocol (that of `codex exec-server`), so it does not name our
        // flag.
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
        // The server still knows the handle of a committed upload, but the handle does not count.
        client.call("fs/open", json!({"handleId": "0", "path": upload})).await;
    }
}

#[tokio::test]
async fn a_huge_limit_for_ids_does_not_keep_files_from_being_read() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("small"), "hello").unwrap();
    std::fs::create_dir(folder.path().join("skill")).unwrap();
    std::fs::write(folder.path().join("skill/SKILL.md"), "a skill").unwrap();
    let uri = format!("file://{}", folder.path().display());
    for limit in ["1GiB", &u64::MAX.to_string()] {
        let server = TestServer::with_args(&["--max-id-bytes", limit]).await;
        let mut client = server.client().await;
        let file = client.call("fs/readFile", json!({"path": format!("{uri}/small")})).await;
        assert_eq!(file, json!({"dataBase64": "aGVsbG8="}), "{limit}");
        let roots = json!({"roots": [{"id": "root", "path": uri}]});
        let found = client.call("capabilityRoots/discoverV1", roots).await;
        assert_eq!(found["roots"][0]["skills"].as_array().map(Vec::len), Some(1), "{limit}: {found}");
    }
}

/// Size in bytes of a file whose copy takes so long that another request can be handled meanwhile.
const LARGE: u64 = 128 << 20;

/// Creates a directory while a large file is copied. Returns how many bytes were copied when the directory was
/// created.
async fn copied_before_directory_was_created(client: &mut Client, folder: &std::path::Path) -> u64 {
    let uri = format!("file://{}/directory", folder.display());
    copied_while(client, folder, async |client| client.call("fs/createDirectory", json!({"path": uri})).await).await
}

/// Copies a large file, and calls `other` as soon as the copy has begun. Returns how many bytes were copied when
/// `other` was done.
async fn copied_while<R>(
    client: &mut Client,
    folder: &std::path::Path,
    other: impl AsyncFnOnce(&mut Client) -> R,
) -> u64 {
    let uri = |name: &str| format!("file://{}/{name}", folder.display());
    let copied = || std::fs::metadata(folder.join("copy")).map_or(0, |found| found.len());
    let _ = std::fs::remove_file(folder.join("copy"));
    let copy = json!({"sourcePath": uri("large"), "destinationPath": uri("copy"), "recursive": false});
    let copying = client.send("fs/copy", copy).await;
    eventually("the copy has begun", || (copied() > 0).then_some(())).await;
    other(client).await;
    let seen = copied();
    assert_eq!(client.answer(copying).await["result"], json!({}));
    seen
}

#[tokio::test]
async fn file_operations_beyond_the_limit_wait() {
    // The files are in memory, because some file systems on disks copy a file by sharing its blocks, which takes no
    // time.
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    std::fs::write(folder.path().join("large"), vec![7; LARGE as usize]).unwrap();
    let server = TestServer::with_args(&["--max-file-operations", "1"]).await;
    let mut client = server.client().await;
    for _ in 0..5 {
        assert_eq!(
            copied_before_directory_was_created(&mut client, folder.path()).await,
            LARGE,
            "the directory was created before the copy was done"
        );
    }
    let server = TestServer::start().await;
    let mut client = server.client().await;
    eventually_async("with the default limit, the directory is created during the copy", async || {
        (copied_before_directory_was_created(&mut client, folder.path()).await < LARGE).then_some(())
    })
    .await;
}

#[tokio::test]
async fn file_operations_beyond_the_limit_for_all_sessions_wait() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    std::fs::write(folder.path().join("large"), vec![7; LARGE as usize]).unwrap();
    let server = TestServer::with_args(&["--max-file-operations-total", "1"]).await;
    let (mut client, mut other) = (server.client().await, server.client().await);
    let params = json!({"path": format!("file://{}/directory", folder.path().display())});
    let copied = copied_while(&mut client, folder.path(), async |_| other.call("fs/createDirectory", params).await);
    assert_eq!(copied.await, LARGE, "the directory of the other session was created before the copy was done");
}

#[tokio::test]
async fn more_changes_than_max_watch_changes_are_reported_as_an_overflow() {
    let folder = tempfile::tempdir().unwrap();
    let (tree, outside) = (folder.path().join("tree"), folder.path().join("outside"));
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
        // The directory is moved into the tree with all its files, so the watch finds all of them at once.
        let moved = tree.join(limit);
        std::fs::rename(&outside, &moved).unwrap();
        let notification = client.take(|message| message["method"] == "fs/changed").await;
        assert_eq!(notification["params"]["overflow"], is_overflow, "{limit}");
        std::fs::rename(&moved, &outside).unwrap();
    }
}

/// The server is idle if its CPU time has not changed in this many consecutive checks. Checks are five milliseconds
/// apart and the kernel counts CPU time in hundredths of a second, so a few checks prove nothing.
const QUIET_CHECKS: usize = 50;

/// Limit for a request. Even on a loaded machine a request takes less, unless it waits for another client.
const REQUEST_LIMIT: Duration = Duration::from_secs(20);

#[tokio::test]
async fn clients_that_do_not_read_delay_no_other_client() {
    let folder = tempfile::tempdir().unwrap();
    let large = folder.path().join("large");
    std::fs::create_dir(&large).unwrap();
    for number in 0..2000 {
        std::fs::write(large.join(format!("{number}{}", "x".repeat(100))), "").unwrap();
    }
    let uri = format!("file://{}", folder.path().display());
    // All requests are sent in one write, so that the server reads them before the first large answer blocks the
    // connection.
    let mut requests = Vec::new();
    for id in 100..300 {
        let params = json!({"path": format!("{uri}/large")});
        let request = json!({"id": id, "method": "fs/readDirectory", "params": params}).to_string();
        Framing::WebSocketClient.frame(&mut requests, request.len(), |out| out.extend_from_slice(request.as_bytes()));
    }
    // The three clients that do not read cause 200 operations each, 600 together. The server runs at most 384
    // operations of all sessions at a time (the default of `--max-file-operations-total`). An operation that is done,
    // but whose answer is not sent yet, must not count for this limit: otherwise the last client would have to wait.
    let server = TestServer::with_args(&["--max-file-operations", "200"]).await;
    let mut unreading = Vec::new();
    for _ in 0..3 {
        let mut client = server.client().await;
        client.send_bytes(&requests).await.unwrap();
        unreading.push(client);
    }
    // The server is idle when it has made all answers that may wait to be sent.
    wait_until_idle(&server).await;
    let mut other = server.client().await;
    let listing = other.call("fs/readDirectory", json!({"path": uri}));
    let listed =
        tokio::time::timeout(REQUEST_LIMIT, listing).await.expect("the request waits for clients that do not read");
    assert_eq!(listed["entries"][0]["fileName"], "large");
}

/// A folder with one file of this many zeros, and params to read the file.
fn folder_with_zeros(bytes: usize) -> (tempfile::TempDir, testkit::Value) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::File::create(folder.path().join("zeros")).unwrap().set_len(bytes as u64).unwrap();
    let params = json!({"path": format!("file://{}/zeros", folder.path().display())});
    (folder, params)
}

/// Waits until the server is idle; see [`QUIET_CHECKS`].
async fn wait_until_idle(server: &TestServer) {
    let (mut before, mut quiet_checks) = (None, 0);
    eventually("the server is idle", || {
        let now = testkit::cpu_time(server.pid());
        quiet_checks = if before.replace(now) == Some(now) { quiet_checks + 1 } else { 0 };
        (quiet_checks == QUIET_CHECKS).then_some(())
    })
    .await;
}

#[tokio::test]
async fn large_answers_to_one_client_are_made_one_at_a_time() {
    const SIZE: usize = 24 << 20;
    let (_folder, params) = folder_with_zeros(SIZE);
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let before = testkit::peak_resident_bytes(server.pid());
    let mut ids = Vec::new();
    for _ in 0..6 {
        ids.push(client.send("fs/readFile", params.clone()).await);
    }
    wait_until_idle(&server).await;
    for id in ids {
        let answer = client.answer(id).await;
        assert_eq!(answer["result"]["dataBase64"].as_str().unwrap().len(), SIZE / 3 * 4);
    }
    let grown = testkit::peak_resident_bytes(server.pid()) - before;
    // One answer at a time needs less than four times the size of the file: the contents, the answer in base64, and a
    // copy of the answer in the buffer of the writer.
    assert!(grown < 4 * SIZE, "{grown} bytes are used, so several answers were made at the same time");
}

#[tokio::test]
async fn many_large_files_that_are_requested_at_once_are_all_read() {
    const SIZE: usize = 3 << 20;
    let (_folder, params) = folder_with_zeros(SIZE);
    for args in [&["--max-file-operations", "1"][..], &[]] {
        let server = TestServer::with_args(args).await;
        let mut client = server.client().await;
        let mut ids = Vec::new();
        for _ in 0..64 {
            ids.push(client.send("fs/readFile", params.clone()).await);
        }
        for id in ids {
            let answer = tokio::time::timeout(REQUEST_LIMIT, client.answer(id)).await;
            let answer = answer.expect("a request waits for a permit that another waiting request holds");
            assert_eq!(answer["result"]["dataBase64"].as_str().unwrap().len(), SIZE / 3 * 4);
        }
    }
}

#[tokio::test]
async fn small_answers_do_not_wait_while_large_answers_use_up_their_limit() {
    // Each large answer has 16 MiB, because base64 makes the contents longer by a third. So four of them reach the
    // limit.
    let (folder, params) = folder_with_zeros(12 << 20);
    std::fs::write(folder.path().join("small"), vec![0; 1 << 20]).unwrap();
    let small = json!({"path": format!("file://{}/small", folder.path().display())});
    let server = TestServer::with_args(&["--max-large-answers", "64MiB"]).await;
    let mut unreading = Vec::new();
    for _ in 0..4 {
        let mut client = server.client().await;
        client.send("fs/readFile", params.clone()).await;
        client.send("fs/readFile", params.clone()).await;
        unreading.push(client);
    }
    wait_until_idle(&server).await;
    let mut client = server.client().await;
    let large = client.send("fs/readFile", params.clone()).await;
    // Answers below 4 MiB do not wait for the large ones.
    for _ in 0..40 {
        let answer = client.request("fs/readFile", small.clone()).await;
        assert_eq!(answer["result"]["dataBase64"].as_str().unwrap().len(), (1_usize << 20).div_ceil(3) * 4);
    }
    drop(unreading.pop());
    let answer = client.answer(large).await;
    assert_eq!(answer["result"]["dataBase64"].as_str().unwrap().len(), 16 << 20);
}

#[tokio::test]
async fn listings_wait_for_a_client_that_does_not_read_and_are_complete_later() {
    // The files are in memory, where many files are created quickly.
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    // In an answer, each of these characters takes six bytes.
    let name = |number: usize| format!("{number}{}", "\u{1}".repeat(240));
    for number in 0..3000 {
        std::fs::write(folder.path().join(name(number)), "").unwrap();
    }
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let uri = format!("file://{}", folder.path().display());
    let before = testkit::peak_resident_bytes(server.pid());
    let mut ids = Vec::new();
    for _ in 0..24 {
        ids.push(client.send("fs/readDirectory", json!({"path": uri})).await);
    }
    wait_until_idle(&server).await;
    let grown = testkit::peak_resident_bytes(server.pid()) - before;
    assert!(grown < 64 << 20, "{grown} bytes are used for answers that the client does not read");
    for id in ids.into_iter().take(3) {
        let answer = client.answer(id).await;
        assert_eq!(answer["result"]["entries"].as_array().map(Vec::len), Some(3000));
    }
}
