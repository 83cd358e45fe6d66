//! Reading and writing whole files.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;

use bytes::Bytes;
use client::FileOptions;

use crate::support::{TestedFiles, error_of, error_parts, on_local_and_remote};

on_local_and_remote! {
    bytes_are_read_unchanged
    utf8_is_read_as_a_string_and_other_bytes_are_an_error
    a_file_is_created_and_overwritten_in_place
    writing_a_file_does_not_create_its_parent
    a_fifo_is_not_read_or_written_as_a_file
}

async fn bytes_are_read_unchanged(tested: &TestedFiles) {
    fs::write(tested.path("a"), [0, 255, b'\n', 128]).unwrap();
    let options = FileOptions::default();
    assert_eq!(tested.files.read_file(&tested.uri("a"), &options).await.unwrap(), [0, 255, b'\n', 128]);
    assert_eq!(
        tested.files.read_file(&tested.uri("a"), &FileOptions::no_follow()).await.unwrap(),
        [0, 255, b'\n', 128]
    );
}

async fn utf8_is_read_as_a_string_and_other_bytes_are_an_error(tested: &TestedFiles) {
    fs::write(tested.path("a"), "hellö\n").unwrap();
    fs::write(tested.path("b"), [b'a', 255]).unwrap();
    let options = FileOptions::default();
    assert_eq!(tested.files.read_file_text(&tested.uri("a"), &options).await.unwrap(), "hellö\n");
    let error = tested.files.read_file_text(&tested.uri("b"), &options).await.unwrap_err();
    assert_eq!((error.kind, error.path()), (ErrorKind::InvalidData, Some(&tested.uri("b"))));
}

async fn a_file_is_created_and_overwritten_in_place(tested: &TestedFiles) {
    for options in [FileOptions::default(), FileOptions::no_follow()] {
        let name = if options.follow_symlinks { "follow" } else { "no-follow" };
        let uri = tested.uri(name);
        tested.files.write_file(&uri, Bytes::from_static(b"a longer text"), &options).await.unwrap();
        let inode = fs::metadata(tested.path(name)).unwrap().ino();
        fs::hard_link(tested.path(name), tested.path(&format!("{name}-too"))).unwrap();
        tested.files.write_file(&uri, Bytes::from_static(b"short"), &options).await.unwrap();
        assert_eq!(fs::read(tested.path(name)).unwrap(), b"short");
        assert_eq!(fs::metadata(tested.path(name)).unwrap().ino(), inode);
        assert_eq!(fs::read(tested.path(&format!("{name}-too"))).unwrap(), b"short");
    }
}

async fn writing_a_file_does_not_create_its_parent(tested: &TestedFiles) {
    let written =
        tested.files.write_file(&tested.uri("none/a"), Bytes::from_static(b"x"), &FileOptions::default()).await;
    let (kind, errno, message) = error_parts(written);
    assert_eq!((kind, errno), (ErrorKind::NotFound, Some(2)));
    assert_eq!(message, "No such file or directory (os error 2)");
    assert!(!tested.path("none").exists());
}

async fn a_fifo_is_not_read_or_written_as_a_file(tested: &TestedFiles) {
    let fifo = tested.path("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    let expected = format!("path `{}` is not a file", fifo.display());
    let read = tested.files.read_file(&tested.uri("fifo"), &FileOptions::default()).await;
    assert_eq!(error_parts(read), (ErrorKind::InvalidInput, None, expected.clone()));
    let opened = tested.files.read_file_stream(&tested.uri("fifo"), None).await;
    assert_eq!(error_parts(opened), (ErrorKind::InvalidInput, None, expected));
    let written = tested.files.write_file(&tested.uri("fifo"), Bytes::new(), &FileOptions::no_follow()).await;
    assert_eq!(error_of(written).errno, Some(6), "ENXIO, because the fifo has no reader");
    assert!(fifo.exists());
}
