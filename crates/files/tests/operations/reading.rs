//! Tests of reading whole files.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::thread;

use files::{FileRoot, Follow, open_file, read_file, remove};
use rustix::io::Errno;

use crate::support::{
    TestDirectory, assert_errno, assert_refused, create_deep_tree, error_text, not_cancelled, run_with_timeout,
};

const LIMIT: u64 = 512 * 1024 * 1024;

#[test]
fn a_file_is_read_whole() {
    let test_dir = TestDirectory::new();
    for size in [0, 1, 4095, 4096, 4097, 1_000_000] {
        let contents: Vec<u8> = (0..size).map(|n| n as u8).collect();
        let path = test_dir.file("a", &contents);
        for follow in [Follow::Yes, Follow::No] {
            assert_eq!(read_file(FileRoot::host(), &path, follow, LIMIT).unwrap(), contents);
        }
        assert_eq!(
            read_file(FileRoot::host(), &path, Follow::Yes, size as u64).unwrap(),
            contents,
            "exactly the limit"
        );
    }
    let link = test_dir.link("a", "link");
    assert_eq!(read_file(FileRoot::host(), &link, Follow::Yes, LIMIT).unwrap().len(), 1_000_000);
}

#[test]
fn the_error_for_a_missing_file_is_that_of_the_system_and_has_the_path() {
    let test_dir = TestDirectory::new();
    for follow in [Follow::Yes, Follow::No] {
        let missing = read_file(FileRoot::host(), &test_dir.at("none/a"), follow, LIMIT);
        assert_eq!(missing.as_ref().unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(missing.as_ref().unwrap_err().path(), Some(test_dir.at("none/a").as_path()));
        assert_eq!(error_text(missing), "No such file or directory (os error 2)");
    }
}

#[test]
fn only_regular_files_are_read_and_nothing_blocks() {
    let test_dir = TestDirectory::new();
    let paths = [
        test_dir.directory("d"),
        test_dir.fifo("fifo"),
        test_dir.socket("socket"),
        "/dev/null".into(),
        Path::new("/").into(),
    ];
    for path in paths {
        let expected = format!("path `{}` is not a file", path.display());
        run_with_timeout(move || {
            assert_refused(read_file(FileRoot::host(), &path, Follow::Yes, LIMIT), &expected);
            assert_refused(open_file(FileRoot::host(), &path, Follow::Yes), &expected);
            assert_refused(read_file(FileRoot::host(), &path, Follow::No, LIMIT), "path is not a regular file");
            assert_refused(open_file(FileRoot::host(), &path, Follow::No), "path is not a regular file");
        });
    }
}

#[test]
fn links_and_dot_dot_are_refused_if_links_may_not_be_followed() {
    let test_dir = TestDirectory::new();
    test_dir.file("d/a", "a");
    test_dir.link("d/a", "link");
    test_dir.link("d", "to-d");
    assert_errno(read_file(FileRoot::host(), &test_dir.at("link"), Follow::No, LIMIT), Errno::LOOP);
    assert_errno(read_file(FileRoot::host(), &test_dir.at("to-d/a"), Follow::No, LIMIT), Errno::NOTDIR);
    assert_eq!(read_file(FileRoot::host(), &test_dir.at("to-d/a"), Follow::Yes, LIMIT).unwrap(), b"a");
    assert_refused(
        read_file(FileRoot::host(), &test_dir.at("d/../d/a"), Follow::No, LIMIT),
        "path must be absolute and normalized",
    );
}

#[test]
fn only_without_following_links_a_path_longer_than_the_kernel_allows_is_resolved() {
    let test_dir = TestDirectory::in_memory();
    create_deep_tree(&test_dir.at("deep"), 3_000);
    let path = test_dir.at(format!("deep{}/file", "/d".repeat(2_999)));
    assert_errno(read_file(FileRoot::host(), &path, Follow::Yes, LIMIT), Errno::NAMETOOLONG);
    assert_eq!(read_file(FileRoot::host(), &path, Follow::No, LIMIT).unwrap(), b"");
    remove(FileRoot::host(), &test_dir.at("deep"), true, false, Follow::Yes, &not_cancelled()).unwrap();
}

#[test]
fn the_error_for_a_file_that_is_too_large_contains_the_limit() {
    let test_dir = TestDirectory::new();
    let path = test_dir.at("large");
    File::create(&path).unwrap().set_len(20_000_000_000).unwrap();
    for follow in [Follow::Yes, Follow::No] {
        let error = read_file(FileRoot::host(), &path, follow, LIMIT).unwrap_err();
        assert_eq!((error.kind(), error.size_limit()), (ErrorKind::FileTooLarge, Some(LIMIT)));
        assert_eq!(error.to_string(), "file is too large to read: limit is 536870912 bytes");
    }
    let error = read_file(FileRoot::host(), &test_dir.file("a", "12345"), Follow::Yes, 4).unwrap_err();
    assert_eq!(error.size_limit(), Some(4));
    assert_eq!(read_file(FileRoot::host(), &test_dir.at("none"), Follow::Yes, 4).unwrap_err().size_limit(), None);
}

#[test]
fn the_limit_applies_to_the_contents_of_files_in_proc_which_report_the_size_0() {
    let status = Path::new("/proc/self/status");
    assert_eq!(fs::metadata(status).unwrap().len(), 0);
    let read = read_file(FileRoot::host(), status, Follow::Yes, LIMIT).unwrap();
    assert!(read.starts_with(b"Name:"));
    assert_eq!(read_file(FileRoot::host(), status, Follow::Yes, 10).unwrap_err().size_limit(), Some(10));
    assert_eq!(read_file(FileRoot::host(), status, Follow::Yes, 0).unwrap_err().size_limit(), Some(0));
}

#[test]
fn a_read_of_a_growing_file_never_returns_more_than_the_limit() {
    let test_dir = TestDirectory::new();
    let path = test_dir.file("log", "");
    let mut log = OpenOptions::new().append(true).open(&path).unwrap();
    let writer = thread::spawn(move || (0..2000).for_each(|_| log.write_all(&[b'x'; 500]).unwrap()));
    loop {
        match read_file(FileRoot::host(), &path, Follow::Yes, 500_000) {
            Ok(read) => assert!(read.len() <= 500_000 && read.capacity() <= 500_001),
            Err(error) => {
                assert_eq!(error.size_limit(), Some(500_000));
                break;
            }
        }
    }
    writer.join().unwrap();
}
