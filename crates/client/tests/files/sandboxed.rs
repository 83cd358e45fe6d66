//! The parts of a sandbox object that are sent to a server. The local file system refuses a sandbox.

use std::io::ErrorKind;

use client::{
    ExecutorFileSystem, FileOptions, LocalFileSystem, PathUri, SandboxContext, SandboxedFileSystem, WalkOptions,
};
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
async fn a_file_system_behind_a_sandbox_sends_it_with_every_operation_and_refuses_another_sandbox() {
    let server = ScriptedServer::new();
    server.on("fs/readFile", |_| ScriptedReply::Result(json!({"dataBase64": ""})));
    server.on("fs/canonicalize", |_| ScriptedReply::Result(json!({"path": "file:///x"})));
    let own = sandbox_with_relative_path();
    let files = SandboxedFileSystem::new(Box::new(connect(&server).await.file_system()), own.clone());
    let path: PathUri = "file:///x".parse().unwrap();
    files.read_file(&path, &FileOptions::no_follow()).await.unwrap();
    files.canonicalize(&path, Some(&own)).await.unwrap();
    let read = server.wait_for("fs/readFile", 1).await.params;
    assert_eq!((&read["sandbox"], &read["followSymlinks"]), (&json!(own), &json!(false)));
    assert_eq!(server.wait_for("fs/canonicalize", 1).await.params["sandbox"], json!(own));

    let other = sandbox_with_absolute_path();
    let options = FileOptions { sandbox: Some(other.clone()), ..FileOptions::default() };
    for refused in [
        error_parts(files.read_file(&path, &options).await),
        error_parts(files.canonicalize(&path, Some(&other)).await),
    ] {
        let text = "the operation asks for another sandbox than its file system has";
        assert_eq!(refused, (ErrorKind::InvalidInput, None, text.to_owned()));
    }
    assert_eq!(server.count("fs/readFile"), 1);
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
