//! Limits for times: waits, lifetimes, deadlines and grace periods.

use std::time::{Duration, Instant};

use testkit::{Client, CuttingProxy, Signal, TestServer, eventually, eventually_async, json, process_state};

use transport::{ConnectOptions, Framing, ReadEvent};

use crate::metric;

#[tokio::test]
async fn a_read_waits_no_longer_than_max_wait() {
    let server = TestServer::with_args(&["--max-wait", "200ms"]).await;
    let mut client = server.client().await;
    client.start("p", &["sleep", "1000"]).await;
    let start = Instant::now();
    let page = client.call("process/read", json!({"processId": "p", "waitMs": u64::MAX})).await;
    assert_eq!((&page["chunks"], &page["exited"]), (&json!([]), &json!(false)));
    assert!(start.elapsed() >= Duration::from_millis(200));
}

#[tokio::test]
async fn a_session_and_its_processes_end_after_the_ttl() {
    let server = TestServer::with_args(&["--session-ttl", "300ms"]).await;
    let mut client = server.client().await;
    let session = client.session.clone();
    client.start("p", &["sleep", "1000"]).await;
    let pid = client.processes().await[0]["pid"].as_u64().unwrap() as u32;
    drop(client);
    let mut client = server.resume(&session).await;
    assert!(process_state(pid).is_some(), "the process ended within the ttl");
    assert_eq!(client.processes().await[0]["state"], "running");
    drop(client);
    eventually("the process is gone", || process_state(pid).is_none().then_some(())).await;
    let mut late = server.connect_without_handshake().await;
    let error = late.call_error("initialize", json!({"clientName": "late", "resumeSessionId": session})).await;
    assert_eq!(error, json!({"code": -32600, "message": format!("unknown session id {session}")}));
}

#[tokio::test]
async fn a_quiet_peer_is_pinged_and_disconnected_if_it_does_not_answer() {
    let server = TestServer::with_args(&["--ping-interval", "100ms", "--pong-deadline", "300ms"]).await;
    let proxy = CuttingProxy::start(server.address()).await;
    let mut client = Client::connect(&proxy.url()).await;
    client.handshake(None).await;
    let session = client.session.clone();
    client.start("p", &["sleep", "1000"]).await;
    // A client that answers stays connected, however long it is quiet.
    let page = client.call("process/read", json!({"processId": "p", "waitMs": 2000})).await;
    assert_eq!(page["exited"], false);

    proxy.freeze();
    let connections = "exec_server_connections_active{transport=\"websocket\"}";
    eventually_async("the silent connection is closed", async || {
        (metric(&server, connections).await == 0).then_some(())
    })
    .await;
    let mut client = server.resume(&session).await;
    assert_eq!(client.processes().await[0]["state"], "running", "the session is detached, not ended");
}

#[tokio::test]
async fn the_ping_interval_does_not_depend_on_the_deadline() {
    let server = TestServer::with_args(&["--ping-interval", "500ms", "--pong-deadline", "400ms"]).await;
    let mut stream = transport::connect(server.url(), ConnectOptions::default()).await.unwrap();
    let mut pings = Vec::new();
    while pings.len() < 6 {
        if let ReadEvent::Ping(payload) = stream.reader.next().await.unwrap() {
            pings.push(Instant::now());
            let mut pong = Vec::new();
            stream.framing.pong(&mut pong, &payload);
            stream.writer.write_all(&pong).await.unwrap();
        }
    }
    // On a loaded machine some intervals are longer, but not all of them.
    let shortest = pings.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap();
    assert!(shortest < Duration::from_millis(700), "the shortest interval between two pings is {shortest:?}");
}

#[tokio::test]
async fn a_peer_in_the_middle_of_a_long_message_is_not_disconnected() {
    let server = TestServer::with_args(&["--ping-interval", "50ms", "--pong-deadline", "250ms"]).await;
    let mut client = server.client().await;
    let text = json!({"id": 77, "method": "environment/status", "padding": "x".repeat(40_000)}).to_string();
    let mut message = Vec::new();
    Framing::WebSocketClient.frame(&mut message, text.len(), |out| out.extend_from_slice(text.as_bytes()));
    for piece in message.chunks(1000) {
        client.send_bytes(piece).await.unwrap();
        // sleep: the test imitates a slow line, over which the whole message takes four times the deadline
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    assert_eq!(client.answer(77).await["result"], json!({"status": "ready"}));
}

#[tokio::test]
async fn a_resume_replaces_a_silent_connection_when_takeover_after_has_passed_but_not_a_live_one() {
    let server = TestServer::with_args(&["--takeover-after", "200ms"]).await;
    let proxy = CuttingProxy::start(server.address()).await;
    let mut old = Client::connect(&proxy.url()).await;
    old.handshake(None).await;
    let session = old.session.clone();
    old.start("p", &["sleep", "1000"]).await;

    let mut new = server.connect_without_handshake().await;
    let resume = json!({"clientName": "new", "resumeSessionId": session});
    let (refused, _) = tokio::join!(
        new.call_error("initialize", resume),
        // The old client answers pings only while it waits for an answer, as it does here.
        old.call("process/read", json!({"processId": "p", "waitMs": 1500})),
    );
    let message = format!("session {session} is already attached to another connection");
    assert_eq!(refused, json!({"code": -32010, "message": message}));

    proxy.freeze();
    let start = Instant::now();
    new.handshake(Some(&session)).await;
    assert!(start.elapsed() >= Duration::from_millis(200));
    assert_eq!(new.processes().await[0]["state"], "running");
}

#[tokio::test]
async fn processes_that_ignore_sigterm_are_killed_after_the_grace_period() {
    let mut server = TestServer::with_args(&["--shutdown-grace", "300ms"]).await;
    let mut client = server.client().await;
    client.start("p", &["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done"]).await;
    client.event("p").await;
    let signalled = Instant::now();
    server.signal(Signal::TERM);
    let outcome = client.outcome("p").await;
    assert_eq!(outcome.exit_code, 128 + 9);
    assert!(signalled.elapsed() >= Duration::from_millis(300));
    assert_eq!(server.wait().await, Some(0));
}
