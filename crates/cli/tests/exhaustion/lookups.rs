//! A client whose HTTP requests need DNS lookups that never end.

use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode};
use tempfile::TempDir;
use testkit::{Signal, TestServer, Value, json};
use tokio::time::timeout;

/// Number of lookups. More than the threads that a tokio runtime has for blocking work (512).
const LOOKUPS: usize = 600;

/// How many requests are sent before the test waits for their answers.
const BATCH: usize = 50;

/// Lookups that one client, that is one session, may have at a time.
const LOOKUPS_OF_A_CLIENT: usize = 16;

/// Timeout of one operation. Even on a loaded machine an operation takes less, unless it waits for a lookup.
const OPERATION_LIMIT: Duration = Duration::from_secs(20);

/// A server for which the lookup of a name without a dot never ends. Before the resolver sends a query, it opens a
/// file of aliases. This file is a FIFO to which no process writes, so the resolver hangs.
async fn server_with_hanging_resolver(directory: &TempDir) -> TestServer {
    let aliases = directory.path().join("aliases");
    rustix::fs::mknodat(CWD, &aliases, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    TestServer::start_with(&[], |command| {
        for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
            command.env_remove(name);
        }
        command.env("HOSTALIASES", &aliases)
    })
    .await
}

/// A request whose lookup never ends.
fn hanging_request(number: usize, timeout_ms: u64) -> Value {
    let url = format!("http://nobody{number}/");
    json!({"method": "GET", "url": url, "requestId": number.to_string(), "timeoutMs": timeout_ms})
}

/// A request whose lookup fails at once. The resolver does not look for a name with a dot among the aliases. This
/// name has a label of more than 63 bytes, so the resolver refuses it without a query.
fn unresolvable_request(timeout_ms: u64) -> Value {
    let url = format!("http://{}.invalid/", "x".repeat(64));
    json!({"method": "GET", "url": url, "requestId": "long", "timeoutMs": timeout_ms})
}

#[tokio::test]
async fn lookups_that_never_end_delay_neither_other_requests_nor_the_end_of_the_server() {
    let directory = TempDir::new().unwrap();
    let mut server = server_with_hanging_resolver(&directory).await;
    let mut greedy = server.client().await;
    let mut client = server.client().await;
    client.start("p", &["sleep", "1000"]).await;
    let mut number = 0;
    while number < LOOKUPS {
        let mut sent = Vec::new();
        for _ in 0..BATCH {
            number += 1;
            sent.push(greedy.send("http/request", hanging_request(number, 1)).await);
        }
        for id in sent {
            let error = greedy.answer(id).await["error"].clone();
            assert_eq!(error["data"]["kind"], "timeout", "{error}");
        }
    }

    let listed = client.request("fs/readDirectory", json!({"path": "file:///"}));
    let listed = timeout(OPERATION_LIMIT, listed).await.expect("a request about files is not answered");
    assert!(listed.get("result").is_some(), "{listed}");
    let terminated = client.request("process/terminate", json!({"processId": "p"}));
    let terminated = timeout(OPERATION_LIMIT, terminated).await.expect("a terminate is not answered");
    assert_eq!(terminated["result"], json!({"running": true}));
    server.signal(Signal::TERM);
    let code = timeout(OPERATION_LIMIT, server.wait()).await.expect("the server does not end");
    assert_eq!(code, Some(0));
}

#[tokio::test]
async fn a_client_that_uses_all_its_lookups_leaves_lookups_to_other_clients() {
    let directory = TempDir::new().unwrap();
    let server = server_with_hanging_resolver(&directory).await;
    let mut greedy = server.client().await;
    // More requests than a client may have lookups.
    for number in 0..LOOKUPS_OF_A_CLIENT * 3 {
        let error = greedy.call_error("http/request", hanging_request(number, 1)).await;
        assert_eq!(error["data"]["kind"], "timeout", "{error}");
    }
    let error = greedy.call_error("http/request", unresolvable_request(500)).await;
    assert_eq!(error["data"]["kind"], "timeout", "all lookups of this client are in use: {error}");
    let mut client = server.client().await;
    let error = client.call_error("http/request", unresolvable_request(20_000)).await;
    assert_eq!(error["data"]["kind"], "dns", "{error}");
}

#[tokio::test]
async fn a_client_that_reconnects_gets_no_further_lookups() {
    let directory = TempDir::new().unwrap();
    let server = server_with_hanging_resolver(&directory).await;
    let mut greedy = server.client().await;
    for number in 0..LOOKUPS_OF_A_CLIENT {
        let error = greedy.call_error("http/request", hanging_request(number, 1)).await;
        assert_eq!(error["data"]["kind"], "timeout", "{error}");
    }
    let session = greedy.session.clone();
    drop(greedy);
    let mut reconnected = server.resume(&session).await;
    let error = reconnected.call_error("http/request", unresolvable_request(500)).await;
    assert_eq!(error["data"]["kind"], "timeout", "all lookups of the session are in use: {error}");
}
