//! Reading a file as a stream of pieces. One more test makes many requests for metadata at once.

use std::fs;
use std::os::unix::fs::FileExt as _;

use client::{ExecutorFileSystem as _, PathUri};
use testkit::TestServer;

use crate::support::{TestedFiles, collect, connect_to, files_at, noise, on_local_and_remote};

const MIB: usize = 1 << 20;

on_local_and_remote! {
    pieces_are_limited_in_size_and_together_are_the_file
    a_file_of_full_pieces_has_no_empty_piece_at_its_end
    files_without_a_size_such_as_those_in_proc_are_read
    a_stream_reads_the_file_that_was_opened_although_its_path_was_replaced
    a_file_that_becomes_shorter_is_read_to_its_new_end
    holes_are_not_read
}

async fn pieces_are_limited_in_size_and_together_are_the_file(tested: &TestedFiles) {
    for size in [0, 1, MIB - 1, MIB + 1, 11 * MIB + 5] {
        let data = noise(size);
        fs::write(tested.path("a"), &data).unwrap();
        let reader = tested.files.read_file_stream(&tested.uri("a"), None).await.unwrap();
        assert_eq!(reader.metadata().unwrap().size, size as u64);
        let (all, lengths) = collect(reader).await;
        assert!(lengths.iter().all(|length| (1..=MIB).contains(length)), "{lengths:?}");
        assert!(all == data, "{size} bytes");
    }
}

async fn a_file_of_full_pieces_has_no_empty_piece_at_its_end(tested: &TestedFiles) {
    fs::write(tested.path("a"), noise(2 * MIB)).unwrap();
    let reader = tested.files.read_file_stream(&tested.uri("a"), None).await.unwrap();
    assert_eq!(collect(reader).await.1, [MIB, MIB]);
}

async fn files_without_a_size_such_as_those_in_proc_are_read(tested: &TestedFiles) {
    let uri: PathUri = "file:///proc/filesystems".parse().unwrap();
    let expected = fs::read("/proc/filesystems").unwrap();
    let reader = tested.files.read_file_stream(&uri, None).await.unwrap();
    assert_eq!(collect(reader).await.0, expected);
    let mut reader = tested.files.read_extents(&uri, None).await.unwrap();
    assert_eq!(reader.next().await.unwrap().unwrap().bytes, expected);
    assert!(reader.next().await.is_none() && reader.size() == expected.len() as u64);
}

async fn a_stream_reads_the_file_that_was_opened_although_its_path_was_replaced(tested: &TestedFiles) {
    let data = noise(20 * MIB);
    fs::write(tested.path("a"), &data).unwrap();
    fs::write(tested.path("b"), "other").unwrap();
    let mut reader = tested.files.read_file_stream(&tested.uri("a"), None).await.unwrap();
    let first = reader.next().await.unwrap().unwrap();
    fs::rename(tested.path("b"), tested.path("a")).unwrap();
    let (rest, _) = collect(reader).await;
    assert!([&first[..], &rest[..]].concat() == data);
}

async fn a_file_that_becomes_shorter_is_read_to_its_new_end(tested: &TestedFiles) {
    fs::write(tested.path("a"), noise(40 * MIB)).unwrap();
    let mut reader = tested.files.read_file_stream(&tested.uri("a"), None).await.unwrap();
    let mut extents = tested.files.read_extents(&tested.uri("a"), None).await.unwrap();
    reader.next().await.unwrap().unwrap();
    extents.next().await.unwrap().unwrap();
    let file = fs::OpenOptions::new().write(true).open(tested.path("a")).unwrap();
    file.set_len(30 * MIB as u64 + 3).unwrap();
    let (rest, _) = collect(reader).await;
    assert_eq!(rest.len(), 29 * MIB + 3);
    while let Some(piece) = extents.next().await {
        piece.unwrap();
    }
    assert_eq!(extents.size(), 30 * MIB as u64 + 3);
}

async fn holes_are_not_read(tested: &TestedFiles) {
    let file = fs::File::create(tested.path("a")).unwrap();
    let far: u64 = 20 << 30;
    file.write_all_at(b"begin", 0).unwrap();
    file.write_all_at(b"far", far).unwrap();
    file.set_len(far + (1 << 20)).unwrap();
    let mut reader = tested.files.read_extents(&tested.uri("a"), None).await.unwrap();
    assert_eq!(reader.metadata().unwrap().size, far + (1 << 20));
    let (mut total, mut found) = (0, Vec::new());
    while let Some(piece) = reader.next().await {
        let piece = piece.unwrap();
        total += piece.bytes.len();
        for (at, wanted) in [(0, &b"begin"[..]), (far, b"far")] {
            if piece.offset <= at && at < piece.offset + piece.bytes.len() as u64 {
                found.push(piece.bytes[(at - piece.offset) as usize..].starts_with(wanted));
            }
        }
    }
    assert_eq!((found, reader.size()), (vec![true, true], far + (1 << 20)));
    assert!(total < 4 * MIB, "{total} bytes");
}

#[tokio::test]
async fn the_server_closes_the_files_of_ended_and_dropped_streams() {
    let server = TestServer::with_args(&["--max-file-handles", "4"]).await;
    let files = files_at(server.url()).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    fs::write(&path, noise(3 * MIB)).unwrap();
    let uri = PathUri::from_native(&path).unwrap();
    for number in 0..129 {
        let opened = testkit::eventually_async("the server can open another file", async || {
            files.read_file_stream(&uri, None).await.ok()
        });
        let mut reader = opened.await;
        match number % 3 {
            0 => assert_eq!(collect(reader).await.0.len(), 3 * MIB),
            1 => drop(reader.next().await.unwrap().unwrap()),
            _ => {}
        }
    }
}

#[tokio::test]
async fn one_stream_after_the_other_can_read_more_files_than_may_be_open() {
    let server = TestServer::start().await;
    let files = files_at(server.url()).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    fs::write(&path, "text").unwrap();
    let uri = PathUri::from_native(&path).unwrap();
    // The server lets a client have 128 files open at the same time.
    for _ in 0..129 {
        assert_eq!(collect(files.read_file_stream(&uri, None).await.unwrap()).await.0, b"text");
    }
}

#[tokio::test]
async fn a_thousand_metadata_requests_at_once_are_answered() {
    let server = TestServer::start().await;
    let client = connect_to(server.url()).await;
    let files = client.file_system();
    let folder = tempfile::tempdir().unwrap();
    let uris: Vec<PathUri> = (0..1000)
        .map(|number| {
            let path = folder.path().join(number.to_string());
            fs::write(&path, vec![0; number]).unwrap();
            PathUri::from_native(&path).unwrap()
        })
        .collect();
    let options = client::FileOptions::default();
    let mut calls: Vec<_> = uris.iter().map(|uri| files.metadata(uri, &options)).collect();
    // All requests are sent before the first answer is awaited, without a task for each.
    std::future::poll_fn(|cx| {
        for call in &mut calls {
            assert!(call.as_mut().poll(cx).is_pending());
        }
        std::task::Poll::Ready(())
    })
    .await;
    for (number, call) in calls.into_iter().enumerate() {
        assert_eq!(call.await.unwrap().size, number as u64);
    }
}
