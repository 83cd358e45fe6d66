//! A client that requests names whose lookup never ends.

use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode};
use tempfile::TempDir;
use testkit::{Signal, TestServer, Value, json};
use tokio::time::timeout;

/// More than all threads that a runtime has for blocking work.
const LOOKUPS: usize = 600;

const AT_ONCE: usize = 50;

/// Lookups that one client may have at a time.
const LOOKUPS_OF_A_CLIENT: usize = 16;

/// Nothing here takes this long, even on a loaded machine, unless it waits for a lookup.
const AT_LAST: Duration = Duration::from_secs(20);

/// A server for which the lookup of a name without a dot never ends. Before it sends a query, the resolver opens a file of
/// aliases, and here that is a FIFO to which no process writes.
async fn server_with_silent_resolver(directory: &TempDir) -> TestServer {
    let aliases = directory.path().join("aliases");
    rustix::fs::mknodat(CWD, &aliases, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    TestServer::with(&[], |command| {
        for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
            command.env_remove(name);
        }
        command.env("HOSTALIASES", &aliases)
    })
    .await
}

fn request(number: usize, timeout_ms: u64) -> Value {
    let url = format!("http://nobody{number}/");
    json!({"method": "GET", "url": url, "requestId": number.to_string(), "timeoutMs": timeout_ms})
}

/// A request whose lookup fails at once. A name with a dot is not looked up among the aliases, and this one has a label of more than 63
/// bytes, so the resolver refuses it without a query.
fn unresolvable(timeout_ms: u64) -> Value {
    let url = format!("http://{}.invalid/", "x".repeat(64));
    json!({"method": "GET", "url": url, "requestId": "long", "timeoutMs": timeout_ms})
}

#[tokio::test]
async fn lookups_that_never_end_delay_no_other_request() {
    let directory = TempDir::new().unwrap();
    let mut server = server_with_silent_resolver(&directory).await;
    let mut hostile = server.client().await;
    let mut client = server.client().await;
    client.start("p", &["sleep", "1000"]).await;
    let mut number = 0;
    while number < LOOKUPS {
        let mut sent = Vec::new();
        for _ in 0..AT_ONCE {
            number += 1;
            sent.push(hostile.send("http/request", request(number, 1)).await);
        }
        for id in sent {
            let error = hostile.answer(id).await["error"].clone();
            assert_eq!(error["data"]["kind"], "timeout", "{error}");
        }
    }

    let listed = client.request("fs/readDirectory", json!({"path": "file:///"}));
    let listed = timeout(AT_LAST, listed).await.expect("files are answered");
    assert!(listed.get("result").is_some(), "{listed}");
    let ended = client.request("process/terminate", json!({"processId": "p"}));
    let ended = timeout(AT_LAST, ended).await.expect("a terminate is answered");
    assert_eq!(ended["result"], json!({"running": true}));
    server.signal(Signal::TERM);
    let code = timeout(AT_LAST, server.wait()).await.expect("the server ends");
    assert_eq!(code, Some(0));
}

#[tokio::test]
async fn a_client_that_uses_all_its_lookups_leaves_lookups_to_others() {
    let directory = TempDir::new().unwrap();
    let server = server_with_silent_resolver(&directory).await;
    let mut hostile = server.client().await;
    for number in 0..AT_ONCE {
        let error = hostile.call_error("http/request", request(number, 1)).await;
        assert_eq!(error["data"]["kind"], "timeout", "{error}");
    }
    let error = hostile.call_error("http/request", unresolvable(500)).await;
    assert_eq!(error["data"]["kind"], "timeout", "all lookups of this client are in use: {error}");
    let mut client = server.client().await;
    let error = client.call_error("http/request", unresolvable(20_000)).await;
    assert_eq!(error["data"]["kind"], "dns", "{error}");
}

#[tokio::test]
async fn a_client_that_reconnects_gets_no_further_lookups() {
    let directory = TempDir::new().unwrap();
    let server = server_with_silent_resolver(&directory).await;
    let mut hostile = server.client().await;
    for number in 0..LOOKUPS_OF_A_CLIENT {
        let error = hostile.call_error("http/request", request(number, 1)).await;
        assert_eq!(error["data"]["kind"], "timeout", "{error}");
    }
    let session = hostile.session.clone();
    drop(hostile);
    let mut again = server.resume(&session).await;
    let error = again.call_error("http/request", unresolvable(500)).await;
    assert_eq!(error["data"]["kind"], "timeout", "all lookups of the session are in use: {error}");
}
