//! Tests of creating, reading and resolving symbolic links.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;

use files::{FileRoot, canonicalize, read_link, symlink};
use rustix::io::Errno;

use crate::support::{TestDirectory, assert_errno};

#[test]
fn canonicalize_resolves_links_and_dots_and_fails_for_a_missing_path() {
    let test_dir = TestDirectory::new();
    let file = test_dir.file("d/a", "");
    test_dir.link("d", "to-d");
    assert_eq!(canonicalize(FileRoot::host(), &test_dir.at("to-d/../to-d/./a")).unwrap(), file);
    assert_eq!(canonicalize(FileRoot::host(), &test_dir.at("none")).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_link_is_created_and_read_with_its_exact_target() {
    let test_dir = TestDirectory::new();
    let path = test_dir.at("link");
    for target in [&b"none"[..], b"../a/./b//", b"\xff\xfe", &[b'x'; 4000]] {
        let target = OsStr::from_bytes(target);
        symlink(FileRoot::host(), target, &path).unwrap();
        assert_eq!(read_link(FileRoot::host(), &path).unwrap(), target);
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_new_link_replaces_nothing() {
    let test_dir = TestDirectory::new();
    for existing in [test_dir.link("none", "link"), test_dir.file("a", "")] {
        assert_errno(symlink(FileRoot::host(), OsStr::new("none"), &existing), Errno::EXIST);
    }
}

#[test]
fn only_links_are_read() {
    let test_dir = TestDirectory::new();
    assert_errno(read_link(FileRoot::host(), &test_dir.file("a", "")), Errno::INVAL);
    assert_errno(read_link(FileRoot::host(), &test_dir.at("none")), Errno::NOENT);
}
