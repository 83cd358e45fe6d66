//! The method `capabilityRoots/discoverV1`: it scans folders, the roots, for plugins and skills, and returns the contents of
//! their files.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

mod bounds;
mod manifests;
mod published;
mod roots;
mod scanning;

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use testkit::{TestServer, Value, json};

const DISCOVER: &str = "capabilityRoots/discoverV1";

/// A folder with roots to discover.
struct Tree {
    folder: tempfile::TempDir,
}

impl Tree {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn write(&self, path: &str, contents: impl AsRef<[u8]>) {
        std::fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
        std::fs::write(self.at(path), contents).unwrap();
    }

    fn link(&self, target: impl AsRef<Path>, path: &str) {
        std::fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
        symlink(target, self.at(path)).unwrap();
    }

    fn uri(&self, path: &str) -> String {
        format!("file://{}", self.at(path).display())
    }

    /// A file as it is in an answer.
    fn file(&self, path: &str, contents: &str) -> Value {
        json!({"path": self.uri(path), "contents": contents})
    }

    /// Starts a server and returns its result for the root `path`.
    async fn discover(&self, path: &str) -> Value {
        let server = TestServer::start().await;
        let roots = json!({"roots": [{"id": "r", "path": self.uri(path)}]});
        server.client().await.call(DISCOVER, roots).await["roots"][0].clone()
    }

    /// The expected result for a root that can be read and is no plugin.
    fn plain_root(&self, path: &str, skills: Value, warnings: Value) -> Value {
        json!({
            "id": "r", "path": self.uri(path), "plugin": null, "skills": skills, "namespaceManifests": [],
            "warnings": warnings, "error": null,
        })
    }

    /// A skill without metadata as it is in an answer.
    fn skill(&self, path: &str, contents: &str) -> Value {
        json!({"instructions": self.file(path, contents), "metadata": null})
    }
}

/// The expected result for a root that cannot be read.
fn failed_root(id: &str, path: &str, error: &str) -> Value {
    json!({
        "id": id, "path": path, "plugin": null, "skills": [], "namespaceManifests": [], "warnings": [], "error": error,
    })
}
