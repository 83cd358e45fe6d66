//! Tests of creating directories: with missing parents, through links, and from several threads at once.

use std::fs;
use std::io::ErrorKind;
use std::sync::Barrier;
use std::thread;

use files::{FileRoot, Follow, create_directory};
use rustix::io::Errno;

use crate::support::{TestDirectory, assert_errno, error_text};

const BOTH: [Follow; 2] = [Follow::Yes, Follow::No];

#[test]
fn missing_parents_are_created_and_existing_directories_are_accepted_only_if_recursive() {
    let test_dir = TestDirectory::new();
    for follow in BOTH {
        let deep = test_dir.at(format!("{follow:?}/b/c"));
        assert_eq!(create_directory(FileRoot::host(), &deep, false, follow).unwrap_err().kind(), ErrorKind::NotFound);
        create_directory(FileRoot::host(), &deep, true, follow).unwrap();
        create_directory(FileRoot::host(), &deep, true, follow).unwrap();
        create_directory(FileRoot::host(), &deep.join("d"), false, follow).unwrap();
        assert!(deep.join("d").is_dir());
        assert_errno(create_directory(FileRoot::host(), &deep, false, follow), Errno::EXIST);
        create_directory(FileRoot::host(), "/".as_ref(), true, follow).unwrap();
    }
}

#[test]
fn a_file_at_the_path_or_above_it_is_an_error() {
    let test_dir = TestDirectory::new();
    let file = test_dir.file("a", "");
    for follow in BOTH {
        for recursive in [true, false] {
            assert_errno(create_directory(FileRoot::host(), &file, recursive, follow), Errno::EXIST);
            assert_errno(create_directory(FileRoot::host(), &file.join("b"), recursive, follow), Errno::NOTDIR);
        }
    }
}

#[test]
fn creating_the_root_is_an_error_if_not_recursive() {
    assert_eq!(
        error_text(create_directory(FileRoot::host(), "/".as_ref(), false, Follow::No)),
        "directory already exists"
    );
    assert_errno(create_directory(FileRoot::host(), "/".as_ref(), false, Follow::Yes), Errno::EXIST);
}

#[test]
fn links_are_followed_only_if_allowed() {
    let test_dir = TestDirectory::new();
    test_dir.directory("d");
    let link = test_dir.link("d", "to-d");
    create_directory(FileRoot::host(), &link.join("by-link/b"), true, Follow::Yes).unwrap();
    create_directory(FileRoot::host(), &link, true, Follow::Yes).unwrap();
    for recursive in [true, false] {
        assert_errno(create_directory(FileRoot::host(), &link.join("b"), recursive, Follow::No), Errno::NOTDIR);
        assert_errno(create_directory(FileRoot::host(), &link, recursive, Follow::No), Errno::EXIST);
    }
    assert_eq!(fs::read_dir(test_dir.at("d")).unwrap().count(), 1);
}

#[test]
fn several_threads_can_create_the_same_directory() {
    let test_dir = TestDirectory::new();
    for follow in BOTH {
        let path = test_dir.at(format!("{follow:?}/b/c/d/e"));
        let start = Barrier::new(16);
        thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    start.wait();
                    create_directory(FileRoot::host(), &path, true, follow).unwrap();
                });
            }
        });
        assert!(path.is_dir());
    }
}
