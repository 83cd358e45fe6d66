//! When the server closes a connection, its last message to the client says why. This message reaches the client even
//! if much output is in flight.

use std::time::Duration;

use testkit::{Client, Signal, SlowReader, TestServer, Value, eventually_async, json};

/// Pause of a client after each read of at most 64 KiB. The client is so slow that megabytes are in flight, and that
/// its pongs come after the server has sent the close message.
const PAUSE: Duration = Duration::from_millis(5);

/// Ids of processes that write without end (loud processes).
const LOUD: [&str; 4] = ["loud-0", "loud-1", "loud-2", "loud-3"];

/// A slow client with one quiet process and the processes of [`LOUD`]. Each loud process has already written
/// something.
async fn loud_client(server: &TestServer) -> Client {
    let mut client = SlowReader::client(server, PAUSE).await;
    client.start("quiet", &["sleep", "1000"]).await;
    for process in LOUD {
        client.start(process, &["cat", "/dev/zero"]).await;
    }
    for process in LOUD {
        client.event(process).await;
    }
    client
}

/// Sorted ids of the processes that have closed.
fn closed_processes(events: &[Value]) -> Vec<&str> {
    let closed = events.iter().filter(|event| event["method"] == "process/closed");
    let mut names: Vec<&str> = closed.map(|event| event["params"]["processId"].as_str().unwrap()).collect();
    names.sort_unstable();
    names
}

#[tokio::test]
async fn a_shutdown_under_load_delivers_all_events_and_the_close_reason() {
    let mut server = TestServer::start().await;
    let mut client = loud_client(&server).await;
    server.signal(Signal::TERM);
    let events = client.drain().await;
    assert_eq!(closed_processes(&events), [LOUD.as_slice(), &["quiet"]].concat());
    let reason = client.close_reason.expect("the connection ended without a close message");
    assert_eq!((reason.code, reason.reason.as_str()), (1001, "server is shutting down"));
    assert_eq!(server.wait().await, Some(0));
}

#[tokio::test]
async fn a_connection_that_is_taken_over_under_load_gets_the_close_reason() {
    let server = TestServer::start().await;
    let mut first = loud_client(&server).await;
    let mut second = server.connect_without_handshake().await;
    let params = json!({"clientName": "testkit", "resumeSessionId": first.session, "takeover": true});
    second.call("initialize", params).await;
    first.drain().await;
    let reason = first.close_reason.expect("the connection ended without a close message");
    assert_eq!((reason.code, reason.reason.as_str()), (4010, "session has been taken over by another connection"));
}

#[tokio::test]
async fn a_peer_that_breaks_the_protocol_under_load_gets_the_close_reason() {
    let server = TestServer::start().await;
    let mut client = loud_client(&server).await;
    // A frame with reserved bits, and further bytes that the server does not decode.
    client.send_bytes(&[0xff; 1000]).await.unwrap();
    client.drain().await;
    let reason = client.close_reason.expect("the connection ended without a close message");
    assert_eq!((reason.code, reason.reason.as_str()), (1002, "protocol error"));
}

/// Pause of a very slow client after each read of at most 64 KiB, so the client reads at most 1.3 MB a second.
const LONG_PAUSE: Duration = Duration::from_millis(50);

#[tokio::test]
async fn a_slow_reader_gets_the_close_reason_after_all_events() {
    /// Ids of processes that write as many bytes as the server retains.
    const FULL: [&str; 4] = ["full-0", "full-1", "full-2", "full-3"];
    const RETAINED_BYTES: usize = 2 << 20;
    let limits = ["--shutdown-grace", "100ms", "--retain-bytes", "2MiB"];
    let mut server = TestServer::with_args(&limits).await;
    let mut client = SlowReader::client(&server, LONG_PAUSE).await;
    // The events of the processes are paused, so all output is sent at the shutdown: 11 MB in base64, for which this
    // client needs more than 8 s.
    for process in FULL {
        let mut params = Client::start_params(process, &["head", "-c", &RETAINED_BYTES.to_string(), "/dev/zero"]);
        params["paused"] = true.into();
        client.call("process/start", params).await;
    }
    let is_full = |process: &Value| process["outputBytes"] == RETAINED_BYTES;
    eventually_async("the retained output of all processes is full", async || {
        client.processes().await.as_array().unwrap().iter().all(is_full).then_some(())
    })
    .await;
    server.signal(Signal::TERM);
    let events = client.drain().await;
    assert_eq!(closed_processes(&events), FULL);
    assert_eq!(client.close_reason.expect("the connection ended without a close message").code, 1001);
    assert_eq!(server.wait().await, Some(0));
}

#[tokio::test]
async fn a_stalled_client_that_is_taken_over_gets_the_close_reason() {
    let server = TestServer::start().await;
    let mut stalled = loud_client(&server).await;
    let mut second = server.connect_without_handshake().await;
    let params = json!({"clientName": "testkit", "resumeSessionId": stalled.session, "takeover": true});
    second.call("initialize", params).await;
    // sleep: `stalled` reads nothing for this long, like a client that is stopped or whose machine is busy
    tokio::time::sleep(Duration::from_secs(4)).await;
    // A message that the client sends now must not make the kernel reset the connection before the client has read
    // the close message.
    stalled.send("environment/status", json!({})).await;
    stalled.drain().await;
    let reason = stalled.close_reason.expect("the connection ended without a close message");
    assert_eq!(reason.code, 4010);
}
