//! Policies that allow to read only a part of the files, and entries that stand for the workspace roots.

use testkit::{TestServer, Value, base64, json};

use crate::policies::{path_entry, restricted, special_entry};
use crate::{Workspace, run, start_params};

/// The programs may be read, and whatever the entry allows.
fn minimal_and(entry: Value) -> Value {
    restricted(vec![special_entry(json!({"kind": "minimal"}), "read"), entry], "restricted")
}

#[tokio::test]
async fn nothing_can_be_made_beside_a_workspace_that_is_all_that_may_be_seen() {
    let (server, folder) = (TestServer::start().await, Workspace::new());
    std::fs::create_dir(folder.path().join("workspace")).unwrap();
    let sandbox = minimal_and(path_entry(&format!("{}/workspace", folder.uri()), "write"));
    let mut client = server.client().await;
    let requests = |directory: &str| {
        let at = |name: &str| format!("{}/{directory}{name}", folder.uri());
        [
            ("fs/writeFile", json!({"path": at("file"), "dataBase64": base64("x"), "sandbox": sandbox})),
            ("fs/createDirectory", json!({"path": at("made"), "recursive": false, "sandbox": sandbox})),
            ("fs/createDirectory", json!({"path": at("a/b"), "sandbox": sandbox})),
        ]
    };
    for (method, params) in requests("") {
        let error = client.call_error(method, params.clone()).await;
        assert_eq!(error["data"]["kind"], "sandboxDenied", "{method} {params} {error}");
    }
    assert_eq!(folder.names(), ["workspace"]);
    for (method, params) in requests("workspace/") {
        assert_eq!(client.call(method, params).await, json!({}));
    }
    let made = folder.path().join("workspace");
    assert!(made.join("file").is_file() && made.join("made").is_dir() && made.join("a/b").is_dir());
    for (method, mut params) in requests("") {
        params["sandbox"] = json!(null);
        assert_eq!(client.call(method, params).await, json!({}));
    }
    assert_eq!(folder.names(), ["a", "file", "made", "workspace"], "without the sandbox they are made");
}

#[tokio::test]
async fn project_roots_are_the_workspace_roots_of_the_policy() {
    let (server, workspace) = (TestServer::start().await, Workspace::new());
    std::fs::write(workspace.path().join("file"), "text").unwrap();
    let mut client = server.client().await;
    let mut sandbox = minimal_and(special_entry(json!({"kind": "project_roots"}), "write"));
    sandbox["cwd"] = json!(workspace.uri());
    let at = workspace.path().display();
    let script = format!("cat {at}/file && echo x > {at}/made");
    let read = json!({"path": format!("{}/file", workspace.uri())});
    for (process, roots) in [("absent", None), ("empty", Some(json!([])))] {
        if let Some(roots) = roots {
            sandbox["workspaceRoots"] = roots;
        }
        let ended = run(&mut client, start_params(process, &script, &sandbox)).await;
        let (output, code) = (format!("cat: {at}/file: No such file or directory\n"), json!(1));
        assert_eq!((ended.output, &ended.exited["exitCode"]), (output, &code), "{process}");
        let mut params = read.clone();
        params["sandbox"] = sandbox.clone();
        let error = client.call_error("fs/readFile", params).await;
        assert_eq!((&error["code"], &error["data"]["kind"]), (&json!(-32004), &json!("notFound")), "{error}");
    }
    assert_eq!(workspace.names(), ["file"]);

    sandbox["workspaceRoots"] = json!([workspace.uri()]);
    let ended = run(&mut client, start_params("given", &script, &sandbox)).await;
    assert_eq!((ended.output.as_str(), &ended.exited["exitCode"]), ("text", &json!(0)));
    assert_eq!(std::fs::read_to_string(workspace.path().join("made")).unwrap(), "x\n");
    let mut params = read;
    params["sandbox"] = sandbox;
    assert_eq!(client.call("fs/readFile", params).await, json!({"dataBase64": base64("text")}));
}
