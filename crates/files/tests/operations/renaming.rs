//! Names changed.

use std::fs;

use files::rename;
use rustix::io::Errno;

use crate::support::{World, assert_errno, names_in};

#[test]
fn a_name_is_taken_over_only_if_asked() {
    let world = World::new();
    let (a, b) = (world.file("a", "a"), world.file("b", "b"));
    assert_errno(rename(&a, &b, false), Errno::EXIST);
    assert_eq!(fs::read(&b).unwrap(), b"b");
    rename(&a, &b, true).unwrap();
    assert_eq!((names_in(world.root()), fs::read(&b).unwrap()), (vec!["b".to_owned()], b"a".to_vec()));
    rename(&b, &world.at("c"), false).unwrap();
    assert_eq!(names_in(world.root()), ["c"]);
}

#[test]
fn directories_and_links_are_moved_as_they_are() {
    let world = World::new();
    world.file("d/a", "");
    world.link("none", "link");
    rename(&world.at("d"), &world.at("e"), false).unwrap();
    rename(&world.at("link"), &world.at("e/link"), false).unwrap();
    assert_eq!(names_in(&world.at("e")), ["a", "link"]);
    for replace in [true, false] {
        assert_errno(rename(&world.at("e"), &world.at("e/below"), replace), Errno::INVAL);
    }
    world.file("full/a", "");
    assert_errno(rename(&world.at("e"), &world.at("full"), true), Errno::NOTEMPTY);
}

#[test]
fn the_error_is_about_the_path_that_is_missing() {
    let world = World::new();
    let a = world.file("a", "");
    for replace in [true, false] {
        let error = rename(&world.at("none"), &world.at("b"), replace).unwrap_err();
        assert_eq!(error.path(), Some(world.at("none").as_path()));
        let error = rename(&a, &world.at("none/b"), replace).unwrap_err();
        assert_eq!(error.path(), Some(world.at("none/b").as_path()));
    }
}
