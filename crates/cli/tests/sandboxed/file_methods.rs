//! Every method about files, with a policy: it works in the workspace, and it fails where the policy allows less.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use testkit::{Client, TestServer, Value, base64, json, unbase64};

use crate::Workspace;
use crate::policies::path_entry;

/// A server, a workspace that may be written, and a directory beside it that may be read. `outside/denied` may not.
struct FileScene {
    client: Client,
    workspace: Workspace,
    outside: Workspace,
    sandbox: Value,
    _server: TestServer,
}

impl FileScene {
    /// Each directory has a file `file`, a directory `folder` with a file `below`, and a link `link` to `file`.
    async fn new() -> Self {
        let (server, workspace, outside) = (TestServer::start().await, Workspace::new(), Workspace::new());
        let denied = outside.path().join("denied");
        fs::create_dir(&denied).unwrap();
        for directory in [workspace.path(), outside.path(), &denied] {
            fs::write(directory.join("file"), "needle").unwrap();
            fs::create_dir(directory.join("folder")).unwrap();
            fs::write(directory.join("folder/below"), "below").unwrap();
            symlink("file", directory.join("link")).unwrap();
        }
        let entry = path_entry(&format!("{}/denied", outside.uri()), "deny");
        let sandbox = workspace.policy_with(&[entry], "restricted");
        Self { client: server.client().await, workspace, outside, sandbox, _server: server }
    }

    fn inside(&self, name: &str) -> String {
        format!("{}/{name}", self.workspace.uri())
    }

    fn outside(&self, name: &str) -> String {
        format!("{}/{name}", self.outside.uri())
    }

    fn denied(&self, name: &str) -> String {
        format!("{}/denied/{name}", self.outside.uri())
    }

    async fn call(&mut self, method: &str, mut params: Value) -> Value {
        params["sandbox"] = self.sandbox.clone();
        self.client.call(method, params).await
    }

    /// Sends a request that must fail, and asserts that the error names the sandbox as the reason.
    async fn assert_denied(&mut self, method: &str, mut params: Value) {
        params["sandbox"] = self.sandbox.clone();
        let error = self.client.call_error(method, params.clone()).await;
        assert_eq!(error["data"]["kind"], "sandboxDenied", "{method} {params}: {error}");
    }

    /// What is outside: the path of each file below the directory, with its contents or its target.
    fn files_outside(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let mut directories = vec![self.outside.path().to_owned()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(&directory).unwrap() {
                let path = entry.unwrap().path();
                let name = path.strip_prefix(self.outside.path()).unwrap().display().to_string();
                let metadata = path.symlink_metadata().unwrap();
                let mode = metadata.permissions().mode();
                if metadata.is_dir() {
                    found.push((name, format!("directory {mode:o}")));
                    directories.push(path);
                } else if metadata.is_symlink() {
                    found.push((name, path.read_link().unwrap().display().to_string()));
                } else {
                    found.push((name, format!("{} {mode:o}", fs::read_to_string(&path).unwrap())));
                }
            }
        }
        found.sort();
        found
    }
}

#[tokio::test]
async fn methods_that_read_work_in_the_workspace() {
    let mut scene = FileScene::new().await;
    let (root, file) = (scene.workspace.uri(), scene.inside("file"));
    assert_eq!(scene.call("fs/readFile", json!({"path": file})).await, json!({"dataBase64": base64("needle")}));
    let metadata = scene.call("fs/getMetadata", json!({"path": file})).await;
    assert_eq!((&metadata["isFile"], &metadata["size"]), (&json!(true), &json!(6)), "{metadata}");
    let listed = scene.call("fs/readDirectory", json!({"path": scene.inside("folder")})).await;
    assert_eq!(listed, json!({"entries": [{"fileName": "below", "isDirectory": false, "isFile": true}]}));
    let linked = scene.call("fs/readLink", json!({"path": scene.inside("link")})).await;
    assert_eq!(linked, json!({"target": "file"}));
    let canonical = scene.call("fs/canonicalize", json!({"path": scene.inside("link")})).await;
    assert_eq!(canonical, json!({"path": file}));
    let opened = scene.call("fs/open", json!({"path": file, "handleId": "h"})).await;
    assert_eq!(opened["handleId"], "h");
    let block = scene.client.call("fs/readBlock", json!({"handleId": "h", "offset": 2, "len": 100})).await;
    assert_eq!(block, json!({"chunk": base64("edle"), "eof": true}));
    assert_eq!(scene.client.call("fs/close", json!({"handleId": "h"})).await, json!({}));
    let search = json!({"searchId": "s", "path": root, "pattern": "needle"});
    let found = scene.call("fs/search", search).await;
    assert_eq!((&found["filesMatched"], &found["errorCount"]), (&json!(1), &json!(0)), "{found}");
    scene.call("fs/watch", json!({"watchId": "w", "path": root, "recursive": true})).await;
    fs::write(scene.workspace.path().join("folder/new"), "").unwrap();
    let changed = scene.client.take(|message| message["method"] == "fs/changed").await;
    let created = json!({"path": scene.inside("folder/new"), "kind": "created", "isDirectory": false});
    assert_eq!(changed["params"]["changes"], json!([created]), "{changed}");
}

