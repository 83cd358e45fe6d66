//! Somebody swaps a directory for a link while it is worked in: nothing outside may be touched.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use files::{Follow, create_directory, metadata, read_file, remove, set_metadata, write_file};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::support::{World, names_in, never};

/// Exchanges the two of each pair for as long as `work` takes.
fn while_swapping(pairs: &[(PathBuf, PathBuf)], work: impl FnOnce()) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for (one, other) in pairs {
                    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).ok();
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
fn nothing_is_done_through_a_link_that_appears_in_the_way() {
    let world = World::new();
    let secret = world.file("outside/secret", "secret");
    world.file("way/secret", "inside");
    world.link(world.at("outside"), "link");
    let target = world.at("way/secret");
    let mut reached = 0;
    while_swapping(&[(world.at("way"), world.at("link"))], || {
        for round in 0..3_000 {
            reached += usize::from(write_file(&target, b"written", Follow::No).is_ok());
            if let Ok(read) = read_file(&target, Follow::No, 100) {
                assert_ne!(read, b"secret");
            }
            if let Ok(found) = metadata(&target, Follow::No) {
                assert_ne!(
                    found.inode,
                    fs::metadata(&secret).map(|m| std::os::unix::fs::MetadataExt::ino(&m)).unwrap()
                );
            }
            let _ = set_metadata(&target, Some(0o600), Some((1, 0)), Follow::No);
            let _ = create_directory(&world.at(format!("way/d{round}/e")), true, Follow::No);
            let _ = remove(&target, false, true, Follow::No, &never());
        }
    });
    assert!(reached > 0, "it was in the way now and then only");
    assert_eq!(fs::read(&secret).unwrap(), b"secret");
    assert_ne!(fs::metadata(&secret).map(|m| std::os::unix::fs::MetadataExt::mtime(&m)).unwrap(), 1);
    assert_eq!(names_in(&world.at("outside")), ["secret"]);
}

#[test]
fn a_tree_that_is_removed_leads_nowhere_else() {
    let world = World::in_memory();
    for number in 0..200 {
        world.file(&format!("outside/{number}"), "kept");
    }
    for round in 0..200 {
        world.directory("links");
        let pairs = [0, 1, 2, 3].map(|number| {
            world.file(&format!("tree/{number}/e/a"), "");
            let link = world.link(world.at("outside"), &format!("links/{number}"));
            (world.at(format!("tree/{number}")), link)
        });
        // Whoever swaps may win, but only that.
        while_swapping(&pairs, || remove(&world.at("tree"), true, true, Follow::Yes, &never()).unwrap_or_default());
        assert_eq!(names_in(&world.at("outside")).len(), 200, "round {round}");
        remove(&world.at("tree"), true, true, Follow::Yes, &never()).unwrap();
        remove(&world.at("links"), true, false, Follow::Yes, &never()).unwrap();
        assert_eq!(names_in(world.root()), ["outside"]);
    }
}

#[test]
fn two_may_remove_the_same_tree() {
    let world = World::in_memory();
    for _ in 0..20 {
        for number in 0..200 {
            world.file(&format!("tree/{}/{}/{number}", number % 7, number % 3), "");
        }
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| remove(&world.at("tree"), true, true, Follow::Yes, &never()).unwrap());
            }
        });
        assert!(!world.at("tree").exists());
    }
}
