//! Searches that find more than anybody takes, and how they end.

use std::fs;

use testkit::{cpu_time, eventually, eventually_async, json, resident_bytes, threads};

use crate::support::{World, uri};

const LINES: usize = 2000;
const FILES: usize = 60;

/// Some two hundred megabytes to be found, on little disk: every file is the same one.
async fn endless(args: &[&str]) -> World {
    let line = format!("needle{}\n", "x".repeat(2000));
    let world = World::with_args(args, &[("0", line.repeat(LINES).as_bytes())]).await;
    for number in 1..FILES {
        fs::hard_link(world.tree.path().join("0"), world.tree.path().join(number.to_string())).unwrap();
    }
    world
}

/// Waits until a server has nothing more to do.
async fn stands_still(pid: u32) {
    let mut before = None;
    eventually("the search waits", || {
        let now = cpu_time(pid);
        (before.replace(now) == Some(now)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_search_waits_for_a_client_that_does_not_read_and_loses_nothing() {
    let mut world = endless(&[]).await;
    let pid = world.server.pid();
    let before = resident_bytes(pid);
    let params = world.params(json!({"pattern": "needle"}));
    let id = world.client.send("fs/search", params).await;
    let mut other = world.server.client().await;
    for _ in 0..50 {
        other.call("environment/status", json!({})).await;
        let grown = resident_bytes(pid).saturating_sub(before);
        assert!(grown < 64 << 20, "{grown} bytes for a client that does not read");
    }
    stands_still(pid).await;
    let grown = resident_bytes(pid).saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes for a client that does not read");
    let found = world.finish(id).await;
    assert!(found.files.values().all(|lines| lines.len() == LINES));
    assert_eq!((found.files.len(), &found.result["stopped"]), (FILES, &json!(false)));
}

#[tokio::test]
async fn a_cancelled_search_says_so_and_what_it_found_until_then() {
    let mut world = endless(&[]).await;
    let params = world.params(json!({"pattern": "needle"}));
    let id = world.client.send("fs/search", params).await;
    let first = world.client.take(|message| message["method"] == "fs/found").await;
    assert_eq!(first["params"]["seq"], 1);
    let cancel = world.client.send("fs/cancelSearch", json!({"searchId": "s"})).await;
    let (mut found, mut result, mut cancelled) = (0, None, None);
    // Either answer may be the first.
    while result.is_none() || cancelled.is_none() {
        let message = world.client.next().await;
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
async fn an_id_is_taken_while_its_search_runs() {
    let mut world = endless(&[]).await;
    let params = world.params(json!({"pattern": "needle"}));
    let id = world.client.send("fs/search", params).await;
    let error = world.refusal(json!({"pattern": "x"})).await;
    assert_eq!(error, json!({"code": -32600, "message": "search `s` is already active"}));
    // Another connection has names of its own.
    let mut other = world.server.client().await;
    let params = world.params(json!({"pattern": "nothing", "path": uri(&world.tree.path().join("1"))}));
    other.call("fs/search", params).await;
    world.client.call("fs/cancelSearch", json!({"searchId": "s"})).await;
    world.finish(id).await;
    assert_eq!(world.search(json!({"pattern": "needle", "maxMatches": 1})).await.result["matches"], 1);
}

#[tokio::test]
async fn a_client_that_goes_away_ends_its_search_and_no_thread_is_left() {
    let mut world = endless(&["--max-file-operations", "1"]).await;
    let pid = world.server.pid();
    world.search(json!({"pattern": "needle", "maxMatches": 1})).await;
    let before = threads(pid);
    for _ in 0..3 {
        let params = world.params(json!({"pattern": "needle"}));
        world.client.send("fs/search", params).await;
        stands_still(pid).await;
        let session = world.client.session.clone();
        world.client = world.server.raw().await;
        eventually_async("the session is free", async || {
            let params = json!({"clientName": "test", "resumeSessionId": session});
            world.client.request("initialize", params).await.get("result").map(|_| ())
        })
        .await;
        world.client.notify("initialized", json!({})).await;
        world.client.session = session;
        // The one place for file operations is free again.
        let file = json!({"path": uri(&world.tree.path().join("1"))});
        assert_eq!(world.client.call("fs/getMetadata", file).await["isFile"], true);
        eventually("its threads are gone", || (threads(pid) <= before).then_some(())).await;
    }
}
