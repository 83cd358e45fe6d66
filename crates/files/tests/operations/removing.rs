//! Tests of removing files and trees. A *role* is an ignored test that another test runs in a process of its own.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::thread;

use files::{Cancel, FileRoot, Follow, remove};
use rustix::io::Errno;

use crate::roles::{is_role_process, report_done, run_with_few_descriptors};
use crate::support::{
    TestDirectory, assert_errno, assert_refused, create_deep_tree, error_text, names_in, not_cancelled,
};

#[test]
fn files_links_and_special_files_are_removed() {
    let test_dir = TestDirectory::new();
    let kept = test_dir.file("kept/a", "a");
    let paths = [
        test_dir.file("a", ""),
        test_dir.link(test_dir.at("kept"), "to-directory"),
        test_dir.link("none", "dangling"),
        test_dir.fifo("fifo"),
        test_dir.socket("socket"),
    ];
    for path in paths {
        remove(FileRoot::host(), &path, true, false, Follow::Yes, &not_cancelled()).unwrap();
        assert!(path.symlink_metadata().is_err());
    }
    assert!(kept.exists());
    assert_eq!(names_in(test_dir.root()), ["kept"]);
}

#[test]
fn a_directory_with_entries_is_removed_only_recursively() {
    let test_dir = TestDirectory::new();
    let outside = test_dir.file("outside/a", "a");
    test_dir.file("d/a", "");
    test_dir.file("d/b/c/e", "");
    test_dir.link(test_dir.at("outside"), "d/b/to-outside");
    test_dir.fifo("d/b/fifo");
    let directory = test_dir.at("d");
    assert_errno(remove(FileRoot::host(), &directory, false, true, Follow::Yes, &not_cancelled()), Errno::NOTEMPTY);
    remove(FileRoot::host(), &directory, true, false, Follow::Yes, &not_cancelled()).unwrap();
    assert!(!directory.exists() && outside.exists());
    remove(FileRoot::host(), &test_dir.directory("empty"), false, false, Follow::Yes, &not_cancelled()).unwrap();
    assert!(!test_dir.at("empty").exists());
}

#[test]
fn force_ignores_only_missing_paths() {
    let test_dir = TestDirectory::new();
    let file = test_dir.file("a", "");
    for path in [test_dir.at("none"), test_dir.at("none/below")] {
        for (follow, recursive) in [(Follow::Yes, true), (Follow::Yes, false), (Follow::No, false)] {
            remove(FileRoot::host(), &path, recursive, true, follow, &not_cancelled()).unwrap();
            let error = remove(FileRoot::host(), &path, recursive, false, follow, &not_cancelled()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound);
        }
    }
    assert_errno(
        remove(FileRoot::host(), &file.join("below"), true, true, Follow::Yes, &not_cancelled()),
        Errno::NOTDIR,
    );
}

#[test]
fn without_following_links_only_a_file_or_an_empty_directory_is_removed() {
    let test_dir = TestDirectory::new();
    let file = test_dir.file("d/a", "");
    let link = test_dir.link("d/a", "link");
    test_dir.link("d", "to-d");
    let recursive =
        remove(FileRoot::host(), &test_dir.at("d"), true, true, Follow::No, &not_cancelled()).unwrap_err();
    assert_eq!(recursive.kind(), ErrorKind::Unsupported);
    assert_eq!(recursive.to_string(), "recursive no-follow removal is unsupported");
    assert_refused(
        remove(FileRoot::host(), &link, false, true, Follow::No, &not_cancelled()),
        "path contains a symbolic link",
    );
    assert_errno(
        remove(FileRoot::host(), &test_dir.at("to-d/a"), false, true, Follow::No, &not_cancelled()),
        Errno::NOTDIR,
    );
    remove(FileRoot::host(), &file, false, false, Follow::No, &not_cancelled()).unwrap();
    remove(FileRoot::host(), &test_dir.at("d"), false, false, Follow::No, &not_cancelled()).unwrap();
    assert_eq!(names_in(test_dir.root()), ["link", "to-d"]);
}

#[test]
fn a_link_in_the_parent_path_is_followed() {
    let test_dir = TestDirectory::new();
    test_dir.file("d/b/c", "");
    test_dir.link("d", "to-d");
    remove(FileRoot::host(), &test_dir.at("to-d/b"), true, false, Follow::Yes, &not_cancelled()).unwrap();
    assert!(names_in(&test_dir.at("d")).is_empty());
}

#[test]
fn the_root_is_never_removed() {
    // None of the calls in this test is recursive, so that a bug does no harm.
    for follow in [Follow::Yes, Follow::No] {
        let removed = remove(FileRoot::host(), "/".as_ref(), false, true, follow, &not_cancelled());
        assert_eq!(error_text(removed), "`/` is a mount point and is not removed");
    }
    assert_eq!(
        error_text(remove(FileRoot::host(), "/.".as_ref(), false, true, Follow::Yes, &not_cancelled())),
        "`/.` is a mount point and is not removed"
    );
    let up = "/proc/..".as_ref();
    assert_refused(
        remove(FileRoot::host(), up, false, true, Follow::Yes, &not_cancelled()),
        "path must be absolute and normalized",
    );
}

#[test]
fn a_tree_of_any_depth_is_removed() {
    run_with_few_descriptors("removing::role_remove_deep_tree");
}

#[test]
#[ignore = "run by the test above in a process of its own"]
fn role_remove_deep_tree() {
    if !is_role_process() {
        return;
    }
    let test_dir = TestDirectory::in_memory();
    create_deep_tree(&test_dir.at("deep"), 10_000);
    // The stack is so small that a recursive function would overflow it.
    let path = test_dir.at("deep");
    let builder = thread::Builder::new().stack_size(64 * 1024);
    let remover =
        builder.spawn(move || remove(FileRoot::host(), &path, true, false, Follow::Yes, &not_cancelled())).unwrap();
    remover.join().unwrap().unwrap();
    assert!(names_in(test_dir.root()).is_empty());
    report_done();
}

#[test]
fn a_directory_with_many_entries_is_removed() {
    let test_dir = TestDirectory::in_memory();
    let wide = test_dir.directory("wide");
    for number in 0..50_000 {
        File::create(wide.join(format!("file {number}"))).unwrap();
    }
    for number in 0..5_000 {
        test_dir.file(&format!("wide/directory {number}/a"), "");
    }
    remove(FileRoot::host(), &wide, true, false, Follow::Yes, &not_cancelled()).unwrap();
    assert!(!wide.exists());
}

#[test]
fn a_removal_that_was_cancelled_before_it_began_removes_nothing() {
    let test_dir = TestDirectory::new();
    test_dir.file("d/a", "");
    let cancelled = Cancel::new();
    cancelled.cancel();
    let error = remove(FileRoot::host(), &test_dir.at("d"), true, true, Follow::Yes, &cancelled).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Interrupted);
    assert!(fs::exists(test_dir.at("d/a")).unwrap());
}
