//! Tests of copying files, links and trees. A *role* is an ignored test that another test runs in a process of its
//! own.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;

use files::{Cancel, FileRoot, Follow, copy, remove};
use rustix::fs::{AtFlags, Mode, OFlags, openat, statat};
use rustix::io::Errno;

use crate::roles::{is_role_process, report_done, run_with_few_descriptors};
use crate::support::{
    TestDirectory, assert_errno, assert_refused, create_deep_tree, names_in, not_cancelled, run_with_timeout,
};

const SYSFS_FILE: &str = "/sys/kernel/fscaps";

#[test]
fn a_file_is_copied_with_its_permissions() {
    let test_dir = TestDirectory::new();
    let contents: Vec<u8> = (0..300_000u32).map(|n| (n / 7) as u8).collect();
    let source = test_dir.file("a", &contents);
    for mode in [0o600, 0o755, 0o444, 0o4755] {
        fs::set_permissions(&source, fs::Permissions::from_mode(mode)).unwrap();
        let target = test_dir.at(format!("copy {mode:o}"));
        copy(FileRoot::host(), &source, &target, false, &not_cancelled()).unwrap();
        assert_eq!(fs::read(&target).unwrap(), contents);
        assert_eq!(fs::metadata(&target).unwrap().mode() & 0o7777, mode);
    }
}

#[test]
fn an_existing_file_is_overwritten_in_place_through_a_link() {
    let test_dir = TestDirectory::new();
    let source = test_dir.file("a", vec![1; 300_000]);
    let existing = test_dir.file("existing", vec![9; 500_000]);
    let inode = fs::metadata(&existing).unwrap().ino();
    copy(FileRoot::host(), &source, &test_dir.link("existing", "link"), true, &not_cancelled()).unwrap();
    assert_eq!(fs::read(&existing).unwrap(), vec![1; 300_000]);
    assert_eq!(fs::metadata(&existing).unwrap().ino(), inode);
}

#[test]
fn a_copy_with_another_owner_has_no_setuid_and_setgid_bits() {
    let test_dir = TestDirectory::new();
    let source = if rustix::process::geteuid().is_root() {
        let source = test_dir.file("a", "program");
        std::os::unix::fs::chown(&source, Some(65534), Some(65534)).unwrap();
        fs::set_permissions(&source, fs::Permissions::from_mode(0o7755)).unwrap();
        source
    } else {
        "/usr/bin/su".into()
    };
    let existing = test_dir.file("existing", "");
    for target in [test_dir.at("new"), existing] {
        copy(FileRoot::host(), &source, &target, false, &not_cancelled()).unwrap();
        assert_eq!(fs::metadata(&target).unwrap().mode() & 0o6777, 0o755, "{}", target.display());
    }
}

#[test]
fn empty_files_and_files_that_report_a_wrong_size_are_copied() {
    let test_dir = TestDirectory::new();
    copy(FileRoot::host(), &test_dir.file("empty", ""), &test_dir.at("b"), false, &not_cancelled()).unwrap();
    assert_eq!(fs::read(test_dir.at("b")).unwrap(), b"");
    copy(FileRoot::host(), "/proc/version".as_ref(), &test_dir.at("version"), false, &not_cancelled()).unwrap();
    assert_eq!(fs::read(test_dir.at("version")).unwrap(), fs::read("/proc/version").unwrap());
    // Files of sysfs report the size of a page, whatever they contain.
    copy(FileRoot::host(), SYSFS_FILE.as_ref(), &test_dir.at("page"), false, &not_cancelled()).unwrap();
    assert_eq!(fs::read(test_dir.at("page")).unwrap(), fs::read(SYSFS_FILE).unwrap());
}

#[test]
fn a_missing_source_or_destination_parent_is_an_error() {
    let test_dir = TestDirectory::new();
    let source = test_dir.file("a", "");
    for (from, to) in [(test_dir.at("none"), test_dir.at("b")), (source, test_dir.at("none/b"))] {
        assert_eq!(
            copy(FileRoot::host(), &from, &to, true, &not_cancelled()).unwrap_err().kind(),
            ErrorKind::NotFound
        );
    }
}

#[test]
fn a_file_is_not_copied_onto_a_directory() {
    let test_dir = TestDirectory::new();
    let (source, directory) = (test_dir.file("a", ""), test_dir.directory("d"));
    assert_errno(copy(FileRoot::host(), &source, &directory, true, &not_cancelled()), Errno::ISDIR);
}

