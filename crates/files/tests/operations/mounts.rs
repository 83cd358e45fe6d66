//! Mounts are neither removed nor entered, and a disk can be full.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use files::{CommitOptions, Follow, Upload, copy, remove, write_file};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount, mount_bind};

use crate::roles::{is_played, play_where_mounts_are_ours, played};
use crate::support::{World, assert_errno, names_in, never, text};

fn mount_memory(at: &Path, size: &str) {
    let options = std::ffi::CString::new(format!("size={size}")).unwrap();
    mount("none", at, "tmpfs", MountFlags::empty(), &*options).unwrap();
}

#[test]
fn mounts_are_not_removed() {
    play_where_mounts_are_ours("mounts::role_of_one_who_removes");
}

#[test]
#[ignore = "a role for the scenario above"]
fn role_of_one_who_removes() {
    if !is_played() {
        return;
    }
    let world = World::new();
    let mounted = world.directory("tree/b/mounted");
    mount_memory(&mounted, "1m");
    fs::write(mounted.join("kept"), "").unwrap();
    let refusal = |path: &Path| format!("`{}` is a mount point and is not removed", path.display());

    for recursive in [true, false] {
        assert_eq!(text(remove(&mounted, recursive, true, Follow::Yes, &never())), refusal(&mounted));
    }
    assert_eq!(text(remove(&mounted, false, true, Follow::No, &never())), refusal(&mounted));
    let nested = remove(&world.at("tree"), true, true, Follow::Yes, &never()).unwrap_err();
    assert_eq!((nested.to_string(), nested.path()), (refusal(&mounted), Some(mounted.as_path())));
    assert_eq!(names_in(&mounted), ["kept"]);

    // One of the same device, and one of a single file.
    let (origin, same) = (world.file("origin/kept", "").parent().unwrap().to_owned(), world.directory("other/same"));
    mount_bind(&origin, &same).unwrap();
    assert_eq!(fs::metadata(&same).unwrap().dev(), fs::metadata(world.root()).unwrap().dev());
    assert_eq!(text(remove(&world.at("other"), true, true, Follow::Yes, &never())), refusal(&same));
    assert_eq!(text(remove(&same, true, true, Follow::Yes, &never())), refusal(&same));
    let file = world.file("third/file", "");
    mount_bind(origin.join("kept"), &file).unwrap();
    assert_eq!(text(remove(&world.at("third"), true, true, Follow::Yes, &never())), refusal(&file));
    assert_eq!(names_in(&origin), ["kept"]);
    for mounted in [mounted, same, file] {
        rustix::mount::unmount(&mounted, rustix::mount::UnmountFlags::empty()).unwrap();
    }
    remove(&world.at("tree"), true, true, Follow::Yes, &never()).unwrap();
    played();
}

#[test]
fn a_tree_that_is_mounted_in_itself_is_not_copied_for_ever() {
    play_where_mounts_are_ours("mounts::role_of_one_who_copies");
}

#[test]
#[ignore = "a role for the scenario above"]
fn role_of_one_who_copies() {
    if !is_played() {
        return;
    }
    let world = World::new();
    world.file("tree/a", "a");
    let (inside, target) = (world.directory("tree/d/target"), world.directory("target"));
    mount_bind(&inside, &target).unwrap();
    let copied = copy(&world.at("tree"), &target, true, &never());
    assert_eq!(text(copied), "fs/copy cannot copy a directory to itself or one of its descendants");
    rustix::mount::unmount(&target, rustix::mount::UnmountFlags::empty()).unwrap();
    played();
}

#[test]
fn a_full_disk_is_an_error() {
    play_where_mounts_are_ours("mounts::role_of_one_who_fills");
}

#[test]
#[ignore = "a role for the scenario above"]
fn role_of_one_who_fills() {
    if !is_played() {
        return;
    }
    let world = World::new();
    let small = world.directory("small");
    mount_memory(&small, "1m");
    let large = vec![1; 2_000_000];
    assert_errno(write_file(&small.join("a"), &large, Follow::Yes), Errno::NOSPC);
    fs::remove_file(small.join("a")).unwrap();
    let source = world.file("large", &large);
    assert_errno(copy(&source, &small.join("a"), false, &never()), Errno::NOSPC);
    assert_eq!(names_in(&small), Vec::<String>::new(), "a new file is not left unfinished");
    fs::create_dir(small.join("tree")).unwrap();
    fs::create_dir(world.root().join("tree")).unwrap();
    fs::rename(&source, world.root().join("tree/a")).unwrap();
    assert_errno(copy(&world.root().join("tree"), &small.join("tree"), true, &never()), Errno::NOSPC);
    assert_eq!(names_in(&small.join("tree")), Vec::<String>::new());
    fs::write(small.join("a"), "old").unwrap();
    assert_errno(copy(&world.root().join("tree/a"), &small.join("a"), false, &never()), Errno::NOSPC);
    assert_eq!(names_in(&small), ["a", "tree"], "a file that was there stays");
    fs::remove_dir(small.join("tree")).unwrap();
    fs::write(small.join("a"), "old").unwrap();

    let upload = Upload::create(&small.join("a"), true, Follow::Yes).unwrap();
    upload.write_block(0, b"begin").unwrap();
    assert_errno(upload.write_block(5, &large), Errno::NOSPC);
    // A client that has sent everything in one go asks for the commit before it knows.
    let expected =
        "the upload has failed: 2000000 bytes at offset 5 were not written: No space left on device (os error 28)";
    assert_eq!(text(upload.write_block(0, b"x")), expected);
    assert_eq!(text(upload.commit(&CommitOptions::default())), expected);
    assert_eq!((fs::read(small.join("a")).unwrap(), names_in(&small)), (b"old".to_vec(), vec!["a".to_owned()]));
    drop(upload);
    let upload = Upload::create(&small.join("a"), true, Follow::Yes).unwrap();
    upload.write_block(0, b"new").unwrap();
    upload.commit(&CommitOptions::default()).unwrap();
    assert_eq!((fs::read(small.join("a")).unwrap(), names_in(&small)), (b"new".to_vec(), vec!["a".to_owned()]));
    rustix::mount::unmount(&small, rustix::mount::UnmountFlags::empty()).unwrap();
    played();
}
