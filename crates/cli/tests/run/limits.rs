//! The flags `--limit-…` of `run` and `shell`.

use serde_json::Value;
use tempfile::TempDir;
use testkit::{PublishedProtocolServer, TestServer};

use crate::support::{output, output_with_input, text_and_code};

#[tokio::test]
async fn a_command_that_reaches_a_limit_is_reported_on_stderr_and_keeps_its_exit_code() {
    let (stdout, stderr, code) =
        text_and_code(&output(&["run", "--limit-cpu", "1", "--", "perl", "-e", "1 while 1"]).await);
    assert_eq!((stdout.as_str(), code), ("", Some(152)));
    assert_eq!(stderr, "exec-server: the command was ended by its limit of CPU time (--limit-cpu)\n");

    let folder = tempfile::tempdir().unwrap();
    let script = format!("exec head -c 5000 /dev/zero > {}/file", folder.path().display());
    let args = ["run", "--limit-file-size", "4KiB", "--limit-open-files", "20", "--", "sh", "-c", &script];
    let (_, stderr, code) = text_and_code(&output(&args).await);
    assert_eq!(stderr, "exec-server: the command was ended by its limit of file sizes (--limit-file-size)\n");
    assert_eq!(code, Some(153));
}

#[tokio::test]
async fn a_command_within_its_limits_runs_as_without_them() {
    let args = ["run", "--limit-memory", "1GiB", "--limit-cpu", "60", "--", "sh", "-c", "ulimit -t; exit 3"];
    assert_eq!(text_and_code(&output(&args).await), ("60\n".to_owned(), String::new(), Some(3)));
    let shell = output_with_input(&["shell", "--limit-open-files", "50"], b"ulimit -n\nexit 4\n").await;
    assert_eq!(text_and_code(&shell), ("50\n".to_owned(), String::new(), Some(4)));
}

#[tokio::test]
async fn json_shows_usage_and_the_limit() {
    let result = output(&["run", "--json", "--limit-cpu", "1", "--", "perl", "-e", "1 while 1"]).await;
    let exited: Value = serde_json::from_slice(result.stdout.split(|byte| *byte == b'\n').next().unwrap()).unwrap();
    assert_eq!(exited["limitReached"], serde_json::json!({"limit": "cpuSeconds", "ended": true}));
    assert!(exited["usage"]["userMicros"].as_u64().unwrap() > 100_000, "{exited}");
}

#[tokio::test]
async fn values_that_are_no_limits_are_refused() {
    for args in
        [["--limit-cpu", "0"], ["--limit-pids", "-1"], ["--limit-memory", "much"], ["--limit-open-files", "1.5"]]
    {
        let (stdout, stderr, code) =
            text_and_code(&output(&[&["run"], args.as_slice(), &["--", "echo", "ran"]].concat()).await);
        assert_eq!((stdout.as_str(), code), ("", Some(2)), "{args:?}: {stderr}");
    }
    let (stdout, stderr, code) = text_and_code(&output(&["run", "--limit-memory", "0", "--", "echo", "ran"]).await);
    assert_eq!((stdout.as_str(), code), ("", Some(125)));
    assert!(stderr.contains("limits.memoryBytes must be at least 1"), "{stderr}");
}

/// A server with the published protocol would silently run the command without limits.
#[tokio::test]
async fn a_server_that_cannot_limit_is_not_asked_to_run_anything() {
    let folder = TempDir::new().unwrap();
    let server = TestServer::start_with(&[], |command| command.env("HOME", folder.path())).await;
    let published = PublishedProtocolServer::start(server, folder.path());
    let file = folder.path().join("ran");
    let script = format!("touch {}", file.display());
    let connect = ["--connect", published.url(), "--limit-cpu", "5"];
    let args = [&["run"], connect.as_slice(), &["--", "sh", "-c", &script]].concat();
    let (_, stderr, code) = text_and_code(&output(&args).await);
    assert_eq!(code, Some(125));
    let expected =
        "exec-server: this server cannot limit what a command uses; leave out the flags that begin with --limit\n";
    assert_eq!(stderr, expected);
    let shell = output(&[&["shell"], connect.as_slice()].concat()).await;
    assert_eq!(text_and_code(&shell), (String::new(), expected.to_owned(), Some(125)));
    assert!(!file.exists());
    // `--json` asks for the usage only where it can be had.
    let plain = output(&["run", "--connect", published.url(), "--json", "--", "true"]).await;
    assert!(!text_and_code(&plain).0.contains("usage"));
}
