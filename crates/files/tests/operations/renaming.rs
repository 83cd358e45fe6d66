//! Tests of renaming files, directories and links.

use std::fs;

use files::{FileRoot, rename};
use rustix::io::Errno;

use crate::support::{TestDirectory, assert_errno, names_in};

#[test]
fn an_existing_file_is_replaced_only_if_asked() {
    let test_dir = TestDirectory::new();
    let (a, b) = (test_dir.file("a", "a"), test_dir.file("b", "b"));
    assert_errno(rename(FileRoot::host(), &a, &b, false), Errno::EXIST);
    assert_eq!(fs::read(&b).unwrap(), b"b");
    rename(FileRoot::host(), &a, &b, true).unwrap();
    assert_eq!((names_in(test_dir.root()), fs::read(&b).unwrap()), (vec!["b".to_owned()], b"a".to_vec()));
    rename(FileRoot::host(), &b, &test_dir.at("c"), false).unwrap();
    assert_eq!(names_in(test_dir.root()), ["c"]);
}

#[test]
fn directories_and_links_are_moved_as_they_are() {
    let test_dir = TestDirectory::new();
    test_dir.file("d/a", "");
    test_dir.link("none", "link");
    rename(FileRoot::host(), &test_dir.at("d"), &test_dir.at("e"), false).unwrap();
    rename(FileRoot::host(), &test_dir.at("link"), &test_dir.at("e/link"), false).unwrap();
    assert_eq!(names_in(&test_dir.at("e")), ["a", "link"]);
}

#[test]
fn a_directory_is_not_moved_below_itself_nor_onto_a_directory_with_entries() {
    let test_dir = TestDirectory::new();
    test_dir.file("e/a", "");
    for replace in [true, false] {
        assert_errno(rename(FileRoot::host(), &test_dir.at("e"), &test_dir.at("e/below"), replace), Errno::INVAL);
    }
    test_dir.file("full/a", "");
    assert_errno(rename(FileRoot::host(), &test_dir.at("e"), &test_dir.at("full"), true), Errno::NOTEMPTY);
}

#[test]
fn the_error_for_a_missing_source_or_destination_parent_has_the_path_that_cannot_be_found() {
    let test_dir = TestDirectory::new();
    let a = test_dir.file("a", "");
    for replace in [true, false] {
        let error = rename(FileRoot::host(), &test_dir.at("none"), &test_dir.at("b"), replace).unwrap_err();
        assert_eq!(error.path(), Some(test_dir.at("none").as_path()));
        let error = rename(FileRoot::host(), &a, &test_dir.at("none/b"), replace).unwrap_err();
        assert_eq!(error.path(), Some(test_dir.at("none/b").as_path()));
    }
}
