//! The last words of a connection arrive, however much is on its way when it ends.

use std::time::Duration;

use testkit::{Client, Signal, SlowReader, TestServer, Value, json};

/// A pause after each 64 KiB: slow enough for megabytes to be on their way, and for pongs to come back after the goodbye was sent.
const PAUSE: Duration = Duration::from_millis(5);

const LOUD: [&str; 4] = ["loud-0", "loud-1", "loud-2", "loud-3"];

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

fn closed_processes(events: &[Value]) -> Vec<&str> {
    let closed = events.iter().filter(|event| event["method"] == "process/closed");
    let mut names: Vec<&str> = closed.map(|event| event["params"]["processId"].as_str().unwrap()).collect();
    names.sort_unstable();
    names
}

#[tokio::test]
async fn a_shutdown_under_load_tells_every_end_and_the_reason() {
    let mut server = TestServer::start().await;
    let mut client = loud_client(&server).await;
    server.signal(Signal::TERM);
    let events = client.drain().await;
    assert_eq!(closed_processes(&events), [LOUD.as_slice(), &["quiet"]].concat());
    let reason = client.close_reason.expect("the connection ended without a goodbye");
    assert_eq!((reason.code, reason.reason.as_str()), (1001, "server is shutting down"));
    assert_eq!(server.wait().await, Some(0));
}

#[tokio::test]
async fn a_connection_that_is_taken_over_under_load_is_told_why() {
    let server = TestServer::start().await;
    let mut first = loud_client(&server).await;
    let mut second = server.raw().await;
    let params = json!({"clientName": "testkit", "resumeSessionId": first.session, "takeover": true});
    second.call("initialize", params).await;
    first.drain().await;
    let reason = first.close_reason.expect("the connection ended without a goodbye");
    assert_eq!((reason.code, reason.reason.as_str()), (4010, "session has been taken over by another connection"));
}

#[tokio::test]
async fn a_peer_that_sends_rubbish_under_load_is_told_so() {
    let server = TestServer::start().await;
    let mut client = loud_client(&server).await;
    // A frame with reserved bits, and more behind it that is never looked at.
    client.send_bytes(&[0xff; 1000]).await.unwrap();
    client.drain().await;
    let reason = client.close_reason.expect("the connection ended without a goodbye");
    assert_eq!((reason.code, reason.reason.as_str()), (1002, "protocol error"));
}
