//! File operations with a policy.

use testkit::{Client, TestServer, Value, base64, json};

use crate::Workspace;
use crate::policies::path_entry;

async fn kind(client: &mut Client, method: &str, params: Value) -> (i64, String) {
    let error = client.call_error(method, params).await;
    (error["code"].as_i64().unwrap(), error["data"]["kind"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn a_policy_decides_about_every_operation() {
    let (server, workspace, outside) = (TestServer::start().await, Workspace::new(), Workspace::new());
    std::fs::write(outside.path().join("secret"), "secret").unwrap();
    let sandbox = workspace.policy_with(&[path_entry(&format!("{}/secret", outside.uri()), "deny")], "restricted");
    let mut client = server.client().await;
    let inside = |name: &str| json!({"path": format!("{}/{name}", workspace.uri()), "sandbox": sandbox});
    let with = |mut params: Value, name: &str, value: Value| {
        params[name] = value;
        params
    };
    client.call("fs/writeFile", with(inside("f"), "dataBase64", base64("hello"))).await;
    assert_eq!(client.call("fs/readFile", inside("f")).await["dataBase64"], base64("hello"));
    client.call("fs/createDirectory", inside("d/e")).await;
    assert_eq!(client.call("fs/getMetadata", inside("d")).await["isDirectory"], true);
    client.call("fs/open", with(inside("f"), "handleId", json!("h"))).await;
    let block = client.call("fs/readBlock", json!({"handleId": "h", "offset": 0, "len": 100})).await;
    assert_eq!(block["chunk"], base64("hello"));

    let denied = |code: i64| (code, "sandboxDenied".to_owned());
    let other = |name: &str| json!({"path": format!("{}/{name}", outside.uri()), "sandbox": sandbox});
    assert_eq!(kind(&mut client, "fs/readFile", other("secret")).await, denied(-32600));
    assert_eq!(
        kind(&mut client, "fs/writeFile", with(other("new"), "dataBase64", base64("x"))).await,
        denied(-32603)
    );
    assert_eq!(kind(&mut client, "fs/remove", other("secret")).await.1, "sandboxDenied");
    assert_eq!(
        kind(&mut client, "fs/writeFile", with(inside(".git/config"), "dataBase64", base64("x"))).await,
        denied(-32603)
    );
    assert_eq!(kind(&mut client, "fs/remove", inside(".git")).await.1, "sandboxDenied");
    let rename = json!({"sourcePath": format!("{}/.git", workspace.uri()), "destinationPath": format!("{}/x", workspace.uri()), "sandbox": sandbox});
    assert_eq!(kind(&mut client, "fs/rename", rename).await.1, "sandboxDenied");
    assert_eq!(outside.names(), ["secret"]);
}

#[tokio::test]
async fn a_denied_directory_exists_for_every_operation() {
    let (server, workspace, outside) = (TestServer::start().await, Workspace::new(), Workspace::new());
    let denied = outside.uri();
    let sandbox = workspace.policy_with(&[path_entry(&denied, "deny")], "restricted");
    let mut client = server.client().await;
    let params = json!({"path": denied, "sandbox": sandbox});
    assert_eq!(client.call("fs/canonicalize", params.clone()).await["path"], denied);
    assert_eq!(client.call("fs/getMetadata", params.clone()).await["isDirectory"], true);
    assert_eq!(kind(&mut client, "fs/readDirectory", params).await, (-32600, "sandboxDenied".to_owned()));
    let destination = format!("{}/copy", workspace.uri());
    let copy = json!({"sourcePath": denied, "destinationPath": destination, "recursive": true, "sandbox": sandbox});
    assert_eq!(kind(&mut client, "fs/copy", copy).await.1, "sandboxDenied");
    let search = json!({"searchId": "s", "path": denied, "pattern": "x", "sandbox": sandbox});
    assert_eq!(client.call("fs/search", search).await["errorCount"], 1);
}

#[tokio::test]
async fn links_lead_nowhere_that_the_policy_does_not_allow() {
    let (server, workspace, outside) = (TestServer::start().await, Workspace::new(), Workspace::new());
    std::fs::write(outside.path().join("secret"), "secret").unwrap();
    std::os::unix::fs::symlink(outside.path(), workspace.path().join("link")).unwrap();
    let sandbox = workspace.policy_with(&[path_entry(&outside.uri(), "deny")], "restricted");
    let mut client = server.client().await;
    let through = |name: &str| json!({"path": format!("{}/link/{name}", workspace.uri()), "sandbox": sandbox});
    // The same operations work without the policy.
    client.call("fs/readFile", json!({"path": format!("{}/link/secret", workspace.uri())})).await;
    assert_eq!(kind(&mut client, "fs/readFile", through("secret")).await, (-32600, "sandboxDenied".to_owned()));
    let mut write = through("new");
    write["dataBase64"] = base64("x");
    assert_eq!(kind(&mut client, "fs/writeFile", write).await.1, "sandboxDenied");
    assert_eq!(kind(&mut client, "fs/readDirectory", through("")).await.1, "sandboxDenied");
    assert_eq!(outside.names(), ["secret"]);
}

#[tokio::test]
async fn a_search_and_a_watch_see_only_what_may_be_read() {
    let (server, workspace) = (TestServer::start().await, Workspace::new());
    std::fs::create_dir(workspace.path().join("open")).unwrap();
    std::fs::create_dir(workspace.path().join("hidden")).unwrap();
    for directory in ["open", "hidden"] {
        std::fs::write(workspace.path().join(directory).join("f"), "needle").unwrap();
    }
    let sandbox = workspace.policy_with(&[path_entry(&format!("{}/hidden", workspace.uri()), "deny")], "restricted");
    let mut client = server.client().await;
    let params = json!({"searchId": "s", "path": workspace.uri(), "pattern": "needle", "sandbox": sandbox});
    let found = client.call("fs/search", params).await;
    assert_eq!(found["matches"], 1, "{found}");
    let watch =
        json!({"watchId": "w", "path": format!("{}/hidden", workspace.uri()), "recursive": true, "sandbox": sandbox});
    assert_eq!(kind(&mut client, "fs/watch", watch).await.1, "sandboxDenied");
    client
        .call("fs/watch", json!({"watchId": "w", "path": workspace.uri(), "recursive": true, "sandbox": sandbox}))
        .await;
    std::fs::write(workspace.path().join("open/new"), "").unwrap();
    let changed = client.take(|message| message["method"] == "fs/changed").await;
    assert!(changed.to_string().contains("open/new"), "{changed}");
}

#[tokio::test]
async fn a_replaced_workspace_is_noticed() {
    let (server, workspace) = (TestServer::start().await, Workspace::new());
    let directory = workspace.path().join("ws");
    std::fs::create_dir(&directory).unwrap();
    let uri = format!("{}/ws", workspace.uri());
    let sandbox = crate::policy(vec![path_entry(&uri, "write")], "restricted");
    let mut client = server.client().await;
    let script = format!("echo x > {}/f", directory.display());
    crate::run(&mut client, crate::start_params("a", &script, &sandbox)).await;
    std::fs::rename(&directory, workspace.path().join("old")).unwrap();
    std::fs::create_dir(&directory).unwrap();
    let ended = crate::run(&mut client, crate::start_params("b", &script, &sandbox)).await;
    assert_eq!(ended.exited["exitCode"], 0, "{}", ended.output);
    assert!(directory.join("f").exists(), "the write must reach the directory that is there now");
}
