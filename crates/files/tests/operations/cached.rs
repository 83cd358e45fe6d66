//! Tests of the calls that return metadata and contents only from the cache of the kernel. They must return the same
//! as the blocking calls, or nothing.

use std::fs;
use std::io::IoSliceMut;
use std::path::{Path, PathBuf};

use files::{FileError, FileRoot, Follow, metadata, metadata_if_cached, read_file, read_file_if_cached};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::{ReadWriteFlags, preadv2};

use crate::support::TestDirectory;

/// Size limit in bytes for the files that are read.
const LIMIT: u64 = 64 * 1024;

/// A result with errors that can be compared: their text and path.
fn comparable<T>(result: Result<T, FileError>) -> Result<T, (String, Option<PathBuf>)> {
    result.map_err(|error| (error.to_string(), error.path().map(ToOwned::to_owned)))
}

#[test]
fn cached_answers_equal_the_results_of_the_blocking_calls() {
    let test_dir = TestDirectory::new();
    test_dir.file("d/a", "contents");
    test_dir.link("d", "to-d");
    test_dir.link("d/a", "link");
    test_dir.link("none", "dangling");
    test_dir.link("loop", "loop");
    test_dir.fifo("fifo");
    test_dir.socket("socket");
    test_dir.file("empty", "");
    test_dir.file("limit", vec![1; 65_536]);
    test_dir.file("over", vec![1; 65_537]);
    let names = [
        "d",
        "d/",
        "d/a",
        "d/a/",
        "d/./a",
        "d/../d/a",
        "to-d",
        "to-d/",
        "to-d/a",
        "link",
        "link/",
        "dangling",
        "loop",
        "fifo",
        "socket",
        "empty",
        "limit",
        "over",
        "none",
        "none/below",
        "d/a/below",
    ];
    let other_paths = ["/", "/dev/null", "/proc/self/status", "/proc/version", "/dev/shm", "/proc/self/exe", "/etc"];
    for path in names.map(|name| test_dir.at(name)).into_iter().chain(other_paths.map(PathBuf::from)) {
        // The blocking calls come first, so that the kernel has the file in its cache afterwards.
        let (described, read) = (
            comparable(metadata(FileRoot::host(), &path, Follow::Yes)),
            comparable(read_file(FileRoot::host(), &path, Follow::Yes, LIMIT)),
        );
        if let Some(answer) = metadata_if_cached(FileRoot::host(), &path) {
            assert_eq!(comparable(answer), described, "{path:?}");
        }
        if let Some(answer) = read_file_if_cached(FileRoot::host(), &path, LIMIT) {
            assert_eq!(comparable(answer), read, "{path:?}");
        }
    }
}

/// Whether this kernel can open a cached path without blocking, and whether it can read a cached file without
/// blocking.
fn kernel_support(path: &Path) -> (bool, bool) {
    let opened = openat2(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::CACHED);
    let mut byte = [0];
    let read = opened
        .as_ref()
        .is_ok_and(|file| preadv2(file, &mut [IoSliceMut::new(&mut byte)], 0, ReadWriteFlags::NOWAIT).is_ok());
    (opened.is_ok(), read)
}

#[test]
fn a_cached_file_gets_an_answer_if_the_kernel_can_open_and_read_it_without_blocking() {
    let test_dir = TestDirectory::new();
    let path = test_dir.file("a", "contents");
    let described = metadata(FileRoot::host(), &path, Follow::Yes).unwrap();
    assert_eq!(read_file(FileRoot::host(), &path, Follow::Yes, LIMIT).unwrap(), b"contents");
    let (can_open, can_read) = kernel_support(&path);
    assert_eq!(metadata_if_cached(FileRoot::host(), &path).map(Result::unwrap), can_open.then_some(described));
    assert_eq!(
        read_file_if_cached(FileRoot::host(), &path, LIMIT).map(Result::unwrap),
        can_read.then(|| b"contents".to_vec())
    );
}

#[test]
fn files_of_procfs_get_no_cached_answer_because_it_is_not_a_local_file_system() {
    assert!(metadata_if_cached(FileRoot::host(), "/proc/version".as_ref()).is_none());
    // The blocking call finds out that the device of procfs is not local.
    metadata(FileRoot::host(), "/proc/version".as_ref(), Follow::Yes).unwrap();
    assert!(metadata_if_cached(FileRoot::host(), "/proc/version".as_ref()).is_none());
    assert!(read_file_if_cached(FileRoot::host(), "/proc/version".as_ref(), LIMIT).is_none());
}

#[test]
fn cached_answers_show_changes_at_once() {
    let test_dir = TestDirectory::new();
    let path = test_dir.file("a", "");
    for size in 1..200 {
        fs::write(&path, vec![size as u8; size]).unwrap();
        let described = metadata(FileRoot::host(), &path, Follow::Yes).unwrap();
        assert!(metadata_if_cached(FileRoot::host(), &path).is_none_or(|answer| answer.unwrap() == described));
        assert!(
            read_file_if_cached(FileRoot::host(), &path, LIMIT)
                .is_none_or(|answer| answer.unwrap() == vec![size as u8; size])
        );
    }
    fs::remove_file(&path).unwrap();
    assert!(metadata_if_cached(FileRoot::host(), &path).is_none_or(|answer| answer.is_err()));
}

#[test]
fn a_file_larger_than_the_limit_is_left_to_the_blocking_call() {
    let test_dir = TestDirectory::new();
    let path = test_dir.file("a", "contents");
    read_file(FileRoot::host(), &path, Follow::Yes, LIMIT).unwrap();
    assert!(read_file_if_cached(FileRoot::host(), &path, 7).is_none());
}
