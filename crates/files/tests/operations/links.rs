//! Links and where they lead.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;

use files::{canonicalize, read_link, symlink};
use rustix::io::Errno;

use crate::support::{World, assert_errno};

#[test]
fn a_path_is_freed_of_links() {
    let world = World::new();
    let file = world.file("d/a", "");
    world.link("d", "way");
    assert_eq!(canonicalize(&world.at("way/../way/./a")).unwrap(), file);
    assert_eq!(canonicalize(&world.at("none")).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_link_says_what_it_was_told_to() {
    let world = World::new();
    let path = world.at("link");
    for target in [&b"none"[..], b"../a/./b//", b"\xff\xfe", &[b'x'; 4000]] {
        let target = OsStr::from_bytes(target);
        symlink(target, &path).unwrap();
        assert_eq!(read_link(&path).unwrap(), target);
        assert_errno(symlink(target, &path), Errno::EXIST);
        std::fs::remove_file(&path).unwrap();
    }
    assert_errno(read_link(&world.file("a", "")), Errno::INVAL);
    assert_errno(read_link(&world.at("none")), Errno::NOENT);
}
