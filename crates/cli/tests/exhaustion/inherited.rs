//! A server whose parent process has set a limit of file sizes or has blocked signals. The server inherits both.

use std::time::Duration;

use testkit::{Client, Signal, TestServer, binary, json};
use tokio::process::Command;

/// Starts a server through a program such as `prlimit`, which changes its own limits or signal mask and then executes
/// the server.
async fn start_server_through(program: &str, argument: &str) -> (TestServer, Client) {
    let mut command = Command::new(program);
    command.arg(argument).arg(binary());
    let server = TestServer::launch(command, &[]).await;
    let client = server.client().await;
    (server, client)
}

#[tokio::test]
async fn a_write_beyond_the_limit_of_file_sizes_is_an_error_and_processes_still_ignore_no_signal() {
    let (_server, mut client) = start_server_through("prlimit", "--fsize=1000").await;
    let directory = tempfile::tempdir().unwrap();
    let path = format!("file://{}/large", directory.path().display());
    let large = json!({"path": path, "dataBase64": "AAAA".repeat(1000)});
    let error = client.call_error("fs/writeFile", large).await;
    assert_eq!(error["message"], "File too large (os error 27)");
    // The server ignores SIGXFSZ, which would end it. Its processes must not inherit that.
    let outcome = client.run("p", &["sh", "-c", "grep SigIgn /proc/self/status"]).await;
    assert_eq!(String::from_utf8_lossy(&outcome.stdout), "SigIgn:\t0000000000000000\n");
}

#[tokio::test]
async fn sigterm_ends_the_server_even_if_its_parent_has_blocked_sigterm() {
    let (mut server, _client) = start_server_through("env", "--block-signal=TERM").await;
    server.signal(Signal::TERM);
    let ended = tokio::time::timeout(Duration::from_secs(60), server.wait()).await;
    assert_eq!(ended.expect("the signal does not end the server"), Some(0));
}
