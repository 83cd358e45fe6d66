//! The methods `fs/open`, `fs/readBlock`, `fs/extents` and `fs/close`, with which a client reads a file in blocks.

use testkit::{base64, json, unbase64};

use crate::folder::{block, open, read_block, set_up};
use crate::{INVALID_REQUEST, NOT_FOUND, not_a_file, os_error, refusal};

const MIB: u64 = 1 << 20;

/// Contents of a file. Blocks of 1 MiB in it differ, so that a wrong block is noticed.
fn test_bytes(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n / 7) as u8).collect()
}

#[tokio::test]
async fn a_file_is_read_in_blocks_up_to_its_end() {
    let (folder, _server, mut client) = set_up().await;
    for (name, size) in
        [("empty", 0), ("short", 5), ("whole blocks", 2 * MIB as usize), ("odd", 2 * MIB as usize + 1)]
    {
        let bytes = test_bytes(size);
        open(&mut client, "h", &folder.file(name, &bytes)).await;
        let mut read = Vec::new();
        loop {
            let (block, eof) = read_block(&mut client, "h", read.len() as u64, MIB).await;
            // `eof` is true if the block is shorter than requested. A file of whole blocks ends with an empty block.
            assert_eq!(eof, block.len() < MIB as usize, "{name}");
            read.extend(block);
            if eof {
                break;
            }
        }
        assert_eq!(read, bytes, "{name}");
        assert_eq!(client.call("fs/close", json!({"handleId": "h"})).await, json!({}));
    }
}

#[tokio::test]
async fn opening_a_file_returns_its_metadata() {
    let (folder, _server, mut client) = set_up().await;
    let uri = folder.file("file", "hello");
    let metadata = client.call("fs/getMetadata", json!({"path": uri})).await;
    let opened = client.call("fs/open", json!({"handleId": "", "path": uri})).await;
    assert_eq!(opened, json!({"handleId": "", "metadata": metadata}));
    assert_eq!(read_block(&mut client, "", 0, 10).await, (b"hello".to_vec(), true));
}

#[tokio::test]
async fn blocks_may_overlap_go_backward_begin_after_the_end_and_be_requested_at_once() {
    let (folder, _server, mut client) = set_up().await;
    let bytes = test_bytes(3_000_000);
    open(&mut client, "h", &folder.file("file", &bytes)).await;
    let reads = [(2_999_990, 10), (0, 1), (1_000_000, MIB), (999_999, MIB), (5, 5), (7, 100_000)];
    for (offset, len) in reads {
        let expected = bytes[offset as usize..(offset + len) as usize].to_vec();
        assert_eq!(read_block(&mut client, "h", offset, len).await, (expected, false), "{offset}+{len}");
    }
    assert_eq!(read_block(&mut client, "h", 2_999_990, 11).await, (bytes[2_999_990..].to_vec(), true));
    for offset in [3_000_000, 3_000_001, 1 << 40, i64::MAX as u64 - 1] {
        assert_eq!(read_block(&mut client, "h", offset, 1).await, (vec![], true), "{offset}");
    }
    let mut ids = Vec::new();
    for (offset, len) in reads {
        ids.push((client.send("fs/readBlock", block("h", offset, len)).await, offset as usize, len as usize));
    }
    for (id, offset, len) in ids.into_iter().rev() {
        assert_eq!(unbase64(&client.answer(id).await["result"]["chunk"]), &bytes[offset..offset + len]);
    }
}

#[tokio::test]
async fn a_block_that_is_refused_leaves_the_handle_usable() {
    let (folder, _server, mut client) = set_up().await;
    let uri = folder.file("file", "hello");
    open(&mut client, "h", &uri).await;
    for len in [0, MIB + 1, u64::MAX] {
        let error = client.call_error("fs/readBlock", block("h", 0, len)).await;
        let message = "file read block length must be between 1 and 1048576";
        assert_eq!(error, json!({"code": INVALID_REQUEST, "message": message}), "{len}");
    }
    for offset in [u64::MAX, i64::MAX as u64] {
        let error = client.call_error("fs/readBlock", block("h", offset, 1)).await;
        assert_eq!(error, refusal("file read offset overflowed", &uri), "{offset}");
    }
    for params in
        [json!({"handleId": "h", "offset": -1, "len": 1}), json!({"handleId": "h", "offset": 0.5, "len": 1})]
    {
        assert_eq!(client.call_error("fs/readBlock", params).await["code"], -32602);
    }
    assert_eq!(read_block(&mut client, "h", 0, 5).await, (b"hello".to_vec(), false));
}

