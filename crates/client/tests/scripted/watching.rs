//! Watches and searches whose connection is lost, and servers that forget a watch, push too many changes, or can
//! neither watch nor search.

use client::{Changes, ExecServerError};
use testkit::scripted::ScriptedReply;
use testkit::{ScriptedServer, Value, json};

use crate::support::connect;

/// Makes the server one that can watch and search files.
fn offer_watch_and_search(server: &ScriptedServer) {
    server.on("environment/info", |_| {
        let capabilities = json!({"fsWatch": true, "fsSearch": true});
        ScriptedReply::Result(json!({"shell": {"name": "sh", "path": "/bin/sh"}, "capabilities": capabilities}))
    });
}

/// Makes the server push that a file was created.
fn push_created(server: &ScriptedServer, id: &Value, seq: u64, path: &str) {
    let change = json!({"path": path, "kind": "created", "isDirectory": false});
    let params = json!({"watchId": id, "seq": seq, "changes": [change], "overflow": false, "ended": false});
    server.push("fs/changed", params);
}

/// The path of the first of these changes.
fn first_path(changes: Option<Result<Changes, ExecServerError>>) -> String {
    let changes = changes.unwrap().unwrap();
    assert!(!changes.overflow);
    changes.changes[0].path.as_str().to_owned()
}

#[tokio::test]
async fn a_watch_continues_after_a_cut_without_a_repeated_change_and_ends_when_it_is_dropped() {
    let server = ScriptedServer::new();
    offer_watch_and_search(&server);
    let client = connect(&server).await;
    let mut watch = client.watch(&"file:///tree".parse().unwrap(), true).await.unwrap();
    let asked = server.wait_for("fs/watch", 1).await.params;
    let id = asked["watchId"].clone();
    assert_eq!(asked, json!({"watchId": id, "path": "file:///tree", "recursive": true}));
    push_created(&server, &id, 1, "file:///tree/1");
    assert_eq!(first_path(watch.recv().await), "file:///tree/1");
    server.cut();
    assert_eq!(server.wait_for("fs/watch", 2).await.params["afterSeq"], 1);
    // The server repeats the last change, and then sends the missed change.
    push_created(&server, &id, 1, "file:///tree/1");
    push_created(&server, &id, 2, "file:///tree/2");
    assert_eq!(first_path(watch.recv().await), "file:///tree/2");
    drop(watch);
    assert_eq!(server.wait_for("fs/unwatch", 1).await.params, json!({"watchId": id}));
}

#[tokio::test]
async fn unread_changes_with_long_paths_take_limited_memory() {
    const LONG_PATHS: usize = 96;
    let server = ScriptedServer::new();
    offer_watch_and_search(&server);
    let client = connect(&server).await;
    let mut watch = client.watch(&"file:///tree".parse().unwrap(), true).await.unwrap();
    let id = server.wait_for("fs/watch", 1).await.params["watchId"].clone();
    for seq in 1..=LONG_PATHS {
        push_created(&server, &id, seq as u64, &format!("file:///tree/{}", "x".repeat(1 << 20)));
    }
    push_created(&server, &id, LONG_PATHS as u64 + 1, "file:///tree/last");
    // This answer comes after all pushed changes, so the client has them all.
    client.environment_status().await.unwrap();
    let (mut overflows, mut kept) = (0, 0);
    loop {
        let changes = watch.recv().await.unwrap().unwrap();
        overflows += usize::from(changes.overflow);
        kept += changes.changes.iter().map(|change| change.path.as_str().len()).sum::<usize>();
        if changes.changes.iter().any(|change| change.path.as_str() == "file:///tree/last") {
            break;
        }
    }
    assert_eq!(overflows, 1, "the reader gets one overflow");
    assert!(kept < 40 << 20, "{kept} bytes of paths were kept");
}

