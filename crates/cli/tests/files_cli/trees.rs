//! Trees.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use crate::support::{World, noise, snapshot};

fn make_tree(world: &World) {
    for directory in ["tree/a/b/c", "tree/empty", "tree/shut"] {
        fs::create_dir_all(world.path(directory)).unwrap();
    }
    for number in 0..200_usize {
        fs::write(world.path(&format!("tree/a/{number}")), noise(number * 97, number as u64)).unwrap();
    }
    fs::write(world.path("tree/a/b/large"), noise(7_000_001, 5)).unwrap();
    fs::write(world.path("tree/shut/in"), "text").unwrap();
    fs::set_permissions(world.path("tree/a/7"), fs::Permissions::from_mode(0o600)).unwrap();
    symlink("7", world.path("tree/a/link")).unwrap();
    symlink("../empty", world.path("tree/a/to-directory")).unwrap();
    let touched = std::process::Command::new("touch")
        .args(["-d", "2002-02-02 02:02:02.020202020 UTC"])
        .args([world.path("tree/a/b"), world.path("tree/shut")])
        .status();
    assert!(touched.unwrap().success());
    fs::set_permissions(world.path("tree/shut"), fs::Permissions::from_mode(0o555)).unwrap();
}

#[tokio::test]
async fn a_tree_goes_both_ways_unchanged() {
    let world = World::new().await;
    make_tree(&world);
    world.quietly(&["cp", "-r", &world.here("tree"), &world.there("copy")]).await;
    assert!(snapshot(&world.path("copy")) == snapshot(&world.path("tree")), "there");
    world.quietly(&["cp", "-r", &world.there("copy"), &world.here("back")]).await;
    assert!(snapshot(&world.path("back")) == snapshot(&world.path("tree")), "and back");
    // Again, over what is there.
    world.quietly(&["cp", "-r", &format!("{}/.", world.here("tree")), &world.there("copy")]).await;
    assert!(snapshot(&world.path("copy")) == snapshot(&world.path("tree")), "once more");
}

#[tokio::test]
async fn into_a_directory_goes_the_tree_itself() {
    let world = World::new().await;
    make_tree(&world);
    fs::create_dir(world.path("into")).unwrap();
    world.quietly(&["cp", "-r", &world.there("tree"), &world.here("into")]).await;
    assert!(snapshot(&world.path("into/tree")) == snapshot(&world.path("tree")));
}

#[tokio::test]
async fn links_that_lead_nowhere_go_both_ways() {
    let world = World::new().await;
    fs::create_dir(world.path("tree")).unwrap();
    symlink("nowhere", world.path("tree/dangling")).unwrap();
    symlink("../no/./such//file/", world.path("tree/odd")).unwrap();
    symlink("circle", world.path("tree/circle")).unwrap();
    symlink(OsStr::from_bytes(b"\xff"), world.path("tree").join(OsStr::from_bytes(b"\xfe"))).unwrap();
    for (source, target) in [
        (world.here("tree"), world.there("copy")),
        (world.there("tree"), world.here("back")),
        (world.there("tree"), world.there("beside")),
        // Again, over what is there.
        (world.there("tree/."), world.here("back")),
    ] {
        world.quietly(&["cp", "-r", &source, &target]).await;
    }
    for copy in ["copy", "back", "beside"] {
        let (copied, tree) = (snapshot(&world.path(copy)), snapshot(&world.path("tree")));
        assert_eq!(copied, tree, "{copy}");
        assert_eq!(copied.len(), 5);
    }
    world.quietly(&["cp", "-r", &world.there("tree/dangling"), &world.here("alone")]).await;
    assert_eq!(fs::read_link(world.path("alone")).unwrap().as_os_str(), "nowhere");
}

#[tokio::test]
async fn what_is_special_is_left_out_with_a_word() {
    let world = World::new().await;
    fs::create_dir(world.path("tree")).unwrap();
    fs::write(world.path("tree/file"), "").unwrap();
    assert!(std::process::Command::new("mkfifo").arg(world.path("tree/fifo")).status().unwrap().success());
    for (source, target) in [(world.here("tree"), world.there("a")), (world.there("tree"), world.here("b"))] {
        let (out, complaint, code) = world.run(&["cp", "-r", &source, &target]).await;
        assert_eq!((out.as_str(), code), ("", Some(1)));
        let expected = format!("exec-server: left out {source}/fifo: it is neither file, directory nor link\n");
        assert_eq!(complaint, expected);
    }
    assert!(world.path("a/file").exists() && world.path("b/file").exists() && !world.path("a/fifo").exists());
}