/// The options of a walk that reaches everything in these tests.
fn walk(path: &str) -> Value {
    let options = json!({"maxDepth": 4, "maxDirectories": 100, "maxEntries": 1000, "followDirectorySymlinks": false});
    json!({"path": path, "options": options})
}

#[tokio::test]
async fn a_walk_lists_what_may_be_read_and_names_what_may_not() {
    let mut scene = FileScene::new().await;
    let uri = scene.outside.uri();
    let walked = scene.call("fs/walk", walk(&uri)).await;
    let entry = |name: &str, kind: &str| json!({"path": format!("{uri}/{name}"), "kind": kind});
    let expected = [
        entry("denied", "directory"),
        entry("file", "file"),
        entry("folder", "directory"),
        entry("folder/below", "file"),
    ];
    assert_eq!((&walked["entries"], &walked["truncated"]), (&json!(expected), &json!(false)), "{walked}");
    let denied = format!("{uri}/denied");
    let error = json!({"path": denied, "message": "Permission denied (os error 13)"});
    assert_eq!(walked["errors"], json!([error]));
    let walked = scene.call("fs/walk", walk(&denied)).await;
    assert_eq!(walked, json!({"entries": [], "errors": [error], "truncated": false}));
}

#[tokio::test]
async fn methods_that_read_fail_where_reading_is_denied() {
    let mut scene = FileScene::new().await;
    let (file, directory) = (scene.denied("file"), scene.outside("denied"));
    for method in ["fs/readFile", "fs/getMetadata", "fs/canonicalize"] {
        scene.assert_denied(method, json!({"path": file})).await;
        scene.client.call(method, json!({"path": file})).await;
    }
    scene.assert_denied("fs/readDirectory", json!({"path": directory})).await;
    scene.assert_denied("fs/readDirectory", json!({"path": scene.denied("folder")})).await;
    scene.assert_denied("fs/readLink", json!({"path": scene.denied("link")})).await;
    scene.assert_denied("fs/open", json!({"path": file, "handleId": "h"})).await;
    scene.assert_denied("fs/watch", json!({"watchId": "w", "path": directory, "recursive": true})).await;
    scene.assert_denied("fs/search", json!({"searchId": "s", "path": file, "pattern": "needle"})).await;
    let copy = json!({"sourcePath": file, "destinationPath": scene.inside("copy"), "recursive": false});
    scene.assert_denied("fs/copy", copy).await;
    let rename = json!({"sourcePath": file, "destinationPath": scene.inside("moved")});
    scene.assert_denied("fs/rename", rename).await;
    assert_eq!(scene.workspace.names(), [".agents", ".codex", ".git", "file", "folder", "link"]);
}

#[tokio::test]
async fn methods_that_read_fail_where_a_link_leads_to_what_is_denied() {
    let mut scene = FileScene::new().await;
    let denied = scene.outside.path().join("denied");
    for name in ["file", "folder", "none"] {
        symlink(denied.join(name), scene.workspace.path().join(format!("to-{name}"))).unwrap();
    }
    for name in ["to-file", "to-folder", "to-none"] {
        let link = scene.inside(name);
        for method in ["fs/readFile", "fs/readDirectory", "fs/getMetadata", "fs/canonicalize"] {
            scene.assert_denied(method, json!({"path": link})).await;
        }
        scene.assert_denied("fs/open", json!({"path": link, "handleId": "h"})).await;
        scene.assert_denied("fs/search", json!({"searchId": "s", "path": link, "pattern": "needle"})).await;
        let mut walked = walk(&link);
        walked["options"]["followDirectorySymlinks"] = json!(true);
        scene.assert_denied("fs/walk", walked).await;
        scene.assert_denied("fs/watch", json!({"watchId": "w", "path": link, "recursive": true})).await;
        scene.assert_denied("fs/writeFile", json!({"path": link, "dataBase64": ""})).await;
    }
}

