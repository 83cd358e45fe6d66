//! One directory.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;

use files::{DanglingLinks, read_directory, read_directory_while};
use rustix::io::Errno;

use crate::support::{World, assert_errno};

#[test]
fn links_are_what_they_lead_to_and_are_left_out_if_that_is_nothing() {
    let world = World::new();
    world.file("a", "");
    world.directory("d");
    world.link("a", "to-a");
    world.link("d", "to-d");
    world.link("none", "to-none");
    world.link("loop", "loop");
    world.fifo("fifo");
    world.socket("socket");
    fs::write(world.at(OsStr::from_bytes(b"\xff")), "").unwrap();

    let mut entries = read_directory(world.root(), 8, DanglingLinks::LeftOut).unwrap();
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    let entries: Vec<_> = entries.iter().map(|e| (e.name.as_bytes(), e.is_directory, e.is_file)).collect();
    let expected: [(&[u8], bool, bool); 7] = [
        (b"a", false, true),
        (b"d", true, false),
        (b"fifo", false, false),
        (b"socket", false, false),
        (b"to-a", false, true),
        (b"to-d", true, false),
        (b"\xff", false, true),
    ];
    assert_eq!(entries, expected);

    let mut entries = read_directory(world.root(), 9, DanglingLinks::Listed).unwrap();
    entries.retain(|entry| entry.is_symlink);
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    let links: Vec<_> = entries.iter().map(|e| (e.name.as_bytes(), e.is_directory, e.is_file)).collect();
    let expected: [(&[u8], bool, bool); 4] =
        [(b"loop", false, false), (b"to-a", false, true), (b"to-d", true, false), (b"to-none", false, false)];
    assert_eq!(links, expected);
}

#[test]
fn names_that_may_not_be_held_are_only_told() {
    let world = World::new();
    for name in ["a", "b", "c", "d"] {
        world.file(name, "");
    }
    let mut told = Vec::new();
    let held = read_directory_while(world.root(), 4, DanglingLinks::LeftOut, |name| {
        told.push(name.to_owned());
        told.len() != 2
    });
    assert_eq!(held.unwrap(), None);
    told.sort();
    assert_eq!(told, ["a", "b", "c", "d"]);
    let held = read_directory_while(world.root(), 4, DanglingLinks::LeftOut, |_| true);
    assert_eq!(held.unwrap().map(|entries| entries.len()), Some(4));
}

#[test]
fn only_directories_are_listed() {
    let world = World::new();
    assert_errno(read_directory(&world.file("a", ""), 10, DanglingLinks::LeftOut), Errno::NOTDIR);
    assert_eq!(
        read_directory(&world.at("none"), 10, DanglingLinks::LeftOut).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    world.directory("d");
    assert_eq!(read_directory(&world.link("d", "way"), 10, DanglingLinks::LeftOut).unwrap(), []);
}

#[test]
fn a_hundred_thousand_entries_are_counted() {
    let world = World::in_memory();
    for number in 0..100_000 {
        File::create(world.at(format!("{number}"))).unwrap();
    }
    let error = read_directory(world.root(), 50_000, DanglingLinks::LeftOut).unwrap_err();
    assert_eq!(error.to_string(), "fs/readDirectory returned 100000 entries; limit is 50000");
    assert_eq!(error.kind(), ErrorKind::Other);
    assert_eq!(read_directory(world.root(), 100_000, DanglingLinks::LeftOut).unwrap().len(), 100_000);
}
