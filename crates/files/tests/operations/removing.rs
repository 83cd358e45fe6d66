//! Things removed, and things that are not.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::thread;

use files::{Cancel, Follow, remove};
use rustix::io::Errno;

use crate::roles::{is_played, play_with_few_descriptors, played};
use crate::support::{World, assert_errno, assert_refused, deep_tree, names_in, never, text};

#[test]
fn files_links_and_special_things_are_unlinked() {
    let world = World::new();
    let kept = world.file("kept/a", "a");
    let things = [
        world.file("a", ""),
        world.link(world.at("kept"), "to-directory"),
        world.link("none", "dangling"),
        world.fifo("fifo"),
        world.socket("socket"),
    ];
    for path in things {
        remove(&path, true, false, Follow::Yes, &never()).unwrap();
        assert!(path.symlink_metadata().is_err());
    }
    assert!(kept.exists());
    assert_eq!(names_in(world.root()), ["kept"]);
}

#[test]
fn directories_are_removed_with_what_they_hold_only_if_asked() {
    let world = World::new();
    let outside = world.file("outside/a", "a");
    world.file("d/a", "");
    world.file("d/b/c/e", "");
    world.link(world.at("outside"), "d/b/way");
    world.fifo("d/b/fifo");
    let directory = world.at("d");
    assert_errno(remove(&directory, false, true, Follow::Yes, &never()), Errno::NOTEMPTY);
    remove(&directory, true, false, Follow::Yes, &never()).unwrap();
    assert!(!directory.exists() && outside.exists());
    remove(&world.directory("empty"), false, false, Follow::Yes, &never()).unwrap();
    assert!(!world.at("empty").exists());
}

#[test]
fn force_is_only_about_what_is_missing() {
    let world = World::new();
    let file = world.file("a", "");
    for path in [world.at("none"), world.at("none/below")] {
        for (follow, recursive) in [(Follow::Yes, true), (Follow::Yes, false), (Follow::No, false)] {
            remove(&path, recursive, true, follow, &never()).unwrap();
            let error = remove(&path, recursive, false, follow, &never()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound);
        }
    }
    assert_errno(remove(&file.join("below"), true, true, Follow::Yes, &never()), Errno::NOTDIR);
}

#[test]
fn without_following_links_only_single_things_are_removed() {
    let world = World::new();
    let file = world.file("d/a", "");
    let link = world.link("d/a", "link");
    world.link("d", "way");
    let recursive = remove(&world.at("d"), true, true, Follow::No, &never()).unwrap_err();
    assert_eq!(recursive.kind(), ErrorKind::Unsupported);
    assert_eq!(recursive.to_string(), "recursive no-follow removal is unsupported");
    assert_refused(remove(&link, false, true, Follow::No, &never()), "path contains a symbolic link");
    assert_errno(remove(&world.at("way/a"), false, true, Follow::No, &never()), Errno::NOTDIR);
    remove(&file, false, false, Follow::No, &never()).unwrap();
    remove(&world.at("d"), false, false, Follow::No, &never()).unwrap();
    assert_eq!(names_in(world.root()), ["link", "way"]);
}

#[test]
fn a_link_above_is_followed_if_links_are() {
    let world = World::new();
    world.file("d/b/c", "");
    world.link("d", "way");
    remove(&world.at("way/b"), true, false, Follow::Yes, &never()).unwrap();
    assert!(names_in(&world.at("d")).is_empty());
}

#[test]
fn the_root_is_never_removed() {
    for follow in [Follow::Yes, Follow::No] {
        let removed = remove("/".as_ref(), false, true, follow, &never());
        assert_eq!(text(removed), "`/` is a mount point and is not removed");
    }
    // Only what cannot do harm if it went wrong: none of these is recursive.
    assert_eq!(
        text(remove("/.".as_ref(), false, true, Follow::Yes, &never())),
        "`/.` is a mount point and is not removed"
    );
    let up = "/proc/..".as_ref();
    assert_refused(remove(up, false, true, Follow::Yes, &never()), "path must be absolute and normalized");
}

#[test]
fn a_tree_of_any_depth_is_removed() {
    play_with_few_descriptors("removing::role_of_one_who_goes_deep");
}

#[test]
#[ignore = "a role for the scenario above"]
fn role_of_one_who_goes_deep() {
    if !is_played() {
        return;
    }
    let world = World::in_memory();
    deep_tree(&world.at("deep"), 10_000);
    // On the small stack of a thread, too.
    let path = world.at("deep");
    let removed = thread::Builder::new().stack_size(64 * 1024);
    let removed = removed.spawn(move || remove(&path, true, false, Follow::Yes, &never())).unwrap();
    removed.join().unwrap().unwrap();
    assert!(names_in(world.root()).is_empty());
    played();
}

#[test]
fn a_directory_of_any_width_is_removed() {
    let world = World::in_memory();
    let wide = world.directory("wide");
    for number in 0..50_000 {
        File::create(wide.join(format!("file {number}"))).unwrap();
    }
    for number in 0..5_000 {
        world.file(&format!("wide/directory {number}/a"), "");
    }
    remove(&wide, true, false, Follow::Yes, &never()).unwrap();
    assert!(!wide.exists());
}

#[test]
fn nothing_more_is_removed_once_it_is_cancelled() {
    let world = World::new();
    world.file("d/a", "");
    let cancelled = Cancel::new();
    cancelled.cancel();
    let error = remove(&world.at("d"), true, true, Follow::Yes, &cancelled).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Interrupted);
    assert!(fs::exists(world.at("d/a")).unwrap());
}
