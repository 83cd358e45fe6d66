//! Metadata, directories, copies, removals and renames.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use client::{CopyOptions, CreateDirectoryOptions, FileOptions, FileTime, NewMetadata, RemoveOptions, RenameOptions};

use crate::support::{TestedFiles, error_of, error_parts, on_local_and_remote};

on_local_and_remote! {
    metadata_describes_files_and_directories
    mode_and_modification_time_with_nanoseconds_can_be_set
    only_a_recursive_creation_makes_parents_and_accepts_an_existing_directory
    many_calls_may_create_the_same_directory_at_once
    a_directory_is_listed_and_a_file_is_not
    a_file_is_copied_with_its_mode
    a_tree_is_copied_without_fifos_and_a_fifo_alone_is_refused
    a_directory_is_copied_only_recursively
    a_directory_is_not_copied_into_itself
    a_tree_is_removed_only_recursively_and_a_missing_tree_only_with_force
    a_removal_that_follows_no_links_removes_one_entry_and_cannot_be_recursive
    a_rename_replaces_its_target_only_if_allowed
}

const RECURSIVE: CopyOptions = CopyOptions { recursive: true, sandbox: None };

async fn metadata_describes_files_and_directories(tested: &TestedFiles) {
    fs::write(tested.path("a"), "12345").unwrap();
    for options in [FileOptions::default(), FileOptions::no_follow()] {
        let file = tested.files.metadata(&tested.uri("a"), &options).await.unwrap();
        assert_eq!((file.is_file, file.is_directory, file.is_symlink, file.size), (true, false, false, 5));
        assert!(file.modified_at_ms > 0);
        let real = fs::metadata(tested.path("a")).unwrap();
        let time = FileTime { secs: real.mtime(), nanos: real.mtime_nsec() as u32 };
        assert_eq!((file.mode, file.mtime), (Some(real.mode() & 0o7777), Some(time)));
        let directory = tested.files.metadata(&tested.uri(""), &options).await.unwrap();
        assert!(directory.is_directory && !directory.is_file && directory.modified_at_ms > 0);
    }
}

async fn mode_and_modification_time_with_nanoseconds_can_be_set(tested: &TestedFiles) {
    fs::write(tested.path("a"), "").unwrap();
    let mtime = FileTime { secs: -7, nanos: 123_456_789 };
    let new = NewMetadata { mode: Some(0o640), mtime: Some(mtime), ..NewMetadata::default() };
    tested.files.set_metadata(&tested.uri("a"), &new).await.unwrap();
    let real = fs::metadata(tested.path("a")).unwrap();
    assert_eq!((real.mode() & 0o7777, real.mtime(), real.mtime_nsec()), (0o640, -7, 123_456_789));
}

async fn only_a_recursive_creation_makes_parents_and_accepts_an_existing_directory(tested: &TestedFiles) {
    for follow_symlinks in [true, false] {
        let name = format!("{follow_symlinks}/b/c");
        let options = CreateDirectoryOptions { follow_symlinks, ..CreateDirectoryOptions::default() };
        tested.files.create_directory(&tested.uri(&name), &options).await.unwrap();
        tested.files.create_directory(&tested.uri(&name), &options).await.unwrap();
        assert!(tested.path(&name).is_dir());
        let not_recursive = CreateDirectoryOptions { recursive: false, ..options };
        let again = tested.files.create_directory(&tested.uri(&name), &not_recursive).await;
        assert_eq!(error_parts(again), (ErrorKind::AlreadyExists, Some(17), "File exists (os error 17)".into()));
        let orphan = tested.files.create_directory(&tested.uri("none/d"), &not_recursive).await;
        assert_eq!(error_of(orphan).kind, ErrorKind::NotFound);
    }
    let no_follow = CreateDirectoryOptions { recursive: false, follow_symlinks: false, sandbox: None };
    let root = tested.files.create_directory(&"file:///".parse().unwrap(), &no_follow).await;
    assert_eq!(error_parts(root), (ErrorKind::AlreadyExists, None, "directory already exists".into()));
}

async fn many_calls_may_create_the_same_directory_at_once(tested: &TestedFiles) {
    let options = CreateDirectoryOptions { follow_symlinks: false, ..CreateDirectoryOptions::default() };
    let uri = tested.uri("a/b/c/d");
    let mut making: Vec<_> = (0..16).map(|_| tested.files.create_directory(&uri, &options)).collect();
    let all = std::future::poll_fn(|cx| {
        making.retain_mut(|call| match call.as_mut().poll(cx) {
            std::task::Poll::Ready(result) => {
                result.unwrap();
                false
            }
            std::task::Poll::Pending => true,
        });
        if making.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    });
    all.await;
    assert!(tested.path("a/b/c/d").is_dir());
}

async fn a_directory_is_listed_and_a_file_is_not(tested: &TestedFiles) {
    fs::write(tested.path("file"), "").unwrap();
    fs::create_dir(tested.path("directory")).unwrap();
    let mut entries = tested.files.read_directory(&tested.uri(""), None).await.unwrap();
    entries.sort_by(|a, b| a.file_name.cmp(&b.file_name));
    let seen: Vec<_> =
        entries.iter().map(|entry| (entry.file_name.as_str(), entry.is_directory, entry.is_file)).collect();
    assert_eq!(seen, [("directory", true, false), ("file", false, true)]);
    let file = tested.files.read_directory(&tested.uri("file"), None).await;
    assert_eq!(error_parts(file), (ErrorKind::NotADirectory, Some(20), "Not a directory (os error 20)".into()));
}

