//! Operations that refuse paths with symbolic links.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use bytes::Bytes;
use client::{CreateDirectoryOptions, FileOptions, NewMetadata, RemoveOptions};

use crate::support::{TestedFiles, error_of, on_local_and_remote};

on_local_and_remote! {
    links_are_refused_at_the_end_and_in_the_middle_of_a_path
    directories_that_cannot_be_listed_can_be_traversed
}

async fn links_are_refused_at_the_end_and_in_the_middle_of_a_path(tested: &TestedFiles) {
    fs::create_dir(tested.path("real")).unwrap();
    fs::write(tested.path("real/file"), "text").unwrap();
    symlink("real", tested.path("link")).unwrap();
    symlink("real/file", tested.path("leaf")).unwrap();
    let options = FileOptions::no_follow();
    // Errors 40 and 20 are ELOOP and ENOTDIR. For metadata and removals, a link at the end gives an error without a
    // number.
    for (name, contents_errno, entry_errno) in [("leaf", 40, None), ("link/file", 20, Some(20))] {
        let uri = tested.uri(name);
        assert_eq!(error_of(tested.files.read_file(&uri, &options).await).errno, Some(contents_errno), "{name}");
        let written = tested.files.write_file(&uri, Bytes::from_static(b"x"), &options).await;
        assert_eq!(error_of(written).errno, Some(contents_errno), "{name}");
        let metadata_error = error_of(tested.files.metadata(&uri, &options).await);
        assert_eq!(metadata_error.errno, entry_errno, "{name}");
        let remove = RemoveOptions { follow_symlinks: false, ..RemoveOptions::default() };
        assert_eq!(error_of(tested.files.remove(&uri, &remove).await).errno, entry_errno, "{name}");
        if entry_errno.is_none() {
            assert_eq!(metadata_error.message, "path contains a symbolic link");
        }
    }
    let make = CreateDirectoryOptions { follow_symlinks: false, ..CreateDirectoryOptions::default() };
    assert_eq!(error_of(tested.files.create_directory(&tested.uri("link/new"), &make).await).errno, Some(20));
    let new = NewMetadata { mode: Some(0o600), follow_symlinks: false, ..NewMetadata::default() };
    assert!(tested.files.set_metadata(&tested.uri("leaf"), &new).await.is_err());
    assert_eq!(fs::read(tested.path("real/file")).unwrap(), b"text");
    assert!(!tested.path("real/new").exists());
}

/// A path is resolved without listing its directories. Root can list every directory, so the test shows this only if
/// another user runs it.
async fn directories_that_cannot_be_listed_can_be_traversed(tested: &TestedFiles) {
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
