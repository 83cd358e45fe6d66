//! Tests of uploads: files that are written block by block and appear when they are committed. The second argument of
//! `Upload::create` says whether the upload may replace an existing file.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::thread;

use files::{CommitOptions, FileRoot, Follow, Upload};
use rustix::io::Errno;

use crate::support::{TestDirectory, assert_errno, assert_refused, names_in};

fn default_options() -> CommitOptions {
    CommitOptions::default()
}

#[test]
fn an_upload_is_invisible_until_it_is_committed() {
    let test_dir = TestDirectory::new();
    let path = test_dir.file("a", "old");
    let upload = Upload::create(FileRoot::host(), &path, true, Follow::Yes).unwrap();
    upload.write_block(3, b"def").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"old");
    upload.write_block(0, b"abc").unwrap();
    upload.commit(&default_options()).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"abcdef");
    assert_eq!(names_in(test_dir.root()), ["a"]);
}

#[test]
fn blocks_can_be_written_by_several_threads() {
    let test_dir = TestDirectory::new();
    let path = test_dir.at("a");
    let upload = Upload::create(FileRoot::host(), &path, false, Follow::Yes).unwrap();
    thread::scope(|scope| {
        for part in 0..8u8 {
            let upload = &upload;
            scope.spawn(move || {
                for block in (0..16).rev() {
                    upload.write_block(u64::from(part) * 64_000 + block * 4_000, &[part; 4_000]).unwrap();
                }
            });
        }
    });
    upload.commit(&default_options()).unwrap();
    let expected: Vec<u8> = (0..8u8).flat_map(|part| [part; 64_000]).collect();
    assert_eq!(fs::read(&path).unwrap(), expected);
}

#[test]
fn a_dropped_upload_leaves_no_file() {
    let test_dir = TestDirectory::new();
    let upload = Upload::create(FileRoot::host(), &test_dir.at("a"), false, Follow::Yes).unwrap();
    upload.write_block(0, b"abc").unwrap();
    drop(upload);
    assert!(names_in(test_dir.root()).is_empty());
}

#[test]
fn a_replaced_file_keeps_mode_and_owner_and_a_new_file_gets_the_usual_mode() {
    let test_dir = TestDirectory::new();
    let path = test_dir.file("a", "old");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&path, Some(1234), Some(4321)).unwrap();
    }
    let before = fs::metadata(&path).unwrap();
    Upload::create(FileRoot::host(), &path, true, Follow::Yes).unwrap().commit(&default_options()).unwrap();
    let after = fs::metadata(&path).unwrap();
    assert_eq!((after.mode(), after.uid(), after.gid()), (before.mode(), before.uid(), before.gid()));
    assert_ne!(after.ino(), before.ino());

    let other = test_dir.file("other", "");
    Upload::create(FileRoot::host(), &test_dir.at("new"), false, Follow::Yes)
        .unwrap()
        .commit(&default_options())
        .unwrap();
    assert_eq!(fs::metadata(test_dir.at("new")).unwrap().mode(), fs::metadata(other).unwrap().mode());
}

#[test]
fn the_commit_sets_size_mode_and_time() {
    let test_dir = TestDirectory::new();
    for size in [0, 2, 10_000] {
        let path = test_dir.file("a", "old");
        let upload = Upload::create(FileRoot::host(), &path, true, Follow::Yes).unwrap();
        upload.write_block(0, b"abcd").unwrap();
        let mtime = Some((1_000_000_000, 5));
        let options = CommitOptions { size: Some(size), mode: Some(0o4701), mtime, sync: true, ..default_options() };
        upload.commit(&options).unwrap();
        let found = fs::metadata(&path).unwrap();
        assert_eq!((found.len(), found.mode() & 0o7777), (size, 0o4701));
        assert_eq!((found.mtime(), found.mtime_nsec()), (1_000_000_000, 5));
    }
}

#[test]
fn the_umask_applies_to_mode_if_new_and_not_to_mode() {
    let test_dir = TestDirectory::new();
    let mode_after_upload = |name: &str, options: CommitOptions| {
        let upload = Upload::create(FileRoot::host(), &test_dir.at(name), true, Follow::Yes).unwrap();
        upload.commit(&options).unwrap();
        fs::metadata(test_dir.at(name)).unwrap().mode() & 0o7777
    };
    // The permission bits that the umask of this process allows, measured with a file that the standard library creates.
    let allowed = {
        let probe =
            fs::OpenOptions::new().write(true).create_new(true).mode(0o777).open(test_dir.at("probe")).unwrap();
        probe.metadata().unwrap().mode() & 0o777
    };
    let mode_if_new = |bits| CommitOptions { mode_if_new: Some(bits), ..default_options() };
    assert_eq!(mode_after_upload("usual", default_options()), 0o666 & allowed);
    assert_eq!(mode_after_upload("wide", mode_if_new(0o777)), allowed);
    assert_eq!(mode_after_upload("narrow", mode_if_new(0o4500)), 0o500 & allowed, "set-user-ID is never allowed");
    assert_eq!(mode_after_upload("exact", CommitOptions { mode: Some(0o706), ..mode_if_new(0o777) }), 0o706);
    assert_eq!(mode_after_upload("exact", mode_if_new(0o777)), 0o706, "a file that is replaced keeps its mode");
}

