//! The examples that the published protocol of `codex exec-server` gives for `capabilityRoots/discoverV1`, word for
//! word. Only the folder is another one.

use testkit::{TestServer, Value, json};

use crate::{DISCOVER, Tree};

/// The folder in the published answers.
const PUBLISHED_FOLDER: &str = "file:///srv/";

const DEMO_MANIFEST: &str = r#"{"name":"demo","mcpServers":"./config/mcp.json","apps":"./config/apps.json"}"#;

/// The plugin `demo` of the published examples.
fn demo() -> Tree {
    let tree = Tree::new();
    tree.write("demo/.codex-plugin/plugin.json", DEMO_MANIFEST);
    tree.write("demo/.mcp.json", "not this one");
    tree.write("demo/config/mcp.json", r#"{"mcpServers":{}}"#);
    tree.write("demo/config/apps.json", r#"{"apps":{}}"#);
    tree.write("demo/nested/.claude-plugin/plugin.json", r#"{"name":"nested"}"#);
    tree.write("demo/nested/SKILL.md", "# n\n");
    tree.write("demo/nested-cursor/.cursor-plugin/plugin.json", r#"{"name":"nc"}"#);
    tree.write("demo/nested-cursor/SKILL.md", "# nc\n");
    tree.write("demo/skills/deploy/SKILL.md", "# deploy\n");
    tree.write("demo/skills/deploy/agents/openai.yaml", "policy: {}\n");
    tree.write("demo/skills/deploy/skill.md", "another name\n");
    tree
}

/// Sends the published params and compares the whole answer with the published one.
async fn assert_published(tree: &Tree, params: &str, result: &str) {
    let with_folder = |text: &str| -> Value {
        serde_json::from_str(&text.replace(PUBLISHED_FOLDER, &tree.uri(""))).expect("published JSON")
    };
    let server = TestServer::start().await;
    assert_eq!(server.client().await.call(DISCOVER, with_folder(params)).await, with_folder(result));
}

#[tokio::test]
async fn one_request_returns_all_files_of_a_plugin() {
    assert_published(
        &demo(),
        r#"{"roots":[{"id":"demo@1","path":"file:///srv/demo"}]}"#,
        r##"{"roots":[{"error":null,"id":"demo@1","namespaceManifests":[{"contents":"{\"name\":\"demo\",\"mcpServers\":\"./config/mcp.json\",\"apps\":\"./config/apps.json\"}","path":"file:///srv/demo/.codex-plugin/plugin.json"},{"contents":"{\"name\":\"nested\"}","path":"file:///srv/demo/nested/.claude-plugin/plugin.json"},{"contents":"{\"name\":\"nc\"}","path":"file:///srv/demo/nested-cursor/.cursor-plugin/plugin.json"}],"path":"file:///srv/demo","plugin":{"appsConfig":{"contents":"{\"apps\":{}}","path":"file:///srv/demo/config/apps.json"},"manifest":{"contents":"{\"name\":\"demo\",\"mcpServers\":\"./config/mcp.json\",\"apps\":\"./config/apps.json\"}","path":"file:///srv/demo/.codex-plugin/plugin.json"},"mcpConfig":{"contents":"{\"mcpServers\":{}}","path":"file:///srv/demo/config/mcp.json"}},"skills":[{"instructions":{"contents":"# nc\n","path":"file:///srv/demo/nested-cursor/SKILL.md"},"metadata":null},{"instructions":{"contents":"# n\n","path":"file:///srv/demo/nested/SKILL.md"},"metadata":null},{"instructions":{"contents":"# deploy\n","path":"file:///srv/demo/skills/deploy/SKILL.md"},"metadata":{"contents":"policy: {}\n","path":"file:///srv/demo/skills/deploy/agents/openai.yaml"}}],"warnings":[]}]}"##,
    )
    .await;
}

#[tokio::test]
async fn a_missing_root_and_a_root_that_is_a_file_are_errors_and_a_manifest_that_is_not_json_is_returned() {
    let tree = Tree::new();
    tree.write("file", "");
    tree.write("bad/.codex-plugin/plugin.json", "{not json");
    tree.write("bad/.mcp.json", "{}");
    assert_published(
        &tree,
        r#"{"roots":[{"id":"a","path":"file:///srv/nope"},{"id":"b","path":"file:///srv/file"},{"id":"c","path":"file:///srv/bad"}]}"#,
        r#"{"roots":[{"error":"failed to inspect capability root file:///srv/nope: No such file or directory (os error 2)","id":"a","namespaceManifests":[],"path":"file:///srv/nope","plugin":null,"skills":[],"warnings":[]},{"error":"capability root file:///srv/file is not a directory","id":"b","namespaceManifests":[],"path":"file:///srv/file","plugin":null,"skills":[],"warnings":[]},{"error":null,"id":"c","namespaceManifests":[{"contents":"{not json","path":"file:///srv/bad/.codex-plugin/plugin.json"}],"path":"file:///srv/bad","plugin":{"appsConfig":null,"manifest":{"contents":"{not json","path":"file:///srv/bad/.codex-plugin/plugin.json"},"mcpConfig":{"contents":"{}","path":"file:///srv/bad/.mcp.json"}},"skills":[],"warnings":[]}]}"#,
    )
    .await;
}

#[tokio::test]
async fn refused_paths_of_a_manifest_and_a_skill_that_is_not_text_cause_warnings() {
    let tree = Tree::new();
    tree.write("rel/.claude-plugin/plugin.json", r#"{"mcpServers":"mcp.json","apps":"./../apps.json"}"#);
    tree.write("rel/mcp.json", "not this one");
    tree.write("apps.json", "nor this one");
    tree.write("rel/.mcp.json", "{}");
    tree.write("rel/SKILL.md", b"\xff");
    assert_published(
        &tree,
        r#"{"roots":[{"id":"r","path":"file:///srv/rel"}]}"#,
        r#"{"roots":[{"error":null,"id":"r","namespaceManifests":[{"contents":"{\"mcpServers\":\"mcp.json\",\"apps\":\"./../apps.json\"}","path":"file:///srv/rel/.claude-plugin/plugin.json"}],"path":"file:///srv/rel","plugin":{"appsConfig":null,"manifest":{"contents":"{\"mcpServers\":\"mcp.json\",\"apps\":\"./../apps.json\"}","path":"file:///srv/rel/.claude-plugin/plugin.json"},"mcpConfig":{"contents":"{}","path":"file:///srv/rel/.mcp.json"}},"skills":[],"warnings":["ignoring mcpServers in file:///srv/rel/.claude-plugin/plugin.json: path must start with `./`","ignoring apps in file:///srv/rel/.claude-plugin/plugin.json: path must remain below the capability root","capability file file:///srv/rel/SKILL.md is not UTF-8: invalid utf-8 sequence of 1 bytes from index 0"]}]}"#,
    )
    .await;
}

#[tokio::test]
async fn a_root_inside_a_plugin_inherits_its_manifest() {
    assert_published(
        &demo(),
        r#"{"roots":[{"id":"inherits","path":"file:///srv/demo/skills"}]}"#,
        r##"{"roots":[{"error":null,"id":"inherits","namespaceManifests":[{"contents":"{\"name\":\"demo\",\"mcpServers\":\"./config/mcp.json\",\"apps\":\"./config/apps.json\"}","path":"file:///srv/demo/.codex-plugin/plugin.json"}],"path":"file:///srv/demo/skills","plugin":null,"skills":[{"instructions":{"contents":"# deploy\n","path":"file:///srv/demo/skills/deploy/SKILL.md"},"metadata":{"contents":"policy: {}\n","path":"file:///srv/demo/skills/deploy/agents/openai.yaml"}}],"warnings":[]}]}"##,
    )
    .await;
}

/// The sandbox is enforced: a denied file is missing from the result, with a warning.
#[tokio::test]
async fn a_file_that_the_sandbox_denies_is_a_warning() {
    let tree = demo();
    let params = r#"{"roots":[{"id":"s","path":"file:///srv/demo/nested","sandbox":{"permissions":{"type":"managed","network":"restricted","file_system":{"type":"restricted","entries":[{"path":{"type":"path","path":"file:///srv/demo/nested"},"access":"read"},{"path":{"type":"path","path":"file:///srv/demo/nested/SKILL.md"},"access":"deny"}]}},"windowsSandboxLevel":"disabled"}}]}"#;
    let params: Value = serde_json::from_str(&params.replace(PUBLISHED_FOLDER, &tree.uri(""))).unwrap();
    let server = TestServer::start().await;
    let found = server.client().await.call(DISCOVER, params).await;
    let root = &found["roots"][0];
    let warning = format!(
        "failed to read capability file {}: Permission denied (os error 13)",
        tree.uri("demo/nested/SKILL.md")
    );
    assert_eq!((&root["skills"], &root["error"], &root["warnings"]), (&json!([]), &Value::Null, &json!([warning])));
    assert!(root["plugin"].is_object(), "{root}");
}
