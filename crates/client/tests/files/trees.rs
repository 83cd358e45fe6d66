//! Walks.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;

use client::{WalkKind, WalkOptions, WalkResult};

use crate::support::{Place, on_both, told};

const WIDE: WalkOptions = WalkOptions {
    max_depth: 8,
    max_directories: 100,
    max_entries: 100,
    follow_directory_symlinks: false,
    prune_hidden_directories: false,
};

on_both! {
    a_tree_is_walked_level_by_level_within_limits
    roots_and_limits_are_checked
    links_to_directories_are_followed_once
    names_that_are_no_text_keep_their_bytes
    hidden_directories_are_not_entered
}

fn names(place: &Place, result: &WalkResult) -> Vec<(String, WalkKind)> {
    let root = place.path("");
    let name = |path: std::path::PathBuf| path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
    result.entries.iter().map(|entry| (name(entry.path.to_native().unwrap()), entry.kind)).collect()
}

async fn a_tree_is_walked_level_by_level_within_limits(place: &Place) {
    fs::create_dir_all(place.path("b/c")).unwrap();
    for file in ["a", "b/x", "b/c/deep"] {
        fs::write(place.path(file), "").unwrap();
    }
    use WalkKind::{Directory, File};
    let all = [("a", File), ("b", Directory), ("b/c", Directory), ("b/x", File), ("b/c/deep", File)]
        .map(|(name, kind)| (name.to_owned(), kind));
    let walked = place.files.walk(&place.uri(""), WIDE, None).await.unwrap();
    assert_eq!((names(place, &walked), walked.truncated, walked.errors.len()), (all.to_vec(), false, 0));
    for (options, count, truncated) in [
        (WalkOptions { max_depth: 0, ..WIDE }, 2, false),
        (WalkOptions { max_directories: 2, ..WIDE }, 4, true),
        (WalkOptions { max_entries: 3, ..WIDE }, 3, true),
    ] {
        let walked = place.files.walk(&place.uri(""), options, None).await.unwrap();
        assert_eq!((names(place, &walked), walked.truncated), (all[..count].to_vec(), truncated), "{options:?}");
    }
}

async fn roots_and_limits_are_checked(place: &Place) {
    fs::write(place.path("file"), "").unwrap();
    assert_eq!(place.files.walk(&place.uri("file"), WIDE, None).await.unwrap(), WalkResult::default());
    assert_eq!(told(place.files.walk(&place.uri("none"), WIDE, None).await).0, ErrorKind::NotFound);
    let none = WalkOptions { max_entries: 0, ..WIDE };
    let zero = "filesystem walk limits must be greater than zero";
    let walked = place.files.walk(&place.uri("none"), none, None).await;
    assert_eq!(told(walked), (ErrorKind::InvalidInput, None, zero.into()));
    let many = WalkOptions { max_depth: 65, ..WIDE };
    let text = "filesystem walk limits exceed maximums: depth=64, directories=10000, entries=50000";
    let walked = place.files.walk(&place.uri("none"), many, None).await;
    assert_eq!(told(walked), (ErrorKind::InvalidInput, None, text.into()));
}

async fn links_to_directories_are_followed_once(place: &Place) {
    fs::create_dir(place.path("real")).unwrap();
    fs::write(place.path("real/file"), "").unwrap();
    symlink("..", place.path("real/up")).unwrap();
    symlink("real", place.path("link")).unwrap();
    symlink("real/file", place.path("to-file")).unwrap();
    let plain = place.files.walk(&place.uri(""), WIDE, None).await.unwrap();
    assert_eq!(names(place, &plain).into_iter().map(|(name, _)| name).collect::<Vec<_>>(), ["real", "real/file"]);
    let followed = WalkOptions { follow_directory_symlinks: true, ..WIDE };
    let walked = place.files.walk(&place.uri(""), followed, None).await.unwrap();
    let seen: Vec<String> = names(place, &walked).into_iter().map(|(name, _)| name).collect();
    assert_eq!(seen, ["link", "real", "link/file", "link/up"]);
    assert_eq!(place.files.walk(&place.uri("link"), WIDE, None).await.unwrap().entries.len(), 0);
    assert!(!place.files.walk(&place.uri("link"), followed, None).await.unwrap().entries.is_empty());
}

async fn names_that_are_no_text_keep_their_bytes(place: &Place) {
    let name = OsStr::from_bytes(b"\xffx");
    fs::write(place.path("").join(name), "").unwrap();
    let walked = place.files.walk(&place.uri(""), WIDE, None).await.unwrap();
    assert_eq!(walked.entries[0].path.to_native().unwrap().file_name(), Some(name));
    let entries = place.files.read_directory(&place.uri(""), None).await.unwrap();
    assert_eq!(entries[0].file_name, "\u{fffd}x");
    assert_eq!(entries[0].path.as_ref().unwrap().to_native().unwrap().file_name(), Some(name));
}

async fn hidden_directories_are_not_entered(place: &Place) {
    fs::create_dir(place.path(".hidden")).unwrap();
    fs::write(place.path(".hidden/file"), "").unwrap();
    symlink(".hidden", place.path("visible")).unwrap();
    let options = WalkOptions { prune_hidden_directories: true, follow_directory_symlinks: true, ..WIDE };
    let walked = place.files.walk(&place.uri(""), options, None).await.unwrap();
    let seen: Vec<String> = names(place, &walked).into_iter().map(|(name, _)| name).collect();
    assert_eq!(seen, [".hidden", "visible", "visible/file"]);
}
