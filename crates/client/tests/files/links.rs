//! Symbolic links.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::symlink;

use client::{CopyOptions, FileOptions, RemoveOptions};

use crate::support::{Place, on_both, told};

on_both! {
    a_path_is_freed_of_its_links
    metadata_and_listings_follow_links
    links_that_lead_nowhere_are_listed_if_asked_for
    a_link_is_removed_and_not_its_target
    links_are_copied_as_links
    links_are_made_and_read_byte_by_byte
}

async fn a_path_is_freed_of_its_links(place: &Place) {
    fs::create_dir(place.path("real")).unwrap();
    fs::write(place.path("real/file"), "").unwrap();
    symlink("real", place.path("link")).unwrap();
    let found = place.files.canonicalize(&place.uri("link/file"), None).await.unwrap();
    assert_eq!(found.to_native().unwrap(), place.path("real/file").canonicalize().unwrap());
    assert_eq!(told(place.files.canonicalize(&place.uri("none"), None).await).0, ErrorKind::NotFound);
}

async fn metadata_and_listings_follow_links(place: &Place) {
    fs::write(place.path("file"), "123").unwrap();
    fs::create_dir(place.path("directory")).unwrap();
    symlink("file", place.path("to-file")).unwrap();
    symlink("directory", place.path("to-directory")).unwrap();
    symlink("nowhere", place.path("dangling")).unwrap();
    let options = FileOptions::default();
    let link = place.files.metadata(&place.uri("to-file"), &options).await.unwrap();
    assert_eq!((link.is_symlink, link.is_file, link.size), (true, true, 3));
    let link = place.files.metadata(&place.uri("to-directory"), &options).await.unwrap();
    assert_eq!((link.is_symlink, link.is_directory), (true, true));
    assert_eq!(told(place.files.metadata(&place.uri("dangling"), &options).await).0, ErrorKind::NotFound);
    let mut entries = place.files.read_directory(&place.uri(""), None).await.unwrap();
    entries.sort_by(|a, b| a.file_name.cmp(&b.file_name));
    let seen: Vec<_> =
        entries.iter().map(|entry| (entry.file_name.as_str(), entry.is_directory, entry.is_file)).collect();
    let expected =
        [("directory", true, false), ("file", false, true), ("to-directory", true, false), ("to-file", false, true)];
    assert_eq!(seen, expected);
}

async fn links_that_lead_nowhere_are_listed_if_asked_for(place: &Place) {
    fs::write(place.path("file"), "").unwrap();
    symlink("file", place.path("to-file")).unwrap();
    symlink("nowhere", place.path("dangling")).unwrap();
    let strange = place.path("").join(OsString::from_vec(b"\xff".to_vec()));
    symlink("circle", place.path("circle")).unwrap();
    symlink("nowhere", &strange).unwrap();
    let mut entries = place.files.read_directory_with_links(&place.uri(""), None).await.unwrap();
    entries.sort_by(|a, b| a.file_name.cmp(&b.file_name));
    let seen: Vec<_> =
        entries.iter().map(|entry| (entry.file_name.as_str(), entry.is_file, entry.is_symlink)).collect();
    let expected = [
        ("circle", false, Some(true)),
        ("dangling", false, Some(true)),
        ("file", true, Some(false)),
        ("to-file", true, Some(true)),
        ("\u{fffd}", false, Some(true)),
    ];
    assert_eq!(seen, expected);
    assert!(entries.iter().all(|entry| !entry.is_directory));
    assert_eq!(entries[4].path.as_ref().unwrap().to_native().unwrap(), strange);
    let plain = place.files.read_directory(&place.uri(""), None).await.unwrap();
    assert!(plain.len() == 2 && plain.iter().all(|entry| entry.is_symlink.is_none()), "{plain:?}");
}

async fn a_link_is_removed_and_not_its_target(place: &Place) {
    fs::create_dir(place.path("real")).unwrap();
    fs::write(place.path("real/file"), "").unwrap();
    symlink("real", place.path("link")).unwrap();
    let all = RemoveOptions { recursive: true, force: true, ..RemoveOptions::default() };
    place.files.remove(&place.uri("link"), &all).await.unwrap();
    assert!(place.path("link").symlink_metadata().is_err() && place.path("real/file").exists());
}

async fn links_are_copied_as_links(place: &Place) {
    fs::create_dir(place.path("tree")).unwrap();
    fs::write(place.path("tree/file"), "").unwrap();
    symlink("file", place.path("tree/link")).unwrap();
    let plain = CopyOptions::default();
    place.files.copy(&place.uri("tree/link"), &place.uri("tree/again"), &plain).await.unwrap();
    let whole = CopyOptions { recursive: true, ..CopyOptions::default() };
    place.files.copy(&place.uri("tree"), &place.uri("copy"), &whole).await.unwrap();
    for name in ["tree/again", "copy/link", "copy/again"] {
        assert_eq!(fs::read_link(place.path(name)).unwrap().as_os_str(), "file", "{name}");
    }
}

async fn links_are_made_and_read_byte_by_byte(place: &Place) {
    let strange = OsString::from_vec(vec![b'x', 255, b'/', 128]);
    for (name, target) in [("plain", OsString::from("some/wh\u{e9}re")), ("strange", strange)] {
        place.files.symlink(&place.uri(name), target.clone(), None).await.unwrap();
        assert_eq!(fs::read_link(place.path(name)).unwrap(), target);
        assert_eq!(place.files.read_link(&place.uri(name), None).await.unwrap(), target);
    }
    let taken = place.files.symlink(&place.uri("plain"), "x".into(), None).await;
    assert_eq!(told(taken).0, ErrorKind::AlreadyExists);
    fs::write(place.path("file"), "").unwrap();
    assert_eq!(told(place.files.read_link(&place.uri("file"), None).await).1, Some(22));
}
