//! Whole files.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::thread;

use files::{Follow, open_file, read_file, remove};
use rustix::io::Errno;

use crate::support::{World, assert_errno, assert_refused, deep_tree, never, text, within_a_while};

const LIMIT: u64 = 512 * 1024 * 1024;

#[test]
fn a_file_is_read_whole() {
    let world = World::new();
    for size in [0, 1, 4095, 4096, 4097, 1_000_000] {
        let contents: Vec<u8> = (0..size).map(|n| n as u8).collect();
        let path = world.file("a", &contents);
        for follow in [Follow::Yes, Follow::No] {
            assert_eq!(read_file(&path, follow, LIMIT).unwrap(), contents);
        }
        assert_eq!(read_file(&path, Follow::Yes, size as u64).unwrap(), contents, "exactly the limit");
    }
    let link = world.link("a", "link");
    assert_eq!(read_file(&link, Follow::Yes, LIMIT).unwrap().len(), 1_000_000);
}

#[test]
fn what_is_missing_is_said_as_the_system_says_it() {
    let world = World::new();
    for follow in [Follow::Yes, Follow::No] {
        let missing = read_file(&world.at("none/a"), follow, LIMIT);
        assert_eq!(missing.as_ref().unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(missing.as_ref().unwrap_err().path(), Some(world.at("none/a").as_path()));
        assert_eq!(text(missing), "No such file or directory (os error 2)");
    }
}

#[test]
fn only_regular_files_are_read_and_nothing_blocks() {
    let world = World::new();
    let places =
        [world.directory("d"), world.fifo("fifo"), world.socket("socket"), "/dev/null".into(), Path::new("/").into()];
    for path in places {
        let expected = format!("path `{}` is not a file", path.display());
        within_a_while(move || {
            assert_refused(read_file(&path, Follow::Yes, LIMIT), &expected);
            assert_refused(open_file(&path, Follow::Yes), &expected);
            assert_refused(read_file(&path, Follow::No, LIMIT), "path is not a regular file");
            assert_refused(open_file(&path, Follow::No), "path is not a regular file");
        });
    }
}

#[test]
fn links_are_refused_where_they_are_not_to_be_followed() {
    let world = World::new();
    world.file("d/a", "a");
    world.link("d/a", "link");
    world.link("d", "way");
    assert_errno(read_file(&world.at("link"), Follow::No, LIMIT), Errno::LOOP);
    assert_errno(read_file(&world.at("way/a"), Follow::No, LIMIT), Errno::NOTDIR);
    assert_eq!(read_file(&world.at("way/a"), Follow::Yes, LIMIT).unwrap(), b"a");
    assert_refused(read_file(&world.at("d/../d/a"), Follow::No, LIMIT), "path must be absolute and normalized");
}

#[test]
fn a_path_that_is_too_long_for_the_kernel_is_gone_step_by_step() {
    let world = World::in_memory();
    deep_tree(&world.at("deep"), 3_000);
    let path = world.at(format!("deep{}/file", "/d".repeat(2_999)));
    assert_errno(read_file(&path, Follow::Yes, LIMIT), Errno::NAMETOOLONG);
    assert_eq!(read_file(&path, Follow::No, LIMIT).unwrap(), b"");
    remove(&world.at("deep"), true, false, Follow::Yes, &never()).unwrap();
}

#[test]
fn a_limit_is_named_in_the_error() {
    let world = World::new();
    let path = world.at("large");
    File::create(&path).unwrap().set_len(20_000_000_000).unwrap();
    for follow in [Follow::Yes, Follow::No] {
        let error = read_file(&path, follow, LIMIT).unwrap_err();
        assert_eq!((error.kind(), error.size_limit()), (ErrorKind::FileTooLarge, Some(LIMIT)));
        assert_eq!(error.to_string(), "file is too large to read: limit is 536870912 bytes");
    }
    let error = read_file(&world.file("a", "12345"), Follow::Yes, 4).unwrap_err();
    assert_eq!(error.size_limit(), Some(4));
    assert_eq!(read_file(&world.at("none"), Follow::Yes, 4).unwrap_err().size_limit(), None);
}

#[test]
fn files_that_are_made_up_while_they_are_read_have_contents_and_limits() {
    let status = Path::new("/proc/self/status");
    assert_eq!(fs::metadata(status).unwrap().len(), 0);
    let read = read_file(status, Follow::Yes, LIMIT).unwrap();
    assert!(read.starts_with(b"Name:"));
    assert_eq!(read_file(status, Follow::Yes, 10).unwrap_err().size_limit(), Some(10));
    assert_eq!(read_file(status, Follow::Yes, 0).unwrap_err().size_limit(), Some(0));
}

#[test]
fn a_file_that_grows_meanwhile_never_comes_to_more_than_the_limit() {
    let world = World::new();
    let path = world.file("log", "");
    let mut log = OpenOptions::new().append(true).open(&path).unwrap();
    let writer = thread::spawn(move || (0..2000).for_each(|_| log.write_all(&[b'x'; 500]).unwrap()));
    loop {
        match read_file(&path, Follow::Yes, 500_000) {
            Ok(read) => assert!(read.len() <= 500_000 && read.capacity() <= 500_001),
            Err(error) => {
                assert_eq!(error.size_limit(), Some(500_000));
                break;
            }
        }
    }
    writer.join().unwrap();
}
