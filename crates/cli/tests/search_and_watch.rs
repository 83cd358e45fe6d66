//! The commands `search` and `watch`, as people and scripts use them.
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
const PATIENCE: Duration = Duration::from_secs(60);

/// A directory with some files. Its own path has no links.
fn tree(files: &[(&str, &str)]) -> TempDir {
    let tree = tempfile::tempdir_in(fs::canonicalize(std::env::temp_dir()).unwrap()).unwrap();
    for (path, content) in files {
        let path = tree.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    tree
}

/// The binary in a directory, without configuration.
fn command(directory: &Path, args: &[&str]) -> Command {
    let nowhere = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nothing-configured");
    let mut command = Command::new(binary());
    command.args(args).current_dir(directory).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env("HOME", &nowhere).env("XDG_STATE_HOME", &nowhere).kill_on_drop(true);
    for name in ["CODEX_EXEC_SERVER_URL", "CODEX_HOME", "EXEC_SERVER_HOME", "EXEC_SERVER_URL", "XDG_CONFIG_HOME"] {
        command.env_remove(name);
    }
    command
}

/// The sorted lines of stdout, stderr, and the exit code.
async fn run(directory: &Path, args: &[&str]) -> (Vec<String>, String, i32) {
    let output = command(directory, args).output();
    let output = tokio::time::timeout(PATIENCE, output).await.expect("the command does not end").unwrap();
    let mut lines: Vec<_> = String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    lines.sort_unstable();
    (lines, String::from_utf8(output.stderr).unwrap(), output.status.code().unwrap())
}

async fn found(directory: &Path, args: &[&str]) -> Vec<String> {
    let (lines, complaints, code) = run(directory, args).await;
    assert_eq!((complaints.as_str(), code), ("", 0));
    lines
}

#[tokio::test]
async fn lines_are_shown_as_ripgrep_shows_them() {
    let tree = tree(&[("a.rs", "one\nTwo\nthree\n"), ("sub/b.txt", "two\n"), (".hidden", "two\n")]);
    let here = tree.path();
    assert_eq!(found(here, &["search", "two"]).await, ["sub/b.txt:1:two"]);
    assert_eq!(found(here, &["search", "-i", "two"]).await, ["a.rs:2:Two", "sub/b.txt:1:two"]);
    assert_eq!(found(here, &["search", "-S", "Two"]).await, ["a.rs:2:Two"]);
    assert_eq!(found(here, &["search", "two", "sub"]).await, ["sub/b.txt:1:two"]);
    assert_eq!(found(here, &["search", "two", "--hidden", "-l"]).await, [".hidden", "sub/b.txt"]);
    assert_eq!(found(here, &["search", "-C", "1", "Two"]).await, ["a.rs-1-one", "a.rs-3-three", "a.rs:2:Two"]);
    assert_eq!(found(here, &["search", "-B1", "Two"]).await, ["a.rs-1-one", "a.rs:2:Two"]);
    assert_eq!(found(here, &["search", "-m", "1", "e"]).await, ["a.rs:1:one"]);
    assert_eq!(found(here, &["search", "--files"]).await, ["a.rs", "sub/b.txt"]);
    assert_eq!(found(here, &["search", "--files", "-g", "*.rs", "."]).await, ["./a.rs"]);
    assert_eq!(found(here, &["search", "-F", "-w", "three", "-g", "!*.txt"]).await, ["a.rs:3:three"]);
}

#[tokio::test]
async fn the_exit_code_tells_no_match_from_an_error() {
    let tree = tree(&[("a", "x\n")]);
    assert_eq!(run(tree.path(), &["search", "nothing"]).await, (vec![], String::new(), 1));
    for args in [&["search", "a("][..], &["search", "x", "missing"], &["search", "x", "nowhere:/"], &["search"]] {
        let (lines, complaint, code) = run(tree.path(), args).await;
        assert_eq!((lines.len(), code), (0, 2), "{args:?}: {complaint}");
        assert!(complaint.starts_with("exec-server: ") && complaint.lines().count() == 1, "{complaint}");
    }
    let (_, complaint, _) = run(tree.path(), &["search", "x", "missing"]).await;
    assert_eq!(complaint, "exec-server: cannot search missing: No such file or directory\n");
    let (_, complaint, _) = run(tree.path(), &["search", "a(", "a"]).await;
    assert_eq!(complaint, "exec-server: cannot search a: fs/search: bad pattern: unclosed group\n");
}

#[tokio::test]
async fn results_can_be_printed_as_json() {
    let tree = tree(&[("a", "x\n")]);
    let lines = found(tree.path(), &["search", "--json", "x"]).await;
    let values: Vec<Value> = lines.iter().map(|line| line.parse().unwrap()).collect();
    assert_eq!(values[0]["file"]["lines"][0]["text"], "x");
    assert_eq!(values[1]["result"]["matches"], 1);
}

#[tokio::test]
async fn a_server_is_searched_from_its_own_directory() {
    let tree = tree(&[("sub/a", "x\n")]);
    let server = TestServer::with(&[], |command| command.current_dir(tree.path())).await;
    let here = Path::new("/");
    assert_eq!(found(here, &["search", "x", "--connect", server.url()]).await, ["sub/a:1:x"]);
    let absolute = format!(":{}/sub", tree.path().display());
    let expected = format!("{}/sub/a:1:x", tree.path().display());
    assert_eq!(
        found(here, &["search", "x", &absolute, ":sub", "--connect", server.url()]).await,
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
    let status = tokio::time::timeout(PATIENCE, child.wait()).await.expect("the command does not end").unwrap();
    assert_eq!(status.code(), Some(141));
}

#[tokio::test]
async fn changes_are_printed_until_the_command_is_interrupted() {
    let tree = tree(&[]);
    for as_json in [false, true] {
        let place = format!(":{}", tree.path().display());
        let mut args = vec!["watch", &place];
        if as_json {
            args.push("--json");
        }
        let mut child = command(Path::new("/"), &args).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // The command does not say when the watch has begun, so files are created until it reports one.
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
        let status = tokio::time::timeout(PATIENCE, child.wait()).await.expect("the command does not end").unwrap();
        assert_eq!(status.code(), Some(130));
    }
}

#[tokio::test]
async fn a_closed_output_pipe_ends_the_watch_even_without_changes() {
    let tree = tree(&[]);
    let mut child = command(Path::new("/"), &["watch", &format!(":{}", tree.path().display())]).spawn().unwrap();
    drop(child.stdout.take());
    let status = tokio::time::timeout(PATIENCE, child.wait()).await.expect("the command does not end").unwrap();
    assert_eq!(status.code(), Some(141));
}

#[tokio::test]
async fn a_missing_path_cannot_be_watched() {
    let (_, complaint, code) = run(Path::new("/"), &["watch", "/no/such/place"]).await;
    assert_eq!(code, 1);
    assert_eq!(complaint, "exec-server: cannot watch /no/such/place: No such file or directory\n");
}
