//! Authentication with tokens. The tests connect to loopback only, even if the server listens on all addresses.

use std::path::Path;

use testkit::{Client, Signal, TestServer, UPGRADE_HEADERS, eventually, eventually_async, http_get, run_to_end};
use transport::ConnectOptions;

const FIRST: &str = "first-token-0123456789";
const SECOND: &str = "second-token-0123456789";

/// The address of the server on loopback, as `IP:PORT`. The server itself may listen on all addresses.
fn loopback(server: &TestServer) -> String {
    format!("127.0.0.1:{}", server.address().rsplit_once(':').unwrap().1)
}

/// Writes a token file and returns its path.
fn token_file(directory: &Path, tokens: &str) -> String {
    let path = directory.join("tokens");
    std::fs::write(&path, tokens).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The HTTP status of a WebSocket upgrade with this token.
async fn upgrade_status(address: &str, token: Option<&str>) -> u16 {
    let value = token.map(|token| format!("Bearer {token}")).unwrap_or_default();
    let mut headers = UPGRADE_HEADERS.to_vec();
    if token.is_some() {
        headers.push(("Authorization", &value));
    }
    http_get(address, "/", &headers).await.status
}

#[tokio::test]
async fn without_tokens_the_server_listens_on_loopback_only() {
    for url in ["ws://0.0.0.0:0", "ws://[::]:0", "wss://0.0.0.0:0"] {
        let output = run_to_end(&["--listen", url]).await;
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(125), "{stderr}");
        let expected = format!(
            "exec-server: {url} can be reached from other machines; give --token-file with the tokens to accept, or --insecure-no-auth to let anybody in\n"
        );
        assert_eq!(stderr, expected);
        assert!(output.stdout.is_empty());
    }
    let output = run_to_end(&["--listen", "ws://127.0.0.1:0", "--listen", "ws://0.0.0.0:0"]).await;
    assert_eq!(output.status.code(), Some(125), "the server must not start if any address is not loopback");
}

#[tokio::test]
async fn only_a_client_with_a_token_is_served() {
    let directory = tempfile::tempdir().unwrap();
    let file = token_file(directory.path(), &format!("# mine\n{FIRST}\n\n{SECOND}\n"));
    let server = TestServer::with_args(&["--listen", "ws://0.0.0.0:0", "--token-file", &file]).await;
    let address = loopback(&server);
    for wrong in
        [None, Some(""), Some("wrong"), Some("# mine"), Some(&FIRST[..FIRST.len() - 1]), Some(&FIRST.to_uppercase())]
    {
        assert_eq!(upgrade_status(&address, wrong).await, 401, "{wrong:?}");
    }
    for right in [FIRST, SECOND] {
        assert_eq!(upgrade_status(&address, Some(right)).await, 101, "{right}");
    }
    let basic = [UPGRADE_HEADERS, &[("Authorization", "Basic Zmlyc3Q6dG9rZW4=")]].concat();
    let refused = http_get(&address, "/", &basic).await;
    assert_eq!(refused.status, 401);
    assert!(refused.head.contains("www-authenticate: bearer\r\n"), "{}", refused.head);

    let options = ConnectOptions { bearer_token: Some(SECOND.to_owned()), ..Default::default() };
    let mut client = Client::connect_with(&format!("ws://{address}"), options).await.unwrap();
    client.handshake(None).await;
    assert_eq!(client.run("p", &["true"]).await.exit_code, 0);
}

#[tokio::test]
async fn health_needs_no_token_and_metrics_need_one() {
    let directory = tempfile::tempdir().unwrap();
    let file = token_file(directory.path(), FIRST);
    let server = TestServer::with_args(&["--token-file", &file]).await;
    assert_eq!(http_get(server.address(), "/healthz", &[]).await.status, 200);
    assert_eq!(http_get(server.address(), "/readyz", &[]).await.status, 200);
    assert_eq!(http_get(server.address(), "/metrics", &[]).await.status, 401);
    let bearer = format!("Bearer {FIRST}");
    assert_eq!(http_get(server.address(), "/metrics", &[("Authorization", &bearer)]).await.status, 200);
}

