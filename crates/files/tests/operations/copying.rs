//! Copies.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;

use files::{Cancel, Follow, copy, remove};
use rustix::fs::{AtFlags, Mode, OFlags, openat, statat};
use rustix::io::Errno;

use crate::roles::{is_played, play_with_few_descriptors, played};
use crate::support::{World, assert_errno, assert_refused, deep_tree, names_in, never, within_a_while};

const SYSTEM_FILE: &str = "/sys/kernel/fscaps";

#[test]
fn a_file_is_copied_with_its_permissions() {
    let world = World::new();
    let contents: Vec<u8> = (0..300_000u32).map(|n| (n / 7) as u8).collect();
    let source = world.file("a", &contents);
    for mode in [0o600, 0o755, 0o444, 0o4755] {
        fs::set_permissions(&source, fs::Permissions::from_mode(mode)).unwrap();
        let target = world.at(format!("copy {mode:o}"));
        copy(&source, &target, false, &never()).unwrap();
        assert_eq!(fs::read(&target).unwrap(), contents);
        assert_eq!(fs::metadata(&target).unwrap().mode() & 0o7777, mode);
    }
    let existing = world.file("existing", vec![9; 500_000]);
    let inode = fs::metadata(&existing).unwrap().ino();
    copy(&source, &world.link("existing", "link"), true, &never()).unwrap();
    assert_eq!(fs::read(&existing).unwrap(), contents);
    assert_eq!(fs::metadata(&existing).unwrap().ino(), inode);
}

#[test]
fn a_copy_does_not_lend_the_rights_of_its_owner_to_another_program() {
    let world = World::new();
    let source = if rustix::process::geteuid().is_root() {
        let source = world.file("a", "program");
        std::os::unix::fs::chown(&source, Some(65534), Some(65534)).unwrap();
        fs::set_permissions(&source, fs::Permissions::from_mode(0o7755)).unwrap();
        source
    } else {
        "/usr/bin/su".into()
    };
    let existing = world.file("existing", "");
    for target in [world.at("new"), existing] {
        copy(&source, &target, false, &never()).unwrap();
        assert_eq!(fs::metadata(&target).unwrap().mode() & 0o6777, 0o755, "{}", target.display());
    }
}

#[test]
fn files_that_are_empty_or_say_so_are_copied() {
    let world = World::new();
    copy(&world.file("empty", ""), &world.at("b"), false, &never()).unwrap();
    assert_eq!(fs::read(world.at("b")).unwrap(), b"");
    copy("/proc/version".as_ref(), &world.at("version"), false, &never()).unwrap();
    assert_eq!(fs::read(world.at("version")).unwrap(), fs::read("/proc/version").unwrap());
    // These say they are a page long, whatever they hold.
    copy(SYSTEM_FILE.as_ref(), &world.at("page"), false, &never()).unwrap();
    assert_eq!(fs::read(world.at("page")).unwrap(), fs::read(SYSTEM_FILE).unwrap());
}

#[test]
fn what_is_missing_is_said() {
    let world = World::new();
    let source = world.file("a", "");
    for (from, to) in [(world.at("none"), world.at("b")), (source, world.at("none/b"))] {
        assert_eq!(copy(&from, &to, true, &never()).unwrap_err().kind(), ErrorKind::NotFound);
    }
    let directory = world.directory("d");
    assert_errno(copy(&world.at("a"), &directory, true, &never()), Errno::ISDIR);
}

#[test]
fn a_file_is_never_copied_onto_itself() {
    let world = World::new();
    let source = world.file("d/a", "precious");
    fs::hard_link(&source, world.at("hard")).unwrap();
    world.link("d/a", "link");
    world.link("d", "way");
    for target in ["d/a", "hard", "link", "way/a"] {
        let copied = copy(&source, &world.at(target), false, &never());
        assert_refused(copied, "fs/copy cannot copy a file onto itself");
    }
    // Also where a tree meets a file of its own.
    fs::create_dir(world.at("e")).unwrap();
    fs::hard_link(&source, world.at("e/a")).unwrap();
    let copied = copy(&world.at("d"), &world.at("e"), true, &never());
    assert_refused(copied, "fs/copy cannot copy a file onto itself");
    assert_eq!(fs::read(&source).unwrap(), b"precious");
}

#[test]
fn a_directory_is_copied_only_if_asked_and_never_into_itself() {
    let world = World::new();
    world.file("d/b/a", "a");
    world.link("d", "way");
    let source = world.at("d");
    let copied = copy(&source, &world.at("e"), false, &never());
    assert_refused(copied, "fs/copy requires recursive: true when sourcePath is a directory");
    for target in ["d", "d/b", "d/new", "d/b/c/new", "way/new", "way", "way/b/new/er"] {
        let copied = copy(&source, &world.at(target), true, &never());
        assert_refused(copied, "fs/copy cannot copy a directory to itself or one of its descendants");
    }
    assert_eq!(names_in(&source), ["b"]);
    copy(&source, &world.at("d-too"), true, &never()).unwrap();
    assert_eq!(fs::read(world.at("d-too/b/a")).unwrap(), b"a", "a name that only begins alike is another");
}

