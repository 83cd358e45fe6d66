//! Connections that have not authenticated yet.

use std::time::Duration;

use testkit::{Client, TestServer, eventually, eventually_async, http_get};
use tokio::net::TcpStream;
use tokio::time::timeout;
use transport::ConnectOptions;

const TOKEN: &str = "token-0123456789";

/// Shorter than the deadline of a handshake, so that no silent connection ends by itself.
const WELL_BEFORE_THE_DEADLINE: Duration = Duration::from_secs(5);

struct Guarded {
    server: TestServer,
    _folder: tempfile::TempDir,
}

impl Guarded {
    async fn new(limits: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tokens");
        std::fs::write(&file, TOKEN).unwrap();
        let args = [&["--token-file", file.to_str().unwrap()], limits].concat();
        Self { server: TestServer::with_args(&args).await, _folder: folder }
    }

    async fn silent_sockets(&self, count: usize) -> Vec<TcpStream> {
        let mut sockets = Vec::new();
        for _ in 0..count {
            sockets.push(TcpStream::connect(self.server.address()).await.unwrap());
        }
        sockets
    }

    /// A client that has sent its token and nothing else.
    async fn connect(&self) -> Client {
        let options = ConnectOptions { bearer_token: Some(TOKEN.to_owned()), ..Default::default() };
        Client::connect_with(self.server.url(), options).await.unwrap()
    }

    async fn until_clients_wait(&self, count: usize) {
        let header = ("authorization", format!("Bearer {TOKEN}"));
        let line = format!("exec_server_connections_waiting {count}");
        eventually_async("the clients wait", async || {
            let metrics = http_get(self.server.address(), "/metrics", &[(header.0, &header.1)]).await.body;
            metrics.lines().any(|shown| shown == line).then_some(())
        })
        .await;
    }

    async fn client(&self) -> Client {
        let mut client = self.connect().await;
        client.handshake(None).await;
        client
    }
}

#[tokio::test]
async fn silent_connections_do_not_keep_out_a_client_with_a_token() {
    let guarded = Guarded::new(&["--max-connections", "4"]).await;
    let _silent = guarded.silent_sockets(20).await;
    let client = timeout(WELL_BEFORE_THE_DEADLINE, guarded.client()).await;
    client.expect("the client is kept out").run("p", &["true"]).await;
}

#[tokio::test]
async fn the_oldest_silent_connections_are_closed_to_make_room() {
    let guarded = Guarded::new(&["--max-handshakes", "4"]).await;
    let silent = guarded.silent_sockets(20).await;
    let mut client = timeout(WELL_BEFORE_THE_DEADLINE, guarded.client()).await.expect("the client is kept out");
    eventually("the oldest were closed", || silent[..16].iter().all(is_over).then_some(())).await;
    assert_eq!(client.run("p", &["true"]).await.exit_code, 0);
}

#[tokio::test]
async fn clients_that_wait_for_a_connection_delay_neither_http_pages_nor_refusals() {
    let guarded = Guarded::new(&["--max-connections", "1", "--max-handshakes", "8"]).await;
    let served = guarded.client().await;
    let mut waiting = Vec::new();
    for count in 1..=8 {
        waiting.push(guarded.connect().await);
        guarded.until_clients_wait(count).await;
    }
    let get = http_get(guarded.server.address(), "/readyz", &[]);
    let page = timeout(WELL_BEFORE_THE_DEADLINE, get).await.expect("no page while clients wait");
    assert_eq!(page.status, 200);

    let mut refused = guarded.connect().await;
    assert_eq!(refused.drain().await, Vec::<testkit::Value>::new());
    let reason = refused.close_reason.expect("the connection ended without a reason");
    assert_eq!(reason.code, 1013);
    assert_eq!(
        reason.reason,
        "the server has its limit of connections (--max-connections), and too many wait (--max-handshakes)"
    );

    drop(served);
    let mut next = waiting.remove(0);
    timeout(WELL_BEFORE_THE_DEADLINE, next.handshake(None)).await.expect("the first client that waits is served");
    assert_eq!(next.run("p", &["true"]).await.exit_code, 0);
}

/// Whether the server has closed a connection.
fn is_over(socket: &TcpStream) -> bool {
    match socket.try_read(&mut [0]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    }
}
