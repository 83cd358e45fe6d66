//! Limits for connections that have not sent a token yet, and for clients that wait until another connection ends.

use std::time::Duration;

use testkit::{Client, TestServer, eventually, eventually_async, http_get, json};
use tokio::net::TcpStream;
use tokio::time::timeout;
use transport::ConnectOptions;

const TOKEN: &str = "token-0123456789";

/// A timeout that is shorter than the deadline of a handshake, so that no silent connection ends by itself within
/// this time.
const WELL_BEFORE_THE_DEADLINE: Duration = Duration::from_secs(5);

/// A server that accepts only clients with a token.
struct ServerWithToken {
    server: TestServer,
    _folder: tempfile::TempDir,
}

impl ServerWithToken {
    async fn new(limits: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tokens");
        std::fs::write(&file, TOKEN).unwrap();
        let args = [&["--token-file", file.to_str().unwrap()], limits].concat();
        Self { server: TestServer::with_args(&args).await, _folder: folder }
    }

    /// TCP connections over which nothing is sent.
    async fn silent_sockets(&self, count: usize) -> Vec<TcpStream> {
        let mut sockets = Vec::new();
        for _ in 0..count {
            sockets.push(TcpStream::connect(self.server.address()).await.unwrap());
        }
        sockets
    }

    /// A client that has sent its token, but no message.
    async fn connect(&self) -> Client {
        let options = ConnectOptions { bearer_token: Some(TOKEN.to_owned()), ..Default::default() };
        Client::connect_with(self.server.url(), options).await.unwrap()
    }

    /// Waits until this many clients wait for another connection to end.
    async fn wait_for_waiting_clients(&self, count: usize) {
        let header = ("authorization", format!("Bearer {TOKEN}"));
        let line = format!("exec_server_connections_waiting {count}");
        eventually_async("the clients wait", async || {
            let metrics = http_get(self.server.address(), "/metrics", &[(header.0, &header.1)]).await.body;
            metrics.lines().any(|shown| shown == line).then_some(())
        })
        .await;
    }

    /// A client that has sent its token and has a session.
    async fn client(&self) -> Client {
        let mut client = self.connect().await;
        client.handshake(None).await;
        client
    }
}

#[tokio::test]
async fn silent_connections_do_not_keep_out_a_client_with_a_token() {
    let protected = ServerWithToken::new(&["--max-connections", "4"]).await;
    let _silent = protected.silent_sockets(20).await;
    let client = timeout(WELL_BEFORE_THE_DEADLINE, protected.client()).await;
    client.expect("the client is kept out").run("p", &["true"]).await;
}

#[tokio::test]
async fn the_oldest_silent_connections_are_closed_to_make_room() {
    let protected = ServerWithToken::new(&["--max-handshakes", "4"]).await;
    let silent = protected.silent_sockets(20).await;
    let mut client = timeout(WELL_BEFORE_THE_DEADLINE, protected.client()).await.expect("the client is kept out");
    eventually("the oldest connections are closed", || silent[..16].iter().all(is_closed).then_some(())).await;
    assert_eq!(client.run("p", &["true"]).await.exit_code, 0);
}

#[tokio::test]
async fn waiting_clients_delay_neither_http_pages_nor_refusals_and_are_served_later() {
    let protected = ServerWithToken::new(&["--max-connections", "1", "--max-handshakes", "8"]).await;
    let served = protected.client().await;
    let mut waiting = Vec::new();
    for count in 1..=8 {
        waiting.push(protected.connect().await);
        protected.wait_for_waiting_clients(count).await;
    }
    let get = http_get(protected.server.address(), "/readyz", &[]);
    let page = timeout(WELL_BEFORE_THE_DEADLINE, get).await.expect("the page waits for the clients");
    assert_eq!(page.status, 200);

    let mut refused = protected.connect().await;
    assert_eq!(refused.drain().await, Vec::<testkit::Value>::new());
    let reason = refused.close_reason.expect("the connection ended without a reason");
    assert_eq!(reason.code, 1013);
    assert_eq!(
        reason.reason,
        "all connections are taken (--max-connections), and too many clients wait (--max-handshakes)"
    );

    drop(served);
    let mut next = waiting.remove(0);
    timeout(WELL_BEFORE_THE_DEADLINE, next.handshake(None)).await.expect("the first waiting client is not served");
    assert_eq!(next.run("p", &["true"]).await.exit_code, 0);
}

#[tokio::test]
async fn a_client_that_leaves_while_it_waits_frees_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("unix://{}/exec.sock", folder.path().display());
    // Fewer places than all clients of this test together, but enough for two clients and the requests for metrics, which are handshakes too:
    // with a handshake too many, the server closes an older one, which could be that of a client.
    let limits =
        ["--max-connections", "1", "--max-handshakes", "4", "--listen", "ws://127.0.0.1:0", "--listen", &url];
    let protected = ServerWithToken::new(&limits).await;
    let served = protected.client().await;
    for round in 0..3 {
        let (mut over_tcp, mut over_unix) = (protected.connect().await, Client::connect(&url).await);
        if round > 0 {
            over_tcp.send("initialize", json!({"clientName": "waits"})).await;
        }
        // Over lines, the handshake ends with the first byte of the client.
        over_unix.send("initialize", json!({"clientName": "waits"})).await;
        protected.wait_for_waiting_clients(2).await;
        drop((over_tcp, over_unix));
        protected.wait_for_waiting_clients(0).await;
    }
    let mut waiting = protected.connect().await;
    // More than the server reads ahead while the client waits. Nothing of it is lost.
    let sent = waiting.send("initialize", json!({"clientName": "x".repeat(1 << 20)})).await;
    protected.wait_for_waiting_clients(1).await;
    drop(served);
    assert!(waiting.answer(sent).await["result"]["sessionId"].is_string());
}

/// Whether the server has closed a connection.
fn is_closed(socket: &TcpStream) -> bool {
    match socket.try_read(&mut [0]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    }
}
