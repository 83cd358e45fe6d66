//! Metadata, directories, copies and removals.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use client::{CopyOptions, CreateDirectoryOptions, FileOptions, FileTime, NewMetadata, RemoveOptions, RenameOptions};

use crate::support::{Place, on_both, told};

on_both! {
    metadata_describes_files_and_directories
    metadata_can_be_changed_to_the_nanosecond
    directories_are_made_with_their_parents
    many_may_make_the_same_directory
    a_directory_is_listed
    a_file_is_copied
    a_tree_is_copied
    a_directory_is_copied_only_if_asked_to
    a_directory_is_not_copied_into_itself
    a_tree_is_removed_if_asked_to
    one_thing_is_removed_without_following_links
    something_gets_another_name
}

const RECURSIVE: CopyOptions = CopyOptions { recursive: true, sandbox: None };

async fn metadata_describes_files_and_directories(place: &Place) {
    fs::write(place.path("a"), "12345").unwrap();
    for options in [FileOptions::default(), FileOptions::no_follow()] {
        let file = place.files.metadata(&place.uri("a"), &options).await.unwrap();
        assert_eq!((file.is_file, file.is_directory, file.is_symlink, file.size), (true, false, false, 5));
        assert!(file.modified_at_ms > 0);
        let real = fs::metadata(place.path("a")).unwrap();
        let time = FileTime { secs: real.mtime(), nanos: real.mtime_nsec() as u32 };
        assert_eq!((file.mode, file.mtime), (Some(real.mode() & 0o7777), Some(time)));
        let directory = place.files.metadata(&place.uri(""), &options).await.unwrap();
        assert!(directory.is_directory && !directory.is_file && directory.modified_at_ms > 0);
    }
}

async fn metadata_can_be_changed_to_the_nanosecond(place: &Place) {
    fs::write(place.path("a"), "").unwrap();
    let mtime = FileTime { secs: -7, nanos: 123_456_789 };
    let new = NewMetadata { mode: Some(0o640), mtime: Some(mtime), ..NewMetadata::default() };
    place.files.set_metadata(&place.uri("a"), &new).await.unwrap();
    let real = fs::metadata(place.path("a")).unwrap();
    assert_eq!((real.mode() & 0o7777, real.mtime(), real.mtime_nsec()), (0o640, -7, 123_456_789));
}

async fn directories_are_made_with_their_parents(place: &Place) {
    for follow_symlinks in [true, false] {
        let name = format!("{follow_symlinks}/b/c");
        let options = CreateDirectoryOptions { follow_symlinks, ..CreateDirectoryOptions::default() };
        place.files.create_directory(&place.uri(&name), &options).await.unwrap();
        place.files.create_directory(&place.uri(&name), &options).await.unwrap();
        assert!(place.path(&name).is_dir());
        let alone = CreateDirectoryOptions { recursive: false, ..options };
        let again = place.files.create_directory(&place.uri(&name), &alone).await;
        assert_eq!(told(again), (ErrorKind::AlreadyExists, Some(17), "File exists (os error 17)".into()));
        let orphan = place.files.create_directory(&place.uri("none/d"), &alone).await;
        assert_eq!(told(orphan).0, ErrorKind::NotFound);
    }
    let root = CreateDirectoryOptions { recursive: false, follow_symlinks: false, sandbox: None };
    let made = place.files.create_directory(&"file:///".parse().unwrap(), &root).await;
    assert_eq!(told(made), (ErrorKind::AlreadyExists, None, "directory already exists".into()));
}

async fn many_may_make_the_same_directory(place: &Place) {
    let options = CreateDirectoryOptions { follow_symlinks: false, ..CreateDirectoryOptions::default() };
    let uri = place.uri("a/b/c/d");
    let mut making: Vec<_> = (0..16).map(|_| place.files.create_directory(&uri, &options)).collect();
    let all = std::future::poll_fn(|cx| {
        making.retain_mut(|one| match one.as_mut().poll(cx) {
            std::task::Poll::Ready(result) => {
                result.unwrap();
                false
            }
            std::task::Poll::Pending => true,
        });
        if making.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    });
    all.await;
    assert!(place.path("a/b/c/d").is_dir());
}

async fn a_directory_is_listed(place: &Place) {
    fs::write(place.path("file"), "").unwrap();
    fs::create_dir(place.path("directory")).unwrap();
    let mut entries = place.files.read_directory(&place.uri(""), None).await.unwrap();
    entries.sort_by(|a, b| a.file_name.cmp(&b.file_name));
    let seen: Vec<_> =
        entries.iter().map(|entry| (entry.file_name.as_str(), entry.is_directory, entry.is_file)).collect();
    assert_eq!(seen, [("directory", true, false), ("file", false, true)]);
    let file = place.files.read_directory(&place.uri("file"), None).await;
    assert_eq!(told(file), (ErrorKind::NotADirectory, Some(20), "Not a directory (os error 20)".into()));
}