#[test]
fn a_file_is_never_copied_onto_itself() {
    let test_dir = TestDirectory::new();
    let source = test_dir.file("d/a", "precious");
    fs::hard_link(&source, test_dir.at("hard")).unwrap();
    test_dir.link("d/a", "link");
    test_dir.link("d", "to-d");
    for target in ["d/a", "hard", "link", "to-d/a"] {
        let copied = copy(FileRoot::host(), &source, &test_dir.at(target), false, &not_cancelled());
        assert_refused(copied, "fs/copy cannot copy a file onto itself");
    }
    // The same holds for a hard link to the file inside of the destination tree.
    fs::create_dir(test_dir.at("e")).unwrap();
    fs::hard_link(&source, test_dir.at("e/a")).unwrap();
    let copied = copy(FileRoot::host(), &test_dir.at("d"), &test_dir.at("e"), true, &not_cancelled());
    assert_refused(copied, "fs/copy cannot copy a file onto itself");
    assert_eq!(fs::read(&source).unwrap(), b"precious");
}

#[test]
fn a_directory_is_copied_only_recursively_and_never_into_itself() {
    let test_dir = TestDirectory::new();
    test_dir.file("d/b/a", "a");
    test_dir.link("d", "to-d");
    let source = test_dir.at("d");
    let copied = copy(FileRoot::host(), &source, &test_dir.at("e"), false, &not_cancelled());
    assert_refused(copied, "fs/copy requires recursive: true when sourcePath is a directory");
    for target in ["d", "d/b", "d/new", "d/b/c/new", "to-d/new", "to-d", "to-d/b/new/er"] {
        let copied = copy(FileRoot::host(), &source, &test_dir.at(target), true, &not_cancelled());
        assert_refused(copied, "fs/copy cannot copy a directory to itself or one of its descendants");
    }
    assert_eq!(names_in(&source), ["b"]);
    copy(FileRoot::host(), &source, &test_dir.at("d-too"), true, &not_cancelled()).unwrap();
    assert_eq!(
        fs::read(test_dir.at("d-too/b/a")).unwrap(),
        b"a",
        "a name with the same beginning is another directory"
    );
}

#[test]
fn a_tree_is_merged_into_an_existing_one_with_its_links_but_without_special_files() {
    let test_dir = TestDirectory::new();
    test_dir.file("from/a", "new");
    test_dir.file("from/b/c", "c");
    test_dir.link("../elsewhere", "from/b/link");
    test_dir.fifo("from/b/fifo");
    test_dir.file("to/a", "old and longer");
    test_dir.file("to/b/kept", "kept");
    copy(FileRoot::host(), &test_dir.at("from"), &test_dir.at("to"), true, &not_cancelled()).unwrap();
    assert_eq!(fs::read(test_dir.at("to/a")).unwrap(), b"new");
    assert_eq!(names_in(&test_dir.at("to/b")), ["c", "kept", "link"]);
    assert_eq!(fs::read_link(test_dir.at("to/b/link")).unwrap(), Path::new("../elsewhere"));
}

#[test]
fn the_missing_parents_of_a_copied_tree_are_created() {
    let test_dir = TestDirectory::new();
    test_dir.file("from/a", "");
    copy(FileRoot::host(), &test_dir.at("from"), &test_dir.at("new/parents/copy"), true, &not_cancelled()).unwrap();
    assert_eq!(names_in(&test_dir.at("new/parents/copy")), ["a"]);
}

#[test]
fn a_copied_directory_does_not_replace_a_file() {
    let test_dir = TestDirectory::new();
    test_dir.file("from/b/c", "c");
    test_dir.file("blocked/b", "");
    for target in ["blocked", "blocked/b"] {
        assert_errno(
            copy(FileRoot::host(), &test_dir.at("from"), &test_dir.at(target), true, &not_cancelled()),
            Errno::EXIST,
        );
    }
}

#[test]
fn the_destination_may_be_a_link_but_no_link_below_it_is_followed() {
    let test_dir = TestDirectory::new();
    test_dir.file("outside/a", "precious");
    test_dir.file("from/b/a", "new");
    test_dir.file("from/file", "new");
    test_dir.directory("to");
    // An earlier copy of another tree may have left such links.
    test_dir.link("../outside", "to/b");
    test_dir.link("../outside/a", "to/file");
    assert_errno(
        copy(FileRoot::host(), &test_dir.at("from"), &test_dir.at("to"), true, &not_cancelled()),
        Errno::EXIST,
    );
    fs::remove_file(test_dir.at("to/b")).unwrap();
    test_dir.file("from/dangling", "new");
    test_dir.link("../outside/made", "to/dangling");
    copy(FileRoot::host(), &test_dir.at("from"), &test_dir.at("to"), true, &not_cancelled()).unwrap();
    for name in ["file", "dangling", "b/a"] {
        assert!(!test_dir.at(format!("to/{name}")).is_symlink(), "{name}");
        assert_eq!(fs::read(test_dir.at(format!("to/{name}"))).unwrap(), b"new", "{name}");
    }
    assert_eq!(
        (names_in(&test_dir.at("outside")), fs::read(test_dir.at("outside/a")).unwrap()),
        (vec!["a".to_owned()], b"precious".to_vec())
    );

    test_dir.directory("real");
    copy(FileRoot::host(), &test_dir.at("from"), &test_dir.link("real", "to-real"), true, &not_cancelled()).unwrap();
    assert_eq!(names_in(&test_dir.at("real")), ["b", "dangling", "file"]);
}

