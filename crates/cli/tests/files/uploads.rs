//! The methods `fs/create`, `fs/writeBlock` and `fs/commit`, with which a client uploads a file in blocks.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use testkit::{Client, Value, json};

use crate::folder::{chunk, set_up};
use crate::{INVALID_REQUEST, NOT_FOUND, not_a_file, os_error, refusal};

const MIB: u64 = 1 << 20;

async fn create(client: &mut Client, handle: &str, uri: &str) {
    let created = client.call("fs/create", json!({"handleId": handle, "path": uri})).await;
    assert_eq!(created, json!({"handleId": handle}));
}

async fn commit(client: &mut Client, params: Value) {
    assert_eq!(client.call("fs/commit", params).await, json!({}));
}

#[tokio::test]
async fn an_upload_is_visible_only_after_its_commit_and_the_commit_can_be_repeated() {
    let (folder, _server, mut client) = set_up().await;
    let uri = folder.file("file", "old");
    create(&mut client, "u", &uri).await;
    assert_eq!(client.call("fs/writeBlock", chunk("u", 3, "world")).await, json!({}));
    assert_eq!(folder.read("file"), b"old");
    assert_eq!(client.call("fs/writeBlock", chunk("u", 0, "hel")).await, json!({}));
    assert_eq!(folder.names(""), ["file"]);
    // A client that has lost an answer sends its request again, and gets the same answer.
    for _ in 0..3 {
        commit(&mut client, json!({"handleId": "u"})).await;
        assert_eq!(folder.read("file"), b"helworld");
    }
    // A repeated commit does not write the file again.
    folder.file("file", "changed since");
    commit(&mut client, json!({"handleId": "u"})).await;
    assert_eq!((folder.names(""), folder.read("file")), (vec!["file".to_owned()], b"changed since".to_vec()));
    assert_eq!(client.call("fs/close", json!({"handleId": "u"})).await, json!({}));
    let unknown = json!({"code": NOT_FOUND, "message": "unknown file read handle `u`"});
    assert_eq!(client.call_error("fs/commit", json!({"handleId": "u"})).await, unknown);
}

#[tokio::test]
async fn all_requests_of_an_upload_can_be_sent_at_once_with_blocks_in_any_order() {
    let (folder, _server, mut client) = set_up().await;
    let bytes: Vec<u8> = (0..2_000_003u32).map(|n| (n / 11) as u8).collect();
    for round in 0..20usize {
        let name = format!("file {round}");
        let mut ids = vec![client.send("fs/create", json!({"handleId": "u", "path": folder.uri(&name)})).await];
        let blocks: Vec<_> = bytes.chunks(50_000).enumerate().collect();
        // The number of blocks is the prime 41, so these steps reach every block once, in another order in each
        // round.
        assert_eq!(blocks.len(), 41);
        for step in 0..blocks.len() {
            let (index, block) = blocks[(step * (2 * round + 1) + 7 * round) % blocks.len()];
            ids.push(client.send("fs/writeBlock", chunk("u", 50_000 * index as u64, block)).await);
        }
        ids.push(client.send("fs/commit", json!({"handleId": "u", "sync": round == 0})).await);
        ids.push(client.send("fs/close", json!({"handleId": "u"})).await);
        for id in ids {
            let answer = client.answer(id).await;
            assert!(answer.get("result").is_some(), "{answer}");
        }
        assert_eq!(folder.read(&name), bytes, "round {round}");
    }
}

#[tokio::test]
async fn size_mode_and_time_are_set_by_the_commit() {
    let (folder, _server, mut client) = set_up().await;
    let uri = folder.uri("file");
    for (size, expected) in [(0, vec![]), (3, b"abc".to_vec()), (8, b"abcdef\0\0".to_vec())] {
        create(&mut client, "u", &uri).await;
        client.call("fs/writeBlock", chunk("u", 0, "abcdef")).await;
        let mtime = json!({"secs": 1_000_000_000, "nanos": 5});
        commit(&mut client, json!({"handleId": "u", "size": size, "mode": 0o4604, "mtime": mtime})).await;
        client.call("fs/close", json!({"handleId": "u"})).await;
        let found = std::fs::metadata(folder.path("file")).unwrap();
        assert_eq!(folder.read("file"), expected);
        assert_eq!((found.mode() & 0o7777, found.mtime(), found.mtime_nsec()), (0o4604, 1_000_000_000, 5));
    }
    // Without a mode, the new file has the mode of the file that it replaces.
    std::fs::set_permissions(folder.path("file"), std::fs::Permissions::from_mode(0o640)).unwrap();
    create(&mut client, "u", &uri).await;
    commit(&mut client, json!({"handleId": "u"})).await;
    let found = std::fs::metadata(folder.path("file")).unwrap();
    assert_eq!((found.mode() & 0o7777, found.len()), (0o640, 0), "an upload without blocks is empty");
}

