//! Making directories.

use std::fs;
use std::io::ErrorKind;
use std::sync::Barrier;
use std::thread;

use files::{Follow, create_directory};
use rustix::io::Errno;

use crate::support::{World, assert_errno, text};

const BOTH: [Follow; 2] = [Follow::Yes, Follow::No];

#[test]
fn directories_are_made_with_those_above_if_asked() {
    let world = World::new();
    for follow in BOTH {
        let deep = world.at(format!("{follow:?}/b/c"));
        assert_eq!(create_directory(&deep, false, follow).unwrap_err().kind(), ErrorKind::NotFound);
        create_directory(&deep, true, follow).unwrap();
        create_directory(&deep, true, follow).unwrap();
        create_directory(&deep.join("d"), false, follow).unwrap();
        assert!(deep.join("d").is_dir());
        assert_errno(create_directory(&deep, false, follow), Errno::EXIST);
        create_directory("/".as_ref(), true, follow).unwrap();
    }
}

#[test]
fn what_is_no_directory_stands_in_the_way() {
    let world = World::new();
    let file = world.file("a", "");
    for follow in BOTH {
        for recursive in [true, false] {
            assert_errno(create_directory(&file, recursive, follow), Errno::EXIST);
            assert_errno(create_directory(&file.join("b"), recursive, follow), Errno::NOTDIR);
        }
    }
}

#[test]
fn the_root_cannot_be_made() {
    assert_eq!(text(create_directory("/".as_ref(), false, Follow::No)), "directory already exists");
    assert_errno(create_directory("/".as_ref(), false, Follow::Yes), Errno::EXIST);
}

#[test]
fn no_link_is_followed_if_none_is_to_be() {
    let world = World::new();
    world.directory("d");
    let way = world.link("d", "way");
    create_directory(&way.join("by-link/b"), true, Follow::Yes).unwrap();
    create_directory(&way, true, Follow::Yes).unwrap();
    for recursive in [true, false] {
        assert_errno(create_directory(&way.join("b"), recursive, Follow::No), Errno::NOTDIR);
        assert_errno(create_directory(&way, recursive, Follow::No), Errno::EXIST);
    }
    assert_eq!(fs::read_dir(world.at("d")).unwrap().count(), 1);
}

#[test]
fn many_may_make_the_same_at_once() {
    let world = World::new();
    for follow in BOTH {
        let path = world.at(format!("{follow:?}/b/c/d/e"));
        let start = Barrier::new(16);
        thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    start.wait();
                    create_directory(&path, true, follow).unwrap();
                });
            }
        });
        assert!(path.is_dir());
    }
}
