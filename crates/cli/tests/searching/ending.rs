//! Searches with so many matches that they wait for the client: they lose nothing, and a cancel or the end of the
//! connection ends them.

use std::fs;

use testkit::{cpu_time, eventually, eventually_async, json, resident_bytes, threads};

use crate::support::{SearchFixture, uri};

const LINES: usize = 2000;
const FILES: usize = 60;

/// A fixture whose tree has [`FILES`] files with [`LINES`] matches each, about 240 MB together. All files are hard
/// links to one file, so they need little disk space.
async fn fixture_with_many_matches(args: &[&str]) -> SearchFixture {
    let line = format!("needle{}\n", "x".repeat(2000));
    let fixture = SearchFixture::with_args(args, &[("0", line.repeat(LINES).as_bytes())]).await;
    for number in 1..FILES {
        fs::hard_link(fixture.tree.path().join("0"), fixture.tree.path().join(number.to_string())).unwrap();
    }
    fixture
}

/// Waits until the server is idle: its CPU time does not change between two checks.
async fn wait_until_idle(pid: u32) {
    let mut before = None;
    eventually("the server is idle", || {
        let now = cpu_time(pid);
        (before.replace(now) == Some(now)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_search_waits_for_a_client_that_does_not_read_and_loses_nothing() {
    let mut fixture = fixture_with_many_matches(&[]).await;
    let pid = fixture.server.pid();
    let before = resident_bytes(pid);
    let params = fixture.params(json!({"pattern": "needle"}));
    let id = fixture.client.send("fs/search", params).await;
    let mut other = fixture.server.client().await;
    for _ in 0..50 {
        other.call("environment/status", json!({})).await;
        let grown = resident_bytes(pid).saturating_sub(before);
        assert!(grown < 64 << 20, "the server uses {grown} more bytes for a client that does not read");
    }
    wait_until_idle(pid).await;
    let grown = resident_bytes(pid).saturating_sub(before);
    assert!(grown < 64 << 20, "the server uses {grown} more bytes for a client that does not read");
    let found = fixture.collect(id).await;
    assert!(found.files.values().all(|lines| lines.len() == LINES));
    assert_eq!((found.files.len(), &found.result["stopped"]), (FILES, &json!(false)));
}

#[tokio::test]
async fn a_cancelled_search_reports_that_it_was_stopped_and_its_matches_so_far() {
    let mut fixture = fixture_with_many_matches(&[]).await;
    let params = fixture.params(json!({"pattern": "needle"}));
    let id = fixture.client.send("fs/search", params).await;
    let first = fixture.client.take(|message| message["method"] == "fs/found").await;
    assert_eq!(first["params"]["seq"], 1);
    let cancel = fixture.client.send("fs/cancelSearch", json!({"searchId": "s"})).await;
    let (mut found, mut result, mut cancelled) = (0, None, None);
    // The answer to the search and the answer to the cancel may come in any order.
    while result.is_none() || cancelled.is_none() {
        let message = fixture.client.next().await;
        match &message["id"] {
            number if *number == id => result = Some(message["result"].clone()),
            number if *number == cancel => cancelled = Some(message["result"].clone()),
            _ => found += usize::from(message["method"] == "fs/found"),
        }
    }
    assert_eq!(cancelled, Some(json!({})));
    let result = result.unwrap();
    assert_eq!((&result["stopped"], &result["lastSeq"]), (&json!(true), &json!(found + 1)), "{result}");
    assert!(result["matches"].as_u64().unwrap() < (FILES * LINES) as u64, "{result}");
}

#[tokio::test]
async fn a_search_id_is_taken_only_while_its_search_runs() {
    let mut fixture = fixture_with_many_matches(&[]).await;
    let params = fixture.params(json!({"pattern": "needle"}));
    let id = fixture.client.send("fs/search", params).await;
    let error = fixture.refusal(json!({"pattern": "x"})).await;
    assert_eq!(error, json!({"code": -32600, "message": "search `s` is already active"}));
    // Another connection has ids of its own.
    let mut other = fixture.server.client().await;
    let params = fixture.params(json!({"pattern": "nothing", "path": uri(&fixture.tree.path().join("1"))}));
    other.call("fs/search", params).await;
    fixture.client.call("fs/cancelSearch", json!({"searchId": "s"})).await;
    fixture.collect(id).await;
    assert_eq!(fixture.search(json!({"pattern": "needle", "maxMatches": 1})).await.result["matches"], 1);
}

#[tokio::test]
async fn a_closed_connection_ends_its_search_and_frees_its_threads() {
    let mut fixture = fixture_with_many_matches(&["--max-file-operations", "1"]).await;
    let pid = fixture.server.pid();
    fixture.search(json!({"pattern": "needle", "maxMatches": 1})).await;
    let before = threads(pid);
    for _ in 0..3 {
        let params = fixture.params(json!({"pattern": "needle"}));
        fixture.client.send("fs/search", params).await;
        wait_until_idle(pid).await;
        let session = fixture.client.session.clone();
        // This drops the old client, so its connection ends.
        fixture.client = fixture.server.connect_without_handshake().await;
        eventually_async("the session can be resumed", async || {
            let params = json!({"clientName": "test", "resumeSessionId": session});
            fixture.client.request("initialize", params).await.get("result").map(|_| ())
        })
        .await;
        fixture.client.notify("initialized", json!({})).await;
        fixture.client.session = session;
        // The search no longer uses the only permit for file operations.
        let file = json!({"path": uri(&fixture.tree.path().join("1"))});
        assert_eq!(fixture.client.call("fs/getMetadata", file).await["isFile"], true);
        eventually("the threads of the search are gone", || (threads(pid) <= before).then_some(())).await;
    }
}
