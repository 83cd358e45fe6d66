//! `capabilityRoots/discoverV1`: plugins and skills with the contents of their files, in one request.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

use std::path::{Path, PathBuf};

use testkit::{TestServer, Value, json};

struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn write(&self, path: &str, contents: impl AsRef<[u8]>) {
        std::fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
        std::fs::write(self.at(path), contents).unwrap();
    }

    fn uri(&self, path: &str) -> String {
        uri(&self.at(path))
    }

    fn file(&self, path: &str, contents: &str) -> Value {
        json!({"path": self.uri(path), "contents": contents})
    }

    /// What is found below `path`.
    async fn discover(&self, path: &str) -> Value {
        let server = TestServer::start().await;
        let roots = json!({"roots": [{"id": "r", "path": self.uri(path)}]});
        server.client().await.call("capabilityRoots/discoverV1", roots).await["roots"][0].clone()
    }
}

fn uri(path: &Path) -> String {
    format!("file://{}", path.display())
}

#[tokio::test]
async fn a_complete_bundle_comes_in_one_request() {
    let tree = Tree::new();
    let manifest = r#"{"name":"p","mcpServers":"./config/mcp.json"}"#;
    tree.write("r/.codex-plugin/plugin.json", manifest);
    tree.write("r/.claude-plugin/plugin.json", "{}");
    tree.write("r/config/mcp.json", "{\"mcpServers\":{}}");
    tree.write("r/.mcp.json", "not this one");
    tree.write("r/skills/one/SKILL.md", "# One");
    tree.write("r/skills/one/agents/openai.yaml", "interface: {}");
    tree.write("r/skills/two/SKILL.md", "# Zwei ü");
    tree.write("r/skills/two/OTHER.md", "other");
    tree.write("r/plugins/q/.cursor-plugin/plugin.json", r#"{"name":"q"}"#);
    tree.write("r/plugins/q/skills/three/SKILL.md", "# Three");
    assert_eq!(
        tree.discover("r").await,
        json!({
            "id": "r",
            "path": tree.uri("r"),
            "plugin": {
                "manifest": tree.file("r/.codex-plugin/plugin.json", manifest),
                "mcpConfig": tree.file("r/config/mcp.json", "{\"mcpServers\":{}}"),
            },
            "skills": [
                {
                    "file": tree.file("r/skills/one/SKILL.md", "# One"),
                    "metadata": tree.file("r/skills/one/agents/openai.yaml", "interface: {}"),
                },
                {"file": tree.file("r/skills/two/SKILL.md", "# Zwei ü"), "metadata": null},
                {"file": tree.file("r/plugins/q/skills/three/SKILL.md", "# Three"), "metadata": null},
            ],
            "namespaceManifests": [tree.file("r/plugins/q/.cursor-plugin/plugin.json", r#"{"name":"q"}"#)],
            "warnings": [],
            "error": null,
        })
    );
}

#[tokio::test]
async fn servers_that_a_manifest_names_itself_need_no_file() {
    let tree = Tree::new();
    let manifest = r#"{"name":"p","mcpServers":{"x":{"command":"x"}}}"#;
    tree.write("r/.cursor-plugin/plugin.json", manifest);
    tree.write("r/.mcp.json", "{}");
    let plugin = &tree.discover("r").await["plugin"];
    assert_eq!(*plugin, json!({"manifest": tree.file("r/.cursor-plugin/plugin.json", manifest), "mcpConfig": null}));

    tree.write("r/.cursor-plugin/plugin.json", r#"{"name":"p"}"#);
    assert_eq!(tree.discover("r").await["plugin"]["mcpConfig"], tree.file("r/.mcp.json", "{}"), "by default");
}

#[tokio::test]
async fn what_cannot_be_returned_is_a_warning() {
    let tree = Tree::new();
    tree.write("r/.codex-plugin/plugin.json", r#"{"mcpServers":"../outside.json"}"#);
    tree.write("outside.json", "{}");
    tree.write("r/large/SKILL.md", vec![b'x'; (1 << 20) + 1]);
    tree.write("r/bytes/SKILL.md", b"\xff");
    tree.write("r/fine/SKILL.md", vec![b'x'; 1 << 20]);
    let found = tree.discover("r").await;
    assert_eq!(found["plugin"]["mcpConfig"], json!(null));
    let skills: Vec<_> = found["skills"].as_array().unwrap().iter().map(|skill| &skill["file"]["path"]).collect();
    assert_eq!(skills, [&json!(tree.uri("r/fine/SKILL.md"))]);
    let named = "the file of MCP servers that the manifest names, `../outside.json`, is not a path inside the plugin";
    assert_eq!(
        found["warnings"],
        json!([
            format!("{}: {named}", tree.at("r").display()),
            format!("{}: it is not UTF-8", tree.at("r/bytes/SKILL.md").display()),
            format!("{}: file is too large to read: limit is 1048576 bytes", tree.at("r/large/SKILL.md").display()),
        ])
    );
    assert_eq!(found["error"], json!(null));
}

#[tokio::test]
async fn the_scan_ends_at_its_depth_and_follows_links_to_directories() {
    let tree = Tree::new();
    tree.write("r/1/2/3/4/5/6/SKILL.md", "deep enough");
    tree.write("r/1/2/3/4/5/6/7/SKILL.md", "too deep");
    tree.write("outside/SKILL.md", "linked");
    std::os::unix::fs::symlink(tree.at("outside"), tree.at("r/link")).unwrap();
    std::os::unix::fs::symlink(tree.at("r"), tree.at("r/loop")).unwrap();
    let found = tree.discover("r").await;
    let skills: Vec<_> = found["skills"].as_array().unwrap().iter().map(|skill| &skill["file"]["contents"]).collect();
    assert_eq!(skills, ["linked", "deep enough"]);
}

#[tokio::test]
async fn a_tree_of_too_many_directories_is_told() {
    let tree = Tree::new();
    for number in 0..2_001 {
        std::fs::create_dir_all(tree.at(&format!("r/{number}"))).unwrap();
    }
    let found = tree.discover("r").await;
    let why = "only 2000 directories and 20000 entries are looked at; the rest is left out";
    assert_eq!(found["warnings"], json!([format!("{}: {why}", tree.at("r").display())]));
}

#[tokio::test]
async fn each_root_fails_on_its_own_and_the_order_is_kept() {
    let tree = Tree::new();
    tree.write("file", "");
    let restricting = json!({
        "permissions": {"type": "managed", "network": "restricted", "file_system": {"type": "restricted", "entries": []}},
        "windowsSandboxLevel": "disabled",
    });
    let open = json!({"permissions": {"type": "disabled"}, "windowsSandboxLevel": "disabled"});
    let mut roots = vec![
        json!({"id": "missing", "path": tree.uri("missing")}),
        json!({"id": "file", "path": tree.uri("file")}),
        json!({"id": "sandboxed", "path": tree.uri("0"), "sandbox": restricting}),
        json!({"id": "open", "path": tree.uri("0"), "sandbox": open}),
        json!({"id": "foreign", "path": "file://host/share"}),
    ];
    for number in 0..100 {
        tree.write(&format!("{number}/s/SKILL.md"), number.to_string());
        roots.push(json!({"id": number.to_string(), "path": tree.uri(&number.to_string())}));
    }
    let server = TestServer::start().await;
    let result = server.client().await.call("capabilityRoots/discoverV1", json!({"roots": roots})).await;
    let found = result["roots"].as_array().unwrap();
    let ids = |roots: &[Value]| roots.iter().map(|root| root["id"].clone()).collect::<Vec<_>>();
    assert_eq!(ids(found), ids(&roots));
    assert_eq!(found[0]["error"], "No such file or directory (os error 2)");
    assert_eq!(found[1]["error"], "capability root is not a directory");
    assert_eq!(found[2]["error"], "filesystem sandbox cannot be enforced on this executor");
    assert_eq!(found[2]["skills"], json!([]), "nothing was read");
    assert_eq!((&found[3]["error"], &found[3]["skills"][0]["file"]["contents"]), (&json!(null), &json!("0")));
    assert!(found[4]["error"].is_string(), "{}", found[4]);
    for (number, root) in found[5..].iter().enumerate() {
        assert_eq!(root["skills"][0]["file"]["contents"], number.to_string());
    }
}

#[tokio::test]
async fn more_roots_than_the_limit_are_refused() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let roots = |count: usize| json!({"roots": vec![json!({"id": "r", "path": "file:///nowhere"}); count]});
    let found = client.call("capabilityRoots/discoverV1", roots(128)).await;
    assert_eq!(found["roots"].as_array().unwrap().len(), 128);
    let error = client.call_error("capabilityRoots/discoverV1", roots(129)).await;
    assert_eq!(error, json!({"code": -32600, "message": "capability root discovery accepts at most 128 roots"}));
    assert_eq!(client.call("capabilityRoots/discoverV1", roots(0)).await, json!({"roots": []}));

    let error = server.raw().await.call_error("capabilityRoots/discoverV1", roots(1)).await;
    assert_eq!(error["message"], "client must call initialize before using capability discovery methods");
}

#[tokio::test]
async fn what_does_not_fit_a_message_is_left_out_and_told() {
    let tree = Tree::new();
    for number in 0..4 {
        tree.write(&format!("r/{number}/SKILL.md"), vec![b'x'; 25_000]);
    }
    let server = TestServer::with_args(&["--max-message-bytes", "65536"]).await;
    let roots = json!({"roots": [{"id": "r", "path": tree.uri("r")}]});
    let found = server.client().await.call("capabilityRoots/discoverV1", roots).await["roots"][0].clone();
    assert_eq!((found["skills"].as_array().unwrap().len(), found["warnings"].as_array().unwrap().len()), (2, 2));
    assert!(found["warnings"][0].as_str().unwrap().contains("--max-message-bytes"), "{}", found["warnings"]);
}
