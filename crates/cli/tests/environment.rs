//! The methods `environment/info` and `environment/status`, which describe the machine of the server.

use std::os::unix::fs::MetadataExt as _;

use testkit::{TestServer, json};

fn uri(path: &std::path::Path) -> String {
    format!("file://{}", path.display())
}

#[tokio::test]
async fn info_reports_the_shell_the_directories_and_the_capabilities() {
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
                "networkProxyLaunch": true, "capabilityDiscoverySandbox": true, "environmentConfigRead": true,
                "httpHeaderEnvVars": true, "sandboxedFileStreaming": true, "sandboxDenials": true, "shellSnapshotV2": true,
                "processResize": true, "processCloseStdin": true, "processWriteQuery": true, "processSignals": true, "processList": true,
                "processTimeout": true, "processLimits": true, "processUmask": true, "readGaps": true, "readParts": true, "sessionKeep": true, "sessionObserve": true,
                "processFlow": true,
                "fsRename": true, "fsWriteBlocks": true, "fsModeIfNew": true, "fsExtents": true, "fsSetMetadata": true,
                "fsLinks": true, "fsWatch": true, "fsSearch": true, "httpCancel": true, "httpLimits": true,
                "portForward": true,
            },
        })
    );
    assert_eq!(
        client.call("environment/info", json!(null)).await,
        info,
        "params `null` and an empty object get the same answer"
    );
}

#[tokio::test]
async fn info_follows_a_working_directory_that_is_renamed_and_then_removed() {
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
        "without a working directory, a relative `TMPDIR` cannot be resolved"
    );
}

#[tokio::test]
async fn tmpdir_is_resolved_against_the_cwd_and_normalised() {
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
async fn without_tmpdir_the_list_of_temporary_directories_is_empty_and_temp_dir_is_slash_tmp() {
    for tmpdir in [None, Some("")] {
        // The server ignores `TMP` and `TEMP`.
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
async fn status_is_ready_and_neither_method_accepts_params() {
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
