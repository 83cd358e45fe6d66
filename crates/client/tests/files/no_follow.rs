//! Paths in which no link may be.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use bytes::Bytes;
use client::{CreateDirectoryOptions, FileOptions, NewMetadata, RemoveOptions};

use crate::support::{Place, on_both, told};

on_both! {
    links_are_refused_at_the_end_and_on_the_way
    what_cannot_be_listed_can_be_passed_through
}

async fn links_are_refused_at_the_end_and_on_the_way(place: &Place) {
    fs::create_dir(place.path("real")).unwrap();
    fs::write(place.path("real/file"), "text").unwrap();
    symlink("real", place.path("link")).unwrap();
    symlink("real/file", place.path("leaf")).unwrap();
    let options = FileOptions::no_follow();
    for (name, read_errno, looks) in [("leaf", 40, None), ("link/file", 20, Some(20))] {
        let uri = place.uri(name);
        assert_eq!(told(place.files.read_file(&uri, &options).await).1, Some(read_errno), "{name}");
        let written = place.files.write_file(&uri, Bytes::from_static(b"x"), &options).await;
        assert_eq!(told(written).1, Some(read_errno), "{name}");
        let looked = told(place.files.metadata(&uri, &options).await);
        assert_eq!(looked.1, looks, "{name}");
        let remove = RemoveOptions { follow_symlinks: false, ..RemoveOptions::default() };
        assert_eq!(told(place.files.remove(&uri, &remove).await).1, looks, "{name}");
        if looks.is_none() {
            assert_eq!(looked.2, "path contains a symbolic link");
        }
    }
    let make = CreateDirectoryOptions { follow_symlinks: false, ..CreateDirectoryOptions::default() };
    assert_eq!(told(place.files.create_directory(&place.uri("link/new"), &make).await).1, Some(20));
    let new = NewMetadata { mode: Some(0o600), follow_symlinks: false, ..NewMetadata::default() };
    assert!(place.files.set_metadata(&place.uri("leaf"), &new).await.is_err());
    assert_eq!(fs::read(place.path("real/file")).unwrap(), b"text");
    assert!(!place.path("real/new").exists());
}

/// As root everything can be listed; that the way is gone without listing anything is then shown by its working at all.
async fn what_cannot_be_listed_can_be_passed_through(place: &Place) {
    fs::create_dir_all(place.path("shut/in")).unwrap();
    fs::write(place.path("shut/in/file"), "text").unwrap();
    fs::set_permissions(place.path("shut"), fs::Permissions::from_mode(0o300)).unwrap();
    let options = FileOptions::no_follow();
    let read = place.files.read_file(&place.uri("shut/in/file"), &options).await;
    let _socket = std::os::unix::net::UnixListener::bind(place.path("shut/socket")).unwrap();
    let socket = place.files.metadata(&place.uri("shut/socket"), &options).await;
    fs::set_permissions(place.path("shut"), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(read.unwrap(), b"text");
    let socket = socket.unwrap();
    assert!(!socket.is_file && !socket.is_directory && !socket.is_symlink);
}