#[tokio::test]
async fn a_block_far_after_the_end_of_the_file_leaves_a_hole() {
    let (folder, _server, mut client) = set_up().await;
    let far = 20_000_000_000;
    create(&mut client, "u", &folder.uri("file")).await;
    client.call("fs/writeBlock", chunk("u", far, "end")).await;
    commit(&mut client, json!({"handleId": "u"})).await;
    let found = std::fs::metadata(folder.path("file")).unwrap();
    assert_eq!(found.len(), far + 3);
    assert!(found.blocks() < 1000, "{} blocks on the disk for three bytes", found.blocks());
}

#[tokio::test]
async fn the_size_and_the_offset_of_a_block_are_checked() {
    let (folder, _server, mut client) = set_up().await;
    let uri = folder.uri("file");
    create(&mut client, "u", &uri).await;
    client.call("fs/writeBlock", chunk("u", 0, vec![7; MIB as usize])).await;
    commit(&mut client, json!({"handleId": "u"})).await;
    assert_eq!(folder.read("file"), vec![7; MIB as usize]);
    client.call("fs/close", json!({"handleId": "u"})).await;

    for block in [vec![], vec![0; MIB as usize + 1]] {
        create(&mut client, "u", &uri).await;
        let error = client.call_error("fs/writeBlock", chunk("u", 0, block)).await;
        let message = "file write block length must be between 1 and 1048576";
        assert_eq!(error, json!({"code": INVALID_REQUEST, "message": message}));
        let message = format!("the upload has failed: a block was refused: {message}");
        let error = client.call_error("fs/commit", json!({"handleId": "u"})).await;
        assert_eq!(error, json!({"code": INVALID_REQUEST, "message": message}));
    }
    for offset in [u64::MAX, i64::MAX as u64] {
        create(&mut client, "u", &uri).await;
        let error = client.call_error("fs/writeBlock", chunk("u", offset, "x")).await;
        assert_eq!(error, refusal("file write offset overflowed", &uri), "{offset}");
        let message = format!(
            "the upload has failed: 1 bytes at offset {offset} were not written: file write offset overflowed"
        );
        assert_eq!(client.call_error("fs/commit", json!({"handleId": "u"})).await, refusal(&message, &uri));
    }
    assert_eq!((folder.names(""), folder.read("file")), (vec!["file".to_owned()], vec![7; MIB as usize]));
}

/// A server whose files cannot be larger than 1 or 2 MiB (depending on the unit of `ulimit -f`). A write beyond this
/// size fails, as on a full disk.
async fn server_with_file_size_limit() -> testkit::TestServer {
    let mut command = tokio::process::Command::new("sh");
    command.args(["-c", "trap '' XFSZ; ulimit -f 2048; exec \"$@\"", "sh"]).arg(testkit::binary());
    testkit::TestServer::launch(command, &[]).await
}

#[tokio::test]
async fn an_upload_with_a_block_that_cannot_be_written_leaves_the_old_file_unchanged() {
    let folder = crate::folder::Folder::new();
    let server = server_with_file_size_limit().await;
    let mut client = server.client().await;
    let uri = folder.file("file", "old");
    let block_bytes = 1_000_000;
    let mut ids = vec![client.send("fs/create", json!({"handleId": "u", "path": uri})).await];
    for number in [0, 1, 2, 3] {
        ids.push(client.send("fs/writeBlock", chunk("u", number * block_bytes, vec![7; block_bytes as usize])).await);
    }
    // Commit and close are sent before the test reads the answers to the blocks.
    let commit = client.send("fs/commit", json!({"handleId": "u", "size": 4 * block_bytes})).await;
    let close = client.send("fs/close", json!({"handleId": "u"})).await;
    let mut failures = 0;
    for id in ids {
        failures += usize::from(client.answer(id).await.get("error").is_some());
    }
    assert!(failures > 0, "a file of {} bytes was written", 4 * block_bytes);
    let error = client.answer(commit).await["error"].clone();
    let message = error["message"].as_str().unwrap();
    assert!(message.starts_with("the upload has failed: 1000000 bytes at offset "), "{error}");
    assert!(message.ends_with(" were not written: File too large (os error 27)"), "{error}");
    assert_eq!(client.answer(close).await["result"], json!({}));
    assert_eq!((folder.names(""), folder.read("file")), (vec!["file".to_owned()], b"old".to_vec()));
}

