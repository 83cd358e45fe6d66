//! The Unix socket: its file, and the two things it speaks.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;

use testkit::{
    Client, Signal, TestServer, UPGRADE, Value, eventually_async, http_exchange, http_get, http_request, json,
    run_to_end,
};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use transport::{ConnectOptions, PeerLabel, upgrade_client};

struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> std::path::PathBuf {
        self.directory.path().join("exec.sock")
    }

    fn url(&self) -> String {
        format!("unix://{}", self.path().display())
    }

    async fn server(&self) -> TestServer {
        TestServer::with_args(&["--listen", &self.url()]).await
    }
}

#[tokio::test]
async fn the_socket_is_private_and_gone_at_the_end() {
    let place = Place::new();
    let mut server = place.server().await;
    assert_eq!(server.url(), place.url());
    let mode = std::fs::metadata(place.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut client = server.client().await;
    assert_eq!(client.run("p", &["echo", "hello"]).await.stdout, b"hello\n");
    server.signal(Signal::TERM);
    assert_eq!(server.wait().await, Some(0));
    assert!(!place.path().exists());
    assert_eq!(client.receive().await, None);
}

#[tokio::test]
async fn a_read_that_waits_is_answered_when_its_client_has_nothing_more_to_ask() {
    let place = Place::new();
    let _server = place.server().await;
    let (answers, mut requests) = UnixStream::connect(place.path()).await.unwrap().into_split();
    for request in [
        json!({"id": 1, "method": "initialize", "params": {"clientName": "c"}}),
        json!({"method": "initialized", "params": {}}),
        json!({"id": 2, "method": "process/start", "params": Client::start_params("p", &["sleep", "1000"])}),
        json!({"id": 3, "method": "process/read", "params": {"processId": "p", "waitMs": 600_000}}),
    ] {
        requests.write_all(format!("{request}\n").as_bytes()).await.unwrap();
    }
    drop(requests);
    let mut lines = BufReader::new(answers).lines();
    let mut last = String::new();
    while let Some(line) = lines.next_line().await.unwrap() {
        last = line;
    }
    let answer: Value = last.parse().unwrap();
    assert_eq!((&answer["id"], &answer["result"]["nextSeq"]), (&json!(3), &json!(1)), "{answer}");
}

#[tokio::test]
async fn a_socket_that_a_dead_server_left_is_replaced() {
    let place = Place::new();
    drop(UnixListener::bind(place.path()).unwrap());
    assert!(place.path().exists());
    let server = place.server().await;
    server.client().await;
    server.kill().await;
    assert!(place.path().exists(), "a killed server cannot clean up");
    let again = place.server().await;
    again.client().await;
}

#[tokio::test]
async fn a_live_socket_and_a_file_are_left_alone() {
    let place = Place::new();
    let server = place.server().await;
    let output = run_to_end(&["--listen", &place.url()]).await;
    assert_eq!(output.status.code(), Some(125));
    let expected = format!(
        "exec-server: cannot listen on {}: another server is listening there; stop it or choose another path\n",
        place.url()
    );
    assert_eq!(String::from_utf8(output.stderr).unwrap(), expected);
    server.client().await;

    let other = Place::new();
    std::fs::write(other.path(), "precious").unwrap();
    let output = run_to_end(&["--listen", &other.url()]).await;
    assert_eq!(output.status.code(), Some(125));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("the path exists and is not a socket; remove it or choose another path"), "{stderr}");
    assert_eq!(std::fs::read_to_string(other.path()).unwrap(), "precious");
}

#[tokio::test]
async fn http_and_websocket_are_served_on_it_too() {
    let place = Place::new();
    let _server = place.server().await;
    let mut stream = UnixStream::connect(place.path()).await.unwrap();
    assert_eq!(http_exchange(&mut stream, &http_request("/healthz", &[])).await.body, "ok");
    assert!(http_exchange(&mut stream, &http_request("/metrics", &[])).await.body.contains("exec_server_"));
    let origin = [UPGRADE, &[("Origin", "http://x")]].concat();
    assert_eq!(http_exchange(&mut stream, &http_request("/", &origin)).await.status, 403);

    let stream =
        upgrade_client(stream, "localhost", PeerLabel::new("unix"), ConnectOptions::default()).await.unwrap();
    let mut client = Client::over(stream);
    client.handshake(None).await;
    assert_eq!(client.run("p", &["echo", "hello"]).await.stdout, b"hello\n");
}

#[tokio::test]
async fn blank_lines_and_carriage_returns_are_nothing() {
    let place = Place::new();
    let server = place.server().await;
    let mut client = server.raw().await;
    client.send_bytes(b"\r\n\n  \t\n{\"id\":1,\"method\":\"nothing\"}\r\n").await.unwrap();
    assert_eq!(client.next().await["error"]["code"], -32601);
}

#[tokio::test]
async fn a_token_file_does_not_concern_it() {
    let place = Place::new();
    let tokens = place.directory.path().join("tokens");
    std::fs::write(&tokens, "a-token-that-is-long-enough").unwrap();
    let listen = ["--listen", &place.url(), "--token-file", tokens.to_str().unwrap()];
    let server = TestServer::with_args(&listen).await;
    assert_eq!(server.client().await.run("p", &["true"]).await.exit_code, 0);
    let mut stream = UnixStream::connect(place.path()).await.unwrap();
    assert_eq!(http_exchange(&mut stream, &http_request("/", UPGRADE)).await.status, 101);
}

/// A user of this test only.
const STRANGER: u32 = 1_800_000_000;

/// Far more than lines that the log gets of them.
const ATTEMPTS: usize = 100;

#[tokio::test]
async fn other_users_are_turned_away_counted_and_do_not_fill_the_log() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let place = Place::new();
    let log = place.directory.path().join("log");
    let stderr = std::fs::File::create(&log).unwrap();
    let args = ["--listen", &place.url(), "--listen", "ws://127.0.0.1:0"];
    let server = TestServer::with(&args, |command| command.stderr(stderr)).await;
    // As if the administrator had opened what the server has closed.
    let open_to_all = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    open_to_all(place.directory.path(), 0o755);
    open_to_all(&place.path(), 0o666);
    let script = format!("for (1..{ATTEMPTS}) {{ IO::Socket::UNIX->new(Peer => $ARGV[0]) or die $! }}");
    let mut stranger = tokio::process::Command::new("perl");
    stranger.args(["-MIO::Socket::UNIX", "-e", &script]).arg(place.path()).uid(STRANGER).gid(STRANGER);
    assert!(stranger.status().await.unwrap().success());

    let address = server.urls()[1].strip_prefix("ws://").unwrap();
    let counted = format!("exec_server_authentication_failures_total{{reason=\"other_user\"}} {ATTEMPTS}\n");
    eventually_async("all of them are counted", async || {
        http_get(address, "/metrics", &[]).await.body.contains(&counted).then_some(())
    })
    .await;
    let lines = std::fs::read_to_string(&log).unwrap();
    let lines = lines.matches(&format!("refused a connection from another user (uid {STRANGER})")).count();
    assert!((1..ATTEMPTS / 2).contains(&lines), "{lines} lines in the log");
}
