//! Copies and other commands that fail, and their errors.

use std::fs;

use crate::support::{CopyFixture, bare_command, noise, text_and_code, wait_for_output};

/// Runs `cp` with local paths only.
async fn copy_locally(args: &[&str]) -> (String, String, Option<i32>) {
    text_and_code(&wait_for_output(bare_command().arg("cp").args(args).spawn().unwrap()).await)
}

#[tokio::test]
async fn a_missing_source_is_an_error_and_the_other_sources_are_copied() {
    let fixture = CopyFixture::new().await;
    fs::write(fixture.path("there"), "text").unwrap();
    fs::create_dir(fixture.path("d")).unwrap();
    for (missing, target) in
        [(fixture.remote("none"), fixture.local("d")), (fixture.local("none"), fixture.remote("d"))]
    {
        let (out, stderr, code) = fixture.run(&["cp", &missing, &fixture.local("there"), &target]).await;
        assert_eq!((out.as_str(), code), ("", Some(1)));
        assert_eq!(stderr, format!("exec-server: cannot read {missing}: No such file or directory\n"));
        assert_eq!(fs::read(fixture.path("d/there")).unwrap(), b"text", "the other source was not copied");
        fs::remove_file(fixture.path("d/there")).unwrap();
    }
}

#[tokio::test]
async fn a_target_that_cannot_be_created_or_is_no_directory_is_an_error() {
    let fixture = CopyFixture::new().await;
    fs::write(fixture.path("a"), "text").unwrap();
    let target = fixture.remote("none/b");
    let (_, stderr, code) = fixture.run(&["cp", &fixture.local("a"), &target]).await;
    let expected = format!("exec-server: cannot write {target}: No such file or directory\n");
    assert_eq!((stderr, code), (expected, Some(1)));
    let target = fixture.local("none/b");
    let (_, stderr, code) = copy_locally(&[&fixture.local("a"), &target]).await;
    let expected = format!("exec-server: cannot write {target}: No such file or directory\n");
    assert_eq!((stderr, code), (expected, Some(1)));
    let (_, stderr, code) = fixture.run(&["cp", &fixture.local("a"), &fixture.remote("none/")]).await;
    assert_eq!((stderr, code), (format!("exec-server: {} is not a directory\n", fixture.remote("none/")), Some(1)));
    let (_, stderr, code) =
        fixture.run(&["cp", &fixture.local("a"), &fixture.local("a"), &fixture.remote("a")]).await;
    assert_eq!((stderr, code), (format!("exec-server: {} is not a directory\n", fixture.remote("a")), Some(1)));
}

/// The target is in `/proc`, where not even root can create files.
#[tokio::test]
async fn a_target_directory_in_which_no_file_can_be_created_is_an_error() {
    let fixture = CopyFixture::new().await;
    fs::write(fixture.path("a"), "text").unwrap();
    let remote = fixture.run(&["cp", &fixture.local("a"), ":/proc/self/new"]).await;
    let local = copy_locally(&[&fixture.local("a"), "/proc/self/new"]).await;
    for (target, (_, stderr, code)) in [(":/proc/self/new", remote), ("/proc/self/new", local)] {
        assert_eq!(code, Some(1));
        assert!(stderr.starts_with(&format!("exec-server: cannot write {target}: ")), "{stderr}");
        assert_eq!(stderr.lines().count(), 1);
    }
}

#[tokio::test]
async fn a_copy_that_does_not_fit_leaves_the_old_file_and_no_other() {
    let fixture = CopyFixture::new().await;
    fs::write(fixture.path("a"), noise(8_000_000, 1)).unwrap();
    fs::create_dir(fixture.path("d")).unwrap();
    fs::write(fixture.path("d/b"), "old").unwrap();
    // A limit for the size of files has the same effect as a full disk.
    let limited = "trap '' XFSZ; ulimit -f 1024; exec \"$@\"";
    let mut shell = tokio::process::Command::new("sh");
    shell.args(["-c", limited, "sh"]).arg(testkit::binary());
    shell.args(["cp", &fixture.remote("a"), &fixture.local("d/b"), "--connect", fixture.server.url()]);
    shell.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).kill_on_drop(true);
    let (_, stderr, code) = text_and_code(&wait_for_output(shell.spawn().unwrap()).await);
    let expected = format!("exec-server: cannot write {}: File too large\n", fixture.local("d/b"));
    assert_eq!((stderr, code), (expected, Some(1)));
    assert_eq!(fs::read(fixture.path("d/b")).unwrap(), b"old");
    assert_eq!(fs::read_dir(fixture.path("d")).unwrap().count(), 1);
}

#[tokio::test]
async fn an_unreachable_server_is_reported_in_one_line() {
    let mut command = bare_command();
    command.args(["ls", "--connect", "ws://127.0.0.1:1", ":/"]);
    let (out, stderr, code) = text_and_code(&wait_for_output(command.spawn().unwrap()).await);
    assert_eq!((out.as_str(), stderr.lines().count(), code), ("", 1, Some(1)));
}

#[tokio::test]
async fn a_file_is_not_copied_onto_itself() {
    let fixture = CopyFixture::new().await;
    fs::write(fixture.path("a"), "text").unwrap();
    let (_, stderr, code) = fixture.run(&["cp", &fixture.remote("a"), &fixture.remote("./a")]).await;
    assert!(stderr.contains("are the same") && code == Some(1), "{stderr}");
    assert_eq!(fs::read(fixture.path("a")).unwrap(), b"text");
}
