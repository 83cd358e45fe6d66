//! Reading and writing whole files.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;

use bytes::Bytes;
use client::FileOptions;

use crate::support::{Place, on_both, told};

on_both! {
    bytes_are_read_as_they_are
    text_is_text
    a_file_is_created_and_overwritten_in_place
    a_missing_parent_is_not_made
    what_is_no_file_is_not_read
}

async fn bytes_are_read_as_they_are(place: &Place) {
    fs::write(place.path("a"), [0, 255, b'\n', 128]).unwrap();
    let options = FileOptions::default();
    assert_eq!(place.files.read_file(&place.uri("a"), &options).await.unwrap(), [0, 255, b'\n', 128]);
    assert_eq!(
        place.files.read_file(&place.uri("a"), &FileOptions::no_follow()).await.unwrap(),
        [0, 255, b'\n', 128]
    );
}

async fn text_is_text(place: &Place) {
    fs::write(place.path("a"), "hellö\n").unwrap();
    fs::write(place.path("b"), [b'a', 255]).unwrap();
    let options = FileOptions::default();
    assert_eq!(place.files.read_file_text(&place.uri("a"), &options).await.unwrap(), "hellö\n");
    let error = place.files.read_file_text(&place.uri("b"), &options).await.unwrap_err();
    assert_eq!((error.kind, error.path()), (ErrorKind::InvalidData, Some(&place.uri("b"))));
}

async fn a_file_is_created_and_overwritten_in_place(place: &Place) {
    for options in [FileOptions::default(), FileOptions::no_follow()] {
        let name = if options.follow_symlinks { "follow" } else { "no-follow" };
        let uri = place.uri(name);
        place.files.write_file(&uri, Bytes::from_static(b"a longer text"), &options).await.unwrap();
        let inode = fs::metadata(place.path(name)).unwrap().ino();
        fs::hard_link(place.path(name), place.path(&format!("{name}-too"))).unwrap();
        place.files.write_file(&uri, Bytes::from_static(b"short"), &options).await.unwrap();
        assert_eq!(fs::read(place.path(name)).unwrap(), b"short");
        assert_eq!(fs::metadata(place.path(name)).unwrap().ino(), inode);
        assert_eq!(fs::read(place.path(&format!("{name}-too"))).unwrap(), b"short");
    }
}

async fn a_missing_parent_is_not_made(place: &Place) {
    let written =
        place.files.write_file(&place.uri("none/a"), Bytes::from_static(b"x"), &FileOptions::default()).await;
    let (kind, errno, message) = told(written);
    assert_eq!((kind, errno), (ErrorKind::NotFound, Some(2)));
    assert_eq!(message, "No such file or directory (os error 2)");
    assert!(!place.path("none").exists());
}

async fn what_is_no_file_is_not_read(place: &Place) {
    let fifo = place.path("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    let expected = format!("path `{}` is not a file", fifo.display());
    let read = place.files.read_file(&place.uri("fifo"), &FileOptions::default()).await;
    assert_eq!(told(read), (ErrorKind::InvalidInput, None, expected.clone()));
    let opened = place.files.read_file_stream(&place.uri("fifo"), None).await;
    assert_eq!(told(opened), (ErrorKind::InvalidInput, None, expected));
    let written = place.files.write_file(&place.uri("fifo"), Bytes::new(), &FileOptions::no_follow()).await;
    assert_eq!(told(written).1, Some(6));
    assert!(fifo.exists());
}
