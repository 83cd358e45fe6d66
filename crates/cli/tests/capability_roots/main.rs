//! The method `capabilityRoots/discoverV1`: it scans folders, the roots, for plugins and skills, and returns the
//! contents of their files. A plugin is a folder with a manifest, such as `.codex-plugin/plugin.json`. A skill is a
//! folder with a file `SKILL.md`.
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

/// A temporary folder with roots to discover. Paths are relative to this folder.
struct Tree {
    folder: tempfile::TempDir,
}

impl Tree {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path_of(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn write(&self, path: &str, contents: impl AsRef<[u8]>) {
        std::fs::create_dir_all(self.path_of(path).parent().unwrap()).unwrap();
        std::fs::write(self.path_of(path), contents).unwrap();
    }

    fn link(&self, target: impl AsRef<Path>, path: &str) {
        std::fs::create_dir_all(self.path_of(path).parent().unwrap()).unwrap();
        symlink(target, self.path_of(path)).unwrap();
    }

    fn uri(&self, path: &str) -> String {
        format!("file://{}", self.path_of(path).display())
    }

    /// The member of an answer that contains a file.
    fn file(&self, path: &str, contents: &str) -> Value {
        json!({"path": self.uri(path), "contents": contents})
    }

    /// Starts a server and returns its result for the root `path`.
    async fn discover(&self, path: &str) -> Value {
        let server = TestServer::start().await;
        let roots = json!({"roots": [{"id": "r", "path": self.uri(path)}]});
        server.client().await.call(DISCOVER, roots).await["roots"][0].clone()
    }

    /// The expected result for a root that can be read and has no manifest of a plugin in it, below it or above it.
    fn plain_root(&self, path: &str, skills: Value, warnings: Value) -> Value {
        json!({
            "id": "r", "path": self.uri(path), "plugin": null, "skills": skills, "namespaceManifests": [],
            "warnings": warnings, "error": null,
        })
    }

    /// The member of an answer that contains a skill without metadata.
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
