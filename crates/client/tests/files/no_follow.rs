//! Paths in which links are not allowed.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use bytes::Bytes;
use client::{CreateDirectoryOptions, FileOptions, NewMetadata, RemoveOptions};

use crate::support::{TestedFiles, on_both, told};

on_both! {
    links_are_refused_at_the_end_and_in_the_middle_of_a_path
    directories_that_cannot_be_listed_can_be_passed
}

async fn links_are_refused_at_the_end_and_in_the_middle_of_a_path(tested: &TestedFiles) {
    fs::create_dir(tested.path("real")).unwrap();
    fs::write(tested.path("real/file"), "text").unwrap();
    symlink("real", tested.path("link")).unwrap();
    symlink("real/file", tested.path("leaf")).unwrap();
    let options = FileOptions::no_follow();
    for (name, read_errno, looks) in [("leaf", 40, None), ("link/file", 20, Some(20))] {
        let uri = tested.uri(name);
        assert_eq!(told(tested.files.read_file(&uri, &options).await).1, Some(read_errno), "{name}");
        let written = tested.files.write_file(&uri, Bytes::from_static(b"x"), &options).await;
        assert_eq!(told(written).1, Some(read_errno), "{name}");
        let looked = told(tested.files.metadata(&uri, &options).await);
        assert_eq!(looked.1, looks, "{name}");
        let remove = RemoveOptions { follow_symlinks: false, ..RemoveOptions::default() };
        assert_eq!(told(tested.files.remove(&uri, &remove).await).1, looks, "{name}");
        if looks.is_none() {
            assert_eq!(looked.2, "path contains a symbolic link");
        }
    }
    let make = CreateDirectoryOptions { follow_symlinks: false, ..CreateDirectoryOptions::default() };
    assert_eq!(told(tested.files.create_directory(&tested.uri("link/new"), &make).await).1, Some(20));
    let new = NewMetadata { mode: Some(0o600), follow_symlinks: false, ..NewMetadata::default() };
    assert!(tested.files.set_metadata(&tested.uri("leaf"), &new).await.is_err());
    assert_eq!(fs::read(tested.path("real/file")).unwrap(), b"text");
    assert!(!tested.path("real/new").exists());
}

/// Root can list every directory. Other users show that the path is resolved without listing its directories.
async fn directories_that_cannot_be_listed_can_be_passed(tested: &TestedFiles) {
    fs::create_dir_all(tested.path("shut/in")).unwrap();
    fs::write(tested.path("shut/in/file"), "text").unwrap();
    fs::set_permissions(tested.path("shut"), fs::Permissions::from_mode(0o300)).unwrap();
    let options = FileOptions::no_follow();
    let read = tested.files.read_file(&tested.uri("shut/in/file"), &options).await;
    let _socket = std::os::unix::net::UnixListener::bind(tested.path("shut/socket")).unwrap();
    let socket = tested.files.metadata(&tested.uri("shut/socket"), &options).await;
    fs::set_permissions(tested.path("shut"), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(read.unwrap(), b"text");
    let socket = socket.unwrap();
    assert!(!socket.is_file && !socket.is_directory && !socket.is_symlink);
}
