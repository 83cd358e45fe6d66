//! A server, a client and a tree of files for tests of `fs/search`, and the collected output of a search.

use std::collections::BTreeMap;
use std::path::Path;

use tempfile::TempDir;
use testkit::{Client, TestServer, Value, json};

/// A server, a client and a tree of files.
pub(crate) struct SearchFixture {
    pub(crate) server: TestServer,
    pub(crate) client: Client,
    pub(crate) tree: TempDir,
}

/// The matches and the answer of a search.
pub(crate) struct SearchOutput {
    /// The lines of each file, in the order in which they came. Paths are relative to the tree.
    pub(crate) files: BTreeMap<String, Vec<Value>>,
    pub(crate) result: Value,
}

impl SearchOutput {
    /// The number and the text of each line of a file.
    pub(crate) fn lines(&self, path: &str) -> Vec<(u64, &str)> {
        let lines = self.files.get(path).map(Vec::as_slice).unwrap_or_default();
        lines.iter().map(|line| (line["number"].as_u64().unwrap(), line["text"].as_str().unwrap())).collect()
    }

    /// Paths of all files that were found, sorted and relative to the tree.
    pub(crate) fn paths(&self) -> Vec<&str> {
        self.files.keys().map(String::as_str).collect()
    }
}

impl SearchFixture {
    pub(crate) async fn new(files: &[(&str, &[u8])]) -> Self {
        Self::with_args(&[], files).await
    }

    pub(crate) async fn with_args(args: &[&str], files: &[(&str, &[u8])]) -> Self {
        Self::with_server(TestServer::with_args(args).await, files).await
    }

    /// A client of `server` and a new tree with these files.
    pub(crate) async fn with_server(server: TestServer, files: &[(&str, &[u8])]) -> Self {
        let client = server.client().await;
        let tree = tempfile::tempdir_in(std::fs::canonicalize(std::env::temp_dir()).unwrap()).unwrap();
        for (path, content) in files {
            let path = tree.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        Self { server, client, tree }
    }

    /// Params of a search in the whole tree with the id `s`, with some members changed.
    pub(crate) fn params(&self, changes: Value) -> Value {
        let mut params = json!({"searchId": "s", "path": uri(self.tree.path())});
        for (name, value) in changes.as_object().unwrap() {
            params[name] = value.clone();
        }
        params
    }

    /// Sends a search and waits for its answer.
    pub(crate) async fn search(&mut self, changes: Value) -> SearchOutput {
        let params = self.params(changes);
        let id = self.client.send("fs/search", params).await;
        self.collect(id).await
    }

    /// Waits for the answer to the request `id`, and collects the matches, all of which come before the answer.
    pub(crate) async fn collect(&mut self, id: i64) -> SearchOutput {
        let (mut files, mut seq) = (BTreeMap::<String, Vec<Value>>::new(), 0);
        loop {
            let message = self.client.next().await;
            if message["id"] == id {
                assert!(message.get("error").is_none(), "{message}");
                assert_eq!(message["result"]["lastSeq"], seq);
                return SearchOutput { files, result: message["result"].clone() };
            }
            assert_eq!((&message["method"], &message["params"]["searchId"]), (&json!("fs/found"), &json!("s")));
            seq += 1;
            assert_eq!(message["params"]["seq"], seq);
            for file in message["params"]["files"].as_array().unwrap() {
                let path = file["path"].as_str().unwrap();
                let path = path.strip_prefix(&format!("{}/", uri(self.tree.path()))).unwrap_or(path);
                let lines = file["lines"].as_array().cloned().unwrap_or_default();
                files.entry(path.to_owned()).or_default().extend(lines);
            }
        }
    }

    /// Sends a search that must fail, and returns the error.
    pub(crate) async fn refusal(&mut self, changes: Value) -> Value {
        let params = self.params(changes);
        self.client.call_error("fs/search", params).await
    }
}

pub(crate) fn uri(path: &Path) -> String {
    format!("file://{}", path.display())
}
