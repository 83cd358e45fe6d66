//! `ls`, `cat`, `rm` and `mkdir`.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Stdio;

use tokio::io::AsyncReadExt as _;

use crate::support::{World, finished, noise, told};

#[tokio::test]
async fn names_are_listed_in_order() {
    let world = World::new().await;
    fs::create_dir_all(world.path("d/sub")).unwrap();
    for name in ["b", "a", ".hidden"] {
        fs::write(world.path("d").join(name), "").unwrap();
    }
    let listed = |out: &str| (out.to_owned(), String::new(), Some(0));
    assert_eq!(world.run(&["ls", &world.there("d")]).await, listed("a\nb\nsub\n"));
    assert_eq!(world.run(&["ls", "-a", ":d"]).await, listed(".hidden\na\nb\nsub\n"));
    assert_eq!(world.run(&["ls"]).await, listed("d\n"));
    assert_eq!(world.run(&["ls", ":d/a", ":d"]).await, listed(":d/a:\n:d/a\n\n:d:\na\nb\nsub\n"));
    let (out, complaint, code) = world.run(&["ls", ":none", ":d/sub"]).await;
    let expected = "exec-server: cannot read :none: No such file or directory\n";
    assert_eq!((out.as_str(), complaint.as_str(), code), ("\n:d/sub:\n", expected, Some(1)));
}

#[tokio::test]
async fn the_long_form_says_what_is_known() {
    let world = World::new().await;
    fs::create_dir_all(world.path("d/sub")).unwrap();
    fs::write(world.path("d/file"), "12345").unwrap();
    fs::set_permissions(world.path("d/file"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::set_permissions(world.path("d/sub"), fs::Permissions::from_mode(0o1777)).unwrap();
    symlink("file", world.path("d/link")).unwrap();
    let touched = std::process::Command::new("touch")
        .args(["-d", "2001-02-03 04:05:06 UTC"])
        .args([world.path("d/file"), world.path("d/sub")])
        .status();
    assert!(touched.unwrap().success());
    let (out, complaint, code) = world.run(&["ls", "-l", ":d"]).await;
    assert_eq!((complaint.as_str(), code), ("", Some(0)));
    let lines: Vec<Vec<&str>> = out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["-rw-r-----", "5", "2001-02-03", "04:05:06", "file"]);
    assert_eq!(lines[1].last(), Some(&"file"));
    assert_eq!((lines[1][0], &lines[1][lines[1].len() - 3..]), ("lrwxrwxrwx", &["link", "->", "file"][..]));
    assert_eq!((lines[2][0], lines[2][4]), ("drwxrwxrwt", "sub"));
}

#[tokio::test]
async fn links_that_lead_nowhere_are_listed() {
    let world = World::new().await;
    fs::create_dir(world.path("d")).unwrap();
    fs::write(world.path("d/file"), "").unwrap();
    symlink("nowhere", world.path("d/dangling")).unwrap();
    symlink("circle", world.path("d/circle")).unwrap();
    for directory in [world.there("d"), world.here("d")] {
        let listed = ("circle\ndangling\nfile\n".to_owned(), String::new(), Some(0));
        assert_eq!(world.run(&["ls", &directory]).await, listed);
        let (out, complaint, code) = world.run(&["ls", "-l", &directory]).await;
        assert_eq!((complaint.as_str(), code), ("", Some(0)));
        let lines: Vec<Vec<&str>> = out.lines().map(|line| line.split_whitespace().collect()).collect();
        for (line, end) in [(0, ["circle", "->", "circle"]), (1, ["dangling", "->", "nowhere"])] {
            assert_eq!((lines[line][0], &lines[line][lines[line].len() - 3..]), ("lrwxrwxrwx", &end[..]), "{out}");
        }
    }
}

#[tokio::test]
async fn files_are_printed_one_behind_the_other() {
    let world = World::new().await;
    fs::write(world.path("a"), "one\n").unwrap();
    fs::write(world.path("b"), noise(3_000_000, 1)).unwrap();
    let all = finished(world.command(&["cat", ":a", ":none", ":b", &world.here("a")]).spawn().unwrap()).await;
    assert!(all.stdout == [b"one\n", &noise(3_000_000, 1)[..], b"one\n"].concat());
    let (_, complaint, code) = told(&all);
    assert_eq!(complaint, "exec-server: cannot read :none: No such file or directory\n");
    assert_eq!(code, Some(1));
    let (out, complaint, code) = world.run(&["cat", ":."]).await;
    assert!(out.is_empty() && complaint.contains("is not a file") && code == Some(1), "{complaint}");
}

#[tokio::test]
async fn whoever_has_read_enough_ends_it() {
    let world = World::new().await;
    fs::write(world.path("a"), noise(30_000_000, 1)).unwrap();
    let mut child = world.command(&["cat", ":a", ":a"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut first = [0; 100];
    stdout.read_exact(&mut first).await.unwrap();
    drop(stdout);
    assert_eq!(told(&finished(child).await), (String::new(), String::new(), Some(141)));
}

#[tokio::test]
async fn directories_are_removed_only_if_asked_to() {
    let world = World::new().await;
    fs::create_dir_all(world.path("d/sub")).unwrap();
    fs::write(world.path("d/sub/file"), "").unwrap();
    fs::write(world.path("file"), "").unwrap();
    symlink("d", world.path("link")).unwrap();
    let (_, complaint, code) = world.run(&["rm", ":d", ":file", ":link", ":none"]).await;
    assert_eq!(
        complaint,
        "exec-server: :d is a directory; remove it with -r\n\
         exec-server: cannot remove :none: No such file or directory\n"
    );
    assert_eq!(code, Some(1));
    assert!(world.path("d/sub/file").exists() && !world.path("file").exists() && !world.path("link").exists());
    world.quietly(&["rm", "-rf", ":d", ":none"]).await;
    assert!(!world.path("d").exists());
}

#[tokio::test]
async fn directories_are_made() {
    let world = World::new().await;
    world.quietly(&["mkdir", ":a", &world.here("b")]).await;
    world.quietly(&["mkdir", "-p", ":a", ":c/d/e"]).await;
    assert!(world.path("a").is_dir() && world.path("b").is_dir() && world.path("c/d/e").is_dir());
    let (_, complaint, code) = world.run(&["mkdir", ":a", ":none/x"]).await;
    assert_eq!(
        complaint,
        "exec-server: cannot make the directory :a: File exists\n\
         exec-server: cannot make the directory :none/x: No such file or directory\n"
    );
    assert_eq!(code, Some(1));
}

#[tokio::test]
async fn help_fits_a_screen_and_has_an_example() {
    for command in ["cp", "ls", "cat", "rm", "mkdir"] {
        let said = testkit::run_to_end(&[command, "--help"]).await;
        let help = String::from_utf8(said.stdout).unwrap();
        assert!(help.lines().count() <= 45, "{help}");
        assert!(help.contains(&format!("  exec-server {command} ")), "{help}");
    }
}

#[tokio::test]
async fn a_name_that_is_printed_to_a_pipe_is_the_name() {
    let world = World::new().await;
    let name = OsStr::from_bytes(b"a\n\xff");
    fs::write(world.path("").join(name), "").unwrap();
    let arguments = [OsStr::new("ls"), &OsString::from_vec([b":", name.as_bytes()].concat())];
    let listed = finished(world.command(&arguments).spawn().unwrap()).await;
    assert_eq!(listed.stdout, b":a\n\xff\n", "{}", String::from_utf8_lossy(&listed.stderr));
}
