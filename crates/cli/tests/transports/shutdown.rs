//! The shutdown of a server after SIGTERM or Ctrl-C: processes can clean up, clients get a close reason, and no
//! process is left.

use std::time::{Duration, Instant};

use testkit::{Client, Signal, TestServer, descendants, eventually, eventually_async, http_get, is_alive, json};

/// A script that writes a file when it gets SIGTERM, and then exits.
fn script_with_cleanup(file: &std::path::Path) -> String {
    format!(
        "trap 'echo cleaned > {}; echo bye; exit 4' TERM; echo ready; while :; do sleep 0.1; done",
        file.display()
    )
}

/// Sends a signal to a server with two clients, and checks all steps of the shutdown.
async fn assert_orderly_shutdown(signal: Signal) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("cleaned");
    let mut server = TestServer::start().await;
    let (mut first, mut second) = (server.client().await, server.client().await);
    first.start("tidy", &["sh", "-c", &script_with_cleanup(&file)]).await;
    first.event("tidy").await;
    second.start("plain", &["sleep", "1000"]).await;
    let children = descendants(server.pid());

    server.signal(signal);
    let outcome = first.outcome("tidy").await;
    assert_eq!((outcome.stdout.as_slice(), outcome.exit_code), (&b"bye\n"[..], 4));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "cleaned\n");
    assert_eq!(second.outcome("plain").await.exit_code, 128 + 15);
    for mut client in [first, second] {
        assert_eq!(client.drain().await, Vec::<testkit::Value>::new());
        let reason = client.close_reason.unwrap();
        assert_eq!((reason.code, reason.reason.as_str()), (1001, "server is shutting down"));
    }
    assert_eq!(server.wait().await, Some(0));
    eventually("no process is left", || (!children.iter().copied().any(is_alive)).then_some(())).await;
}

#[tokio::test]
async fn sigterm_causes_an_orderly_shutdown() {
    assert_orderly_shutdown(Signal::TERM).await;
}

#[tokio::test]
async fn ctrl_c_causes_an_orderly_shutdown() {
    assert_orderly_shutdown(Signal::INT).await;
}

#[tokio::test]
async fn an_idle_server_ends_at_once() {
    let mut server = TestServer::start().await;
    let _idle = server.client().await;
    let signalled = Instant::now();
    server.signal(Signal::TERM);
    assert_eq!(server.wait().await, Some(0));
    assert!(signalled.elapsed() < Duration::from_secs(3), "the shutdown took {:?}", signalled.elapsed());
}

#[tokio::test]
async fn a_second_signal_ends_the_grace_period() {
    let mut server = TestServer::with_args(&["--shutdown-grace", "10m"]).await;
    let mut client = server.client().await;
    client.start("p", &["sh", "-c", "trap 'echo no' TERM; echo ready; while :; do sleep 0.1; done"]).await;
    client.event("p").await;
    let children = descendants(server.pid());
    server.signal(Signal::TERM);
    // The process prints `no`, so it has got SIGTERM. It does not exit.
    client.event("p").await;
    server.signal(Signal::TERM);
    assert_eq!(server.wait().await, Some(0));
    eventually("no process is left", || (!children.iter().copied().any(is_alive)).then_some(())).await;
}

#[tokio::test]
async fn during_the_shutdown_only_connected_clients_are_served_and_no_process_is_started() {
    let mut server = TestServer::with_args(&["--shutdown-grace", "10m"]).await;
    let mut client = server.client().await;
    let directory = tempfile::tempdir().unwrap();
    let go = directory.path().join("go");
    let script = format!(
        "trap 'echo asked; until [ -e {} ]; do sleep 0.01; done; exit 0' TERM; echo ready; while :; do sleep 0.1; done",
        go.display()
    );
    client.start("p", &["sh", "-c", &script]).await;
    client.event("p").await;
    server.signal(Signal::TERM);
    // The process has got SIGTERM, prints `asked`, and waits for the file `go`.
    client.event("p").await;
    assert!(tokio::net::TcpStream::connect(server.address()).await.is_err(), "the server no longer listens");
    // Clients that are connected are still served.
    assert_eq!(client.processes().await[0]["state"], "running");
    let refused = client.call_error("process/start", Client::start_params("late", &["true"])).await;
    assert_eq!(refused, json!({"code": -32600, "message": "server is shutting down"}));
    std::fs::write(&go, "").unwrap();
    assert_eq!(client.outcome("p").await.exit_code, 0);
    assert_eq!(server.wait().await, Some(0));
}

#[tokio::test]
async fn a_client_that_does_not_read_does_not_delay_the_shutdown() {
    let mut server = TestServer::with_args(&["--shutdown-grace", "100ms"]).await;
    let mut silent = server.client().await;
    silent.start("p", &["cat", "/dev/zero"]).await;
    let mut other = server.client().await;
    other.run("q", &["true"]).await;
    server.signal(Signal::TERM);
    let signalled = Instant::now();
    assert_eq!(server.wait().await, Some(0));
    assert!(signalled.elapsed() < Duration::from_secs(10), "the shutdown took {:?}", signalled.elapsed());
}