#[tokio::test]
async fn a_commit_fails_if_a_block_was_refused_because_of_too_many_requests() {
    let folder = crate::folder::Folder::new();
    let server = testkit::TestServer::with_args(&["--max-requests", "1"]).await;
    let mut client = server.client().await;
    let uri = folder.file("file", "old");
    create(&mut client, "u", &uri).await;
    // The connection may have one unanswered request. The `process/read` below is that request: it waits until the
    // process ends.
    folder.fifo("end");
    client.start("p", &["/bin/sh", "-c", "read line < \"$0\"", folder.path("end").to_str().unwrap()]).await;
    let read = client.send("process/read", json!({"processId": "p", "waitMs": 600_000})).await;
    let error = client.call_error("fs/writeBlock", chunk("u", 0, "new")).await;
    assert!(error["message"].as_str().unwrap().contains("--max-requests"), "{error}");
    std::fs::write(folder.path("end"), "\n").unwrap();
    client.answer(read).await;
    let error = client.call_error("fs/commit", json!({"handleId": "u"})).await;
    let message = "the upload has failed: a block was refused: the connection had too many unanswered requests (--max-requests)";
    assert_eq!(error, json!({"code": INVALID_REQUEST, "message": message}));
    assert_eq!(folder.read("file"), b"old");
}

/// A client with the uploads `u` and `other`. The server has the first block of each. A commit would replace an old
/// file.
async fn two_uploads(folder: &crate::folder::Folder, server: &testkit::TestServer) -> Client {
    let mut client = server.client().await;
    for handle in ["u", "other"] {
        create(&mut client, handle, &folder.file(handle, "old")).await;
        client.call("fs/writeBlock", chunk(handle, 0, "new")).await;
    }
    client
}

/// Checks that a further block and the commit of `u` are refused, and that `other` can be committed. `cause` is shown
/// if the check fails.
async fn assert_only_u_has_failed(client: &mut Client, folder: &crate::folder::Folder, cause: &str) {
    let later = client.call_error("fs/writeBlock", chunk("u", 6, "end")).await;
    let commit = client.call_error("fs/commit", json!({"handleId": "u", "size": 9})).await;
    for error in [later, commit] {
        let message = error["message"].as_str().unwrap();
        assert!(message.starts_with("the upload has failed: "), "{error} after {cause}");
    }
    assert_eq!(folder.read("u"), b"old", "{cause}");
    commit_other(client, folder).await;
}

async fn commit_other(client: &mut Client, folder: &crate::folder::Folder) {
    commit(client, json!({"handleId": "other"})).await;
    assert_eq!(folder.read("other"), b"new");
}

#[tokio::test]
async fn a_block_in_an_invalid_message_makes_only_its_own_upload_fail() {
    let server = testkit::TestServer::start().await;
    let long_id = "x".repeat(2000);
    for refused_message in [
        // Params that are invalid.
        r#"{"id":90,"method":"fs/writeBlock","params":{"handleId":"u","offset":3,"chunk":"no base64"}}"#.to_owned(),
        r#"{"id":90,"method":"fs/writeBlock","params":{"handleId":"u","offset":3}}"#.to_owned(),
        r#"{"id":90,"method":"fs/writeBlock","params":{"handleId":"u","offset":-3,"chunk":"YWJj"}}"#.to_owned(),
        // A member that comes twice.
        r#"{"id":90,"method":"fs/writeBlock","params":{"handleId":"u","offset":3,"offset":3,"chunk":"YWJj"}}"#
            .to_owned(),
        r#"{"id":90,"method":"fs\/writeBlock","params":{"handleId":"u","offset":3,"chunk":"YWJj","x":1,"x":1}}"#
            .to_owned(),
        // No valid id of the request.
        r#"{"id":null,"method":"fs/writeBlock","params":{"handleId":"u","offset":3,"chunk":"YWJj"}}"#.to_owned(),
        r#"{"method":"fs/writeBlock","params":{"handleId":"u","offset":3,"chunk":"YWJj"}}"#.to_owned(),
        json!({"id": long_id, "method": "fs/writeBlock", "params": chunk("u", 3, "abc")}).to_string(),
    ] {
        let folder = crate::folder::Folder::new();
        let mut client = two_uploads(&folder, &server).await;
        client.send_text(&refused_message).await;
        assert_only_u_has_failed(&mut client, &folder, &refused_message).await;
    }
}