#[test]
fn an_upload_follows_links_and_fails_at_a_loop_of_links() {
    let test_dir = TestDirectory::new();
    let target = test_dir.file("d/a", "old");
    test_dir.link("d/a", "link");
    test_dir.link("link", "further");
    test_dir.link("d/made", "dangling");
    let write = |name: &str| {
        let upload = Upload::create(FileRoot::host(), &test_dir.at(name), true, Follow::Yes).unwrap();
        upload.write_block(0, b"new").unwrap();
        upload.commit(&default_options()).unwrap();
    };
    write("further");
    write("dangling");
    assert_eq!(fs::read(&target).unwrap(), b"new");
    assert_eq!(fs::read(test_dir.at("d/made")).unwrap(), b"new");
    assert_eq!(names_in(&test_dir.at("d")), ["a", "made"]);
    assert!(test_dir.at("link").is_symlink() && test_dir.at("further").is_symlink());
    test_dir.link("loop", "loop");
    assert_errno(Upload::create(FileRoot::host(), &test_dir.at("loop"), true, Follow::Yes), Errno::LOOP);
}

#[test]
fn an_existing_file_is_not_replaced_unless_asked() {
    let test_dir = TestDirectory::new();
    let path = test_dir.file("a", "old");
    let dangling = test_dir.link("none", "dangling");
    assert_errno(Upload::create(FileRoot::host(), &path, false, Follow::Yes), Errno::EXIST);
    assert_errno(Upload::create(FileRoot::host(), &dangling, false, Follow::Yes), Errno::EXIST);

    let late = test_dir.at("late");
    let upload = Upload::create(FileRoot::host(), &late, false, Follow::Yes).unwrap();
    fs::write(&late, "first").unwrap();
    assert_errno(upload.commit(&default_options()), Errno::EXIST);
    assert_eq!(fs::read(&late).unwrap(), b"first");
    assert_eq!(names_in(test_dir.root()), ["a", "dangling", "late"]);
}

#[test]
fn only_regular_files_are_replaced_and_the_parent_directory_must_exist() {
    let test_dir = TestDirectory::new();
    assert_errno(Upload::create(FileRoot::host(), &test_dir.directory("d"), true, Follow::Yes), Errno::ISDIR);
    assert_errno(Upload::create(FileRoot::host(), "/".as_ref(), true, Follow::Yes), Errno::ISDIR);
    for path in [test_dir.fifo("fifo"), test_dir.socket("socket"), "/dev/null".into()] {
        assert_refused(
            Upload::create(FileRoot::host(), &path, true, Follow::Yes),
            &format!("path `{}` is not a file", path.display()),
        );
    }
    assert_eq!(
        Upload::create(FileRoot::host(), &test_dir.at("none/a"), true, Follow::Yes).unwrap_err().kind(),
        ErrorKind::NotFound
    );

    let path = test_dir.at("late");
    let upload = Upload::create(FileRoot::host(), &path, true, Follow::Yes).unwrap();
    test_dir.fifo("late");
    assert_refused(upload.commit(&default_options()), &format!("path `{}` is not a file", path.display()));
    fs::remove_file(&path).unwrap();
    let upload = Upload::create(FileRoot::host(), &path, true, Follow::Yes).unwrap();
    test_dir.directory("late");
    assert_errno(upload.commit(&default_options()), Errno::ISDIR);
    assert_eq!(names_in(test_dir.root()), ["d", "fifo", "late", "socket"]);
}

#[test]
fn a_failed_commit_also_finishes_the_upload() {
    let test_dir = TestDirectory::new();
    let path = test_dir.file("a", "old");
    let upload = Upload::create(FileRoot::host(), &path, true, Follow::Yes).unwrap();
    upload.write_block(0, b"new").unwrap();
    let refused = upload.commit(&CommitOptions { mtime: Some((0, u32::MAX)), ..default_options() });
    assert_refused(refused, "nanoseconds must be below 1000000000");
    assert_refused(upload.write_block(0, b"x"), "the upload is finished");
    assert_refused(upload.commit(&default_options()), "the upload is finished");
    assert_eq!((fs::read(&path).unwrap(), names_in(test_dir.root())), (b"old".to_vec(), vec!["a".to_owned()]));
}

#[test]
fn a_block_at_an_offset_that_no_file_can_have_fails_and_so_does_the_commit() {
    let test_dir = TestDirectory::new();
    for offset in [u64::MAX, i64::MAX as u64] {
        let upload = Upload::create(FileRoot::host(), &test_dir.at("a"), false, Follow::Yes).unwrap();
        assert_refused(upload.write_block(offset, b"abc"), "file write offset overflowed");
        let expected = format!(
            "the upload has failed: 3 bytes at offset {offset} were not written: file write offset overflowed"
        );
        assert_refused(upload.commit(&default_options()), &expected);
    }
    assert!(names_in(test_dir.root()).is_empty());
}

#[test]
fn a_file_with_the_longest_possible_name_can_be_uploaded() {
    let test_dir = TestDirectory::new();
    let path = test_dir.file(&"n".repeat(255), "old");
    let upload = Upload::create(FileRoot::host(), &path, true, Follow::Yes).unwrap();
    upload.commit(&default_options()).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"");
}
