//! Files of servers without extensions, and of servers that fail or break the protocol.

use std::io::ErrorKind;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use client::{ExecutorFileSystem as _, FileTime, PathUri, WriteStreamOptions};
use testkit::scripted::{ClientMessage, ScriptedReply};
use testkit::{ScriptedServer, base64, json, unbase64};

use crate::metadata_sharing::connect;
use crate::support::{collect, noise};

const MIB: u64 = 1 << 20;

fn uri() -> PathUri {
    "file:///a".parse().unwrap()
}

/// Answers reads with blocks of `data`. A block that is not full is the last block.
fn serve(server: &ScriptedServer, data: Vec<u8>) {
    server.on("fs/open", |asked| ScriptedReply::Result(json!({"handleId": asked.params["handleId"]})));
    server.on("fs/readBlock", move |asked| {
        let [offset, len] = ["offset", "len"].map(|name| asked.params[name].as_u64().unwrap() as usize);
        let block = &data[offset.min(data.len())..(offset + len).min(data.len())];
        ScriptedReply::Result(json!({"chunk": base64(block), "eof": block.len() < len}))
    });
}

#[tokio::test]
async fn without_extensions_a_file_is_read_until_a_block_is_not_full() {
    let server = ScriptedServer::new();
    let files = connect(&server).await.file_system();
    for size in [0, 5, 2 * MIB, 12 * MIB + 1] {
        let data = noise(size as usize);
        serve(&server, data.clone());
        let reader = files.read_file_stream(&uri(), None).await.unwrap();
        assert!(reader.metadata().is_none());
        assert!(collect(reader).await.0 == data, "{size} bytes");
        let mut extents = files.read_extents(&uri(), None).await.unwrap();
        let mut all = Vec::new();
        while let Some(piece) = extents.next().await {
            let piece = piece.unwrap();
            assert_eq!(piece.offset, all.len() as u64);
            all.extend_from_slice(&piece.bytes);
        }
        assert!(all == data && extents.size() == size);
    }
    server.wait_for("fs/close", 8).await;
    assert_eq!(server.count("fs/extents"), 0, "the extension is not used");
}

#[tokio::test]
async fn at_most_eight_blocks_are_requested_at_once() {
    let server = ScriptedServer::new();
    server.on("fs/open", |asked| ScriptedReply::Result(json!({"handleId": asked.params["handleId"]})));
    let waiting: Arc<Mutex<Vec<ClientMessage>>> = Arc::default();
    server.on("fs/readBlock", {
        let waiting = Arc::clone(&waiting);
        move |asked| {
            waiting.lock().unwrap().push(asked.clone());
            ScriptedReply::Silence
        }
    });
    let files = connect(&server).await.file_system();
    let mut reader = files.read_file_stream(&uri(), None).await.unwrap();
    let full = json!({"chunk": base64(noise(MIB as usize)), "eof": false});
    let mut most_requests = 0;
    for number in 0..30_usize {
        // Two requests are in flight at the beginning, and one more with each block that comes, up to eight.
        let expected = number + (number + 2).min(8);
        let next = tokio::spawn(async move {
            let piece = reader.next().await.unwrap().unwrap();
            (reader, piece)
        });
        server.wait_for("fs/readBlock", expected).await;
        most_requests = most_requests.max(server.count("fs/readBlock"));
        assert_eq!(server.count("fs/readBlock"), expected);
        let first = waiting.lock().unwrap().remove(0);
        assert_eq!(first.params["offset"].as_u64(), Some(number as u64 * MIB));
        first.answer(ScriptedReply::Result(full.clone()));
        let piece;
        (reader, piece) = next.await.unwrap();
        assert_eq!(piece.len() as u64, MIB);
    }
    drop(reader);
    server.wait_for("fs/close", 1).await;
    assert!(most_requests <= 29 + 8);
}

#[tokio::test]
async fn an_empty_block_that_is_not_the_end_is_an_error() {
    let server = ScriptedServer::new();
    let files = connect(&server).await.file_system();
    server.on("fs/open", |asked| ScriptedReply::Result(json!({"handleId": asked.params["handleId"]})));
    server.on("fs/readBlock", |_| ScriptedReply::Result(json!({"chunk": "", "eof": false})));
    let mut reader = files.read_file_stream(&uri(), None).await.unwrap();
    let error = reader.next().await.unwrap().unwrap_err();
    assert_eq!(error.kind, ErrorKind::InvalidData);
    assert!(reader.next().await.is_none());
    server.wait_for("fs/close", 1).await;
}

