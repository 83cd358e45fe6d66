//! Tests of writing whole files in place.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use files::{FileRoot, Follow, write_file};
use rustix::io::Errno;

use crate::support::{TestDirectory, assert_errno, assert_refused, run_with_timeout};

const BOTH_FOLLOW_MODES: [Follow; 2] = [Follow::Yes, Follow::No];

#[test]
fn a_file_is_created_or_overwritten() {
    let test_dir = TestDirectory::new();
    for follow in BOTH_FOLLOW_MODES {
        let path = test_dir.at(format!("{follow:?}"));
        for contents in ["a longer text", "short", ""] {
            write_file(FileRoot::host(), &path, contents.as_bytes(), follow).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), contents);
        }
    }
}

#[test]
fn an_overwritten_file_keeps_its_inode_mode_and_owner() {
    let test_dir = TestDirectory::new();
    for follow in BOTH_FOLLOW_MODES {
        let path = test_dir.file(&format!("{follow:?}"), "old");
        let other_name = test_dir.at(format!("{follow:?}-too"));
        fs::hard_link(&path, &other_name).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let before = fs::metadata(&path).unwrap();
        write_file(FileRoot::host(), &path, b"new", follow).unwrap();
        let after = fs::metadata(&path).unwrap();
        assert_eq!(
            (before.ino(), before.mode(), before.uid(), before.gid()),
            (after.ino(), after.mode(), after.uid(), after.gid())
        );
        assert_eq!(fs::read(&other_name).unwrap(), b"new");
    }
}

#[test]
fn missing_parents_are_not_created() {
    let test_dir = TestDirectory::new();
    for follow in BOTH_FOLLOW_MODES {
        assert_eq!(
            write_file(FileRoot::host(), &test_dir.at("none/a"), b"a", follow).unwrap_err().kind(),
            ErrorKind::NotFound
        );
        assert!(!test_dir.at("none").exists());
    }
}

#[test]
fn a_directory_cannot_be_written() {
    let test_dir = TestDirectory::new();
    let directory = test_dir.directory("d");
    for follow in BOTH_FOLLOW_MODES {
        assert_errno(write_file(FileRoot::host(), &directory, b"a", follow), Errno::ISDIR);
        assert_errno(write_file(FileRoot::host(), "/".as_ref(), b"a", follow), Errno::ISDIR);
    }
}

#[test]
fn special_files_are_refused_and_do_not_block() {
    let test_dir = TestDirectory::new();
    let (fifo, socket) = (test_dir.fifo("fifo"), test_dir.socket("socket"));
    for path in [fifo.clone(), socket.clone(), "/dev/null".into()] {
        let expected = format!("path `{}` is not a file", path.display());
        run_with_timeout(move || assert_refused(write_file(FileRoot::host(), &path, b"a", Follow::Yes), &expected));
    }
    for path in [socket, "/dev/null".into()] {
        run_with_timeout(move || {
            assert_refused(write_file(FileRoot::host(), &path, b"a", Follow::No), "path is not a regular file");
        });
    }
    let fifo_without_reader = fifo.clone();
    run_with_timeout(move || {
        assert_errno(write_file(FileRoot::host(), &fifo_without_reader, b"a", Follow::No), Errno::NXIO);
    });
    let _reader = fs::OpenOptions::new().read(true).write(true).open(&fifo).unwrap();
    run_with_timeout(move || {
        assert_refused(write_file(FileRoot::host(), &fifo, b"a", Follow::No), "path is not a regular file");
    });
}

#[test]
fn a_link_is_written_through_or_refused() {
    let test_dir = TestDirectory::new();
    let target = test_dir.file("d/a", "old");
    let link = test_dir.link(&target, "link");
    test_dir.link("d", "to-d");
    write_file(FileRoot::host(), &link, b"new", Follow::Yes).unwrap();
    assert_eq!(fs::read(&target).unwrap(), b"new");
    assert!(link.is_symlink());
    write_file(FileRoot::host(), &test_dir.link("d/made", "dangling"), b"made", Follow::Yes).unwrap();
    assert_eq!(fs::read(test_dir.at("d/made")).unwrap(), b"made");

    assert_errno(write_file(FileRoot::host(), &link, b"worse", Follow::No), Errno::LOOP);
    assert_errno(write_file(FileRoot::host(), &test_dir.at("to-d/a"), b"worse", Follow::No), Errno::NOTDIR);
    assert_eq!(fs::read(&target).unwrap(), b"new");
}

#[test]
fn two_writers_at_once_leave_the_contents_of_one() {
    let test_dir = TestDirectory::new();
    let texts = [vec![b'a'; 400_000], vec![b'b'; 10]];
    for round in 0..300 {
        let path = test_dir.at(format!("file {round}"));
        let start = std::sync::Barrier::new(texts.len());
        std::thread::scope(|scope| {
            for text in &texts {
                scope.spawn(|| {
                    start.wait();
                    write_file(FileRoot::host(), &path, text, Follow::Yes).unwrap();
                });
            }
        });
        let found = fs::read(&path).unwrap();
        assert!(texts.contains(&found), "round {round}: a mixture of {} bytes", found.len());
        fs::remove_file(&path).unwrap();
    }
}