#[tokio::test]
async fn handles_have_names_of_at_most_32_bytes() {
    let (folder, _server, mut client) = set_up().await;
    let uri = folder.file("file", "hello");
    let (longest, too_long) = ("ü".repeat(16), "ü".repeat(16) + "x");
    open(&mut client, &longest, &uri).await;
    assert_eq!(read_block(&mut client, &longest, 0, 9).await, (b"hello".to_vec(), true));
    for (method, params) in [
        ("fs/open", json!({"handleId": too_long, "path": uri})),
        ("fs/create", json!({"handleId": too_long, "path": uri})),
        ("fs/readBlock", block(&too_long, 0, 1)),
        ("fs/writeBlock", crate::folder::chunk(&too_long, 0, "x")),
        ("fs/extents", json!({"handleId": too_long})),
        ("fs/commit", json!({"handleId": too_long})),
        ("fs/close", json!({"handleId": too_long})),
    ] {
        let message = "file read handle ID must not exceed 32 bytes";
        let expected = json!({"code": INVALID_REQUEST, "message": message});
        assert_eq!(client.call_error(method, params).await, expected, "{method}");
    }
}

#[tokio::test]
async fn handles_are_unique_until_they_are_closed() {
    let (folder, _server, mut client) = set_up().await;
    let uri = folder.file("file", "hello");
    open(&mut client, "h", &uri).await;
    for method in ["fs/open", "fs/create"] {
        let error = client.call_error(method, json!({"handleId": "h", "path": uri})).await;
        let message = "file read handle `h` already exists";
        assert_eq!(error, json!({"code": INVALID_REQUEST, "message": message}), "{method}");
    }
    // Closing a handle that is closed already is no error.
    for _ in 0..2 {
        assert_eq!(client.call("fs/close", json!({"handleId": "h"})).await, json!({}));
    }
    for (method, params) in [
        ("fs/readBlock", block("h", 0, 1)),
        ("fs/writeBlock", crate::folder::chunk("h", 0, "x")),
        ("fs/extents", json!({"handleId": "h"})),
        ("fs/commit", json!({"handleId": "h"})),
    ] {
        let expected = json!({"code": NOT_FOUND, "message": "unknown file read handle `h`"});
        assert_eq!(client.call_error(method, params).await, expected, "{method}");
    }
    open(&mut client, "h", &uri).await;
}

#[tokio::test]
async fn failed_opens_and_closed_handles_do_not_count_for_the_limit_of_open_handles() {
    let (folder, _server, mut client) = set_up().await;
    folder.directory("directory");
    // A session may have 128 open handles.
    for _ in 0..130 {
        let none = folder.uri("none");
        let error = client.call_error("fs/open", json!({"handleId": "h", "path": none})).await;
        assert_eq!(error, os_error(2, &none));
        let params = json!({"handleId": "h", "path": folder.uri("directory")});
        assert_eq!(client.call_error("fs/open", params).await, not_a_file(&folder.path("directory")));
    }
    let uri = folder.file("file", "hello");
    for _ in 0..130 {
        open(&mut client, "h", &uri).await;
        client.call("fs/close", json!({"handleId": "h"})).await;
    }
}

#[tokio::test]
async fn each_session_has_its_own_handles() {
    let (folder, server, mut client) = set_up().await;
    let mut other = server.client().await;
    open(&mut client, "h", &folder.file("one", "1")).await;
    open(&mut other, "h", &folder.file("two", "2")).await;
    assert_eq!(read_block(&mut client, "h", 0, 9).await, (b"1".to_vec(), true));
    assert_eq!(read_block(&mut other, "h", 0, 9).await, (b"2".to_vec(), true));
    other.call("fs/close", json!({"handleId": "h"})).await;
    assert_eq!(read_block(&mut client, "h", 0, 9).await, (b"1".to_vec(), true));
}

#[tokio::test]
async fn open_read_and_close_can_be_sent_without_waiting_for_answers() {
    let (folder, _server, mut client) = set_up().await;
    let uri = folder.file("file", test_bytes(100_000));
    let mut rounds = Vec::new();
    for round in 0..100 {
        let handle = format!("h{}", round % 3);
        let opened = client.send("fs/open", json!({"handleId": handle, "path": uri})).await;
        let first = client.send("fs/readBlock", block(&handle, 0, 60_000)).await;
        let second = client.send("fs/readBlock", block(&handle, 60_000, 60_000)).await;
        let extents = client.send("fs/extents", json!({"handleId": handle})).await;
        let closed = client.send("fs/close", json!({"handleId": handle})).await;
        let read_after_close = client.send("fs/readBlock", block(&handle, 0, 1)).await;
        rounds.push((handle, opened, first, second, extents, closed, read_after_close));
    }
    for (handle, opened, first, second, extents, closed, read_after_close) in rounds {
        assert_eq!(client.answer(opened).await["result"]["handleId"], json!(handle));
        let mut read = unbase64(&client.answer(first).await["result"]["chunk"]);
        let last = client.answer(second).await;
        read.extend(unbase64(&last["result"]["chunk"]));
        assert_eq!((read, &last["result"]["eof"]), (test_bytes(100_000), &json!(true)));
        assert_eq!(client.answer(extents).await["result"]["size"], 100_000);
        assert_eq!(client.answer(closed).await["result"], json!({}));
        let error = json!({"code": NOT_FOUND, "message": format!("unknown file read handle `{handle}`")});
        assert_eq!(client.answer(read_after_close).await["error"], error);
    }
}

