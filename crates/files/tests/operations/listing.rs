//! Tests of listing one directory.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;

use files::{DanglingLinks, FileRoot, read_directory, read_directory_if_it_fits};
use rustix::io::Errno;

use crate::support::{TestDirectory, assert_errno};

#[test]
fn a_link_is_listed_as_its_target_and_a_dangling_link_only_if_asked() {
    let test_dir = TestDirectory::new();
    test_dir.file("a", "");
    test_dir.directory("d");
    test_dir.link("a", "to-a");
    test_dir.link("d", "to-d");
    test_dir.link("none", "to-none");
    test_dir.link("loop", "loop");
    test_dir.fifo("fifo");
    test_dir.socket("socket");
    fs::write(test_dir.at(OsStr::from_bytes(b"\xff")), "").unwrap();

    let mut entries = read_directory(FileRoot::host(), test_dir.root(), 8, DanglingLinks::LeftOut).unwrap();
    entries.sort_by(|first, second| first.name.cmp(&second.name));
    let entries: Vec<_> = entries.iter().map(|e| (e.name.as_bytes(), e.is_directory, e.is_file)).collect();
    let expected: [(&[u8], bool, bool); 7] = [
        (b"a", false, true),
        (b"d", true, false),
        (b"fifo", false, false),
        (b"socket", false, false),
        (b"to-a", false, true),
        (b"to-d", true, false),
        (b"\xff", false, true),
    ];
    assert_eq!(entries, expected);

    let mut entries = read_directory(FileRoot::host(), test_dir.root(), 9, DanglingLinks::Listed).unwrap();
    entries.retain(|entry| entry.is_symlink);
    entries.sort_by(|first, second| first.name.cmp(&second.name));
    let links: Vec<_> = entries.iter().map(|e| (e.name.as_bytes(), e.is_directory, e.is_file)).collect();
    let expected: [(&[u8], bool, bool); 4] =
        [(b"loop", false, false), (b"to-a", false, true), (b"to-d", true, false), (b"to-none", false, false)];
    assert_eq!(links, expected);
}

#[test]
fn after_the_callback_has_returned_false_it_still_gets_all_names_but_no_entries_are_returned() {
    let test_dir = TestDirectory::new();
    for name in ["a", "b", "c", "d"] {
        test_dir.file(name, "");
    }
    let mut passed = Vec::new();
    let returned = read_directory_if_it_fits(FileRoot::host(), test_dir.root(), 4, DanglingLinks::LeftOut, |name| {
        passed.push(name.to_owned());
        passed.len() != 2
    });
    assert_eq!(returned.unwrap(), None);
    passed.sort();
    assert_eq!(passed, ["a", "b", "c", "d"]);
    let returned = read_directory_if_it_fits(FileRoot::host(), test_dir.root(), 4, DanglingLinks::LeftOut, |_| true);
    assert_eq!(returned.unwrap().map(|entries| entries.len()), Some(4));
}

#[test]
fn only_directories_and_links_to_directories_are_listed() {
    let test_dir = TestDirectory::new();
    assert_errno(
        read_directory(FileRoot::host(), &test_dir.file("a", ""), 10, DanglingLinks::LeftOut),
        Errno::NOTDIR,
    );
    assert_eq!(
        read_directory(FileRoot::host(), &test_dir.at("none"), 10, DanglingLinks::LeftOut).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    test_dir.directory("d");
    assert_eq!(
        read_directory(FileRoot::host(), &test_dir.link("d", "to-d"), 10, DanglingLinks::LeftOut).unwrap(),
        []
    );
}

#[test]
fn the_error_for_a_directory_with_too_many_entries_contains_their_number() {
    let test_dir = TestDirectory::in_memory();
    for number in 0..100_000 {
        File::create(test_dir.at(format!("{number}"))).unwrap();
    }
    let error = read_directory(FileRoot::host(), test_dir.root(), 50_000, DanglingLinks::LeftOut).unwrap_err();
    assert_eq!(error.to_string(), "fs/readDirectory returned 100000 entries; limit is 50000");
    assert_eq!(error.kind(), ErrorKind::Other);
    assert_eq!(
        read_directory(FileRoot::host(), test_dir.root(), 100_000, DanglingLinks::LeftOut).unwrap().len(),
        100_000
    );
}