#[tokio::test]
async fn a_directory_is_copied_only_if_asked_to_and_not_into_itself() {
    let world = World::new().await;
    fs::create_dir_all(world.path("tree/below")).unwrap();
    let (_, complaint, code) = world.run(&["cp", &world.there("tree"), &world.here("x")]).await;
    let expected = format!("exec-server: {} is a directory; copy it with -r\n", world.there("tree"));
    assert_eq!((complaint, code), (expected, Some(1)));
    let (_, complaint, code) = world.run(&["cp", "-r", &world.there("tree"), &world.there("tree/below")]).await;
    let expected = format!("exec-server: cannot copy {} into itself\n", world.there("tree"));
    assert_eq!((complaint, code), (expected, Some(1)));
    // The same by another name of the same machine.
    let (_, complaint, code) = world.run(&["cp", "-r", &world.here("tree"), &world.there("tree/below/new")]).await;
    let expected = format!("exec-server: left out {}: it is the copy itself\n", world.here("tree/below/new"));
    assert_eq!((complaint, code), (expected, Some(1)));
    assert!(world.path("tree/below/new/below").is_dir() && !world.path("tree/below/new/below/new").exists());
    assert!(!world.path("x").exists());
}

#[tokio::test]
async fn no_link_below_the_target_is_followed() {
    let world = World::new().await;
    fs::create_dir_all(world.path("outside/a")).unwrap();
    fs::write(world.path("outside/a/file"), "precious").unwrap();
    fs::create_dir_all(world.path("hostile/tree")).unwrap();
    symlink(world.path("outside/a"), world.path("hostile/tree/directory")).unwrap();
    symlink(world.path("outside/a/file"), world.path("hostile/tree/file")).unwrap();
    fs::create_dir_all(world.path("tree/directory")).unwrap();
    fs::write(world.path("tree/directory/file"), "new").unwrap();
    fs::write(world.path("tree/file"), "new").unwrap();
    for (number, place) in [World::here, World::there].into_iter().enumerate() {
        let target = format!("target{number}");
        fs::create_dir(world.path(&target)).unwrap();
        // The first copy leaves links behind, and the second has files where these are.
        world.quietly(&["cp", "-r", &world.there("hostile/tree"), &place(&world, &target)]).await;
        let (_, complaint, code) = world.run(&["cp", "-r", &world.there("tree"), &place(&world, &target)]).await;
        let refused = format!(
            "exec-server: cannot make the directory {}/tree/directory: File exists\n",
            place(&world, &target)
        );
        assert_eq!((complaint, code), (refused, Some(1)));
        let file = world.path(&format!("{target}/tree/file"));
        assert!(!file.is_symlink(), "the file has taken the place of the link");
        assert_eq!(fs::read(&file).unwrap(), b"new");
        assert_eq!(fs::read(world.path("outside/a/file")).unwrap(), b"precious");
    }
    assert_eq!(fs::read_dir(world.path("outside/a")).unwrap().count(), 1);
}

#[tokio::test]
async fn a_tree_does_not_go_through_a_link_of_its_own_name() {
    let world = World::new().await;
    fs::create_dir_all(world.path("outside")).unwrap();
    fs::create_dir_all(world.path("target")).unwrap();
    fs::create_dir_all(world.path("tree")).unwrap();
    fs::write(world.path("tree/file"), "new").unwrap();
    symlink(world.path("outside"), world.path("target/tree")).unwrap();
    // The target itself may be reached through a link.
    symlink("target", world.path("way")).unwrap();
    for target in [world.here("way"), world.there("way")] {
        let (_, complaint, code) = world.run(&["cp", "-r", &world.there("tree"), &target]).await;
        let refused = format!("exec-server: cannot make the directory {target}/tree: File exists\n");
        assert_eq!((complaint, code), (refused, Some(1)));
    }
    assert_eq!(fs::read_dir(world.path("outside")).unwrap().count(), 0);
    fs::remove_file(world.path("target/tree")).unwrap();
    world.quietly(&["cp", "-r", &world.here("tree"), &world.there("way")]).await;
    assert_eq!(fs::read(world.path("target/tree/file")).unwrap(), b"new");
}

#[tokio::test]
async fn a_directory_that_is_not_named_is_not_removed() {
    let world = World::new().await;
    fs::create_dir(world.path("inside")).unwrap();
    fs::write(world.path("precious"), "").unwrap();
    for path in [":", ":.", ":inside/..", &world.there("inside/."), ":/"] {
        let (_, complaint, code) = world.run(&["rm", "-r", path]).await;
        let refused = format!(
            "exec-server: refusing to remove {path}: it means a directory without naming it; write its name\n"
        );
        assert_eq!((complaint, code), (refused, Some(1)));
    }
    assert!(world.path("precious").exists() && world.path("inside").exists());
    world.quietly(&["rm", "-r", ":inside/"]).await;
    assert!(!world.path("inside").exists());
}
