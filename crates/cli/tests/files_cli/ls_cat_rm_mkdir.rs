//! The commands `ls`, `cat`, `rm` and `mkdir`.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Stdio;

use tokio::io::AsyncReadExt as _;

use crate::support::{CopyFixture, bare_command, noise, text_and_code, wait_for_output};

#[tokio::test]
async fn ls_sorts_names_and_shows_hidden_names_only_with_the_flag_a() {
    let fixture = CopyFixture::new().await;
    fs::create_dir_all(fixture.path("d/sub")).unwrap();
    for name in ["b", "a", ".hidden"] {
        fs::write(fixture.path("d").join(name), "").unwrap();
    }
    let listed = |out: &str| (out.to_owned(), String::new(), Some(0));
    assert_eq!(fixture.run(&["ls", &fixture.remote("d")]).await, listed("a\nb\nsub\n"));
    assert_eq!(fixture.run(&["ls", "-a", ":d"]).await, listed(".hidden\na\nb\nsub\n"));
    assert_eq!(fixture.run(&["ls"]).await, listed("d\n"));
    assert_eq!(fixture.run(&["ls", ":d/a", ":d"]).await, listed(":d/a:\n:d/a\n\n:d:\na\nb\nsub\n"));
    // A path that cannot be listed does not stop the command.
    let (out, stderr, code) = fixture.run(&["ls", ":none", ":d/sub"]).await;
    let expected = "exec-server: cannot read :none: No such file or directory\n";
    assert_eq!((out.as_str(), stderr.as_str(), code), (":d/sub:\n", expected, Some(1)));
}

