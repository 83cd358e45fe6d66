//! What a client learns about the environment.

use std::os::unix::fs::MetadataExt as _;

use testkit::{TestServer, json};

fn uri(path: &std::path::Path) -> String {
    format!("file://{}", path.display())
}

#[tokio::test]
async fn info_tells_shell_directories_and_capabilities() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().canonicalize().unwrap();
    let server =
        TestServer::with(&[], |command| command.current_dir(&place).env("TMPDIR", place.join("scratch"))).await;
    let mut client = server.client().await;
    let info = client.call("environment/info", json!({})).await;
    let shell = &info["shell"];
    assert!(["bash", "zsh", "sh"].contains(&shell["name"].as_str().unwrap()), "{shell}");
    assert!(std::fs::metadata(shell["path"].as_str().unwrap()).unwrap().mode() & 0o111 != 0, "{shell}");
    assert_eq!(
        info,
        json!({
            "shell": shell,
            "cwd": uri(&place),
            "temporaryDirectories": [uri(&place.join("scratch"))],
            "tempDir": uri(&place.join("scratch")),
            "capabilities": {
                "networkProxyLaunch": false, "capabilityDiscoverySandbox": false, "environmentConfigRead": true,
                "httpHeaderEnvVars": true, "sandboxedFileStreaming": false, "shellSnapshotV2": true,
                "processResize": true, "processCloseStdin": true, "processWriteQuery": true, "processSignals": true, "processList": true,
                "processTimeout": true, "readGaps": true, "sessionKeep": true, "sessionObserve": true,
                "processFlow": true,
                "fsRename": true, "fsWriteBlocks": true, "fsModeIfNew": true, "fsExtents": true, "fsSetMetadata": true,
                "fsLinks": true, "fsWatch": true, "fsSearch": true, "httpCancel": true, "httpLimits": true,
            },
        })
    );
    assert_eq!(client.call("environment/info", json!(null)).await, info, "it does not change");
}

#[tokio::test]
async fn a_relative_temporary_directory_is_meant_from_the_cwd() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().canonicalize().unwrap();
    let server = TestServer::with(&[], |command| command.current_dir(&place).env("TMPDIR", "scratch")).await;
    let info = server.client().await.call("environment/info", json!({})).await;
    assert_eq!(info["temporaryDirectories"], json!([uri(&place.join("scratch"))]));

    let server = TestServer::with(&[], |command| command.env_remove("TMPDIR")).await;
    let info = server.client().await.call("environment/info", json!({})).await;
    assert_eq!((info.get("temporaryDirectories"), &info["tempDir"]), (None, &json!("file:///tmp")));
}

#[tokio::test]
async fn status_is_ready() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    assert_eq!(client.call("environment/status", json!(null)).await, json!({"status": "ready"}));
}