#[tokio::test]
async fn a_block_of_the_wrong_length_makes_only_its_own_upload_fail() {
    let (folder, server, _) = set_up().await;
    let mut client = two_uploads(&folder, &server).await;
    client.call_error("fs/writeBlock", chunk("u", 3, "")).await;
    assert_only_u_has_failed(&mut client, &folder, "an empty block").await;
}

#[tokio::test]
async fn a_refused_message_that_may_have_been_a_block_makes_every_upload_fail() {
    let server = testkit::TestServer::with_args(&["--max-message-bytes", "64KiB"]).await;
    let huge = chunk("u", 3, vec![7; 100_000]);
    for refused_message in [
        // Messages that are longer than allowed.
        format!(r#"{{"id":90,"method":"fs/writeBlock","params":{huge}}}"#),
        format!(r#"{{"params":{huge},"method":"fs/writeBlock","id":90}}"#),
        // A message without its last brace, one with two handles, and an array.
        r#"{"id":90,"method":"fs/writeBlock","params":{"handleId":"u","offset":3,"chunk":"YWJj"}"#.to_owned(),
        r#"{"id":90,"method":"fs/writeBlock","params":{"handleId":"u","handleId":"u","offset":3,"chunk":"YWJj"}}"#
            .to_owned(),
        r#"[{"id":90,"method":"fs/writeBlock","params":{"handleId":"u","offset":3,"chunk":"YWJj"}}]"#.to_owned(),
    ] {
        let folder = crate::folder::Folder::new();
        let mut client = two_uploads(&folder, &server).await;
        client.send_text(&refused_message).await;
        for handle in ["u", "other"] {
            let error = client.call_error("fs/commit", json!({"handleId": handle, "size": 6})).await;
            let message = error["message"].as_str().unwrap();
            let expected = "the upload has failed: a message that may have been a block of it was refused: ";
            assert!(message.starts_with(expected), "{error} after {}", &refused_message[..80]);
            assert_eq!(folder.read(handle), b"old");
        }
    }
}

#[tokio::test]
async fn refused_messages_that_cannot_be_blocks_of_an_upload_leave_it_intact() {
    let (folder, server, _) = set_up().await;
    let mut client = two_uploads(&folder, &server).await;
    for refused_message in [
        r#"{"id":90,"method":"fs/readFile","params":{"path":"file:///a","path":"file:///a"}}"#,
        r#"{"id":90,"method":"fs/readFile","params":{"path":"file:///a""#,
        r#"{"id":90,"method":"fs/writeBlock","params":{"handleId":"another","offset":3}}"#,
    ] {
        client.send_text(refused_message).await;
    }
    // A block from an observer does no harm either. An observer is a connection that cannot use the handles of the
    // session.
    let mut observer = server.connect_without_handshake().await;
    observer.call("initialize", json!({"clientName": "o", "resumeSessionId": client.session, "observe": true})).await;
    observer.notify("initialized", json!({})).await;
    observer.call_error("fs/writeBlock", chunk("u", 3, "")).await;
    commit(&mut client, json!({"handleId": "u"})).await;
    assert_eq!(folder.read("u"), b"new");
    commit_other(&mut client, &folder).await;
}

#[tokio::test]
async fn an_upload_cannot_be_read_and_an_open_file_cannot_be_written() {
    let (folder, _server, mut client) = set_up().await;
    let uri = folder.file("file", "kept");
    create(&mut client, "upload", &folder.uri("new")).await;
    crate::folder::open(&mut client, "file", &uri).await;
    let unknown =
        |handle: &str| json!({"code": NOT_FOUND, "message": format!("unknown file read handle `{handle}`")});
    for (method, handle, params) in [
        ("fs/readBlock", "upload", crate::folder::block("upload", 0, 1)),
        ("fs/extents", "upload", json!({"handleId": "upload"})),
        ("fs/writeBlock", "file", chunk("file", 0, "x")),
        ("fs/commit", "file", json!({"handleId": "file"})),
    ] {
        assert_eq!(client.call_error(method, params).await, unknown(handle), "{method}");
    }
    // Both handles are still usable, until the upload is committed.
    assert_eq!(crate::folder::read_block(&mut client, "file", 0, 9).await, (b"kept".to_vec(), true));
    commit(&mut client, json!({"handleId": "upload"})).await;
    assert_eq!(folder.names(""), ["file", "new"]);
    let error = client.call_error("fs/writeBlock", chunk("upload", 0, "late")).await;
    assert_eq!(error, unknown("upload"));
}

#[tokio::test]
async fn uploads_that_cannot_be_created_report_the_reason() {
    let (folder, _server, mut client) = set_up().await;
    let (file, directory, fifo) = (folder.file("file", "kept"), folder.directory("directory"), folder.fifo("fifo"));
    for (path, replace, expected) in [
        (folder.uri("none/new"), true, os_error(2, &folder.uri("none/new"))),
        (folder.uri("file/new"), true, os_error(20, &folder.uri("file/new"))),
        (file.clone(), false, os_error(17, &file)),
        (directory.clone(), true, os_error(21, &directory)),
        ("file:///".to_owned(), true, os_error(21, "file:///")),
        (fifo.clone(), true, not_a_file(&folder.path("fifo"))),
    ] {
        let params = json!({"handleId": "u", "path": path, "replace": replace});
        assert_eq!(client.call_error("fs/create", params).await, expected, "{path}");
    }
    let unknown = json!({"code": NOT_FOUND, "message": "unknown file read handle `u`"});
    assert_eq!(client.call_error("fs/commit", json!({"handleId": "u"})).await, unknown);
    assert_eq!(folder.names(""), ["directory", "fifo", "file"]);
}

#[tokio::test]
async fn an_upload_with_replace_false_does_not_replace_a_file_that_appears_before_its_commit() {
    let (folder, _server, mut client) = set_up().await;
    let uri = folder.uri("file");
    let params = json!({"handleId": "u", "path": uri, "replace": false});
    assert_eq!(client.call("fs/create", params).await, json!({"handleId": "u"}));
    folder.file("file", "first");
    assert_eq!(client.call_error("fs/commit", json!({"handleId": "u"})).await, os_error(17, &uri));
    assert_eq!((folder.names(""), folder.read("file")), (vec!["file".to_owned()], b"first".to_vec()));
    // The failed commit has closed the upload. Its handle is unknown and can be used again.
    let unknown = json!({"code": NOT_FOUND, "message": "unknown file read handle `u`"});
    assert_eq!(client.call_error("fs/commit", json!({"handleId": "u"})).await, unknown);
    create(&mut client, "u", &uri).await;
}

#[tokio::test]
async fn an_upload_to_a_link_replaces_the_target_of_the_link() {
    let (folder, _server, mut client) = set_up().await;
    folder.file("real/file", "old");
    let link = folder.link("real/file", "link");
    create(&mut client, "u", &link).await;
    client.call("fs/writeBlock", chunk("u", 0, "new")).await;
    commit(&mut client, json!({"handleId": "u"})).await;
    assert!(folder.path("link").is_symlink());
    assert_eq!((folder.read("real/file"), folder.names("real")), (b"new".to_vec(), vec!["file".to_owned()]));
}

#[tokio::test]
async fn an_upload_that_is_closed_or_whose_commit_fails_leaves_no_file() {
    let (folder, server, mut client) = set_up().await;
    let before = testkit::open_fds(server.pid());
    create(&mut client, "u", &folder.uri("file")).await;
    client.call("fs/writeBlock", chunk("u", 0, "x")).await;
    assert!(testkit::open_fds(server.pid()) > before);
    assert_eq!(client.call("fs/close", json!({"handleId": "u"})).await, json!({}));
    assert!(folder.names("").is_empty());
    assert_eq!(testkit::open_fds(server.pid()), before, "the temporary file is closed when the answer comes");
    let bad_time = json!({"handleId": "u", "mtime": {"secs": 0, "nanos": 1_000_000_000}});
    create(&mut client, "u", &folder.uri("file")).await;
    let error = client.call_error("fs/commit", bad_time).await;
    assert_eq!(error, refusal("nanoseconds must be below 1000000000", &folder.uri("file")));
    assert!(folder.names("").is_empty());
}
