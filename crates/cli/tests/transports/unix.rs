//! Tests the Unix socket: its file, the users that may connect, and the two protocols that it serves, JSON lines and
//! HTTP with WebSocket.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;

use testkit::{
    Client, Signal, TestServer, UPGRADE_HEADERS, Value, eventually_async, http_exchange, http_get, http_request,
    json, run_to_end,
};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use transport::{ConnectOptions, PeerLabel, upgrade_client};

/// A folder for the socket of a server.
struct SocketFolder {
    directory: tempfile::TempDir,
}

impl SocketFolder {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn socket_path(&self) -> std::path::PathBuf {
        self.directory.path().join("exec.sock")
    }

    fn socket_url(&self) -> String {
        format!("unix://{}", self.socket_path().display())
    }

    /// Starts a server that listens on the socket.
    async fn start_server(&self) -> TestServer {
        TestServer::with_args(&["--listen", &self.socket_url()]).await
    }
}

#[tokio::test]
async fn the_socket_is_private_and_removed_at_the_end() {
    let folder = SocketFolder::new();
    let mut server = folder.start_server().await;
    assert_eq!(server.url(), folder.socket_url());
    let mode = std::fs::metadata(folder.socket_path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut client = server.client().await;
    assert_eq!(client.run("p", &["echo", "hello"]).await.stdout, b"hello\n");
    server.signal(Signal::TERM);
    assert_eq!(server.wait().await, Some(0));
    assert!(!folder.socket_path().exists());
    assert_eq!(client.receive().await, None);
}

#[tokio::test]
async fn a_read_that_waits_is_answered_when_the_client_closes_its_write_side() {
    let folder = SocketFolder::new();
    let _server = folder.start_server().await;
    let (answers, mut requests) = UnixStream::connect(folder.socket_path()).await.unwrap().into_split();
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
async fn a_socket_of_a_dead_server_is_replaced() {
    let folder = SocketFolder::new();
    drop(UnixListener::bind(folder.socket_path()).unwrap());
    assert!(folder.socket_path().exists());
    let server = folder.start_server().await;
    server.client().await;
    server.kill().await;
    assert!(folder.socket_path().exists(), "a killed server cannot clean up");
    let next_server = folder.start_server().await;
    next_server.client().await;
}

#[tokio::test]
async fn a_socket_in_use_and_a_regular_file_are_not_replaced() {
    let folder = SocketFolder::new();
    let server = folder.start_server().await;
    let output = run_to_end(&["--listen", &folder.socket_url()]).await;
    assert_eq!(output.status.code(), Some(125));
    let expected = format!(
        "exec-server: cannot listen on {}: another server is listening there; stop it or choose another path\n",
        folder.socket_url()
    );
    assert_eq!(String::from_utf8(output.stderr).unwrap(), expected);
    server.client().await;

    let other = SocketFolder::new();
    std::fs::write(other.socket_path(), "precious").unwrap();
    let output = run_to_end(&["--listen", &other.socket_url()]).await;
    assert_eq!(output.status.code(), Some(125));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("the path exists and is not a socket; remove it or choose another path"), "{stderr}");
    assert_eq!(std::fs::read_to_string(other.socket_path()).unwrap(), "precious");
}

#[tokio::test]
async fn http_and_websocket_are_served_on_a_unix_socket_too() {
    let folder = SocketFolder::new();
    let _server = folder.start_server().await;
    let mut stream = UnixStream::connect(folder.socket_path()).await.unwrap();
    assert_eq!(http_exchange(&mut stream, &http_request("/healthz", &[])).await.body, "ok");
    assert!(http_exchange(&mut stream, &http_request("/metrics", &[])).await.body.contains("exec_server_"));
    let origin = [UPGRADE_HEADERS, &[("Origin", "http://x")]].concat();
    assert_eq!(http_exchange(&mut stream, &http_request("/", &origin)).await.status, 403);

    let stream =
        upgrade_client(stream, "localhost", PeerLabel::new("unix"), ConnectOptions::default()).await.unwrap();
    let mut client = Client::from_stream(stream);
    client.handshake(None).await;
    assert_eq!(client.run("p", &["echo", "hello"]).await.stdout, b"hello\n");
}

#[tokio::test]
async fn blank_lines_and_carriage_returns_are_ignored() {
    let folder = SocketFolder::new();
    let server = folder.start_server().await;
    let mut client = server.connect_without_handshake().await;
    client.send_bytes(b"\r\n\n  \t\n{\"id\":1,\"method\":\"nothing\"}\r\n").await.unwrap();
    assert_eq!(client.next().await["error"]["code"], -32601);
}

#[tokio::test]
async fn a_unix_socket_needs_no_token() {
    let folder = SocketFolder::new();
    let tokens = folder.directory.path().join("tokens");
    std::fs::write(&tokens, "a-token-that-is-long-enough").unwrap();
    let listen = ["--listen", &folder.socket_url(), "--token-file", tokens.to_str().unwrap()];
    let server = TestServer::with_args(&listen).await;
    assert_eq!(server.client().await.run("p", &["true"]).await.exit_code, 0);
    let mut stream = UnixStream::connect(folder.socket_path()).await.unwrap();
    assert_eq!(http_exchange(&mut stream, &http_request("/", UPGRADE_HEADERS)).await.status, 101);
}

/// A user id that no real user has, and that is not the user id of the server.
const OTHER_USER: u32 = 1_800_000_000;

/// Number of refused connections. The server does not log each of so many refusals.
const ATTEMPTS: usize = 100;

#[tokio::test]
async fn other_users_are_refused_and_counted_and_do_not_fill_the_log() {
    // Only root can run a client as another user.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = SocketFolder::new();
    let log = folder.directory.path().join("log");
    let stderr = std::fs::File::create(&log).unwrap();
    let args = ["--listen", &folder.socket_url(), "--listen", "ws://127.0.0.1:0"];
    let server = TestServer::start_with(&args, |command| command.stderr(stderr)).await;
    // An administrator could change the permissions in this way after the server has set them.
    let set_mode = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    set_mode(folder.directory.path(), 0o755);
    set_mode(&folder.socket_path(), 0o666);
    let script = format!("for (1..{ATTEMPTS}) {{ IO::Socket::UNIX->new(Peer => $ARGV[0]) or die $! }}");
    let mut other_user = tokio::process::Command::new("perl");
    other_user.args(["-MIO::Socket::UNIX", "-e", &script]).arg(folder.socket_path()).uid(OTHER_USER).gid(OTHER_USER);
    assert!(other_user.status().await.unwrap().success());

    let address = server.urls()[1].strip_prefix("ws://").unwrap();
    let counted = format!("exec_server_authentication_failures_total{{reason=\"other_user\"}} {ATTEMPTS}\n");
    eventually_async("all refusals are counted", async || {
        http_get(address, "/metrics", &[]).await.body.contains(&counted).then_some(())
    })
    .await;
    let lines = std::fs::read_to_string(&log).unwrap();
    let lines = lines.matches(&format!("refused a connection from another user (uid {OTHER_USER})")).count();
    assert!((1..ATTEMPTS / 2).contains(&lines), "{lines} lines in the log");
}