#[tokio::test]
async fn the_long_form_shows_type_mode_size_and_time() {
    let fixture = CopyFixture::new().await;
    fs::create_dir_all(fixture.path("d/sub")).unwrap();
    fs::write(fixture.path("d/file"), "12345").unwrap();
    fs::set_permissions(fixture.path("d/file"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::set_permissions(fixture.path("d/sub"), fs::Permissions::from_mode(0o1777)).unwrap();
    symlink("file", fixture.path("d/link")).unwrap();
    let touched = std::process::Command::new("touch")
        .args(["-d", "2001-02-03 04:05:06 UTC"])
        .args([fixture.path("d/file"), fixture.path("d/sub")])
        .status();
    assert!(touched.unwrap().success());
    let (out, stderr, code) = fixture.run(&["ls", "-l", ":d"]).await;
    assert_eq!((stderr.as_str(), code), ("", Some(0)));
    let lines: Vec<Vec<&str>> = out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["-rw-r-----", "5", "2001-02-03", "04:05:06", "file"]);
    assert_eq!(lines[1].last(), Some(&"file"));
    assert_eq!((lines[1][0], &lines[1][lines[1].len() - 3..]), ("lrwxrwxrwx", &["link", "->", "file"][..]));
    assert_eq!((lines[2][0], lines[2][4]), ("drwxrwxrwt", "sub"));
}

#[tokio::test]
async fn broken_links_are_listed() {
    let fixture = CopyFixture::new().await;
    fs::create_dir(fixture.path("d")).unwrap();
    fs::write(fixture.path("d/file"), "").unwrap();
    symlink("nowhere", fixture.path("d/dangling")).unwrap();
    symlink("circle", fixture.path("d/circle")).unwrap();
    for directory in [fixture.remote("d"), fixture.local("d")] {
        let listed = ("circle\ndangling\nfile\n".to_owned(), String::new(), Some(0));
        assert_eq!(fixture.run(&["ls", &directory]).await, listed);
        let (out, stderr, code) = fixture.run(&["ls", "-l", &directory]).await;
        assert_eq!((stderr.as_str(), code), ("", Some(0)));
        let lines: Vec<Vec<&str>> = out.lines().map(|line| line.split_whitespace().collect()).collect();
        for (line, end) in [(0, ["circle", "->", "circle"]), (1, ["dangling", "->", "nowhere"])] {
            assert_eq!((lines[line][0], &lines[line][lines[line].len() - 3..]), ("lrwxrwxrwx", &end[..]), "{out}");
        }
    }
}

#[tokio::test]
async fn cat_prints_files_one_after_the_other_and_reports_those_that_it_cannot_print() {
    let fixture = CopyFixture::new().await;
    fs::write(fixture.path("a"), "one\n").unwrap();
    fs::write(fixture.path("b"), noise(3_000_000, 1)).unwrap();
    let output =
        wait_for_output(fixture.command(&["cat", ":a", ":none", ":b", &fixture.local("a")]).spawn().unwrap()).await;
    assert!(output.stdout == [b"one\n", &noise(3_000_000, 1)[..], b"one\n"].concat());
    let (_, stderr, code) = text_and_code(&output);
    assert_eq!(stderr, "exec-server: cannot read :none: No such file or directory\n");
    assert_eq!(code, Some(1));
    let (out, stderr, code) = fixture.run(&["cat", ":."]).await;
    assert!(out.is_empty() && stderr.contains("is not a file") && code == Some(1), "{stderr}");
}

#[tokio::test]
async fn a_closed_output_pipe_ends_the_command() {
    let fixture = CopyFixture::new().await;
    fs::write(fixture.path("a"), noise(30_000_000, 1)).unwrap();
    let mut child = fixture.command(&["cat", ":a", ":a"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut first = [0; 100];
    stdout.read_exact(&mut first).await.unwrap();
    drop(stdout);
    // 128 + the number of SIGPIPE.
    assert_eq!(text_and_code(&wait_for_output(child).await), (String::new(), String::new(), Some(141)));
}

#[tokio::test]
async fn rm_removes_directories_only_with_the_flag_r() {
    let fixture = CopyFixture::new().await;
    fs::create_dir_all(fixture.path("d/sub")).unwrap();
    fs::write(fixture.path("d/sub/file"), "").unwrap();
    fs::write(fixture.path("file"), "").unwrap();
    symlink("d", fixture.path("link")).unwrap();
    let (_, stderr, code) = fixture.run(&["rm", ":d", ":file", ":link", ":none"]).await;
    assert_eq!(
        stderr,
        "exec-server: :d is a directory; remove it with -r\n\
         exec-server: cannot remove :none: No such file or directory\n"
    );
    assert_eq!(code, Some(1));
    assert!(fixture.path("d/sub/file").exists() && !fixture.path("file").exists() && !fixture.path("link").exists());
    fixture.run_quietly(&["rm", "-rf", ":d", ":none"]).await;
    assert!(!fixture.path("d").exists());
}

#[tokio::test]
async fn a_directory_whose_name_ends_with_a_colon_or_a_dot_after_one_can_be_removed() {
    let fixture = CopyFixture::new().await;
    for typed in ["./x:", "./x:.", "./x:.."] {
        fs::create_dir(fixture.path(typed)).unwrap();
        let mut command = bare_command();
        command.args(["rm", "-r", typed]).current_dir(fixture.path(""));
        let removed = text_and_code(&wait_for_output(command.spawn().unwrap()).await);
        assert_eq!(removed, (String::new(), String::new(), Some(0)));
        assert!(!fixture.path(typed).exists());
    }
    fs::create_dir(fixture.path("x:")).unwrap();
    fixture.run_quietly(&["rm", "-r", ":x:"]).await;
    assert!(!fixture.path("x:").exists());
    for typed in [":", ":.", ":..", ":a/.", "local:", "local:."] {
        let (_, stderr, code) = fixture.run(&["rm", "-r", typed, ":none"]).await;
        assert_eq!(code, Some(1));
        assert!(stderr.starts_with(&format!("exec-server: refusing to remove {typed}: ")), "{stderr}");
    }
}

#[tokio::test]
async fn mkdir_creates_directories_and_reports_those_that_it_cannot_create() {
    let fixture = CopyFixture::new().await;
    fixture.run_quietly(&["mkdir", ":a", &fixture.local("b")]).await;
    fixture.run_quietly(&["mkdir", "-p", ":a", ":c/d/e"]).await;
    assert!(fixture.path("a").is_dir() && fixture.path("b").is_dir() && fixture.path("c/d/e").is_dir());
    let (_, stderr, code) = fixture.run(&["mkdir", ":a", ":none/x"]).await;
    assert_eq!(
        stderr,
        "exec-server: cannot make the directory :a: File exists\n\
         exec-server: cannot make the directory :none/x: No such file or directory\n"
    );
    assert_eq!(code, Some(1));
}

#[tokio::test]
async fn ls_does_not_escape_names_that_it_prints_to_a_pipe() {
    let fixture = CopyFixture::new().await;
    let name = OsStr::from_bytes(b"a\n\xff");
    fs::write(fixture.path("").join(name), "").unwrap();
    let arguments = [OsStr::new("ls"), &OsString::from_vec([b":", name.as_bytes()].concat())];
    let listed = wait_for_output(fixture.command(&arguments).spawn().unwrap()).await;
    assert_eq!(listed.stdout, b":a\n\xff\n", "{}", String::from_utf8_lossy(&listed.stderr));
}
