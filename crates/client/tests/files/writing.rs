//! Writing a file as a stream of pieces, called an upload. The file appears or is replaced at the commit.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use bytes::Bytes;
use client::{ExecutorFileSystem as _, FileTime, FileWriter, PathUri, WriteStreamOptions};
use testkit::{TestServer, eventually};

use crate::support::{TestedFiles, connect_to, error_of, noise, on_local_and_remote};

const MIB: usize = 1 << 20;

on_local_and_remote! {
    pieces_of_any_size_and_number_make_the_file
    a_cancelled_write_loses_no_bytes
    a_file_is_replaced_at_the_commit_and_keeps_its_mode
    mode_and_time_are_set_as_requested
    skipped_bytes_are_a_hole
    bytes_after_the_requested_size_are_cut_off
    an_existing_file_is_not_replaced_if_the_options_forbid_it
    an_aborted_upload_leaves_nothing_behind
}

async fn begin(tested: &TestedFiles, name: &str, options: &WriteStreamOptions) -> FileWriter {
    tested.files.write_file_stream(&tested.uri(name), options).await.unwrap()
}

async fn pieces_of_any_size_and_number_make_the_file(tested: &TestedFiles) {
    let data = noise(9 * MIB + 77);
    for size in [3 * MIB, MIB, 300 << 10, 10_007] {
        let mut writer = begin(tested, "a", &WriteStreamOptions::default()).await;
        for piece in data.chunks(size) {
            writer.write(Bytes::copy_from_slice(piece)).await.unwrap();
        }
        writer.commit().await.unwrap();
        assert!(fs::read(tested.path("a")).unwrap() == data, "pieces of {size}");
    }
    begin(tested, "empty", &WriteStreamOptions::default()).await.commit().await.unwrap();
    assert_eq!(fs::read(tested.path("empty")).unwrap(), b"");
}

async fn a_cancelled_write_loses_no_bytes(tested: &TestedFiles) {
    let data = noise(24 << 20);
    let mut writer = begin(tested, "a", &WriteStreamOptions::default()).await;
    for (number, piece) in data.chunks(64 << 10).enumerate() {
        let write = writer.write(Bytes::copy_from_slice(piece));
        // Every fourth piece fills a block, which often has to wait before it is sent. Then the write is cancelled.
        if number % 4 == 3 {
            tokio::select! { biased; written = write => written.unwrap(), () = std::future::ready(()) => {} }
        } else {
            write.await.unwrap();
        }
    }
    writer.commit().await.unwrap();
    assert!(fs::read(tested.path("a")).unwrap() == data);
}

async fn a_file_is_replaced_at_the_commit_and_keeps_its_mode(tested: &TestedFiles) {
    fs::write(tested.path("a"), "old").unwrap();
    fs::set_permissions(tested.path("a"), fs::Permissions::from_mode(0o604)).unwrap();
    let mut writer = begin(tested, "a", &WriteStreamOptions::default()).await;
    writer.write(noise(5 * MIB).into()).await.unwrap();
    assert_eq!(fs::read(tested.path("a")).unwrap(), b"old");
    writer.commit().await.unwrap();
    assert_eq!(fs::read(tested.path("a")).unwrap().len(), 5 * MIB);
    assert_eq!(fs::metadata(tested.path("a")).unwrap().mode() & 0o7777, 0o604);
    assert_eq!(fs::read_dir(tested.path("")).unwrap().count(), 1, "no temporary file is left");
}

async fn mode_and_time_are_set_as_requested(tested: &TestedFiles) {
    let mtime = Some(FileTime { secs: 1_000_000_007, nanos: 987_654_321 });
    let options = WriteStreamOptions { mode: Some(0o750), mtime, sync: true, ..WriteStreamOptions::default() };
    let mut writer = begin(tested, "a", &options).await;
    writer.write(Bytes::from_static(b"text")).await.unwrap();
    writer.commit().await.unwrap();
    let real = fs::metadata(tested.path("a")).unwrap();
    assert_eq!((real.mode() & 0o7777, real.mtime(), real.mtime_nsec()), (0o750, 1_000_000_007, 987_654_321));
}

async fn skipped_bytes_are_a_hole(tested: &TestedFiles) {
    let far: u64 = 20 << 30;
    let mut writer = begin(tested, "a", &WriteStreamOptions::default()).await;
    writer.write(Bytes::from_static(b"begin")).await.unwrap();
    writer.seek(far).await.unwrap();
    writer.write(Bytes::from_static(b"far")).await.unwrap();
    writer.skip(1 << 30).await.unwrap();
    writer.commit().await.unwrap();
    let real = fs::metadata(tested.path("a")).unwrap();
    assert_eq!(real.len(), far + 3 + (1 << 30));
    assert!(real.blocks() * 512 < 1 << 20, "{} blocks", real.blocks());
    use std::os::unix::fs::FileExt as _;
    let mut three = [0; 3];
    fs::File::open(tested.path("a")).unwrap().read_exact_at(&mut three, far).unwrap();
    assert_eq!(&three, b"far");
}

async fn bytes_after_the_requested_size_are_cut_off(tested: &TestedFiles) {
    let options = WriteStreamOptions { size: Some(4), ..WriteStreamOptions::default() };
    let mut writer = begin(tested, "a", &options).await;
    writer.write(Bytes::from_static(b"123456")).await.unwrap();
    writer.commit().await.unwrap();
    assert_eq!(fs::read(tested.path("a")).unwrap(), b"1234");
}

async fn an_existing_file_is_not_replaced_if_the_options_forbid_it(tested: &TestedFiles) {
    let options = WriteStreamOptions { replace: false, ..WriteStreamOptions::default() };
    let writer = begin(tested, "a", &options).await;
    fs::write(tested.path("a"), "first").unwrap();
    assert_eq!(error_of(writer.commit().await).kind, ErrorKind::AlreadyExists);
    assert_eq!(fs::read(tested.path("a")).unwrap(), b"first");
}

async fn an_aborted_upload_leaves_nothing_behind(tested: &TestedFiles) {
    let mut writer = begin(tested, "a", &WriteStreamOptions::default()).await;
    writer.write(noise(3 * MIB).into()).await.unwrap();
    writer.abort().await.unwrap();
    assert_eq!(fs::read_dir(tested.path("")).unwrap().count(), 0);
}

#[tokio::test]
async fn an_upload_that_is_dropped_is_closed() {
    let server = TestServer::with_args(&["--max-file-handles", "1"]).await;
    let files = connect_to(server.url()).await.file_system();
    let folder = tempfile::tempdir().unwrap();
    let uri = PathUri::from_native(&folder.path().join("a")).unwrap();
    let options = WriteStreamOptions::default();
    let before = testkit::open_fds(server.pid());
    let mut writer = files.write_file_stream(&uri, &options).await.unwrap();
    writer.write(noise(2 * MIB).into()).await.unwrap();
    assert!(files.write_file_stream(&uri, &options).await.is_err(), "the only file handle is in use");
    drop(writer);
    eventually("the server has closed the upload", || (testkit::open_fds(server.pid()) <= before).then_some(()))
        .await;
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    files.write_file_stream(&uri, &options).await.unwrap().commit().await.unwrap();
}
