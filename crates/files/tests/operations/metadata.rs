//! Tests of reading and setting the metadata of files.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::UNIX_EPOCH;

use files::{FileRoot, Follow, metadata, set_metadata};
use rustix::io::Errno;

use crate::support::{TestDirectory, assert_errno, assert_refused};

const BOTH: [Follow; 2] = [Follow::Yes, Follow::No];

#[test]
fn the_metadata_of_files_and_directories_equals_that_of_the_standard_library() {
    let test_dir = TestDirectory::new();
    let file = test_dir.file("a", "12345");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o4751)).unwrap();
    for path in [file, test_dir.directory("d"), "/".into()] {
        let expected = fs::metadata(&path).unwrap();
        for follow in BOTH {
            let found = metadata(FileRoot::host(), &path, follow).unwrap();
            assert_eq!(found.is_directory, expected.is_dir());
            assert_eq!(found.is_file, expected.is_file());
            assert!(!found.is_symlink);
            assert_eq!(found.size, expected.len());
            assert_eq!(found.mode, expected.mode() & 0o7777);
            assert_eq!((found.uid, found.gid), (expected.uid(), expected.gid()));
            assert_eq!((found.inode, found.device, found.links), (expected.ino(), expected.dev(), expected.nlink()));
            assert_eq!(found.modified_seconds, expected.mtime());
            assert_eq!(i64::from(found.modified_nanos), expected.mtime_nsec());
            assert_eq!(found.modified_at_ms, expected.mtime() * 1000 + expected.mtime_nsec() / 1_000_000);
            let created = expected.created().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
            assert_eq!(found.created_at_ms, created.map_or(0, |time| time.as_millis() as i64));
        }
    }
}

#[test]
fn a_special_file_is_neither_file_nor_directory() {
    let test_dir = TestDirectory::new();
    for path in [test_dir.fifo("fifo"), test_dir.socket("socket"), "/dev/null".into()] {
        for follow in BOTH {
            let found = metadata(FileRoot::host(), &path, follow).unwrap();
            assert_eq!((found.is_directory, found.is_file, found.is_symlink), (false, false, false));
        }
    }
}

#[test]
fn a_link_is_described_by_its_target_or_refused_if_links_may_not_be_followed() {
    let test_dir = TestDirectory::new();
    test_dir.file("d/a", "12345");
    let link = test_dir.link("d/a", "link");
    let directory_link = test_dir.link("d", "to-d");
    let dangling = test_dir.link("none", "dangling");
    let found = metadata(FileRoot::host(), &link, Follow::Yes).unwrap();
    assert_eq!((found.is_symlink, found.is_file, found.size), (true, true, 5));
    let found = metadata(FileRoot::host(), &directory_link, Follow::Yes).unwrap();
    assert_eq!((found.is_symlink, found.is_directory), (true, true));
    assert_eq!(metadata(FileRoot::host(), &dangling, Follow::Yes).unwrap_err().kind(), ErrorKind::NotFound);
    for link in [&link, &directory_link, &dangling] {
        assert_refused(metadata(FileRoot::host(), link, Follow::No), "path contains a symbolic link");
    }
    assert_errno(metadata(FileRoot::host(), &directory_link.join("a"), Follow::No), Errno::NOTDIR);
}

#[test]
fn a_time_before_1970_is_reported_as_0_if_links_are_followed_and_exactly_otherwise() {
    let test_dir = TestDirectory::new();
    let path = test_dir.file("a", "");
    set_metadata(FileRoot::host(), &path, None, Some((-2, 500_000_000)), Follow::Yes).unwrap();
    assert_eq!(metadata(FileRoot::host(), &path, Follow::Yes).unwrap().modified_at_ms, 0);
    let found = metadata(FileRoot::host(), &path, Follow::No).unwrap();
    assert_eq!((found.modified_at_ms, found.modified_seconds, found.modified_nanos), (-1500, -2, 500_000_000));
}

#[test]
fn permissions_and_modification_time_are_set() {
    let test_dir = TestDirectory::new();
    for follow in BOTH {
        let path = test_dir.file("a", "");
        let accessed = fs::metadata(&path).unwrap().accessed().unwrap();
        // The mode contains the file type, which is ignored.
        set_metadata(FileRoot::host(), &path, Some(0o107_640), Some((1_000_000_000, 123_456_789)), follow).unwrap();
        let found = metadata(FileRoot::host(), &path, follow).unwrap();
        assert_eq!((found.mode, found.modified_at_ms), (0o7640, 1_000_000_000_123));
        assert_eq!(found.modified_nanos, 123_456_789);
        assert_eq!(fs::metadata(&path).unwrap().accessed().unwrap(), accessed, "the access time stays");
        set_metadata(FileRoot::host(), &path, Some(0), None, follow).unwrap();
        assert_eq!(metadata(FileRoot::host(), &path, follow).unwrap().mode, 0);
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn setting_the_metadata_of_a_fifo_does_not_block_and_that_of_a_missing_path_fails() {
    let test_dir = TestDirectory::new();
    let (fifo, missing) = (test_dir.fifo("fifo"), test_dir.at("none"));
    for follow in BOTH {
        set_metadata(FileRoot::host(), &fifo, Some(0o600), None, follow).unwrap();
        assert_eq!(
            set_metadata(FileRoot::host(), &missing, Some(0), None, follow).unwrap_err().kind(),
            ErrorKind::NotFound
        );
    }
}

#[test]
fn invalid_nanoseconds_are_refused() {
    let test_dir = TestDirectory::new();
    let path = test_dir.file("a", "");
    // The last two values are `UTIME_NOW` and `UTIME_OMIT`, to which the kernel gives a special meaning.
    for nanos in [1_000_000_000, (1 << 30) - 1, (1 << 30) - 2] {
        let set = set_metadata(FileRoot::host(), &path, Some(0o600), Some((1, nanos)), Follow::Yes);
        assert_refused(set, "nanoseconds must be below 1000000000");
    }
    assert_ne!(fs::metadata(&path).unwrap().mtime(), 1);
}

#[test]
fn a_link_has_a_time_of_its_own_but_no_permissions() {
    let test_dir = TestDirectory::new();
    let target = test_dir.file("d/a", "");
    let link = test_dir.link("d/a", "link");
    set_metadata(FileRoot::host(), &link, None, Some((1_000, 0)), Follow::No).unwrap();
    assert_eq!(fs::symlink_metadata(&link).unwrap().mtime(), 1_000);
    assert_ne!(fs::metadata(&target).unwrap().mtime(), 1_000);
    assert_refused(
        set_metadata(FileRoot::host(), &link, Some(0o777), None, Follow::No),
        "path contains a symbolic link",
    );
    set_metadata(FileRoot::host(), &link, Some(0o700), Some((2_000, 0)), Follow::Yes).unwrap();
    let found = fs::metadata(&target).unwrap();
    assert_eq!((found.mode() & 0o7777, found.mtime()), (0o700, 2_000), "the target, if links are followed");
}

#[test]
fn a_link_above_the_file_and_a_relative_path_are_refused_if_links_may_not_be_followed() {
    let test_dir = TestDirectory::new();
    test_dir.file("d/a", "");
    test_dir.link("d", "to-d");
    assert_errno(set_metadata(FileRoot::host(), &test_dir.at("to-d/a"), Some(0), None, Follow::No), Errno::NOTDIR);
    assert!(metadata(FileRoot::host(), Path::new("relative"), Follow::No).is_err());
}