async fn a_file_is_copied_with_its_mode(tested: &TestedFiles) {
    fs::write(tested.path("a"), "text").unwrap();
    fs::set_permissions(tested.path("a"), fs::Permissions::from_mode(0o751)).unwrap();
    tested.files.copy(&tested.uri("a"), &tested.uri("b"), &CopyOptions::default()).await.unwrap();
    assert_eq!(fs::read(tested.path("b")).unwrap(), b"text");
    assert_eq!(fs::metadata(tested.path("b")).unwrap().mode() & 0o7777, 0o751);
}

async fn a_tree_is_copied_without_fifos_and_a_fifo_alone_is_refused(tested: &TestedFiles) {
    fs::create_dir_all(tested.path("a/b")).unwrap();
    fs::write(tested.path("a/b/c"), "text").unwrap();
    assert!(std::process::Command::new("mkfifo").arg(tested.path("a/fifo")).status().unwrap().success());
    tested.files.copy(&tested.uri("a"), &tested.uri("copy"), &RECURSIVE).await.unwrap();
    assert_eq!(fs::read(tested.path("copy/b/c")).unwrap(), b"text");
    assert!(!tested.path("copy/fifo").exists());
    let special = tested.files.copy(&tested.uri("a/fifo"), &tested.uri("x"), &CopyOptions::default()).await;
    let text = "fs/copy only supports regular files, directories, and symlinks";
    assert_eq!(error_parts(special), (ErrorKind::InvalidInput, None, text.into()));
}

async fn a_directory_is_copied_only_recursively(tested: &TestedFiles) {
    fs::create_dir(tested.path("a")).unwrap();
    let copied = tested.files.copy(&tested.uri("a"), &tested.uri("b"), &CopyOptions::default()).await;
    let text = "fs/copy requires recursive: true when sourcePath is a directory";
    assert_eq!(error_parts(copied), (ErrorKind::InvalidInput, None, text.into()));
}

async fn a_directory_is_not_copied_into_itself(tested: &TestedFiles) {
    fs::create_dir_all(tested.path("a/b")).unwrap();
    let copied = tested.files.copy(&tested.uri("a"), &tested.uri("a/b/c"), &RECURSIVE).await;
    let text = "fs/copy cannot copy a directory to itself or one of its descendants";
    assert_eq!(error_parts(copied), (ErrorKind::InvalidInput, None, text.into()));
}

async fn a_tree_is_removed_only_recursively_and_a_missing_tree_only_with_force(tested: &TestedFiles) {
    fs::create_dir_all(tested.path("a/b")).unwrap();
    fs::write(tested.path("a/b/c"), "").unwrap();
    let removed = tested.files.remove(&tested.uri("a"), &RemoveOptions::default()).await;
    assert_eq!(
        error_parts(removed),
        (ErrorKind::DirectoryNotEmpty, Some(39), "Directory not empty (os error 39)".into())
    );
    let all = RemoveOptions { recursive: true, force: true, ..RemoveOptions::default() };
    tested.files.remove(&tested.uri("a"), &all).await.unwrap();
    assert!(!tested.path("a").exists());
    tested.files.remove(&tested.uri("a"), &all).await.unwrap();
    assert_eq!(
        error_of(tested.files.remove(&tested.uri("a"), &RemoveOptions::default()).await).kind,
        ErrorKind::NotFound
    );
}

async fn a_removal_that_follows_no_links_removes_one_entry_and_cannot_be_recursive(tested: &TestedFiles) {
    fs::create_dir(tested.path("a")).unwrap();
    fs::write(tested.path("b"), "").unwrap();
    let options = RemoveOptions { follow_symlinks: false, ..RemoveOptions::default() };
    tested.files.remove(&tested.uri("a"), &options).await.unwrap();
    tested.files.remove(&tested.uri("b"), &options).await.unwrap();
    assert!(!tested.path("a").exists() && !tested.path("b").exists());
    let all = RemoveOptions { recursive: true, ..options };
    let removed = tested.files.remove(&tested.uri("a"), &all).await;
    assert_eq!(error_parts(removed), (ErrorKind::Other, None, "recursive no-follow removal is unsupported".into()));
}

async fn a_rename_replaces_its_target_only_if_allowed(tested: &TestedFiles) {
    fs::write(tested.path("a"), "a").unwrap();
    fs::write(tested.path("b"), "b").unwrap();
    let no_replace = RenameOptions { replace: false, ..RenameOptions::default() };
    let refused = tested.files.rename(&tested.uri("a"), &tested.uri("b"), &no_replace).await;
    assert_eq!(error_of(refused).kind, ErrorKind::AlreadyExists);
    tested.files.rename(&tested.uri("a"), &tested.uri("b"), &RenameOptions::default()).await.unwrap();
    assert_eq!(fs::read(tested.path("b")).unwrap(), b"a");
    assert!(!tested.path("a").exists());
}
