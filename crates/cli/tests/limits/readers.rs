//! Slow, stalled and dead readers: which of them are served, and which are disconnected.

use std::time::Duration;

use testkit::{Client, SlowReader, TestServer, eventually, eventually_async, json};
use transport::Framing;

use crate::metric;

const CONNECTIONS: &str = "exec_server_connections_active{transport=\"websocket\"}";

const READ: &str = "exec_server_requests_total{method=\"fs/readFile\",result=\"success\"}";

/// A pause after each 64 KiB: about 1.6 MB a second. At this speed the buffers of the kernel take longer to drain than the deadline, and
/// the steps in which the server sees them drain take less than half of it.
const PAUSE: Duration = Duration::from_millis(40);
const SLOW_PEERS: &[&str] = &["--ping-interval", "200ms", "--pong-deadline", "1300ms"];

/// A folder with one file of zeros.
struct ZeroFile(tempfile::TempDir);

impl ZeroFile {
    fn new(bytes: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("zeros"), vec![0; bytes]).unwrap();
        Self(folder)
    }

    fn params(&self) -> testkit::Value {
        json!({"path": format!("file://{}", self.0.path().join("zeros").display())})
    }
}

/// Requests more than the buffers of two sockets hold, and reads nothing.
async fn ask_for_too_much(client: &mut Client, file: &ZeroFile) {
    for _ in 0..24 {
        client.send("fs/readFile", file.params()).await;
    }
}

async fn is_given_up(server: &TestServer) {
    eventually_async("the connection is given up", async || (metric(server, CONNECTIONS).await == 0).then_some(()))
        .await;
}

#[tokio::test]
async fn a_peer_that_stops_reading_is_disconnected_while_answers_wait() {
    // The server decides to ping only when the answers already block the connection.
    let server = TestServer::with_args(&["--ping-interval", "1s", "--pong-deadline", "500ms"]).await;
    let file = ZeroFile::new(1 << 20);
    let mut stalled = server.client().await;
    ask_for_too_much(&mut stalled, &file).await;
    is_given_up(&server).await;
}

#[tokio::test]
async fn a_peer_that_stops_reading_inside_an_answer_is_disconnected() {
    let server = TestServer::with_args(&["--ping-interval", "1s", "--pong-deadline", "500ms"]).await;
    // More than the buffers of two sockets hold. The ping would come after the answer, which is never read.
    let file = ZeroFile::new(24 << 20);
    let mut stalled = server.client().await;
    stalled.send("fs/readFile", file.params()).await;
    is_given_up(&server).await;
}

#[tokio::test]
async fn a_peer_that_sends_and_does_not_read_is_disconnected() {
    let server = TestServer::with_args(&["--ping-interval", "1s", "--pong-deadline", "500ms"]).await;
    let file = ZeroFile::new(1 << 20);
    let mut talking = server.client().await;
    ask_for_too_much(&mut talking, &file).await;
    let mut ping = Vec::new();
    Framing::WebSocketClient.ping(&mut ping, b"are you there?");
    eventually_async("the connection is given up", async || {
        let _it_may_be_gone = talking.send_bytes(&ping).await;
        (metric(&server, CONNECTIONS).await == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn requests_behind_unread_answers_are_carried_out_when_the_client_leaves() {
    let server = TestServer::start().await;
    let (file, folder) = (ZeroFile::new(1 << 20), tempfile::tempdir().unwrap());
    let mut leaving = server.client().await;
    ask_for_too_much(&mut leaving, &file).await;
    // So many answers wait that further requests are parked.
    eventually_async("answers wait", async || (metric(&server, READ).await >= 6).then_some(())).await;
    let names: Vec<_> = (0..200).map(|number| folder.path().join(number.to_string())).collect();
    for name in &names {
        let path = format!("file://{}", name.display());
        leaving.send("fs/createDirectory", json!({"path": path, "recursive": false})).await;
    }
    let mut goodbye = Vec::new();
    Framing::WebSocketClient.close(&mut goodbye, 1000, "");
    leaving.send_bytes(&goodbye).await.unwrap();
    eventually("all requests are carried out", || names.iter().all(|name| name.exists()).then_some(())).await;
}

#[tokio::test]
async fn a_slow_but_steady_reader_gets_all_its_answers() {
    let server = TestServer::with_args(SLOW_PEERS).await;
    let file = ZeroFile::new(256 << 10);
    let mut slow = SlowReader::client(&server, PAUSE).await;
    let mut asked = Vec::new();
    for _ in 0..16 {
        asked.push(slow.send("fs/readFile", file.params()).await);
    }
    for id in asked {
        let answer = slow.answer(id).await;
        assert_eq!(answer["result"]["dataBase64"].as_str().unwrap().len(), (256_usize << 10).div_ceil(3) * 4);
    }
}

#[tokio::test]
async fn a_slow_but_steady_reader_gets_one_large_answer() {
    let server = TestServer::with_args(SLOW_PEERS).await;
    let file = ZeroFile::new(4 << 20);
    let mut slow = SlowReader::client(&server, PAUSE).await;
    let answer = slow.call("fs/readFile", file.params()).await;
    assert_eq!(answer["dataBase64"].as_str().unwrap().len(), (4_usize << 20).div_ceil(3) * 4);
    assert_eq!(slow.call("environment/status", json!({})).await, json!({"status": "ready"}));
}
