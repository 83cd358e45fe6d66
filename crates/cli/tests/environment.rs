//! The methods `environment/info` and `environment/status`, which describe the machine of the server.

use std::os::unix::fs::MetadataExt as _;

use testkit::{TestServer, json};

fn uri(path: &std::path::Path) -> String {
    format!("file://{}", path.display())
}

#[tokio::test]
async fn info_tells_shell_directories_and_capabilities() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().canonicalize().unwrap();
    let server =
        TestServer::start_with(&[], |command| command.current_dir(&folder).env("TMPDIR", folder.join("scratch")))
            .await;
    let mut client = server.client().await;
    let info = client.call("environment/info", json!({})).await;
    let shell = &info["shell"];
    assert!(["bash", "zsh", "sh"].contains(&shell["name"].as_str().unwrap()), "{shell}");
    assert!(std::fs::metadata(shell["path"].as_str().unwrap()).unwrap().mode() & 0o111 != 0, "{shell}");
    assert_eq!(
        info,
        json!({
            "shell": shell,
            "cwd": uri(&folder),
            "temporaryDirectories": [uri(&folder.join("scratch"))],
            "tempDir": uri(&folder.join("scratch")),
            "capabilities": {
                "networkProxyLaunch": false, "capabilityDiscoverySandbox": false, "environmentConfigRead": true,
                "httpHeaderEnvVars": true, "sandboxedFileStreaming": false, "shellSnapshotV2": true,
                "processResize": true, "processCloseStdin": true, "processWriteQuery": true, "processSignals": true, "processList": true,
                "processTimeout": true, "processUmask": true, "readGaps": true, "readParts": true, "sessionKeep": true, "sessionObserve": true,
                "processFlow": true,
                "fsRename": true, "fsWriteBlocks": true, "fsModeIfNew": true, "fsExtents": true, "fsSetMetadata": true,
                "fsLinks": true, "fsWatch": true, "fsSearch": true, "httpCancel": true, "httpLimits": true,
            },
        })
    );
    assert_eq!(
        client.call("environment/info", json!(null)).await,
        info,
        "the second answer is the same as the first"
    );
}

#[tokio::test]
async fn the_working_directory_is_looked_up_for_every_request() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().canonicalize().unwrap();
    let (first, second) = (folder.join("first"), folder.join("second"));
    std::fs::create_dir(&first).unwrap();
    let server = TestServer::start_with(&[], |command| command.current_dir(&first).env("TMPDIR", "scratch")).await;
    let mut client = server.client().await;
    assert_eq!(client.call("environment/info", json!({})).await["cwd"], uri(&first));
    std::fs::rename(&first, &second).unwrap();
    let info = client.call("environment/info", json!({})).await;
    assert_eq!((&info["cwd"], &info["tempDir"]), (&json!(uri(&second)), &json!(uri(&second.join("scratch")))));
    std::fs::remove_dir(&second).unwrap();
    let info = client.call("environment/info", json!({})).await;
    assert_eq!(info.get("cwd"), Some(&json!(null)), "`cwd` is null and not left out");
    assert_eq!(
        (info.get("tempDir"), &info["temporaryDirectories"]),
        (None, &json!([])),
        "without a working directory, the temporary directories are unknown"
    );
}

#[tokio::test]
async fn a_relative_temporary_directory_is_resolved_against_the_cwd() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().canonicalize().unwrap();
    for (tmpdir, expected) in [
        ("scratch", uri(&folder.join("scratch"))),
        ("rel/../x", uri(&folder.join("x"))),
        ("/tmp/../var/tmp/", "file:///var/tmp".to_owned()),
    ] {
        let server = TestServer::start_with(&[], |command| command.current_dir(&folder).env("TMPDIR", tmpdir)).await;
        let info = server.client().await.call("environment/info", json!({})).await;
        assert_eq!((&info["temporaryDirectories"], &info["tempDir"]), (&json!([expected]), &json!(expected)));
    }
}

#[tokio::test]
async fn without_a_temporary_directory_the_list_is_empty() {
    for tmpdir in [None, Some("")] {
        let server = TestServer::start_with(&[], |command| {
            command
                .env_remove("TMPDIR")
                .env("TMP", "/var/tmp")
                .env("TEMP", "/var/tmp")
                .envs(tmpdir.map(|dir| ("TMPDIR", dir)))
        })
        .await;
        let info = server.client().await.call("environment/info", json!({})).await;
        assert_eq!((&info["temporaryDirectories"], &info["tempDir"]), (&json!([]), &json!("file:///tmp")));
    }
}

#[tokio::test]
async fn status_is_ready() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    for params in [json!(null), json!({})] {
        assert_eq!(client.call("environment/status", params).await, json!({"status": "ready"}));
    }
    for method in ["environment/info", "environment/status"] {
        let error = client.call_error(method, json!({"a": 1})).await;
        assert_eq!(error["code"], -32602);
        assert!(error["message"].as_str().unwrap().starts_with("invalid type: map, expected unit"), "{error}");
    }
}
