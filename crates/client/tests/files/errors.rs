//! The same failure gives the same error for local files and for the files of a server. A lost server gives an error
//! too.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use bytes::Bytes;
use client::{
    CopyOptions, CreateDirectoryOptions, ExecutorFileSystem, FileOptions, FileSystemError, LocalFileSystem, PathUri,
    RemoveOptions, RenameOptions, WriteStreamOptions,
};
use testkit::TestServer;

use crate::support::files_at;

/// The errors of many calls in the folder that the test has prepared. A call that succeeds adds no error. No call
/// changes the folder, so that it can be used again.
async fn failures(files: &dyn ExecutorFileSystem, at: impl Fn(&str) -> PathUri) -> Vec<FileSystemError> {
    let (plain, strict) = (FileOptions::default(), FileOptions::no_follow());
    let data = || Bytes::from_static(b"x");
    let mut all = Vec::new();
    for path in ["none", "directory", "fifo", "file/below", "loop", "link", "dangling"].map(&at) {
        for options in [&plain, &strict] {
            all.extend(files.read_file(&path, options).await.err());
            all.extend(files.metadata(&path, options).await.err());
        }
        all.extend(files.read_file_stream(&path, None).await.err());
        all.extend(files.canonicalize(&path, None).await.err());
        all.extend(files.read_directory(&path, None).await.err());
        all.extend(files.read_link(&path, None).await.err());
        let no_follow = RemoveOptions { follow_symlinks: false, ..RemoveOptions::default() };
        if path != at("fifo") && path != at("directory") {
            all.extend(files.remove(&path, &no_follow).await.err());
        }
        let not_recursive = CreateDirectoryOptions { recursive: false, ..CreateDirectoryOptions::default() };
        if path != at("none") {
            all.extend(files.create_directory(&path, &not_recursive).await.err());
            all.extend(files.symlink(&path, "x".into(), None).await.err());
        }
    }
    all.extend(files.write_file(&at("directory"), data(), &plain).await.err());
    all.extend(files.write_file(&at("none/x"), data(), &plain).await.err());
    all.extend(files.write_file(&at("link"), data(), &strict).await.err());
    all.extend(files.copy(&at("none"), &at("x"), &CopyOptions::default()).await.err());
    all.extend(files.rename(&at("none"), &at("x"), &RenameOptions::default()).await.err());
    all.extend(files.rename(&at("file"), &at("directory"), &RenameOptions::default()).await.err());
    all.extend(files.write_file_stream(&at("directory"), &WriteStreamOptions::default()).await.err());
    all.extend(files.write_file_stream(&at("none/x"), &WriteStreamOptions::default()).await.err());
    let no_replace = WriteStreamOptions { replace: false, ..WriteStreamOptions::default() };
    all.extend(files.write_file_stream(&at("file"), &no_replace).await.err());
    all.extend(files.read_file(&"file:///C:/x".parse().unwrap(), &plain).await.err());
    all.extend(files.read_file(&"file://host/x".parse().unwrap(), &plain).await.err());
    let sandbox = r#"{"permissions":{"type":"managed","file_system":{"type":"restricted","entries":[]},
        "network":"restricted"},"windowsSandboxLevel":"disabled"}"#;
    let sandboxed = FileOptions { sandbox: Some(serde_json::from_str(sandbox).unwrap()), ..FileOptions::default() };
    // The error is not compared: whether a server can enforce a sandbox depends on the machine, and the local file
    // system never can.
    assert!(files.read_file(&at("file"), &sandboxed).await.is_err());
    all
}

#[tokio::test]
async fn local_and_remote_errors_are_equal() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| PathUri::from_native(&folder.path().join(name)).unwrap();
    fs::create_dir_all(folder.path().join("directory/below")).unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    assert!(Command::new("mkfifo").arg(folder.path().join("fifo")).status().unwrap().success());
    symlink("loop", folder.path().join("loop")).unwrap();
    symlink("file", folder.path().join("link")).unwrap();
    symlink("nowhere", folder.path().join("dangling")).unwrap();

    let local = failures(&LocalFileSystem, at).await;
    let server = TestServer::start().await;
    let remote = failures(&files_at(server.url()).await, at).await;
    assert!(local.len() > 50, "{} failures", local.len());
    assert_eq!(local, remote);
}

#[tokio::test]
async fn after_the_loss_of_the_server_a_call_fails_with_a_broken_pipe() {
    let server = TestServer::start().await;
    let mut options = client::RemoteExecServerConnectArgs::new(server.url(), "test");
    options.options.recovery_budget = std::time::Duration::from_millis(200);
    let client = client::ExecServerClient::connect_websocket(options).await.unwrap();
    server.kill().await;
    let error = client.file_system().metadata(&"file:///".parse().unwrap(), &FileOptions::default()).await;
    assert_eq!(error.unwrap_err().kind, std::io::ErrorKind::BrokenPipe);
}