#[tokio::test]
async fn an_entry_that_is_not_valid_is_refused_also_if_everything_is_allowed() {
    let mut scene = FileScene::new().await;
    let all = json!({"path": {"type": "special", "value": {"kind": "root"}}, "access": "write"});
    let glob = json!({"path": {"type": "glob_pattern", "pattern": "/x*"}, "access": "write"});
    for (entry, start) in [
        (
            path_entry("file:///C:/x", "write"),
            "invalid sandbox permission path URI: 'file:///C:/x' is invalid on 'linux'",
        ),
        (glob, "failed to prepare fs sandbox: sandbox glob pattern `/x*` must have access deny"),
    ] {
        scene.sandbox["permissions"]["file_system"]["entries"] = json!([all, entry]);
        let (file, new) = (scene.inside("file"), scene.inside("new"));
        for (method, mut params) in [
            ("fs/readFile", json!({"path": file})),
            ("fs/getMetadata", json!({"path": file})),
            ("fs/writeFile", json!({"path": new, "dataBase64": ""})),
            ("fs/search", json!({"searchId": "s", "path": file, "pattern": "needle"})),
            ("fs/watch", json!({"watchId": "w", "path": file, "recursive": false})),
        ] {
            params["sandbox"] = scene.sandbox.clone();
            let error = scene.client.call_error(method, params).await;
            assert_eq!(error["code"], -32600, "{method}: {error}");
            assert!(error["message"].as_str().unwrap().starts_with(start), "{method}: {error}");
        }
    }
    assert!(!scene.workspace.names().contains(&"new".to_owned()));
    scene.sandbox["permissions"]["file_system"]["entries"] = json!([all]);
    scene.call("fs/writeFile", json!({"path": scene.inside("new"), "dataBase64": ""})).await;
}

#[tokio::test]
async fn methods_that_write_work_in_the_workspace() {
    let mut scene = FileScene::new().await;
    let at = |name: &str| scene.workspace.path().join(name);
    let (written, folder, copy) = (at("written"), at("a/b"), at("copy"));
    let (moved, made, uploaded) = (at("moved"), at("made"), at("uploaded"));
    let (file, removed) = (at("file"), at("folder"));
    let done = json!({});
    let write = json!({"path": scene.inside("written"), "dataBase64": base64("text")});
    assert_eq!(scene.call("fs/writeFile", write).await, done);
    assert_eq!(fs::read_to_string(&written).unwrap(), "text");
    assert_eq!(scene.call("fs/createDirectory", json!({"path": scene.inside("a/b")})).await, done);
    assert!(folder.is_dir());
    // The source is outside, where it may be read.
    let params =
        json!({"sourcePath": scene.outside("folder"), "destinationPath": scene.inside("copy"), "recursive": true});
    assert_eq!(scene.call("fs/copy", params).await, done);
    assert_eq!(fs::read_to_string(copy.join("below")).unwrap(), "below");
    let params = json!({"sourcePath": scene.inside("written"), "destinationPath": scene.inside("moved")});
    assert_eq!(scene.call("fs/rename", params).await, done);
    assert_eq!((written.exists(), fs::read_to_string(&moved).unwrap()), (false, "text".to_owned()));
    assert_eq!(scene.call("fs/symlink", json!({"path": scene.inside("made"), "target": "file"})).await, done);
    assert_eq!(made.read_link().unwrap().to_str(), Some("file"));
    let params = json!({"path": scene.inside("file"), "mode": 0o640, "mtime": {"secs": 1_000_000_000, "nanos": 0}});
    assert_eq!(scene.call("fs/setMetadata", params).await, done);
    let metadata = file.metadata().unwrap();
    assert_eq!(metadata.permissions().mode() & 0o7777, 0o640);
    assert_eq!(std::os::unix::fs::MetadataExt::mtime(&metadata), 1_000_000_000);
    assert_eq!(scene.call("fs/remove", json!({"path": scene.inside("folder")})).await, done);
    assert!(!removed.exists());
    let created = scene.call("fs/create", json!({"path": scene.inside("uploaded"), "handleId": "u"})).await;
    assert_eq!(created, json!({"handleId": "u"}));
    for (offset, chunk) in [(0, "up"), (2, "load")] {
        let block = json!({"handleId": "u", "offset": offset, "chunk": base64(chunk)});
        assert_eq!(scene.client.call("fs/writeBlock", block).await, done);
    }
    assert!(!uploaded.exists(), "the file appears when it is whole");
    assert_eq!(scene.client.call("fs/commit", json!({"handleId": "u", "size": 6})).await, done);
    assert_eq!(fs::read_to_string(&uploaded).unwrap(), "upload");
}

