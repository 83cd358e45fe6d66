//! Clients that disappear without a close message.

use testkit::{CuttingProxy, TestServer, eventually_async, http_get, json};

use crate::other_client::OtherClient;

/// Flags of a server that soon notices that a client has vanished.
const SHORT_DEADLINES: &[&str] = &["--ping-interval", "300ms", "--pong-deadline", "1s", "--session-ttl", "200ms"];

/// The value of a metric. `name` includes the labels. Empty if there is no such metric.
async fn metric(server: &TestServer, name: &str) -> String {
    let metrics = http_get(server.address(), "/metrics", &[]).await.body;
    metrics.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim().to_owned()
}

#[tokio::test]
async fn a_vanished_client_is_noticed_and_its_processes_end() {
    let server = TestServer::with_args(SHORT_DEADLINES).await;
    let mut other_client = OtherClient::connect(&server).await;
    let proxy = CuttingProxy::start(server.address()).await;
    let mut client = testkit::Client::connect(&proxy.url()).await;
    client.handshake(None).await;
    client.start("quiet", &["sleep", "1000"]).await;
    client.start("loud", &["cat", "/dev/zero"]).await;
    // The proxy forwards nothing any more and closes nothing.
    proxy.freeze();
    other_client.assert_served().await;
    // The other client answers pings only while it reads, so it runs a command in each check.
    eventually_async("the processes of the vanished client have ended", async || {
        other_client.assert_served().await;
        (metric(&server, "exec_server_processes_active").await == "0").then_some(())
    })
    .await;
    assert_eq!(metric(&server, "exec_server_connections_active{transport=\"websocket\"}").await, "1");
    other_client.assert_served_and_memory_freed().await;
}

#[tokio::test]
async fn a_client_that_vanishes_inside_a_message_leaves_nothing_behind() {
    let server = TestServer::with_args(&["--session-ttl", "0s"]).await;
    let other_client = OtherClient::connect(&server).await;
    for _ in 0..5 {
        let mut client = server.client().await;
        let header = [&[0x81, 0xff][..], &(60u64 << 20).to_be_bytes(), &[0, 0, 0, 0]].concat();
        client.send_bytes(&header).await.unwrap();
        for _ in 0..50 {
            client.send_bytes(&[b' '; 1 << 20]).await.unwrap();
        }
        drop(client);
    }
    other_client.assert_served_and_memory_freed().await;
}

#[tokio::test]
async fn a_thousand_short_connections_leave_nothing_behind() {
    let server = TestServer::with_args(&["--session-ttl", "0s"]).await;
    let mut other_client = OtherClient::connect(&server).await;
    for round in 0..1000 {
        let mut client = server.connect_without_handshake().await;
        if round % 2 == 0 {
            client.send("initialize", json!({"clientName": "hasty"})).await;
        }
        if round % 100 == 0 {
            other_client.assert_served().await;
        }
    }
    eventually_async("every connection but that of the other client is gone", async || {
        (metric(&server, "exec_server_connections_active{transport=\"websocket\"}").await == "1").then_some(())
    })
    .await;
    other_client.assert_served_and_memory_freed().await;
}