#[test]
fn a_tree_is_merged_with_links_as_they_are_and_special_things_left_out() {
    let world = World::new();
    world.file("from/a", "new");
    world.file("from/b/c", "c");
    world.link("../elsewhere", "from/b/link");
    world.fifo("from/b/fifo");
    world.file("to/a", "old and longer");
    world.file("to/b/kept", "kept");
    copy(&world.at("from"), &world.at("to"), true, &never()).unwrap();
    assert_eq!(fs::read(world.at("to/a")).unwrap(), b"new");
    assert_eq!(names_in(&world.at("to/b")), ["c", "kept", "link"]);
    assert_eq!(fs::read_link(world.at("to/b/link")).unwrap(), Path::new("../elsewhere"));

    copy(&world.at("from/b"), &world.at("made/on/the/way"), true, &never()).unwrap();
    assert_eq!(names_in(&world.at("made/on/the/way")), ["c", "link"]);
    world.file("blocked/b", "");
    assert_errno(copy(&world.at("from"), &world.at("blocked"), true, &never()), Errno::EXIST);
    assert_errno(copy(&world.at("from"), &world.at("to/a"), true, &never()), Errno::EXIST);
}

#[test]
fn no_link_below_the_destination_is_followed() {
    let world = World::new();
    world.file("outside/a", "precious");
    world.file("from/b/a", "new");
    world.file("from/file", "new");
    world.directory("to");
    // As an earlier copy of another tree may have left them.
    world.link("../outside", "to/b");
    world.link("../outside/a", "to/file");
    assert_errno(copy(&world.at("from"), &world.at("to"), true, &never()), Errno::EXIST);
    fs::remove_file(world.at("to/b")).unwrap();
    world.file("from/dangling", "new");
    world.link("../outside/made", "to/dangling");
    copy(&world.at("from"), &world.at("to"), true, &never()).unwrap();
    for name in ["file", "dangling", "b/a"] {
        assert!(!world.at(format!("to/{name}")).is_symlink(), "{name}");
        assert_eq!(fs::read(world.at(format!("to/{name}"))).unwrap(), b"new", "{name}");
    }
    assert_eq!(
        (names_in(&world.at("outside")), fs::read(world.at("outside/a")).unwrap()),
        (vec!["a".to_owned()], b"precious".to_vec())
    );

    // The destination itself may be a link.
    world.directory("real");
    copy(&world.at("from"), &world.link("real", "way"), true, &never()).unwrap();
    assert_eq!(names_in(&world.at("real")), ["b", "dangling", "file"]);
    // What is neither file nor link keeps its place.
    world.fifo("to/pipe");
    world.file("from/pipe", "x");
    assert_refused(
        copy(&world.at("from"), &world.at("to"), true, &never()),
        &format!("path `{}` is not a file", world.at("to/pipe").display()),
    );
}

#[test]
fn a_link_is_copied_as_a_link() {
    let world = World::new();
    let link = world.link("none/at/all", "link");
    copy(&link, &world.at("other"), false, &never()).unwrap();
    assert_eq!(fs::read_link(world.at("other")).unwrap(), Path::new("none/at/all"));
    assert_errno(copy(&link, &world.at("other"), false, &never()), Errno::EXIST);
}

#[test]
fn special_things_are_neither_read_nor_written() {
    let world = World::new();
    let file = world.file("a", "a");
    for path in [world.fifo("fifo"), world.socket("socket"), "/dev/null".into()] {
        let (from, to, file, target) = (path.clone(), path.clone(), file.clone(), world.at("b"));
        within_a_while(move || {
            let copied = copy(&from, &target, true, &never());
            assert_refused(copied, "fs/copy only supports regular files, directories, and symlinks");
            let expected = format!("path `{}` is not a file", to.display());
            assert_refused(copy(&file, &to, true, &never()), &expected);
        });
    }
    assert!(!world.at("b").exists());
}

#[test]
fn holes_stay_holes() {
    let world = World::new();
    let source = world.at("sparse");
    let file = File::create(&source).unwrap();
    file.set_len(20_000_000_000).unwrap();
    file.write_all_at(b"data", 10_000_000_000).unwrap();
    drop(file);
    copy(&source, &world.at("copy"), false, &never()).unwrap();
    let (copied, read) = (fs::metadata(world.at("copy")).unwrap(), File::open(world.at("copy")).unwrap());
    assert_eq!(copied.len(), 20_000_000_000);
    assert!(copied.blocks() * 512 < 100_000_000, "{} blocks", copied.blocks());
    let mut bytes = [1; 6];
    read.read_exact_at(&mut bytes, 9_999_999_999).unwrap();
    assert_eq!(&bytes, b"\0data\0");
}

#[test]
fn between_file_systems_it_is_copied_by_hand() {
    let world = World::new();
    let source = world.file("a", vec![5; 700_000]);
    let elsewhere = tempfile::tempdir_in("/dev/shm").unwrap();
    let target = elsewhere.path().join("a");
    copy(&source, &target, false, &never()).unwrap();
    assert_eq!(fs::read(&target).unwrap(), vec![5; 700_000]);
}

#[test]
fn a_tree_of_any_depth_is_copied() {
    play_with_few_descriptors("copying::role_of_one_who_goes_deep");
}

#[test]
#[ignore = "a role for the scenario above"]
fn role_of_one_who_goes_deep() {
    if !is_played() {
        return;
    }
    let world = World::in_memory();
    deep_tree(&world.at("deep"), 3_000);
    copy(&world.at("deep"), &world.at("copy"), true, &never()).unwrap();
    let mut directory = OwnedFd::from(File::open(world.at("copy")).unwrap());
    for _ in 0..3_000 {
        statat(&directory, "file", AtFlags::empty()).unwrap();
        directory = openat(&directory, "d", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    for tree in ["deep", "copy"] {
        remove(&world.at(tree), true, false, Follow::Yes, &never()).unwrap();
    }
    played();
}

#[test]
fn nothing_is_copied_once_it_is_cancelled() {
    let world = World::new();
    let cancelled = Cancel::new();
    cancelled.cancel();
    let error = copy(&world.file("a", ""), &world.at("b"), false, &cancelled).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Interrupted);
    assert!(!world.at("b").exists());
}
