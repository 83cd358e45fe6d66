//! The parts of a sandbox object that are sent to a server. The local file system refuses a sandbox.

use std::io::ErrorKind;

use client::{ExecutorFileSystem, FileOptions, LocalFileSystem, PathUri, SandboxContext, WalkOptions};
use testkit::scripted::ScriptedReply;
use testkit::{ScriptedServer, Value, json};

use crate::metadata_sharing::connect;
use crate::support::error_parts;

/// A sandbox with one entry and with Windows paths, which this machine cannot resolve.
fn sandbox(entry: &Value) -> SandboxContext {
    let permissions = json!({"type": "managed", "file_system": {"type": "restricted", "entries": [entry]}, "network": "restricted"});
    let sandbox = json!({"permissions": permissions, "cwd": "file:///C:/work%20here",
        "workspaceRoots": ["file:///C:/work%20here"], "windowsSandboxLevel": "disabled"});
    serde_json::from_value(sandbox).unwrap()
}

fn sandbox_with_absolute_path() -> SandboxContext {
    sandbox(&json!({"path": {"type": "path", "path": "file:///C:/data"}, "access": "read"}))
}

/// The entry stands for the workspace roots. Such an entry counts as relative.
fn sandbox_with_relative_path() -> SandboxContext {
    sandbox(&json!({"path": {"type": "special", "value": {"kind": "project_roots"}}, "access": "write"}))
}

/// The params of the request that reads a file with this sandbox.
async fn sent_params(sandbox: SandboxContext) -> Value {
    let server = ScriptedServer::new();
    let files = connect(&server).await.file_system();
    let path: PathUri = "file:///C:/data/a%20b".parse().unwrap();
    let options = FileOptions { sandbox: Some(sandbox), ..FileOptions::default() };
    server.on("fs/readFile", |_| ScriptedReply::Result(json!({"dataBase64": ""})));
    files.read_file(&path, &options).await.unwrap();
    server.wait_for("fs/readFile", 1).await.params
}

#[tokio::test]
async fn paths_and_the_cwd_are_sent_unchanged() {
    let params = sent_params(sandbox_with_relative_path()).await;
    assert_eq!(params["path"], "file:///C:/data/a%20b");
    assert_eq!(params["sandbox"]["cwd"], "file:///C:/work%20here");
}

#[tokio::test]
async fn a_cwd_is_not_sent_if_no_path_is_relative() {
    let params = sent_params(sandbox_with_absolute_path()).await;
    assert_eq!(params["sandbox"]["permissions"]["type"], "managed");
    assert_eq!(params["sandbox"].get("cwd"), None);
}

#[tokio::test]
async fn the_cwd_and_the_workspace_roots_are_sent_if_a_path_is_relative() {
    let params = sent_params(sandbox_with_relative_path()).await;
    assert_eq!(params["sandbox"]["cwd"], "file:///C:/work%20here");
    assert_eq!(params["sandbox"]["workspaceRoots"], json!(["file:///C:/work%20here"]));
}

#[tokio::test]
async fn a_sandbox_is_refused_by_the_local_file_system() {
    let folder = tempfile::tempdir().unwrap();
    let root = PathUri::from_native(folder.path()).unwrap();
    let sandbox = sandbox_with_absolute_path();
    let options = WalkOptions {
        max_depth: 1,
        max_directories: 1,
        max_entries: 1,
        follow_directory_symlinks: false,
        prune_hidden_directories: false,
    };
    let sandboxed = FileOptions { sandbox: Some(sandbox.clone()), ..FileOptions::default() };
    for refused in [
        error_parts(LocalFileSystem.walk(&root, options, Some(&sandbox)).await),
        error_parts(LocalFileSystem.read_directory(&root, Some(&sandbox)).await),
        error_parts(LocalFileSystem.read_directory_with_links(&root, Some(&sandbox)).await),
        error_parts(LocalFileSystem.canonicalize(&root, Some(&sandbox)).await),
        error_parts(LocalFileSystem.metadata(&root, &sandboxed).await),
    ] {
        let text = "filesystem sandbox cannot be enforced on this executor";
        assert_eq!(refused, (ErrorKind::InvalidInput, None, text.into()));
    }
}