#[tokio::test]
async fn a_watch_that_the_server_does_not_know_is_created_again_with_an_overflow() {
    let server = ScriptedServer::new();
    offer_watch_and_search(&server);
    let client = connect(&server).await;
    let mut watch = client.watch(&"file:///tree".parse().unwrap(), false).await.unwrap();
    let id = server.wait_for("fs/watch", 1).await.params["watchId"].clone();
    push_created(&server, &id, 1, "file:///tree/1");
    first_path(watch.recv().await);
    server.on("fs/watch", |asked| match asked.params.get("afterSeq") {
        Some(_) => ScriptedReply::Error(-32004, "unknown watch".into()),
        None => ScriptedReply::Result(json!({})),
    });
    server.cut();
    assert_eq!(server.wait_for("fs/watch", 3).await.params.get("afterSeq"), None);
    assert_eq!(watch.recv().await.unwrap().unwrap(), Changes { changes: vec![], overflow: true });
    push_created(&server, &id, 1, "file:///tree/2");
    assert_eq!(first_path(watch.recv().await), "file:///tree/2");
}

#[tokio::test]
async fn a_watch_that_cannot_be_created_again_fails() {
    let server = ScriptedServer::new();
    offer_watch_and_search(&server);
    let client = connect(&server).await;
    let mut watch = client.watch(&"file:///tree".parse().unwrap(), true).await.unwrap();
    server.on("fs/watch", |_| ScriptedReply::Error(-32004, "nothing is there".into()));
    server.cut();
    assert!(watch.recv().await.unwrap().unwrap().overflow);
    let error = watch.recv().await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "nothing is there");
    assert!(watch.recv().await.is_none());
    client.environment_status().await.unwrap();
}

#[tokio::test]
async fn a_watch_whose_first_answer_is_lost_still_reports_changes() {
    // Whether the server has created the watch before the connection is lost.
    for is_created in [true, false] {
        let server = ScriptedServer::new();
        offer_watch_and_search(&server);
        let client = connect(&server).await;
        let mut times = 0;
        server.on("fs/watch", move |asked| {
            times += 1;
            match asked.params.get("afterSeq") {
                None if times == 1 => ScriptedReply::Cut,
                Some(_) if !is_created => ScriptedReply::Error(-32004, "unknown watch".into()),
                _ => ScriptedReply::Result(json!({})),
            }
        });
        let mut watch = client.watch(&"file:///tree".parse().unwrap(), true).await.unwrap();
        let id = server.wait_for("fs/watch", 1).await.params["watchId"].clone();
        push_created(&server, &id, 1, "file:///tree/1");
        assert_eq!(first_path(watch.recv().await), "file:///tree/1");
    }
}

#[tokio::test]
async fn a_server_without_watches_or_searches_is_not_asked() {
    let server = ScriptedServer::new();
    let client = connect(&server).await;
    assert!(client.watch(&"file:///".parse().unwrap(), true).await.is_err());
    assert!(client.search(client::SearchParams::below("file:///".parse().unwrap())).await.is_err());
    assert_eq!(server.count("fs/watch") + server.count("fs/search"), 0);
}

#[tokio::test]
async fn a_search_fails_with_its_connection_and_is_cancelled_when_dropped() {
    let server = ScriptedServer::new();
    offer_watch_and_search(&server);
    server.on("fs/search", |_| ScriptedReply::Silence);
    let client = connect(&server).await;
    let params = client::SearchParams::below("file:///".parse().unwrap());
    let mut search = client.search(params.clone()).await.unwrap();
    let found = async {
        let id = server.wait_for("fs/search", 1).await.params["searchId"].clone();
        let files = json!([{"path": "file:///a"}]);
        server.push("fs/found", json!({"searchId": id, "seq": 1, "files": files}));
    };
    let (first, ()) = tokio::join!(search.recv(), found);
    assert_eq!(first.unwrap().unwrap().path.as_str(), "file:///a");
    server.cut();
    assert!(matches!(search.recv().await, Some(Err(ExecServerError::Disconnected(_)))));
    assert!(search.recv().await.is_none() && search.result().is_none());
    drop(search);
    let mut search = client.search(params).await.unwrap();
    tokio::select! {
        _ = search.recv() => panic!("nothing was found"),
        _ = server.wait_for("fs/search", 2) => {}
    }
    let id = server.wait_for("fs/search", 2).await.params["searchId"].clone();
    drop(search);
    assert_eq!(server.wait_for("fs/cancelSearch", 1).await.params, json!({"searchId": id}));
}