#[tokio::test]
async fn sighup_reloads_the_tokens_and_open_connections_stay() {
    let directory = tempfile::tempdir().unwrap();
    let file = token_file(directory.path(), FIRST);
    let server = TestServer::with_args(&["--listen", "ws://0.0.0.0:0", "--token-file", &file]).await;
    let address = loopback(&server);
    let options = ConnectOptions { bearer_token: Some(FIRST.to_owned()), ..Default::default() };
    let mut client = Client::connect_with(&format!("ws://{address}"), options).await.unwrap();
    client.handshake(None).await;

    token_file(directory.path(), SECOND);
    assert_eq!(upgrade_status(&address, Some(SECOND)).await, 401, "the tokens do not change before the signal");
    server.signal(Signal::HUP);
    eventually_async("the new token is accepted", async || {
        (upgrade_status(&address, Some(SECOND)).await == 101).then_some(())
    })
    .await;
    assert_eq!(upgrade_status(&address, Some(FIRST)).await, 401);
    assert_eq!(client.run("p", &["true"]).await.exit_code, 0);

    // An invalid or missing file changes nothing, and does not end the server.
    token_file(directory.path(), "short");
    server.signal(Signal::HUP);
    std::fs::remove_file(&file).unwrap();
    server.signal(Signal::HUP);
    assert_eq!(client.run("q", &["true"]).await.exit_code, 0);
    assert_eq!(upgrade_status(&address, Some(SECOND)).await, 101);
}

#[tokio::test]
async fn sighup_with_a_fifo_as_token_file_keeps_the_tokens_and_blocks_no_later_signal() {
    let directory = tempfile::tempdir().unwrap();
    let file = token_file(directory.path(), FIRST);
    let log = directory.path().join("log");
    let stderr = std::fs::File::create(&log).unwrap();
    let mut server = TestServer::start_with(&["--token-file", &file], |command| command.stderr(stderr)).await;
    std::fs::remove_file(&file).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&file).status().unwrap().success());
    server.signal(Signal::HUP);
    eventually("the failure is in the log", || {
        let text = std::fs::read_to_string(&log).unwrap();
        text.contains(&format!("keeping the old tokens: cannot read the token file {file}: ")).then_some(())
    })
    .await;
    assert_eq!(upgrade_status(server.address(), Some(FIRST)).await, 101);
    server.signal(Signal::TERM);
    assert_eq!(server.wait().await, Some(0));
}

/// Number of failed attempts. The server does not log each of so many attempts.
const FLOOD: usize = 100;

