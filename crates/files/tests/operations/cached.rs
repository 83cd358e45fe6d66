//! What is answered at once is what would have been answered.

use std::fs;
use std::io::IoSliceMut;
use std::path::{Path, PathBuf};

use files::{FileError, Follow, metadata, metadata_if_cached, read_file, read_file_if_cached};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::{ReadWriteFlags, preadv2};

use crate::support::World;

const LIMIT: u64 = 64 * 1024;

fn said<T>(result: Result<T, FileError>) -> Result<T, (String, Option<PathBuf>)> {
    result.map_err(|error| (error.to_string(), error.path().map(ToOwned::to_owned)))
}

#[test]
fn answers_are_those_of_the_blocking_calls() {
    let world = World::new();
    world.file("d/a", "contents");
    world.link("d", "way");
    world.link("d/a", "link");
    world.link("none", "dangling");
    world.link("loop", "loop");
    world.fifo("fifo");
    world.socket("socket");
    world.file("empty", "");
    world.file("limit", vec![1; 65_536]);
    world.file("over", vec![1; 65_537]);
    let names = [
        "d",
        "d/",
        "d/a",
        "d/a/",
        "d/./a",
        "d/../d/a",
        "way",
        "way/",
        "way/a",
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
    let elsewhere = ["/", "/dev/null", "/proc/self/status", "/proc/version", "/dev/shm", "/proc/self/exe", "/etc"];
    for path in names.map(|name| world.at(name)).into_iter().chain(elsewhere.map(PathBuf::from)) {
        // Asked before, so that it is cached.
        let (described, read) = (said(metadata(&path, Follow::Yes)), said(read_file(&path, Follow::Yes, LIMIT)));
        if let Some(answer) = metadata_if_cached(&path) {
            assert_eq!(said(answer), described, "{path:?}");
        }
        if let Some(answer) = read_file_if_cached(&path, LIMIT) {
            assert_eq!(said(answer), read, "{path:?}");
        }
    }
}

/// Whether the kernel is new enough, and allowed, to say what it has in memory.
fn kernel_can_tell(path: &Path) -> (bool, bool) {
    let opened = openat2(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::CACHED);
    let mut byte = [0];
    let read = opened
        .as_ref()
        .is_ok_and(|file| preadv2(file, &mut [IoSliceMut::new(&mut byte)], 0, ReadWriteFlags::NOWAIT).is_ok());
    (opened.is_ok(), read)
}

#[test]
fn the_plain_case_is_answered_where_the_kernel_can_tell() {
    let world = World::new();
    let path = world.file("a", "contents");
    let described = metadata(&path, Follow::Yes).unwrap();
    assert_eq!(read_file(&path, Follow::Yes, LIMIT).unwrap(), b"contents");
    let (can_open, can_read) = kernel_can_tell(&path);
    assert_eq!(metadata_if_cached(&path).map(Result::unwrap), can_open.then_some(described));
    assert_eq!(read_file_if_cached(&path, LIMIT).map(Result::unwrap), can_read.then(|| b"contents".to_vec()));
}

#[test]
fn nothing_is_said_of_files_that_are_on_no_local_device() {
    assert!(metadata_if_cached("/proc/version".as_ref()).is_none());
    metadata("/proc/version".as_ref(), Follow::Yes).unwrap();
    assert!(metadata_if_cached("/proc/version".as_ref()).is_none());
    assert!(read_file_if_cached("/proc/version".as_ref(), LIMIT).is_none());
}

#[test]
fn changes_are_seen_at_once() {
    let world = World::new();
    let path = world.file("a", "");
    for size in 1..200 {
        fs::write(&path, vec![size as u8; size]).unwrap();
        let described = metadata(&path, Follow::Yes).unwrap();
        assert!(metadata_if_cached(&path).is_none_or(|answer| answer.unwrap() == described));
        assert!(read_file_if_cached(&path, LIMIT).is_none_or(|answer| answer.unwrap() == vec![size as u8; size]));
    }
    fs::remove_file(&path).unwrap();
    assert!(metadata_if_cached(&path).is_none_or(|answer| answer.is_err()));
}

#[test]
fn a_limit_of_the_caller_is_left_to_the_blocking_call() {
    let world = World::new();
    let path = world.file("a", "contents");
    read_file(&path, Follow::Yes, LIMIT).unwrap();
    assert!(read_file_if_cached(&path, 7).is_none());
}
