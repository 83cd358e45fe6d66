//! Tests in which another thread changes the tree while an operation runs. If it exchanges a directory and a link,
//! the operation must not touch files outside of the tree.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use files::{FileRoot, Follow, create_directory, metadata, read_file, remove, set_metadata, write_file};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::support::{TestDirectory, names_in, not_cancelled};

/// Runs `work` while another thread keeps exchanging the two paths of each pair.
fn run_while_exchanging(pairs: &[(PathBuf, PathBuf)], work: impl FnOnce()) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for (first, second) in pairs {
                    renameat_with(CWD, first, CWD, second, RenameFlags::EXCHANGE).ok();
                }
            }
        });
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        done.store(true, Ordering::Relaxed);
        if let Err(panic) = ended {
            std::panic::resume_unwind(panic);
        }
    });
}

#[test]
fn operations_that_may_not_follow_links_do_not_follow_one_that_replaces_a_directory() {
    let test_dir = TestDirectory::new();
    let secret = test_dir.file("outside/secret", "secret");
    test_dir.file("inside/secret", "inside");
    test_dir.link(test_dir.at("outside"), "link");
    let target = test_dir.at("inside/secret");
    let mut reached = 0;
    run_while_exchanging(&[(test_dir.at("inside"), test_dir.at("link"))], || {
        for round in 0..3_000 {
            reached += usize::from(write_file(FileRoot::host(), &target, b"written", Follow::No).is_ok());
            if let Ok(read) = read_file(FileRoot::host(), &target, Follow::No, 100) {
                assert_ne!(read, b"secret");
            }
            if let Ok(found) = metadata(FileRoot::host(), &target, Follow::No) {
                assert_ne!(
                    found.inode,
                    fs::metadata(&secret).map(|found| std::os::unix::fs::MetadataExt::ino(&found)).unwrap()
                );
            }
            // These operations fail while the link is there.
            let _ = set_metadata(FileRoot::host(), &target, Some(0o600), Some((1, 0)), Follow::No);
            let _ = create_directory(FileRoot::host(), &test_dir.at(format!("inside/d{round}/e")), true, Follow::No);
            let _ = remove(FileRoot::host(), &target, false, true, Follow::No, &not_cancelled());
        }
    });
    assert!(reached > 0, "the directory was there in some rounds");
    assert_eq!(fs::read(&secret).unwrap(), b"secret");
    assert_ne!(fs::metadata(&secret).map(|found| std::os::unix::fs::MetadataExt::mtime(&found)).unwrap(), 1);
    assert_eq!(names_in(&test_dir.at("outside")), ["secret"]);
}

#[test]
fn removing_a_tree_does_not_follow_links_that_replace_its_directories() {
    let test_dir = TestDirectory::in_memory();
    for number in 0..200 {
        test_dir.file(&format!("outside/{number}"), "kept");
    }
    for round in 0..200 {
        test_dir.directory("links");
        let pairs = [0, 1, 2, 3].map(|number| {
            test_dir.file(&format!("tree/{number}/e/a"), "");
            let link = test_dir.link(test_dir.at("outside"), &format!("links/{number}"));
            (test_dir.at(format!("tree/{number}")), link)
        });
        // The removal may fail because of the exchanges, but must not remove files outside.
        run_while_exchanging(&pairs, || {
            remove(FileRoot::host(), &test_dir.at("tree"), true, true, Follow::Yes, &not_cancelled())
                .unwrap_or_default();
        });
        assert_eq!(names_in(&test_dir.at("outside")).len(), 200, "round {round}");
        remove(FileRoot::host(), &test_dir.at("tree"), true, true, Follow::Yes, &not_cancelled()).unwrap();
        remove(FileRoot::host(), &test_dir.at("links"), true, false, Follow::Yes, &not_cancelled()).unwrap();
        assert_eq!(names_in(test_dir.root()), ["outside"]);
    }
}

#[test]
fn two_threads_can_remove_the_same_tree_at_once() {
    let test_dir = TestDirectory::in_memory();
    for _ in 0..20 {
        for number in 0..200 {
            test_dir.file(&format!("tree/{}/{}/{number}", number % 7, number % 3), "");
        }
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    remove(FileRoot::host(), &test_dir.at("tree"), true, true, Follow::Yes, &not_cancelled())
                        .unwrap();
                });
            }
        });
        assert!(!test_dir.at("tree").exists());
    }
}