#[tokio::test]
async fn methods_that_write_fail_outside_and_change_nothing_there() {
    let mut scene = FileScene::new().await;
    let before = scene.files_outside();
    let file = scene.outside("file");
    let requests = [
        ("fs/writeFile", json!({"path": file, "dataBase64": base64("changed")})),
        ("fs/writeFile", json!({"path": scene.outside("new"), "dataBase64": base64("new")})),
        ("fs/createDirectory", json!({"path": scene.outside("a/b")})),
        ("fs/createDirectory", json!({"path": scene.outside("c"), "recursive": false})),
        ("fs/symlink", json!({"path": scene.outside("made"), "target": "file"})),
        ("fs/setMetadata", json!({"path": file, "mode": 0o777})),
        ("fs/create", json!({"path": file, "handleId": "u"})),
        ("fs/create", json!({"path": scene.outside("new"), "handleId": "v"})),
        ("fs/remove", json!({"path": file})),
        ("fs/remove", json!({"path": scene.outside("folder")})),
        ("fs/remove", json!({"path": scene.outside("denied")})),
    ];
    for (method, params) in &requests {
        scene.assert_denied(method, params.clone()).await;
    }
    for method in ["fs/copy", "fs/rename"] {
        let pair = |from: String, to: String| json!({"sourcePath": from, "destinationPath": to, "recursive": true});
        scene.assert_denied(method, pair(scene.inside("file"), scene.outside("new"))).await;
        scene.assert_denied(method, pair(scene.inside("file"), file.clone())).await;
        scene.assert_denied(method, pair(scene.inside("folder"), scene.outside("new"))).await;
        scene.assert_denied(method, pair(scene.inside("file"), scene.denied("new"))).await;
        scene.assert_denied(method, pair(scene.outside("file"), scene.outside("new"))).await;
    }
    let from_outside = json!({"sourcePath": file, "destinationPath": scene.inside("moved")});
    scene.assert_denied("fs/rename", from_outside).await;
    assert_eq!(scene.files_outside(), before);
    assert_eq!(scene.workspace.names(), [".agents", ".codex", ".git", "file", "folder", "link"]);
    // The policy was the reason: without it the same requests succeed.
    for (method, params) in requests {
        scene.client.call(method, params).await;
    }
    assert_eq!(scene.outside.names(), ["a", "c", "link", "made", "new"]);
}

#[tokio::test]
async fn a_handle_stays_with_its_file_when_the_path_is_replaced() {
    let mut scene = FileScene::new().await;
    scene.call("fs/open", json!({"path": scene.inside("file"), "handleId": "h"})).await;
    let path = scene.workspace.path().join("file");
    fs::remove_file(&path).unwrap();
    let secret = scene.outside.path().join("denied/file");
    fs::write(&secret, "secret").unwrap();
    symlink(secret, &path).unwrap();
    let block = scene.client.call("fs/readBlock", json!({"handleId": "h", "offset": 0, "len": 100})).await;
    assert_eq!(unbase64(&block["chunk"]), b"needle");
    // The path now leads to a file that is denied.
    scene.assert_denied("fs/readFile", json!({"path": scene.inside("file")})).await;
    let unconfined = scene.client.call("fs/readFile", json!({"path": scene.inside("file")})).await;
    assert_eq!(unconfined, json!({"dataBase64": base64("secret")}));
    let block = scene.client.call("fs/readBlock", json!({"handleId": "h", "offset": 3, "len": 1})).await;
    assert_eq!(block, json!({"chunk": base64("d"), "eof": false}));
}