#[test]
fn a_special_file_below_the_destination_is_not_replaced() {
    let test_dir = TestDirectory::new();
    test_dir.file("from/pipe", "x");
    test_dir.directory("to");
    test_dir.fifo("to/pipe");
    assert_refused(
        copy(FileRoot::host(), &test_dir.at("from"), &test_dir.at("to"), true, &not_cancelled()),
        &format!("path `{}` is not a file", test_dir.at("to/pipe").display()),
    );
}

#[test]
fn a_link_is_copied_as_a_link_and_does_not_replace_an_existing_entry() {
    let test_dir = TestDirectory::new();
    let link = test_dir.link("none/at/all", "link");
    copy(FileRoot::host(), &link, &test_dir.at("other"), false, &not_cancelled()).unwrap();
    assert_eq!(fs::read_link(test_dir.at("other")).unwrap(), Path::new("none/at/all"));
    assert_errno(copy(FileRoot::host(), &link, &test_dir.at("other"), false, &not_cancelled()), Errno::EXIST);
}

#[test]
fn special_files_are_neither_read_nor_written() {
    let test_dir = TestDirectory::new();
    let file = test_dir.file("a", "a");
    for path in [test_dir.fifo("fifo"), test_dir.socket("socket"), "/dev/null".into()] {
        let (from, to, file, target) = (path.clone(), path.clone(), file.clone(), test_dir.at("b"));
        run_with_timeout(move || {
            let copied = copy(FileRoot::host(), &from, &target, true, &not_cancelled());
            assert_refused(copied, "fs/copy only supports regular files, directories, and symlinks");
            let expected = format!("path `{}` is not a file", to.display());
            assert_refused(copy(FileRoot::host(), &file, &to, true, &not_cancelled()), &expected);
        });
    }
    assert!(!test_dir.at("b").exists());
}

#[test]
fn the_copy_of_a_sparse_file_is_sparse() {
    let test_dir = TestDirectory::new();
    let source = test_dir.at("sparse");
    let file = File::create(&source).unwrap();
    file.set_len(20_000_000_000).unwrap();
    file.write_all_at(b"data", 10_000_000_000).unwrap();
    drop(file);
    copy(FileRoot::host(), &source, &test_dir.at("copy"), false, &not_cancelled()).unwrap();
    let (copied, read) = (fs::metadata(test_dir.at("copy")).unwrap(), File::open(test_dir.at("copy")).unwrap());
    assert_eq!(copied.len(), 20_000_000_000);
    assert!(copied.blocks() * 512 < 100_000_000, "{} blocks", copied.blocks());
    let mut bytes = [1; 6];
    read.read_exact_at(&mut bytes, 9_999_999_999).unwrap();
    assert_eq!(&bytes, b"\0data\0");
}

#[test]
fn a_file_is_copied_to_another_file_system() {
    let test_dir = TestDirectory::new();
    let source = test_dir.file("a", vec![5; 700_000]);
    let elsewhere = tempfile::tempdir_in("/dev/shm").unwrap();
    let target = elsewhere.path().join("a");
    copy(FileRoot::host(), &source, &target, false, &not_cancelled()).unwrap();
    assert_eq!(fs::read(&target).unwrap(), vec![5; 700_000]);
}

#[test]
fn a_tree_of_any_depth_is_copied() {
    run_with_few_descriptors("copying::role_copy_deep_tree");
}

#[test]
#[ignore = "run by the test above in a process of its own"]
fn role_copy_deep_tree() {
    if !is_role_process() {
        return;
    }
    let test_dir = TestDirectory::in_memory();
    create_deep_tree(&test_dir.at("deep"), 3_000);
    copy(FileRoot::host(), &test_dir.at("deep"), &test_dir.at("copy"), true, &not_cancelled()).unwrap();
    let mut directory = OwnedFd::from(File::open(test_dir.at("copy")).unwrap());
    for _ in 0..3_000 {
        statat(&directory, "file", AtFlags::empty()).unwrap();
        directory = openat(&directory, "d", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    for tree in ["deep", "copy"] {
        remove(FileRoot::host(), &test_dir.at(tree), true, false, Follow::Yes, &not_cancelled()).unwrap();
    }
    report_done();
}

#[test]
fn a_copy_that_was_cancelled_before_it_began_copies_nothing() {
    let test_dir = TestDirectory::new();
    let cancelled = Cancel::new();
    cancelled.cancel();
    let error = copy(FileRoot::host(), &test_dir.file("a", ""), &test_dir.at("b"), false, &cancelled).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Interrupted);
    assert!(!test_dir.at("b").exists());
}