#[tokio::test]
async fn failed_authentications_are_counted_and_logged_without_the_token_and_do_not_fill_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let file = token_file(directory.path(), FIRST);
    let log = directory.path().join("log");
    let stderr = std::fs::File::create(&log).unwrap();
    let server = TestServer::start_with(&["--token-file", &file], |command| {
        command.env_remove("RUST_LOG").env("NO_COLOR", "1").stderr(stderr)
    })
    .await;
    let address = server.address();
    assert_eq!(upgrade_status(address, None).await, 401);
    assert_eq!(upgrade_status(address, Some("a-secret-that-is-wrong")).await, 401);
    assert_eq!(http_get(address, "/metrics", &[("Authorization", "Basic Zmlyc3Q6dG9rZW4=")]).await.status, 401);
    assert_eq!(upgrade_status(address, Some(FIRST)).await, 101);
    let reasons =
        ["it sent no token", "its token is not in the token file", "its Authorization header is not `Bearer TOKEN`"];
    let text = eventually("the log has a line for each reason", || {
        let text = std::fs::read_to_string(&log).unwrap();
        (text.matches('\n').count() >= reasons.len()).then_some(text)
    })
    .await;
    assert_eq!(text.lines().count(), reasons.len(), "{text}");
    for (line, reason) in text.lines().zip(reasons) {
        assert!(line.contains("WARN") && line.contains("authentication failed: ") && line.contains(reason), "{line}");
        assert!(line.contains("peer=127.0.0.1:"), "{line}");
    }
    assert!(!text.contains("a-secret-that-is-wrong") && !text.contains("Zmlyc3Q6dG9rZW4="), "{text}");

    for _ in 0..FLOOD {
        assert_eq!(upgrade_status(address, None).await, 401);
    }
    let lines = std::fs::read_to_string(&log).unwrap().lines().count();
    assert!(lines < FLOOD, "{lines} lines in the log for {FLOOD} attempts");
    let bearer = format!("Bearer {FIRST}");
    let metrics = http_get(address, "/metrics", &[("Authorization", &bearer)]).await.body;
    for (reason, count) in [("missing", 1 + FLOOD), ("wrong", 1), ("malformed", 1)] {
        let line = format!("exec_server_authentication_failures_total{{reason=\"{reason}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line}{metrics}");
    }
}

#[tokio::test]
async fn sighup_without_a_token_file_does_nothing() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    server.signal(Signal::HUP);
    assert_eq!(client.run("p", &["true"]).await.exit_code, 0);
}

#[tokio::test]
async fn without_authentication_every_client_is_served_if_a_flag_allows_it() {
    let server = TestServer::with_args(&["--listen", "ws://0.0.0.0:0", "--insecure-no-auth"]).await;
    let mut client = Client::connect(&format!("ws://{}", loopback(&server))).await;
    client.handshake(None).await;
    assert_eq!(client.run("p", &["true"]).await.exit_code, 0);
}

#[tokio::test]
async fn an_invalid_or_missing_token_file_is_refused_and_the_error_discloses_no_token() {
    let directory = tempfile::tempdir().unwrap();
    for (text, expected) in [
        ("", "holds no token; write one per line"),
        ("# only words\n", "holds no token"),
        ("short\n", "line 1 of the token file"),
        ("short\n", "has a token of fewer than 16 bytes"),
        // Names that begin with `line-` are reserved for tokens without a name.
        ("first: first-token-0123456789\nline-1: second-token-0123456789\n", "line 2 of the token file"),
        ("two words: first-token-0123456789\n", "has no valid name before its colon"),
        (
            "ci: first-token-0123456789\nlaptop: first-token-0123456789\n",
            "repeats the token of line 1 under another name",
        ),
    ] {
        let file = token_file(directory.path(), text);
        let output = run_to_end(&["--token-file", &file]).await;
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(125), "{stderr}");
        assert!(stderr.contains(expected) && stderr.contains(&file), "{stderr}");
        assert!(!stderr.contains("0123456789"), "an error discloses a token: {stderr}");
    }
    let output = run_to_end(&["--token-file", "/no/such/file"]).await;
    assert_eq!(output.status.code(), Some(125));
    let expected = "exec-server: cannot read the token file /no/such/file: No such file or directory\n";
    assert_eq!(String::from_utf8(output.stderr).unwrap(), expected);
}

#[tokio::test]
async fn a_token_file_that_is_too_large_or_no_regular_file_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let too_large = format!("# comment\n{FIRST}\n").repeat((1 << 20) / FIRST.len());
    let fifo = directory.path().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    for (file, expected) in [
        (token_file(directory.path(), &too_large), "file is too large to read: limit is 1048576 bytes"),
        (fifo.to_str().unwrap().to_owned(), "is not a file"),
        ("/dev/zero".to_owned(), "is not a file"),
    ] {
        let output = run_to_end(&["--token-file", &file]).await;
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(125), "{stderr}");
        assert!(stderr.contains(&format!("cannot read the token file {file}: ")), "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
    }
}