async fn a_file_is_copied(place: &Place) {
    fs::write(place.path("a"), "text").unwrap();
    fs::set_permissions(place.path("a"), fs::Permissions::from_mode(0o751)).unwrap();
    place.files.copy(&place.uri("a"), &place.uri("b"), &CopyOptions::default()).await.unwrap();
    assert_eq!(fs::read(place.path("b")).unwrap(), b"text");
    assert_eq!(fs::metadata(place.path("b")).unwrap().mode() & 0o7777, 0o751);
}

async fn a_tree_is_copied(place: &Place) {
    fs::create_dir_all(place.path("a/b")).unwrap();
    fs::write(place.path("a/b/c"), "text").unwrap();
    assert!(std::process::Command::new("mkfifo").arg(place.path("a/fifo")).status().unwrap().success());
    place.files.copy(&place.uri("a"), &place.uri("copy"), &RECURSIVE).await.unwrap();
    assert_eq!(fs::read(place.path("copy/b/c")).unwrap(), b"text");
    assert!(!place.path("copy/fifo").exists());
    let special = place.files.copy(&place.uri("a/fifo"), &place.uri("x"), &CopyOptions::default()).await;
    let text = "fs/copy only supports regular files, directories, and symlinks";
    assert_eq!(told(special), (ErrorKind::InvalidInput, None, text.into()));
}

async fn a_directory_is_copied_only_if_asked_to(place: &Place) {
    fs::create_dir(place.path("a")).unwrap();
    let copied = place.files.copy(&place.uri("a"), &place.uri("b"), &CopyOptions::default()).await;
    let text = "fs/copy requires recursive: true when sourcePath is a directory";
    assert_eq!(told(copied), (ErrorKind::InvalidInput, None, text.into()));
}

async fn a_directory_is_not_copied_into_itself(place: &Place) {
    fs::create_dir_all(place.path("a/b")).unwrap();
    let copied = place.files.copy(&place.uri("a"), &place.uri("a/b/c"), &RECURSIVE).await;
    let text = "fs/copy cannot copy a directory to itself or one of its descendants";
    assert_eq!(told(copied), (ErrorKind::InvalidInput, None, text.into()));
}

async fn a_tree_is_removed_if_asked_to(place: &Place) {
    fs::create_dir_all(place.path("a/b")).unwrap();
    fs::write(place.path("a/b/c"), "").unwrap();
    let removed = place.files.remove(&place.uri("a"), &RemoveOptions::default()).await;
    assert_eq!(told(removed), (ErrorKind::DirectoryNotEmpty, Some(39), "Directory not empty (os error 39)".into()));
    let all = RemoveOptions { recursive: true, force: true, ..RemoveOptions::default() };
    place.files.remove(&place.uri("a"), &all).await.unwrap();
    assert!(!place.path("a").exists());
    place.files.remove(&place.uri("a"), &all).await.unwrap();
    assert_eq!(told(place.files.remove(&place.uri("a"), &RemoveOptions::default()).await).0, ErrorKind::NotFound);
}

async fn one_thing_is_removed_without_following_links(place: &Place) {
    fs::create_dir(place.path("a")).unwrap();
    fs::write(place.path("b"), "").unwrap();
    let options = RemoveOptions { follow_symlinks: false, ..RemoveOptions::default() };
    place.files.remove(&place.uri("a"), &options).await.unwrap();
    place.files.remove(&place.uri("b"), &options).await.unwrap();
    assert!(!place.path("a").exists() && !place.path("b").exists());
    let all = RemoveOptions { recursive: true, ..options };
    let removed = place.files.remove(&place.uri("a"), &all).await;
    assert_eq!(told(removed), (ErrorKind::Other, None, "recursive no-follow removal is unsupported".into()));
}

async fn something_gets_another_name(place: &Place) {
    fs::write(place.path("a"), "a").unwrap();
    fs::write(place.path("b"), "b").unwrap();
    let free = RenameOptions { replace: false, ..RenameOptions::default() };
    let taken = place.files.rename(&place.uri("a"), &place.uri("b"), &free).await;
    assert_eq!(told(taken).0, ErrorKind::AlreadyExists);
    place.files.rename(&place.uri("a"), &place.uri("b"), &RenameOptions::default()).await.unwrap();
    assert_eq!(fs::read(place.path("b")).unwrap(), b"a");
    assert!(!place.path("a").exists());
}
