//! Tests of operations on files and directories that the user may not read or write. Root may do both everywhere, so
//! each test runs an ignored test, its *role*, in a process that is not run by root.

use std::fs;
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use files::{
    CommitOptions, FileRoot, Follow, TreeWalkOptions, Upload, WalkItem, create_directory, metadata, read_file,
    remove, set_metadata, walk, write_file,
};

use crate::roles::{is_role_process, report_done, run_without_privileges};
use crate::support::{TestDirectory, error_text, names_in, not_cancelled};

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn operations_work_below_a_directory_that_cannot_be_listed() {
    run_without_privileges("privileges::role_use_unlistable_directory");
}

#[test]
#[ignore = "run by the test above in a process of its own"]
fn role_use_unlistable_directory() {
    if !is_role_process() {
        return;
    }
    let test_dir = TestDirectory::new();
    let file = test_dir.file("unlistable/d/a", "a");
    let unreadable = test_dir.file("unlistable/unreadable", "12345");
    let socket = test_dir.socket("unlistable/socket");
    let unlistable = test_dir.at("unlistable");
    chmod(&unreadable, 0);
    chmod(&unlistable, 0o300);
    for follow in [Follow::Yes, Follow::No] {
        assert!(fs::read_dir(&unlistable).is_err(), "this user is bound by permissions");
        assert_eq!(metadata(FileRoot::host(), &unreadable, follow).unwrap().size, 5);
        assert!(!metadata(FileRoot::host(), &socket, follow).unwrap().is_file);
        assert_eq!(
            error_text(read_file(FileRoot::host(), &unreadable, follow, 10)),
            "Permission denied (os error 13)"
        );
        assert_eq!(
            error_text(write_file(FileRoot::host(), &unreadable, b"", follow)),
            "Permission denied (os error 13)"
        );
        write_file(FileRoot::host(), &file, b"b", follow).unwrap();
        assert_eq!(read_file(FileRoot::host(), &file, follow, 10).unwrap(), b"b");
        create_directory(FileRoot::host(), &unlistable.join(format!("{follow:?}/b")), true, follow).unwrap();
        set_metadata(FileRoot::host(), &file, Some(0o600), Some((1, 1)), follow).unwrap();
        set_metadata(FileRoot::host(), &unreadable, Some(0), None, follow).unwrap();
        remove(FileRoot::host(), &unlistable.join(format!("{follow:?}/b")), false, false, follow, &not_cancelled())
            .unwrap();
    }
    let upload = Upload::create(FileRoot::host(), &unlistable.join("uploaded"), false, Follow::Yes).unwrap();
    upload.write_block(0, b"abc").unwrap();
    upload.commit(&CommitOptions { sync: true, ..CommitOptions::default() }).unwrap();
    assert_eq!(fs::read(unlistable.join("uploaded")).unwrap(), b"abc");
    chmod(&unlistable, 0o700);
    report_done();
}

#[test]
fn a_walk_and_a_removal_report_a_directory_that_cannot_be_read() {
    run_without_privileges("privileges::role_use_unreadable_directory");
}

#[test]
#[ignore = "run by the test above in a process of its own"]
fn role_use_unreadable_directory() {
    if !is_role_process() {
        return;
    }
    let test_dir = TestDirectory::new();
    test_dir.file("tree/closed/a", "");
    test_dir.file("tree/open/b", "");
    let (tree, closed) = (test_dir.at("tree"), test_dir.at("tree/closed"));
    chmod(&closed, 0);

    let options = TreeWalkOptions {
        max_depth: 9,
        max_directories: 99,
        max_entries: 99,
        follow_directory_symlinks: false,
        prune_hidden_directories: false,
    };
    let walk_from = |root: &Path| {
        let (mut entries, mut errors) = (0, Vec::new());
        let visit = &mut |item: WalkItem<'_>| {
            match item {
                WalkItem::Entry { .. } => entries += 1,
                WalkItem::Error { path, error } => errors.push((path.to_owned(), error.to_string())),
            }
            ControlFlow::Continue(())
        };
        assert!(!walk(FileRoot::host(), root, &options, &not_cancelled(), visit).unwrap().truncated);
        (entries, errors)
    };
    let refusal = "Permission denied (os error 13)".to_owned();
    assert_eq!(walk_from(&tree), (3, vec![(closed.clone(), refusal.clone())]));
    assert_eq!(walk_from(&closed), (0, vec![(closed.clone(), refusal)]), "also as the root of the walk");

    let error = remove(FileRoot::host(), &tree, true, true, Follow::Yes, &not_cancelled()).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::PermissionDenied, Some(closed.as_path())));
    chmod(&closed, 0o700);
    fs::remove_file(closed.join("a")).unwrap();
    chmod(&closed, 0);
    remove(FileRoot::host(), &tree, true, false, Follow::Yes, &not_cancelled()).unwrap();
    assert!(names_in(test_dir.root()).is_empty(), "an empty directory is removed without being listed");
    report_done();
}

#[test]
fn an_upload_into_a_read_only_directory_is_refused() {
    run_without_privileges("privileges::role_upload_into_read_only_directory");
}

#[test]
#[ignore = "run by the test above in a process of its own"]
fn role_upload_into_read_only_directory() {
    if !is_role_process() {
        return;
    }
    let test_dir = TestDirectory::new();
    let read_only = test_dir.directory("read-only");
    chmod(&read_only, 0o500);
    assert_eq!(
        Upload::create(FileRoot::host(), &read_only.join("a"), true, Follow::Yes).unwrap_err().kind(),
        ErrorKind::PermissionDenied
    );
    report_done();
}
