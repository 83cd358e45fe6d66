//! Copies that fail, and their errors.

use std::fs;

use crate::support::{CopyFixture, bare_command, finished, noise, told};

/// Runs a copy with local paths only.
async fn copy_here(args: &[&str]) -> (String, String, Option<i32>) {
    told(&finished(bare_command().arg("cp").args(args).spawn().unwrap()).await)
}

#[tokio::test]
async fn a_missing_source_is_an_error() {
    let fixture = CopyFixture::new().await;
    fs::write(fixture.path("there"), "text").unwrap();
    fs::create_dir(fixture.path("d")).unwrap();
    for (missing, target) in [(fixture.there("none"), fixture.here("d")), (fixture.here("none"), fixture.there("d"))]
    {
        let (out, complaint, code) = fixture.run(&["cp", &missing, &fixture.here("there"), &target]).await;
        assert_eq!((out.as_str(), code), ("", Some(1)));
        assert_eq!(complaint, format!("exec-server: cannot read {missing}: No such file or directory\n"));
        assert_eq!(fs::read(fixture.path("d/there")).unwrap(), b"text", "the other file is copied all the same");
        fs::remove_file(fixture.path("d/there")).unwrap();
    }
}

#[tokio::test]
async fn a_target_that_cannot_be_created_is_an_error() {
    let fixture = CopyFixture::new().await;
    fs::write(fixture.path("a"), "text").unwrap();
    let target = fixture.there("none/b");
    let (_, complaint, code) = fixture.run(&["cp", &fixture.here("a"), &target]).await;
    let expected = format!("exec-server: cannot write {target}: No such file or directory\n");
    assert_eq!((complaint, code), (expected, Some(1)));
    let target = fixture.here("none/b");
    let (_, complaint, code) = copy_here(&[&fixture.here("a"), &target]).await;
    let expected = format!("exec-server: cannot write {target}: No such file or directory\n");
    assert_eq!((complaint, code), (expected, Some(1)));
    let (_, complaint, code) = fixture.run(&["cp", &fixture.here("a"), &fixture.there("none/")]).await;
    assert_eq!((complaint, code), (format!("exec-server: {} is not a directory\n", fixture.there("none/")), Some(1)));
    let (_, complaint, code) =
        fixture.run(&["cp", &fixture.here("a"), &fixture.here("a"), &fixture.there("a")]).await;
    assert_eq!((complaint, code), (format!("exec-server: {} is not a directory\n", fixture.there("a")), Some(1)));
}

/// Not even root may create files there.
#[tokio::test]
async fn a_directory_that_accepts_no_files_is_an_error() {
    let fixture = CopyFixture::new().await;
    fs::write(fixture.path("a"), "text").unwrap();
    let there = fixture.run(&["cp", &fixture.here("a"), ":/proc/self/new"]).await;
    let here = copy_here(&[&fixture.here("a"), "/proc/self/new"]).await;
    for (target, (_, complaint, code)) in [(":/proc/self/new", there), ("/proc/self/new", here)] {
        assert_eq!(code, Some(1));
        assert!(complaint.starts_with(&format!("exec-server: cannot write {target}: ")), "{complaint}");
        assert_eq!(complaint.lines().count(), 1);
    }
}

#[tokio::test]
async fn a_file_that_does_not_fit_leaves_nothing_behind() {
    let fixture = CopyFixture::new().await;
    fs::write(fixture.path("a"), noise(8_000_000, 1)).unwrap();
    fs::create_dir(fixture.path("d")).unwrap();
    fs::write(fixture.path("d/b"), "old").unwrap();
    // A limit for the size of files has the same effect as a full disk.
    let limited = "trap '' XFSZ; ulimit -f 1024; exec \"$@\"";
    let mut shell = tokio::process::Command::new("sh");
    shell.args(["-c", limited, "sh"]).arg(testkit::binary());
    shell.args(["cp", &fixture.there("a"), &fixture.here("d/b"), "--connect", fixture.server.url()]);
    shell.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).kill_on_drop(true);
    let (_, complaint, code) = told(&finished(shell.spawn().unwrap()).await);
    let expected = format!("exec-server: cannot write {}: File too large\n", fixture.here("d/b"));
    assert_eq!((complaint, code), (expected, Some(1)));
    assert_eq!(fs::read(fixture.path("d/b")).unwrap(), b"old");
    assert_eq!(fs::read_dir(fixture.path("d")).unwrap().count(), 1);
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_one_line_of_error() {
    let mut command = bare_command();
    command.args(["ls", "--connect", "ws://127.0.0.1:1", ":/"]);
    let (out, complaint, code) = told(&finished(command.spawn().unwrap()).await);
    assert_eq!((out.as_str(), complaint.lines().count(), code), ("", 1, Some(1)));
}

#[tokio::test]
async fn a_file_is_not_copied_onto_itself() {
    let fixture = CopyFixture::new().await;
    fs::write(fixture.path("a"), "text").unwrap();
    fs::hard_link(fixture.path("a"), fixture.path("b")).unwrap();
    let (_, complaint, code) = fixture.run(&["cp", &fixture.there("a"), &fixture.there("./a")]).await;
    assert!(complaint.contains("are the same") && code == Some(1), "{complaint}");
    assert_eq!(fs::read(fixture.path("a")).unwrap(), b"text");
}
