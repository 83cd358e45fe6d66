//! Helpers for tests of `fs/watch`: a tree to watch, and the messages of a watch.

use std::path::Path;

use tempfile::TempDir;
use testkit::{Client, TestServer, Value, eventually_async, http_get, json};

/// An empty directory. No part of its path is a symbolic link.
pub(crate) fn tree() -> TempDir {
    let folder = std::fs::canonicalize(std::env::temp_dir()).unwrap();
    tempfile::tempdir_in(folder).unwrap()
}

pub(crate) fn uri(path: &Path) -> String {
    format!("file://{}", path.display())
}

/// Begins a watch of a file, or of a directory with everything below it.
pub(crate) async fn watch(client: &mut Client, id: &str, path: &Path) -> WatchMessages {
    let params = json!({"watchId": id, "path": uri(path)});
    assert_eq!(client.call("fs/watch", params).await, json!({}));
    WatchMessages { id: id.to_owned(), seq: 0 }
}

/// Sends `fs/watch` for a watch that exists already, with the number of the last message that the client has
/// received.
pub(crate) async fn resume_watch(client: &mut Client, received: &WatchMessages, path: &Path) {
    let params = json!({"watchId": received.id, "path": uri(path), "afterSeq": received.seq});
    assert_eq!(client.call("fs/watch", params).await, json!({}));
}

/// Receives the messages (`fs/changed`) of one watch and checks that their numbers have no gaps.
pub(crate) struct WatchMessages {
    pub(crate) id: String,
    /// Number of the last message that was received. 0 before the first message.
    pub(crate) seq: u64,
}

impl WatchMessages {
    /// The params of the next message, whose number must follow the number of the last one.
    pub(crate) async fn next(&mut self, client: &mut Client) -> Value {
        let is_ours = |message: &Value| message["method"] == "fs/changed" && message["params"]["watchId"] == self.id;
        let params = client.take(is_ours).await["params"].clone();
        self.seq += 1;
        assert_eq!(params["seq"], self.seq, "{params}");
        params
    }

    /// Receives messages until one has a change of this kind and path. Returns the changes of all these messages.
    /// Panics at an overflow or at the end of the watch.
    pub(crate) async fn changes_until(&mut self, client: &mut Client, kind: &str, path: &Path) -> Vec<Value> {
        let (mut changes, path) = (Vec::new(), uri(path));
        loop {
            let params = self.next(client).await;
            assert_eq!((&params["overflow"], &params["ended"]), (&json!(false), &json!(false)), "{params}");
            changes.extend(params["changes"].as_array().unwrap().iter().cloned());
            if changes.iter().any(|change| change["kind"] == kind && change["path"] == path) {
                return changes;
            }
        }
    }
}

/// A change of a file, as a message reports it.
pub(crate) fn change(kind: &str, path: &Path) -> Value {
    json!({"path": uri(path), "kind": kind, "isDirectory": false})
}

/// Waits until the server has noticed that no client is connected.
pub(crate) async fn wait_until_disconnected(server: &TestServer) {
    eventually_async("the server has noticed that no client is connected", async || {
        let metrics = http_get(server.address(), "/metrics", &[]).await.body;
        metrics.contains("exec_server_connections_active{transport=\"websocket\"} 0\n").then_some(())
    })
    .await;
}
