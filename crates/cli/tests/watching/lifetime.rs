//! Limits for watches (`fs/watch`), and how watches end.

use std::fs;

use testkit::{Client, TestServer, Value, eventually, json, open_fds};

use crate::support::{WatchMessages, resume_watch, tree, uri, wait_until_disconnected, watch};

/// An error of code -32600.
fn refusal(message: &str) -> Value {
    json!({"code": -32600, "message": message})
}

#[tokio::test]
async fn watch_ids_have_at_most_32_bytes_and_are_unique_within_a_session() {
    let (server, tree) = (TestServer::start().await, tree());
    let mut client = server.client().await;
    let longest = "é".repeat(16);
    watch(&mut client, &longest, tree.path()).await;
    let params = |id: &str| json!({"watchId": id, "path": uri(tree.path())});
    let error = client.call_error("fs/watch", params(&longest)).await;
    assert_eq!(error, refusal(&format!("watch `{longest}` already exists")));
    let error = client.call_error("fs/watch", params(&"x".repeat(33))).await;
    assert_eq!(error, refusal("watch ID must not exceed 32 bytes"));
    let mut other = server.client().await;
    watch(&mut other, &longest, tree.path()).await;
}

#[tokio::test]
async fn a_watch_of_a_missing_path_is_refused_and_its_id_stays_free_and_an_unknown_watch_cannot_be_resumed() {
    let (server, tree) = (TestServer::start().await, tree());
    let mut client = server.client().await;
    let missing = tree.path().join("missing/file");
    let error = client.call_error("fs/watch", json!({"watchId": "w", "path": uri(&missing)})).await;
    assert_eq!(error["code"], -32004, "{error}");
    watch(&mut client, "w", tree.path()).await;
    let unknown_watch = json!({"watchId": "other", "path": uri(tree.path()), "afterSeq": 3});
    let error = client.call_error("fs/watch", unknown_watch).await;
    assert_eq!(error, json!({"code": -32004, "message": "unknown watch `other`"}));
    assert_eq!(client.call("fs/unwatch", json!({"watchId": "other"})).await, json!({}));
}

#[tokio::test]
async fn the_number_of_watches_of_a_session_is_limited() {
    let (server, tree) = (TestServer::with_args(&["--max-watches", "2"]).await, tree());
    let mut client = server.client().await;
    for id in ["1", "2"] {
        watch(&mut client, id, tree.path()).await;
    }
    let third = json!({"watchId": "3", "path": uri(tree.path())});
    let error = client.call_error("fs/watch", third.clone()).await;
    assert_eq!(error, refusal("session has reached its limit of 2 watches (--max-watches)"));
    client.call("fs/unwatch", json!({"watchId": "1"})).await;
    client.call("fs/watch", third).await;
    watch(&mut server.client().await, "other session", tree.path()).await;
}

#[tokio::test]
async fn the_watches_of_all_sessions_share_one_inotify_instance() {
    let (server, tree) = (TestServer::start().await, tree());
    let mut sessions = Vec::new();
    for _ in 0..3 {
        let mut client = server.client().await;
        let mut received = Vec::new();
        for number in 0..64 {
            received.push(watch(&mut client, &number.to_string(), tree.path()).await);
        }
        sessions.push((client, received));
    }
    assert_eq!(
        inotify_fds(server.pid()),
        1,
        "all watches must share one inotify instance, because the kernel allows a user 128 instances"
    );
    let file = tree.path().join("file");
    fs::write(&file, "").unwrap();
    for (client, received) in &mut sessions {
        for received in received {
            received.changes_until(client, "created", &file).await;
        }
    }
}

#[tokio::test]
async fn a_watch_ends_when_its_root_is_removed_and_no_longer_counts_towards_the_limit() {
    let (server, tree) = (TestServer::with_args(&["--max-watches", "1"]).await, tree());
    let mut client = server.client().await;
    let root = tree.path().join("root");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("file"), "").unwrap();
    let mut received = watch(&mut client, "w", &root).await;
    fs::remove_dir_all(&root).unwrap();
    while received.next(&mut client).await["ended"] != true {}
    // A client that resumes the watch gets the message about its end again.
    let mut repeated = WatchMessages { id: "w".into(), seq: 0 };
    resume_watch(&mut client, &repeated, &root).await;
    while repeated.next(&mut client).await["ended"] != true {}
    assert_eq!(repeated.seq, received.seq);
    fs::create_dir(&root).unwrap();
    watch(&mut client, "w", &root).await;
    fs::remove_dir(&root).unwrap();
    client.take(|message| message["params"]["ended"] == true).await;
    watch(&mut client, "another", tree.path()).await;
}

#[tokio::test]
async fn after_unwatch_no_change_is_reported() {
    let (server, tree) = (TestServer::start().await, tree());
    let mut client = server.client().await;
    watch(&mut client, "w", tree.path()).await;
    client.call("fs/unwatch", json!({"watchId": "w"})).await;
    fs::write(tree.path().join("unseen"), "").unwrap();
    let mut received = watch(&mut client, "w", tree.path()).await;
    fs::write(tree.path().join("seen"), "").unwrap();
    let changes = received.changes_until(&mut client, "created", &tree.path().join("seen")).await;
    assert_eq!(changes.len(), 1, "{changes:?}");
}

/// A new client with 20 watches.
async fn client_with_20_watches(server: &TestServer, tree: &std::path::Path) -> Client {
    let mut client = server.client().await;
    for number in 0..20 {
        watch(&mut client, &number.to_string(), tree).await;
    }
    client
}

#[tokio::test]
async fn watches_leave_neither_descriptors_nor_threads_behind() {
    let (server, tree) = (TestServer::start().await, tree());
    let mut client = client_with_20_watches(&server, tree.path()).await;
    eventually("each watch has its own thread, and all share one inotify instance", || has_20_watches(&server)).await;
    for number in 0..20 {
        client.call("fs/unwatch", json!({"watchId": number.to_string()})).await;
    }
    eventually("unwatch frees the threads and the inotify instance", || has_no_watches(&server)).await;
    let fds = open_fds(server.pid());
    drop(client);
    wait_until_disconnected(&server).await;
    for _ in 0..2 {
        let mut client = client_with_20_watches(&server, tree.path()).await;
        eventually("each watch has its own thread, and all share one inotify instance", || has_20_watches(&server))
            .await;
        client.call("session/keep", json!({"keepForMs": 0})).await;
        drop(client);
        eventually("the end of a session frees the threads and the inotify instance", || has_no_watches(&server))
            .await;
        eventually("the end of a session frees all descriptors", || (open_fds(server.pid()) <= fds).then_some(()))
            .await;
    }
}

/// `Some` if the server has one inotify instance and 20 threads for watches. It may take a moment until there are 20,
/// because a thread gets its name when it begins to run.
fn has_20_watches(server: &TestServer) -> Option<()> {
    (inotify_fds(server.pid()) == 1 && watch_threads(server.pid()) == 20).then_some(())
}

/// `Some` if the server has neither an inotify instance nor a thread for watches.
fn has_no_watches(server: &TestServer) -> Option<()> {
    (inotify_fds(server.pid()) == 0 && watch_threads(server.pid()) == 0).then_some(())
}

/// Number of threads of the server that detect changes, one for each watch.
fn watch_threads(pid: u32) -> usize {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    tasks.filter(|task| fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name == "watch\n")).count()
}

/// Number of inotify descriptors of a process.
fn inotify_fds(pid: u32) -> usize {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    links.filter_map(|entry| fs::read_link(entry.path()).ok()).filter(|to| to.ends_with("anon_inode:inotify")).count()
}