#[tokio::test]
async fn after_an_open_that_fails_the_handle_is_unknown() {
    let (folder, _server, mut client) = set_up().await;
    let none = folder.uri("none");
    let opened = client.send("fs/open", json!({"handleId": "h", "path": none})).await;
    let read = client.send("fs/readBlock", block("h", 0, 1)).await;
    let closed = client.send("fs/close", json!({"handleId": "h"})).await;
    assert_eq!(client.answer(opened).await["error"], os_error(2, &none));
    let unknown = json!({"code": NOT_FOUND, "message": "unknown file read handle `h`"});
    assert_eq!(client.answer(read).await["error"], unknown);
    assert_eq!(client.answer(closed).await["result"], json!({}));
}

#[tokio::test]
async fn a_handle_stays_with_the_file_that_was_opened() {
    let (folder, _server, mut client) = set_up().await;
    let bytes = test_bytes(300_000);
    open(&mut client, "h", &folder.file("file", &bytes)).await;
    assert_eq!(read_block(&mut client, "h", 0, 100_000).await, (bytes[..100_000].to_vec(), false));
    folder.file("new", "replaced");
    std::fs::rename(folder.path("new"), folder.path("file")).unwrap();
    assert_eq!(read_block(&mut client, "h", 100_000, 100_000).await, (bytes[100_000..200_000].to_vec(), false));
    std::fs::remove_file(folder.path("file")).unwrap();
    assert_eq!(read_block(&mut client, "h", 200_000, 200_000).await, (bytes[200_000..].to_vec(), true));
}

#[tokio::test]
async fn a_file_that_shrinks_or_grows_is_read_at_its_present_size() {
    let (folder, _server, mut client) = set_up().await;
    let bytes = test_bytes(200_000);
    open(&mut client, "h", &folder.file("file", &bytes)).await;
    let file = std::fs::OpenOptions::new().write(true).open(folder.path("file")).unwrap();
    file.set_len(150_000).unwrap();
    assert_eq!(read_block(&mut client, "h", 100_000, 100_000).await, (bytes[100_000..150_000].to_vec(), true));
    file.set_len(0).unwrap();
    assert_eq!(read_block(&mut client, "h", 100_000, 100_000).await, (vec![], true));
    file.set_len(100_001).unwrap();
    assert_eq!(read_block(&mut client, "h", 100_000, 1).await, (vec![0], false));
}

#[tokio::test]
async fn an_input_output_error_closes_the_handle() {
    let (_folder, server, mut client) = set_up().await;
    // `/proc/PID/mem` is the memory of a process. A read at the address 0, which is not mapped, fails.
    let uri = format!("file:///proc/{}/mem", server.pid());
    open(&mut client, "h", &uri).await;
    let error = client.call_error("fs/readBlock", block("h", 0, 16)).await;
    let data = json!({"errno": 5, "kind": "other", "path": uri});
    assert_eq!(error, json!({"code": -32603, "data": data, "message": "Input/output error (os error 5)"}));
    let error = client.call_error("fs/readBlock", block("h", 0, 16)).await;
    assert_eq!(error, json!({"code": NOT_FOUND, "message": "unknown file read handle `h`"}));
}

#[tokio::test]
async fn extents_report_where_a_file_has_data() {
    use std::os::unix::fs::FileExt as _;
    let (folder, _server, mut client) = set_up().await;
    let uri = folder.file("file", "");
    let file = std::fs::OpenOptions::new().write(true).open(folder.path("file")).unwrap();
    file.set_len(10 * MIB).unwrap();
    file.write_all_at(&[1; 65_536], 4 * MIB).unwrap();
    open(&mut client, "h", &uri).await;
    let found = client.call("fs/extents", json!({"handleId": "h"})).await;
    assert_eq!(found, json!({"extents": [{"offset": 4 * MIB, "len": 65_536}], "size": 10 * MIB}));
    let found = client.call("fs/extents", json!({"handleId": "h", "offset": 4 * MIB + 4096})).await;
    assert_eq!(found["extents"], json!([{"offset": 4 * MIB + 4096, "len": 65_536 - 4096}]));
    for offset in [5 * MIB, 10 * MIB, 11 * MIB, i64::MAX as u64] {
        let found = client.call("fs/extents", json!({"handleId": "h", "offset": offset})).await;
        assert_eq!(found, json!({"extents": [], "size": 10 * MIB}), "{offset}");
    }
    assert_eq!(base64(read_block(&mut client, "h", 4 * MIB, 2).await.0), base64([1, 1]));
}
