//! Files written in place.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use files::{Follow, write_file};
use rustix::io::Errno;

use crate::support::{World, assert_errno, assert_refused, within_a_while};

const BOTH: [Follow; 2] = [Follow::Yes, Follow::No];

#[test]
fn a_file_is_made_or_overwritten() {
    let world = World::new();
    for follow in BOTH {
        let path = world.at(format!("{follow:?}"));
        for contents in ["a longer text", "short", ""] {
            write_file(&path, contents.as_bytes(), follow).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), contents);
        }
    }
}

#[test]
fn an_existing_file_stays_the_same_file() {
    let world = World::new();
    for follow in BOTH {
        let path = world.file(&format!("{follow:?}"), "old");
        let other_name = world.at(format!("{follow:?}-too"));
        fs::hard_link(&path, &other_name).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let before = fs::metadata(&path).unwrap();
        write_file(&path, b"new", follow).unwrap();
        let after = fs::metadata(&path).unwrap();
        assert_eq!(
            (before.ino(), before.mode(), before.uid(), before.gid()),
            (after.ino(), after.mode(), after.uid(), after.gid())
        );
        assert_eq!(fs::read(&other_name).unwrap(), b"new");
    }
}

#[test]
fn nothing_above_is_made() {
    let world = World::new();
    for follow in BOTH {
        assert_eq!(write_file(&world.at("none/a"), b"a", follow).unwrap_err().kind(), ErrorKind::NotFound);
        assert!(!world.at("none").exists());
    }
}

#[test]
fn directories_are_no_files() {
    let world = World::new();
    let directory = world.directory("d");
    for follow in BOTH {
        assert_errno(write_file(&directory, b"a", follow), Errno::ISDIR);
        assert_errno(write_file("/".as_ref(), b"a", follow), Errno::ISDIR);
    }
}

#[test]
fn what_would_block_or_act_is_refused() {
    let world = World::new();
    let (fifo, socket) = (world.fifo("fifo"), world.socket("socket"));
    for path in [fifo.clone(), socket.clone(), "/dev/null".into()] {
        let expected = format!("path `{}` is not a file", path.display());
        within_a_while(move || assert_refused(write_file(&path, b"a", Follow::Yes), &expected));
    }
    for path in [socket, "/dev/null".into()] {
        within_a_while(move || assert_refused(write_file(&path, b"a", Follow::No), "path is not a regular file"));
    }
    let unread = fifo.clone();
    within_a_while(move || assert_errno(write_file(&unread, b"a", Follow::No), Errno::NXIO));
    let _reader = fs::OpenOptions::new().read(true).write(true).open(&fifo).unwrap();
    within_a_while(move || assert_refused(write_file(&fifo, b"a", Follow::No), "path is not a regular file"));
}

#[test]
fn links_lead_to_their_target_or_are_refused() {
    let world = World::new();
    let target = world.file("d/a", "old");
    let link = world.link(&target, "link");
    world.link("d", "way");
    write_file(&link, b"new", Follow::Yes).unwrap();
    assert_eq!(fs::read(&target).unwrap(), b"new");
    assert!(link.is_symlink());
    write_file(&world.link("d/made", "dangling"), b"made", Follow::Yes).unwrap();
    assert_eq!(fs::read(world.at("d/made")).unwrap(), b"made");

    assert_errno(write_file(&link, b"worse", Follow::No), Errno::LOOP);
    assert_errno(write_file(&world.at("way/a"), b"worse", Follow::No), Errno::NOTDIR);
    assert_eq!(fs::read(&target).unwrap(), b"new");
}

#[test]
fn two_writers_at_once_leave_the_contents_of_one() {
    let world = World::new();
    let texts = [vec![b'a'; 400_000], vec![b'b'; 10]];
    for round in 0..300 {
        let path = world.at(format!("file {round}"));
        let together = std::sync::Barrier::new(texts.len());
        std::thread::scope(|scope| {
            for text in &texts {
                scope.spawn(|| {
                    together.wait();
                    write_file(&path, text, Follow::Yes).unwrap();
                });
            }
        });
        let found = fs::read(&path).unwrap();
        assert!(texts.contains(&found), "round {round}: a mixture of {} bytes", found.len());
        fs::remove_file(&path).unwrap();
    }
}
