//! Clients that read slowly or not at all: which of them the server serves, and which it disconnects.

use std::time::Duration;

use testkit::{Client, SlowReader, TestServer, eventually, eventually_async, json};
use transport::Framing;

use crate::metric;

/// Name of the metric with the number of open WebSocket connections.
const CONNECTIONS: &str = "exec_server_connections_active{transport=\"websocket\"}";

/// Name of the metric that counts the `fs/readFile` requests that have succeeded.
const COMPLETED_READS: &str = "exec_server_requests_total{method=\"fs/readFile\",result=\"success\"}";

/// Pause of a slow client after each 64 KiB, which gives about 1.6 MB a second. At this speed a full buffer of the
/// kernel takes longer to drain than the pong deadline. The server sees the buffer drain in steps, each of which
/// takes less than half of the deadline.
const PAUSE: Duration = Duration::from_millis(40);
/// Flags of a server that pings often and waits for a pong for 1.3 s.
const SHORT_DEADLINES: &[&str] = &["--ping-interval", "200ms", "--pong-deadline", "1300ms"];

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

/// Requests the file 24 times and reads no answer. The answers together must be larger than the buffers of both
/// sockets.
async fn request_too_much(client: &mut Client, file: &ZeroFile) {
    for _ in 0..24 {
        client.send("fs/readFile", file.params()).await;
    }
}

/// Waits until the server has no connection.
async fn wait_until_disconnected(server: &TestServer) {
    eventually_async("the client is disconnected", async || (metric(server, CONNECTIONS).await == 0).then_some(()))
        .await;
}

#[tokio::test]
async fn a_peer_that_stops_reading_is_disconnected_while_answers_wait() {
    // The first ping is due after 1 s. By then the answers block the connection.
    let server = TestServer::with_args(&["--ping-interval", "1s", "--pong-deadline", "500ms"]).await;
    let file = ZeroFile::new(1 << 20);
    let mut stalled = server.client().await;
    request_too_much(&mut stalled, &file).await;
    wait_until_disconnected(&server).await;
}

#[tokio::test]
async fn a_peer_that_stops_reading_inside_an_answer_is_disconnected() {
    let server = TestServer::with_args(&["--ping-interval", "1s", "--pong-deadline", "500ms"]).await;
    // The answer is larger than the buffers of both sockets. The ping waits behind the answer, so the client never
    // gets it.
    let file = ZeroFile::new(24 << 20);
    let mut stalled = server.client().await;
    stalled.send("fs/readFile", file.params()).await;
    wait_until_disconnected(&server).await;
}

#[tokio::test]
async fn a_peer_that_sends_and_does_not_read_is_disconnected() {
    let server = TestServer::with_args(&["--ping-interval", "1s", "--pong-deadline", "500ms"]).await;
    let file = ZeroFile::new(1 << 20);
    let mut talking = server.client().await;
    request_too_much(&mut talking, &file).await;
    let mut ping = Vec::new();
    Framing::WebSocketClient.ping(&mut ping, b"are you there?");
    eventually_async("the client is disconnected", async || {
        // The write fails when the connection is gone.
        let _result = talking.send_bytes(&ping).await;
        (metric(&server, CONNECTIONS).await == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn requests_behind_unread_answers_are_carried_out_when_the_client_leaves() {
    let server = TestServer::start().await;
    let (file, folder) = (ZeroFile::new(1 << 20), tempfile::tempdir().unwrap());
    let mut leaving = server.client().await;
    request_too_much(&mut leaving, &file).await;
    // The answers do not fit into the buffers. So the server reads the requests below, but does not handle them while
    // the client reads no answer.
    eventually_async("the server has made six answers", async || {
        (metric(&server, COMPLETED_READS).await >= 6).then_some(())
    })
    .await;
    let names: Vec<_> = (0..200).map(|number| folder.path().join(number.to_string())).collect();
    for name in &names {
        let path = format!("file://{}", name.display());
        leaving.send("fs/createDirectory", json!({"path": path, "recursive": false})).await;
    }
    let mut close_frame = Vec::new();
    Framing::WebSocketClient.close(&mut close_frame, 1000, "");
    leaving.send_bytes(&close_frame).await.unwrap();
    eventually("all requests are carried out", || names.iter().all(|name| name.exists()).then_some(())).await;
}

#[tokio::test]
async fn a_slow_but_steady_reader_gets_all_its_answers() {
    let server = TestServer::with_args(SHORT_DEADLINES).await;
    let file = ZeroFile::new(256 << 10);
    let mut slow = SlowReader::client(&server, PAUSE).await;
    let mut requests = Vec::new();
    for _ in 0..16 {
        requests.push(slow.send("fs/readFile", file.params()).await);
    }
    for id in requests {
        let answer = slow.answer(id).await;
        assert_eq!(answer["result"]["dataBase64"].as_str().unwrap().len(), (256_usize << 10).div_ceil(3) * 4);
    }
}

#[tokio::test]
async fn a_slow_but_steady_reader_gets_one_large_answer() {
    let server = TestServer::with_args(SHORT_DEADLINES).await;
    let file = ZeroFile::new(4 << 20);
    let mut slow = SlowReader::client(&server, PAUSE).await;
    let answer = slow.call("fs/readFile", file.params()).await;
    assert_eq!(answer["dataBase64"].as_str().unwrap().len(), (4_usize << 20).div_ceil(3) * 4);
    assert_eq!(slow.call("environment/status", json!({})).await, json!({"status": "ready"}));
}
