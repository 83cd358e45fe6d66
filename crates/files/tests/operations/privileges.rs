//! What permissions allow. Root is asked for none, so these are played by nobody.

use std::fs;
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use files::{
    CommitOptions, Follow, TreeWalkOptions, Upload, WalkItem, create_directory, metadata, read_file, remove,
    set_metadata, walk, write_file,
};

use crate::roles::{is_played, play_without_privileges, played};
use crate::support::{World, names_in, never, text};

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn directories_that_can_only_be_passed_are_passed() {
    play_without_privileges("privileges::role_of_one_who_passes");
}

#[test]
#[ignore = "a role for the scenario above"]
fn role_of_one_who_passes() {
    if !is_played() {
        return;
    }
    let world = World::new();
    let file = world.file("narrow/d/a", "a");
    let unreadable = world.file("narrow/unreadable", "12345");
    let socket = world.socket("narrow/socket");
    let narrow = world.at("narrow");
    chmod(&unreadable, 0);
    chmod(&narrow, 0o300);
    for follow in [Follow::Yes, Follow::No] {
        assert!(fs::read_dir(&narrow).is_err(), "permissions count");
        assert_eq!(metadata(&unreadable, follow).unwrap().size, 5);
        assert!(!metadata(&socket, follow).unwrap().is_file);
        assert_eq!(text(read_file(&unreadable, follow, 10)), "Permission denied (os error 13)");
        assert_eq!(text(write_file(&unreadable, b"", follow)), "Permission denied (os error 13)");
        write_file(&file, b"b", follow).unwrap();
        assert_eq!(read_file(&file, follow, 10).unwrap(), b"b");
        create_directory(&narrow.join(format!("{follow:?}/b")), true, follow).unwrap();
        set_metadata(&file, Some(0o600), Some((1, 1)), follow).unwrap();
        set_metadata(&unreadable, Some(0), None, follow).unwrap();
        remove(&narrow.join(format!("{follow:?}/b")), false, false, follow, &never()).unwrap();
    }
    let upload = Upload::create(&narrow.join("uploaded"), false, Follow::Yes).unwrap();
    upload.write_block(0, b"abc").unwrap();
    upload.commit(&CommitOptions { sync: true, ..CommitOptions::default() }).unwrap();
    assert_eq!(fs::read(narrow.join("uploaded")).unwrap(), b"abc");
    chmod(&narrow, 0o700);
    played();
}

#[test]
fn what_is_closed_to_us_is_reported() {
    play_without_privileges("privileges::role_of_one_who_is_refused");
}

#[test]
#[ignore = "a role for the scenario above"]
fn role_of_one_who_is_refused() {
    if !is_played() {
        return;
    }
    let world = World::new();
    world.file("tree/closed/a", "");
    world.file("tree/open/b", "");
    let (tree, closed) = (world.at("tree"), world.at("tree/closed"));
    chmod(&closed, 0);

    let options = TreeWalkOptions {
        max_depth: 9,
        max_directories: 99,
        max_entries: 99,
        follow_directory_symlinks: false,
        prune_hidden_directories: false,
    };
    let listing = |root: &Path| {
        let (mut entries, mut errors) = (0, Vec::new());
        let visit = &mut |item: WalkItem<'_>| {
            match item {
                WalkItem::Entry { .. } => entries += 1,
                WalkItem::Error { path, error } => errors.push((path.to_owned(), error.to_string())),
            }
            ControlFlow::Continue(())
        };
        assert!(!walk(root, &options, &never(), visit).unwrap().truncated);
        (entries, errors)
    };
    let refusal = "Permission denied (os error 13)".to_owned();
    assert_eq!(listing(&tree), (3, vec![(closed.clone(), refusal.clone())]));
    assert_eq!(listing(&closed), (0, vec![(closed.clone(), refusal)]), "also if it is the root");

    let error = remove(&tree, true, true, Follow::Yes, &never()).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::PermissionDenied, Some(closed.as_path())));
    chmod(&closed, 0o700);
    fs::remove_file(closed.join("a")).unwrap();
    chmod(&closed, 0);
    remove(&tree, true, false, Follow::Yes, &never()).unwrap();
    assert!(names_in(world.root()).is_empty(), "what is empty need not be listed");

    let read_only = world.directory("read-only");
    chmod(&read_only, 0o500);
    assert_eq!(
        Upload::create(&read_only.join("a"), true, Follow::Yes).unwrap_err().kind(),
        ErrorKind::PermissionDenied
    );
    played();
}