#[tokio::test]
async fn after_a_short_block_reading_continues_at_its_end() {
    let server = ScriptedServer::new();
    let files = connect(&server).await.file_system();
    let data = noise(3 * MIB as usize);
    serve(&server, data.clone());
    server.on("fs/readBlock", {
        let data = data.clone();
        move |asked| {
            let offset = asked.params["offset"].as_u64().unwrap() as usize;
            let block = &data[offset.min(data.len())..(offset + 700_000).min(data.len())];
            ScriptedReply::Result(json!({"chunk": base64(block), "eof": block.is_empty()}))
        }
    });
    let reader = files.read_file_stream(&uri(), None).await.unwrap();
    assert!(collect(reader).await.0 == data);
}

#[tokio::test]
async fn reading_with_a_handle_that_the_server_has_closed_is_an_error() {
    let server = ScriptedServer::new();
    let files = connect(&server).await.file_system();
    server.on("fs/open", |asked| ScriptedReply::Result(json!({"handleId": asked.params["handleId"]})));
    server.on("fs/readBlock", |_| ScriptedReply::Error(-32004, "unknown file read handle `h`".into()));
    let mut reader = files.read_file_stream(&uri(), None).await.unwrap();
    let error = reader.next().await.unwrap().unwrap_err();
    assert_eq!(error.kind, ErrorKind::BrokenPipe);
    assert_eq!(error.message, "exec-server no longer has the file open: unknown file read handle `h`");
}

#[tokio::test]
async fn an_open_whose_answer_was_lost_is_repeated_with_another_handle() {
    let server = ScriptedServer::new();
    let files = connect(&server).await.file_system();
    let mut is_first = true;
    server.on("fs/open", move |asked| {
        if std::mem::take(&mut is_first) {
            return ScriptedReply::Cut;
        }
        ScriptedReply::Result(json!({"handleId": asked.params["handleId"]}))
    });
    let reader = files.read_file_stream(&uri(), None).await.unwrap();
    let lost = server.wait_for("fs/open", 1).await.params["handleId"].clone();
    let used = server.wait_for("fs/open", 2).await.params["handleId"].clone();
    assert_ne!(lost, used);
    assert_eq!(server.wait_for("fs/close", 1).await.params["handleId"], lost);
    drop(reader);
    assert_eq!(server.wait_for("fs/close", 2).await.params["handleId"], used);
}

#[tokio::test]
async fn a_server_without_extensions_may_be_asked_for_links_but_does_not_mark_them() {
    let server = ScriptedServer::new();
    let files = connect(&server).await.file_system();
    server.on("fs/readDirectory", |_| {
        ScriptedReply::Result(json!({"entries": [{"fileName": "x", "isDirectory": false, "isFile": true}]}))
    });
    let listed = files.read_directory_with_links(&uri(), None).await.unwrap();
    assert_eq!((listed[0].file_name.as_str(), listed[0].is_symlink), ("x", None));
    files.read_directory(&uri(), None).await.unwrap();
    assert_eq!(
        server.wait_for("fs/readDirectory", 1).await.params,
        json!({"path": "file:///a", "danglingLinks": true})
    );
    assert_eq!(server.wait_for("fs/readDirectory", 2).await.params, json!({"path": "file:///a"}));
}

#[tokio::test]
async fn without_extensions_a_small_file_is_written_in_one_request_and_a_large_file_is_refused() {
    let server = ScriptedServer::new();
    let files = connect(&server).await.file_system();
    let mtime = Some(FileTime { secs: 1, nanos: 0 });
    let options = WriteStreamOptions { mode: Some(0o600), mtime, ..WriteStreamOptions::default() };
    let mut writer = files.write_file_stream(&uri(), &options).await.unwrap();
    let data = noise(2 * MIB as usize);
    writer.skip(3).await.unwrap();
    writer.write(Bytes::from(data.clone())).await.unwrap();
    writer.commit().await.unwrap();
    let asked = server.wait_for("fs/writeFile", 1).await;
    assert!(unbase64(&asked.params["dataBase64"]) == [&[0; 3], &data[..]].concat());
    assert_eq!((server.count("fs/create"), server.count("fs/setMetadata")), (0, 0), "no extension is used");

    let mut writer = files.write_file_stream(&uri(), &options).await.unwrap();
    let block = Bytes::from(noise(MIB as usize));
    let error = loop {
        if let Err(error) = writer.write(block.clone()).await {
            break error;
        }
    };
    assert_eq!(error.kind, ErrorKind::Unsupported);
    assert!(error.message.contains("33554432"), "the limit is 32 MiB: {error}");
    assert_eq!(writer.commit().await.unwrap_err(), error);
    assert_eq!(server.count("fs/writeFile"), 1);
}
