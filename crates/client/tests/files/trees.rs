//! Walks over directory trees.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;

use client::{WalkKind, WalkOptions, WalkResult};

use crate::support::{TestedFiles, error_of, error_parts, on_local_and_remote};

const HIGH_LIMITS: WalkOptions = WalkOptions {
    max_depth: 8,
    max_directories: 100,
    max_entries: 100,
    follow_directory_symlinks: false,
    prune_hidden_directories: false,
};

on_local_and_remote! {
    a_tree_is_walked_level_by_level_up_to_the_limits
    a_walk_of_a_file_is_empty_and_a_missing_root_or_a_wrong_limit_is_an_error
    links_to_directories_are_left_out_or_followed_once
    names_that_are_not_utf_8_keep_their_bytes
    pruned_hidden_directories_are_listed_but_not_entered
}

/// The paths that a walk found, relative to the folder of the test, and their kinds.
fn paths_and_kinds(tested: &TestedFiles, result: &WalkResult) -> Vec<(String, WalkKind)> {
    let root = tested.path("");
    let relative = |path: std::path::PathBuf| path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
    result.entries.iter().map(|entry| (relative(entry.path.to_native().unwrap()), entry.kind)).collect()
}

async fn a_tree_is_walked_level_by_level_up_to_the_limits(tested: &TestedFiles) {
    fs::create_dir_all(tested.path("b/c")).unwrap();
    for file in ["a", "b/x", "b/c/deep"] {
        fs::write(tested.path(file), "").unwrap();
    }
    use WalkKind::{Directory, File};
    let all = [("a", File), ("b", Directory), ("b/c", Directory), ("b/x", File), ("b/c/deep", File)]
        .map(|(name, kind)| (name.to_owned(), kind));
    let walked = tested.files.walk(&tested.uri(""), HIGH_LIMITS, None).await.unwrap();
    assert_eq!((paths_and_kinds(tested, &walked), walked.truncated, walked.errors.len()), (all.to_vec(), false, 0));
    for (options, count, truncated) in [
        (WalkOptions { max_depth: 0, ..HIGH_LIMITS }, 2, false),
        (WalkOptions { max_directories: 2, ..HIGH_LIMITS }, 4, true),
        (WalkOptions { max_entries: 3, ..HIGH_LIMITS }, 3, true),
    ] {
        let walked = tested.files.walk(&tested.uri(""), options, None).await.unwrap();
        assert_eq!(
            (paths_and_kinds(tested, &walked), walked.truncated),
            (all[..count].to_vec(), truncated),
            "{options:?}"
        );
    }
}

async fn a_walk_of_a_file_is_empty_and_a_missing_root_or_a_wrong_limit_is_an_error(tested: &TestedFiles) {
    fs::write(tested.path("file"), "").unwrap();
    assert_eq!(tested.files.walk(&tested.uri("file"), HIGH_LIMITS, None).await.unwrap(), WalkResult::default());
    assert_eq!(error_of(tested.files.walk(&tested.uri("none"), HIGH_LIMITS, None).await).kind, ErrorKind::NotFound);
    let no_entries = WalkOptions { max_entries: 0, ..HIGH_LIMITS };
    let text = "filesystem walk limits must be greater than zero";
    let walked = tested.files.walk(&tested.uri("none"), no_entries, None).await;
    assert_eq!(error_parts(walked), (ErrorKind::InvalidInput, None, text.into()));
    let too_deep = WalkOptions { max_depth: 65, ..HIGH_LIMITS };
    let text = "filesystem walk limits exceed maximums: depth=64, directories=10000, entries=50000";
    let walked = tested.files.walk(&tested.uri("none"), too_deep, None).await;
    assert_eq!(error_parts(walked), (ErrorKind::InvalidInput, None, text.into()));
}

async fn links_to_directories_are_left_out_or_followed_once(tested: &TestedFiles) {
    fs::create_dir(tested.path("real")).unwrap();
    fs::write(tested.path("real/file"), "").unwrap();
    symlink("..", tested.path("real/up")).unwrap();
    symlink("real", tested.path("link")).unwrap();
    symlink("real/file", tested.path("to-file")).unwrap();
    let without_links = tested.files.walk(&tested.uri(""), HIGH_LIMITS, None).await.unwrap();
    let seen: Vec<String> = paths_and_kinds(tested, &without_links).into_iter().map(|(path, _)| path).collect();
    assert_eq!(seen, ["real", "real/file"]);
    let followed = WalkOptions { follow_directory_symlinks: true, ..HIGH_LIMITS };
    let walked = tested.files.walk(&tested.uri(""), followed, None).await.unwrap();
    let seen: Vec<String> = paths_and_kinds(tested, &walked).into_iter().map(|(path, _)| path).collect();
    // `real` was already entered as `link`, and `link/up` leads back to the root, where the walk began. Links to
    // files are never listed.
    assert_eq!(seen, ["link", "real", "link/file", "link/up"]);
    assert_eq!(tested.files.walk(&tested.uri("link"), HIGH_LIMITS, None).await.unwrap().entries.len(), 0);
    assert!(!tested.files.walk(&tested.uri("link"), followed, None).await.unwrap().entries.is_empty());
}

async fn names_that_are_not_utf_8_keep_their_bytes(tested: &TestedFiles) {
    let name = OsStr::from_bytes(b"\xffx");
    fs::write(tested.path("").join(name), "").unwrap();
    let walked = tested.files.walk(&tested.uri(""), HIGH_LIMITS, None).await.unwrap();
    assert_eq!(walked.entries[0].path.to_native().unwrap().file_name(), Some(name));
    let entries = tested.files.read_directory(&tested.uri(""), None).await.unwrap();
    assert_eq!(entries[0].file_name, "\u{fffd}x");
    assert_eq!(entries[0].path.as_ref().unwrap().to_native().unwrap().file_name(), Some(name));
}

async fn pruned_hidden_directories_are_listed_but_not_entered(tested: &TestedFiles) {
    fs::create_dir(tested.path(".hidden")).unwrap();
    fs::write(tested.path(".hidden/file"), "").unwrap();
    symlink(".hidden", tested.path("visible")).unwrap();
    let options = WalkOptions { prune_hidden_directories: true, follow_directory_symlinks: true, ..HIGH_LIMITS };
    let walked = tested.files.walk(&tested.uri(""), options, None).await.unwrap();
    let seen: Vec<String> = paths_and_kinds(tested, &walked).into_iter().map(|(path, _)| path).collect();
    // The link is entered: its own name is not hidden.
    assert_eq!(seen, [".hidden", "visible", "visible/file"]);
}
