//! The commands `exec-server search` and `exec-server watch`: their output and exit codes.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;
use testkit::{Signal, TestServer, Value, binary, send_signal};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

/// Longer than any command takes on a loaded machine.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// A directory with some files. No part of its path is a symbolic link.
fn tree(files: &[(&str, &str)]) -> TempDir {
    let tree = tempfile::tempdir_in(fs::canonicalize(std::env::temp_dir()).unwrap()).unwrap();
    for (path, content) in files {
        let path = tree.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    tree
}

/// The binary with `directory` as its working directory. A configuration of the developer has no effect.
fn command(directory: &Path, args: &[&str]) -> Command {
    let no_home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nothing-configured");
    let mut command = Command::new(binary());
    command.args(args).current_dir(directory).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env("HOME", &no_home).env("XDG_STATE_HOME", &no_home).kill_on_drop(true);
    for name in ["CODEX_EXEC_SERVER_URL", "CODEX_HOME", "EXEC_SERVER_HOME", "EXEC_SERVER_URL", "XDG_CONFIG_HOME"] {
        command.env_remove(name);
    }
    command
}

/// Runs the binary until it ends. Returns the sorted lines of stdout, the text of stderr, and the exit code.
async fn run(directory: &Path, args: &[&str]) -> (Vec<String>, String, i32) {
    let output = command(directory, args).output();
    let output = tokio::time::timeout(COMMAND_TIMEOUT, output).await.expect("the command does not end").unwrap();
    let mut lines: Vec<_> = String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    lines.sort_unstable();
    (lines, String::from_utf8(output.stderr).unwrap(), output.status.code().unwrap())
}

/// Runs the binary, which must succeed without a message on stderr. Returns the sorted lines of stdout.
async fn stdout_lines(directory: &Path, args: &[&str]) -> Vec<String> {
    let (lines, stderr, code) = run(directory, args).await;
    assert_eq!((stderr.as_str(), code), ("", 0));
    lines
}

#[tokio::test]
async fn lines_are_shown_as_ripgrep_shows_them() {
    let tree = tree(&[("a.rs", "one\nTwo\nthree\n"), ("sub/b.txt", "two\n"), (".hidden", "two\n")]);
    let folder = tree.path();
    assert_eq!(stdout_lines(folder, &["search", "two"]).await, ["sub/b.txt:1:two"]);
    assert_eq!(stdout_lines(folder, &["search", "-i", "two"]).await, ["a.rs:2:Two", "sub/b.txt:1:two"]);
    assert_eq!(stdout_lines(folder, &["search", "-S", "Two"]).await, ["a.rs:2:Two"]);
    assert_eq!(stdout_lines(folder, &["search", "two", "sub"]).await, ["sub/b.txt:1:two"]);
    assert_eq!(stdout_lines(folder, &["search", "two", "--hidden", "-l"]).await, [".hidden", "sub/b.txt"]);
    assert_eq!(
        stdout_lines(folder, &["search", "-C", "1", "Two"]).await,
        ["a.rs-1-one", "a.rs-3-three", "a.rs:2:Two"]
    );
    assert_eq!(stdout_lines(folder, &["search", "-B1", "Two"]).await, ["a.rs-1-one", "a.rs:2:Two"]);
    assert_eq!(stdout_lines(folder, &["search", "-m", "1", "e"]).await, ["a.rs:1:one"]);
    assert_eq!(stdout_lines(folder, &["search", "--files"]).await, ["a.rs", "sub/b.txt"]);
    assert_eq!(stdout_lines(folder, &["search", "--files", "-g", "*.rs", "."]).await, ["./a.rs"]);
    assert_eq!(stdout_lines(folder, &["search", "-F", "-w", "three", "-g", "!*.txt"]).await, ["a.rs:3:three"]);
}

#[tokio::test]
async fn the_exit_code_tells_no_match_from_an_error() {
    let tree = tree(&[("a", "x\n")]);
    assert_eq!(run(tree.path(), &["search", "nothing"]).await, (vec![], String::new(), 1));
    for args in [&["search", "a("][..], &["search", "x", "missing"], &["search", "x", "nowhere:/"], &["search"]] {
        let (lines, stderr, code) = run(tree.path(), args).await;
        assert_eq!((lines.len(), code), (0, 2), "{args:?}: {stderr}");
        assert!(stderr.starts_with("exec-server: ") && stderr.lines().count() == 1, "{stderr}");
    }
    let (_, stderr, _) = run(tree.path(), &["search", "x", "missing"]).await;
    assert_eq!(stderr, "exec-server: cannot search missing: No such file or directory\n");
    let (_, stderr, _) = run(tree.path(), &["search", "a(", "a"]).await;
    assert_eq!(stderr, "exec-server: cannot search a: fs/search: bad pattern: unclosed group\n");
}

#[tokio::test]
async fn results_can_be_printed_as_json() {
    let tree = tree(&[("a", "x\n")]);
    let lines = stdout_lines(tree.path(), &["search", "--json", "x"]).await;
    let values: Vec<Value> = lines.iter().map(|line| line.parse().unwrap()).collect();
    assert_eq!(values[0]["file"]["lines"][0]["text"], "x");
    assert_eq!(values[1]["result"]["matches"], 1);
}

#[tokio::test]
async fn json_has_no_character_that_acts_on_a_terminal() {
    let tree = tree(&[("a", "x \u{9b}31m\u{7f}\u{202e}\n")]);
    let lines = stdout_lines(tree.path(), &["search", "--json", "x"]).await;
    assert!(lines[0].contains(r"x \u009b31m\u007f\u202e"), "{lines:?}");
    let value: Value = lines[0].parse().unwrap();
    assert_eq!(value["file"]["lines"][0]["text"], "x \u{9b}31m\u{7f}\u{202e}");
}

#[tokio::test]
async fn a_server_is_searched_from_its_own_directory() {
    let tree = tree(&[("sub/a", "x\n")]);
    let server = TestServer::start_with(&[], |command| command.current_dir(tree.path())).await;
    let folder = Path::new("/");
    assert_eq!(stdout_lines(folder, &["search", "x", "--connect", server.url()]).await, ["sub/a:1:x"]);
    // `:PATH` is a path on the machine that the flags choose, here the server.
    let absolute = format!(":{}/sub", tree.path().display());
    let expected = format!("{}/sub/a:1:x", tree.path().display());
    assert_eq!(
        stdout_lines(folder, &["search", "x", &absolute, ":sub", "--connect", server.url()]).await,
        [expected, "sub/a:1:x".into()]
    );
}

#[tokio::test]
async fn a_closed_output_pipe_ends_the_search() {
    let tree = tree(&[("a", &"needle\n".repeat(200_000))]);
    let mut child = command(tree.path(), &["search", "needle"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next_line().await.unwrap().unwrap(), "a:1:needle");
    drop(lines);
    let status =
        tokio::time::timeout(COMMAND_TIMEOUT, child.wait()).await.expect("the command does not end").unwrap();
    assert_eq!(status.code(), Some(141));
}

#[tokio::test]
async fn changes_are_printed_until_the_command_is_interrupted() {
    let tree = tree(&[]);
    for as_json in [false, true] {
        let watched_path = format!(":{}", tree.path().display());
        let mut args = vec!["watch", &watched_path];
        if as_json {
            args.push("--json");
        }
        let mut child = command(Path::new("/"), &args).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // The command does not report when the watch has begun. So the test creates files until the command reports a
        // file.
        let mut number = 0;
        let line = loop {
            number += 1;
            fs::write(tree.path().join(format!("{as_json}{number}")), "").unwrap();
            if let Ok(line) = tokio::time::timeout(Duration::from_millis(200), lines.next_line()).await {
                break line.unwrap().unwrap();
            }
            assert!(number < 300, "nothing is printed");
        };
        if as_json {
            let change: Value = line.parse().unwrap();
            assert_eq!(change["type"], "created");
            assert!(change["path"].as_str().unwrap().starts_with(tree.path().to_str().unwrap()));
        } else {
            assert!(line.starts_with(&format!("created {}/false", tree.path().display())), "{line}");
        }
        send_signal(child.id().unwrap(), Signal::INT);
        let status =
            tokio::time::timeout(COMMAND_TIMEOUT, child.wait()).await.expect("the command does not end").unwrap();
        assert_eq!(status.code(), Some(130));
    }
}

#[tokio::test]
async fn a_closed_output_pipe_ends_the_watch_even_without_changes() {
    let tree = tree(&[]);
    let mut child = command(Path::new("/"), &["watch", &format!(":{}", tree.path().display())]).spawn().unwrap();
    drop(child.stdout.take());
    let status =
        tokio::time::timeout(COMMAND_TIMEOUT, child.wait()).await.expect("the command does not end").unwrap();
    assert_eq!(status.code(), Some(141));
}

#[tokio::test]
async fn a_missing_path_cannot_be_watched() {
    let (_, stderr, code) = run(Path::new("/"), &["watch", "/no/such/place"]).await;
    assert_eq!(code, 1);
    assert_eq!(stderr, "exec-server: cannot watch /no/such/place: No such file or directory\n");
}
