//! Symbolic links: in paths, listings, removals and copies, and their own targets.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::symlink;

use client::{CopyOptions, FileOptions, RemoveOptions};

use crate::support::{TestedFiles, error_of, on_local_and_remote};

on_local_and_remote! {
    an_existing_path_is_resolved_through_its_links
    metadata_and_listings_follow_links_and_do_not_find_broken_links
    links_are_marked_and_broken_links_are_listed_only_if_requested
    removing_a_link_keeps_its_target
    links_are_copied_as_links
    a_link_target_can_be_any_bytes
    a_link_replaces_no_entry_and_a_file_is_not_read_as_a_link
}

async fn an_existing_path_is_resolved_through_its_links(tested: &TestedFiles) {
    fs::create_dir(tested.path("real")).unwrap();
    fs::write(tested.path("real/file"), "").unwrap();
    symlink("real", tested.path("link")).unwrap();
    let found = tested.files.canonicalize(&tested.uri("link/file"), None).await.unwrap();
    assert_eq!(found.to_native().unwrap(), tested.path("real/file").canonicalize().unwrap());
    assert_eq!(error_of(tested.files.canonicalize(&tested.uri("none"), None).await).kind, ErrorKind::NotFound);
}

async fn metadata_and_listings_follow_links_and_do_not_find_broken_links(tested: &TestedFiles) {
    fs::write(tested.path("file"), "123").unwrap();
    fs::create_dir(tested.path("directory")).unwrap();
    symlink("file", tested.path("to-file")).unwrap();
    symlink("directory", tested.path("to-directory")).unwrap();
    symlink("nowhere", tested.path("dangling")).unwrap();
    let options = FileOptions::default();
    let link = tested.files.metadata(&tested.uri("to-file"), &options).await.unwrap();
    assert_eq!((link.is_symlink, link.is_file, link.size), (true, true, 3));
    let link = tested.files.metadata(&tested.uri("to-directory"), &options).await.unwrap();
    assert_eq!((link.is_symlink, link.is_directory), (true, true));
    assert_eq!(error_of(tested.files.metadata(&tested.uri("dangling"), &options).await).kind, ErrorKind::NotFound);
    let mut entries = tested.files.read_directory(&tested.uri(""), None).await.unwrap();
    entries.sort_by(|a, b| a.file_name.cmp(&b.file_name));
    let seen: Vec<_> =
        entries.iter().map(|entry| (entry.file_name.as_str(), entry.is_directory, entry.is_file)).collect();
    let expected =
        [("directory", true, false), ("file", false, true), ("to-directory", true, false), ("to-file", false, true)];
    assert_eq!(seen, expected);
}

async fn links_are_marked_and_broken_links_are_listed_only_if_requested(tested: &TestedFiles) {
    fs::write(tested.path("file"), "").unwrap();
    symlink("file", tested.path("to-file")).unwrap();
    symlink("nowhere", tested.path("dangling")).unwrap();
    let not_utf8 = tested.path("").join(OsString::from_vec(b"\xff".to_vec()));
    symlink("circle", tested.path("circle")).unwrap();
    symlink("nowhere", &not_utf8).unwrap();
    let mut entries = tested.files.read_directory_with_links(&tested.uri(""), None).await.unwrap();
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
    assert_eq!(entries[4].path.as_ref().unwrap().to_native().unwrap(), not_utf8);
    let plain = tested.files.read_directory(&tested.uri(""), None).await.unwrap();
    assert!(plain.len() == 2 && plain.iter().all(|entry| entry.is_symlink.is_none()), "{plain:?}");
}

async fn removing_a_link_keeps_its_target(tested: &TestedFiles) {
    fs::create_dir(tested.path("real")).unwrap();
    fs::write(tested.path("real/file"), "").unwrap();
    symlink("real", tested.path("link")).unwrap();
    let all = RemoveOptions { recursive: true, force: true, ..RemoveOptions::default() };
    tested.files.remove(&tested.uri("link"), &all).await.unwrap();
    assert!(tested.path("link").symlink_metadata().is_err() && tested.path("real/file").exists());
}

async fn links_are_copied_as_links(tested: &TestedFiles) {
    fs::create_dir(tested.path("tree")).unwrap();
    fs::write(tested.path("tree/file"), "").unwrap();
    symlink("file", tested.path("tree/link")).unwrap();
    let plain = CopyOptions::default();
    tested.files.copy(&tested.uri("tree/link"), &tested.uri("tree/again"), &plain).await.unwrap();
    let whole = CopyOptions { recursive: true, ..CopyOptions::default() };
    tested.files.copy(&tested.uri("tree"), &tested.uri("copy"), &whole).await.unwrap();
    for name in ["tree/again", "copy/link", "copy/again"] {
        assert_eq!(fs::read_link(tested.path(name)).unwrap().as_os_str(), "file", "{name}");
    }
}

async fn a_link_target_can_be_any_bytes(tested: &TestedFiles) {
    let not_utf8 = OsString::from_vec(vec![b'x', 255, b'/', 128]);
    for (name, target) in [("utf8", OsString::from("some/wh\u{e9}re")), ("not-utf8", not_utf8)] {
        tested.files.symlink(&tested.uri(name), target.clone(), None).await.unwrap();
        assert_eq!(fs::read_link(tested.path(name)).unwrap(), target);
        assert_eq!(tested.files.read_link(&tested.uri(name), None).await.unwrap(), target);
    }
}

async fn a_link_replaces_no_entry_and_a_file_is_not_read_as_a_link(tested: &TestedFiles) {
    symlink("nowhere", tested.path("link")).unwrap();
    fs::write(tested.path("file"), "").unwrap();
    for name in ["link", "file"] {
        let refused = tested.files.symlink(&tested.uri(name), "x".into(), None).await;
        assert_eq!(error_of(refused).kind, ErrorKind::AlreadyExists, "{name}");
    }
    assert_eq!(error_of(tested.files.read_link(&tested.uri("file"), None).await).errno, Some(22), "EINVAL");
}