#[tokio::test]
async fn incomplete_http_requests_do_not_delay_the_shutdown() {
    let mut server = TestServer::start().await;
    let mut incomplete = tokio::net::TcpStream::connect(server.address()).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut incomplete, b"GET / HTT").await.unwrap();
    assert_eq!(http_get(server.address(), "/readyz", &[]).await.status, 200);
    let signalled = Instant::now();
    server.signal(Signal::TERM);
    assert_eq!(server.wait().await, Some(0));
    assert!(signalled.elapsed() < Duration::from_secs(3), "the shutdown took {:?}", signalled.elapsed());
}

#[tokio::test]
async fn the_processes_of_a_session_whose_client_is_gone_end_too() {
    let mut server = TestServer::start().await;
    let mut client: Client = server.client().await;
    client.start("p", &["sleep", "1000"]).await;
    let children = descendants(server.pid());
    drop(client);
    server.signal(Signal::TERM);
    assert_eq!(server.wait().await, Some(0));
    eventually("no process is left", || (!children.iter().copied().any(is_alive)).then_some(())).await;
}

#[tokio::test]
async fn paused_events_are_sent_before_the_close() {
    let mut server = TestServer::with_args(&["--retain-bytes", "64KiB", "--shutdown-grace", "100ms"]).await;
    let mut client = server.client().await;
    let mut params = Client::start_params("p", &["seq", "1", "300000"]);
    params["paused"] = true.into();
    client.call("process/start", params).await;
    eventually_async("the retained output is full", async || {
        let list = client.processes().await;
        (list[0]["outputBytes"] == 64 << 10).then_some(())
    })
    .await;
    server.signal(Signal::TERM);
    let outcome = client.outcome("p").await;
    let numbers: String = (1..=300_000).map(|number| format!("{number}\n")).collect();
    assert!(numbers.as_bytes().starts_with(&outcome.stdout));
    assert!(
        outcome.stdout.len() > 64 << 10,
        "output that was in the pipe is missing: {} bytes",
        outcome.stdout.len()
    );
    assert_eq!((outcome.exit_code, outcome.seqs[0]), (128 + 15, 1));
    assert!(
        outcome.seqs.iter().copied().eq(1..=outcome.seqs.len() as u64),
        "not each sequence number once: {:?}",
        outcome.seqs
    );
    assert_eq!(client.drain().await, Vec::<testkit::Value>::new());
    assert_eq!(client.close_reason.unwrap().code, 1001);
    assert_eq!(server.wait().await, Some(0));
}

#[tokio::test]
async fn a_process_whose_events_are_paused_can_clean_up_at_the_shutdown() {
    let mut server = TestServer::with_args(&["--retain-bytes", "64KiB", "--shutdown-grace", "60s"]).await;
    let mut client = server.client().await;
    let script = "trap 'echo bye; exit 7' TERM; seq 1 300000; while :; do sleep 0.01; done";
    let mut params = Client::start_params("p", &["sh", "-c", script]);
    params["paused"] = true.into();
    client.call("process/start", params).await;
    eventually_async("the retained output is full", async || {
        let list = client.processes().await;
        (list[0]["outputBytes"] == 64 << 10).then_some(())
    })
    .await;
    server.signal(Signal::TERM);
    let outcome = client.outcome("p").await;
    assert_eq!(outcome.exit_code, 7);
    assert!(outcome.stdout.ends_with(b"bye\n"));
    client.drain().await;
    assert_eq!(server.wait().await, Some(0));
}

#[tokio::test]
async fn a_pause_that_a_client_requests_during_the_shutdown_delays_no_events() {
    // The retained output is larger than the socket buffers of server and client together, so some of it is not sent
    // yet when the request for the pause comes.
    let mut server = TestServer::with_args(&["--retain-bytes", "16MiB", "--shutdown-grace", "100ms"]).await;
    let mut client = server.client().await;
    let mut params = Client::start_params("p", &["cat", "/dev/zero"]);
    params["paused"] = true.into();
    client.call("process/start", params).await;
    eventually_async("the retained output is full", async || {
        let list = client.processes().await;
        (list[0]["outputBytes"] == 16 << 20).then_some(())
    })
    .await;
    server.signal(Signal::TERM);
    assert_eq!(client.event("p").await["params"]["seq"], 1);
    client.send("process/flow", json!({"processId": "p", "paused": true})).await;
    let outcome = client.outcome("p").await;
    assert_eq!(outcome.exit_code, 128 + 15);
    assert!(
        outcome.seqs.iter().copied().eq(2..2 + outcome.seqs.len() as u64),
        "not each sequence number once: {:?}",
        outcome.seqs
    );
    assert!(outcome.stdout.len() > 15 << 20, "{} bytes", outcome.stdout.len());
    assert_eq!(server.wait().await, Some(0));
}
