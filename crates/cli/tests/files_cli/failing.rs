//! What cannot be copied.

use std::fs;

use crate::support::{World, bare_command, finished, noise, told};

/// A copy in which every path is here.
async fn copy_here(args: &[&str]) -> (String, String, Option<i32>) {
    told(&finished(bare_command().arg("cp").args(args).spawn().unwrap()).await)
}

#[tokio::test]
async fn a_missing_source_is_named() {
    let world = World::new().await;
    fs::write(world.path("there"), "text").unwrap();
    fs::create_dir(world.path("d")).unwrap();
    for (missing, target) in [(world.there("none"), world.here("d")), (world.here("none"), world.there("d"))] {
        let (out, complaint, code) = world.run(&["cp", &missing, &world.here("there"), &target]).await;
        assert_eq!((out.as_str(), code), ("", Some(1)));
        assert_eq!(complaint, format!("exec-server: cannot read {missing}: No such file or directory\n"));
        assert_eq!(fs::read(world.path("d/there")).unwrap(), b"text", "the other is copied all the same");
        fs::remove_file(world.path("d/there")).unwrap();
    }
}

#[tokio::test]
async fn a_target_that_cannot_be_is_named() {
    let world = World::new().await;
    fs::write(world.path("a"), "text").unwrap();
    let target = world.there("none/b");
    let (_, complaint, code) = world.run(&["cp", &world.here("a"), &target]).await;
    let expected = format!("exec-server: cannot write {target}: No such file or directory\n");
    assert_eq!((complaint, code), (expected, Some(1)));
    let target = world.here("none/b");
    let (_, complaint, code) = copy_here(&[&world.here("a"), &target]).await;
    let expected = format!("exec-server: cannot write {target}: No such file or directory\n");
    assert_eq!((complaint, code), (expected, Some(1)));
    let (_, complaint, code) = world.run(&["cp", &world.here("a"), &world.there("none/")]).await;
    assert_eq!((complaint, code), (format!("exec-server: {} is not a directory\n", world.there("none/")), Some(1)));
    let (_, complaint, code) = world.run(&["cp", &world.here("a"), &world.here("a"), &world.there("a")]).await;
    assert_eq!((complaint, code), (format!("exec-server: {} is not a directory\n", world.there("a")), Some(1)));
}

/// Nobody may make files there, root included.
#[tokio::test]
async fn a_place_that_takes_no_files_says_so() {
    let world = World::new().await;
    fs::write(world.path("a"), "text").unwrap();
    let there = world.run(&["cp", &world.here("a"), ":/proc/self/new"]).await;
    let here = copy_here(&[&world.here("a"), "/proc/self/new"]).await;
    for (target, (_, complaint, code)) in [(":/proc/self/new", there), ("/proc/self/new", here)] {
        assert_eq!(code, Some(1));
        assert!(complaint.starts_with(&format!("exec-server: cannot write {target}: ")), "{complaint}");
        assert_eq!(complaint.lines().count(), 1);
    }
}

#[tokio::test]
async fn what_does_not_fit_leaves_nothing_behind() {
    let world = World::new().await;
    fs::write(world.path("a"), noise(8_000_000, 1)).unwrap();
    fs::create_dir(world.path("d")).unwrap();
    fs::write(world.path("d/b"), "old").unwrap();
    // No file may be larger than a megabyte: the same as a full disk, and needs none.
    let limited = "trap '' XFSZ; ulimit -f 1024; exec \"$@\"";
    let mut shell = tokio::process::Command::new("sh");
    shell.args(["-c", limited, "sh"]).arg(testkit::binary());
    shell.args(["cp", &world.there("a"), &world.here("d/b"), "--connect", world.server.url()]);
    shell.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).kill_on_drop(true);
    let (_, complaint, code) = told(&finished(shell.spawn().unwrap()).await);
    let expected = format!("exec-server: cannot write {}: File too large\n", world.here("d/b"));
    assert_eq!((complaint, code), (expected, Some(1)));
    assert_eq!(fs::read(world.path("d/b")).unwrap(), b"old");
    assert_eq!(fs::read_dir(world.path("d")).unwrap().count(), 1);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_one_sentence() {
    let mut command = bare_command();
    command.args(["ls", "--connect", "ws://127.0.0.1:1", ":/"]);
    let (out, complaint, code) = told(&finished(command.spawn().unwrap()).await);
    assert_eq!((out.as_str(), complaint.lines().count(), code), ("", 1, Some(1)));
}

#[tokio::test]
async fn the_same_file_is_not_copied_onto_itself() {
    let world = World::new().await;
    fs::write(world.path("a"), "text").unwrap();
    fs::hard_link(world.path("a"), world.path("b")).unwrap();
    let (_, complaint, code) = world.run(&["cp", &world.there("a"), &world.there("./a")]).await;
    assert!(complaint.contains("are the same") && code == Some(1), "{complaint}");
    assert_eq!(fs::read(world.path("a")).unwrap(), b"text");
}
