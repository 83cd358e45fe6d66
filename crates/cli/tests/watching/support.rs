//! A tree to watch, and the messages of its watch.

use std::path::Path;

use tempfile::TempDir;
use testkit::{Client, TestServer, Value, eventually_async, http_get, json};

/// A directory whose path has no links.
pub(crate) fn tree() -> TempDir {
    let place = std::fs::canonicalize(std::env::temp_dir()).unwrap();
    tempfile::tempdir_in(place).unwrap()
}

pub(crate) fn uri(path: &Path) -> String {
    format!("file://{}", path.display())
}

pub(crate) async fn watch(client: &mut Client, id: &str, path: &Path) -> WatchMessages {
    let params = json!({"watchId": id, "path": uri(path)});
    assert_eq!(client.call("fs/watch", params).await, json!({}));
    WatchMessages { id: id.to_owned(), seq: 0 }
}

/// Sends `fs/watch` for a watch that exists, with the number of the last message that the client has.
pub(crate) async fn go_on(client: &mut Client, told: &WatchMessages, path: &Path) {
    let params = json!({"watchId": told.id, "path": uri(path), "afterSeq": told.seq});
    assert_eq!(client.call("fs/watch", params).await, json!({}));
}

/// The messages that a client has got of one watch.
pub(crate) struct WatchMessages {
    pub(crate) id: String,
    pub(crate) seq: u64,
}

impl WatchMessages {
    /// The next message. Its number must follow the one before.
    pub(crate) async fn next(&mut self, client: &mut Client) -> Value {
        let is_ours = |message: &Value| message["method"] == "fs/changed" && message["params"]["watchId"] == self.id;
        let params = client.take(is_ours).await["params"].clone();
        self.seq += 1;
        assert_eq!(params["seq"], self.seq, "{params}");
        params
    }

    /// All changes up to this one.
    pub(crate) async fn until(&mut self, client: &mut Client, kind: &str, path: &Path) -> Vec<Value> {
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

pub(crate) fn change(kind: &str, path: &Path) -> Value {
    json!({"path": uri(path), "kind": kind, "isDirectory": false})
}

/// Waits until the server has noticed that no client is connected.
pub(crate) async fn nobody_is_connected(server: &TestServer) {
    eventually_async("the server has noticed", async || {
        let metrics = http_get(server.address(), "/metrics", &[]).await.body;
        metrics.contains("exec_server_connections_active{transport=\"websocket\"} 0\n").then_some(())
    })
    .await;
}
