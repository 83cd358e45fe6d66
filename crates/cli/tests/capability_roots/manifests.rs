//! Manifests of plugins: which manifest the server uses if there are several, which files a manifest may name, and
//! the warnings about manifests and files that cannot be used.

use testkit::{Value, json};

use crate::Tree;

/// Discovers a root with this manifest and several configuration files. Returns the contents of `mcpConfig` and
/// `appsConfig`, and the warnings, in which `U` stands for the URI of the manifest.
async fn discover_manifest(manifest: &str) -> (Value, Value, Vec<String>) {
    let tree = Tree::new();
    tree.write("r/.codex-plugin/plugin.json", manifest);
    tree.write("r/.mcp.json", "by default");
    tree.write("r/.apps.json", "there is no default");
    tree.write("r/config/mcp.json", "declared");
    tree.write("r/config/apps.json", "declared");
    tree.write("r/etc/hosts", "below the root");
    tree.write("outside.json", "outside");
    let found = tree.discover("r").await;
    let uri = tree.uri("r/.codex-plugin/plugin.json");
    let warnings = found["warnings"].as_array().unwrap().iter();
    let warnings = warnings.map(|warning| warning.as_str().unwrap().replace(&uri, "U")).collect();
    assert_eq!(found["namespaceManifests"], json!([found["plugin"]["manifest"]]), "{manifest}");
    let plugin = &found["plugin"];
    assert_eq!(plugin["manifest"], tree.file("r/.codex-plugin/plugin.json", manifest));
    let contents = |file: &Value| if file.is_null() { json!(null) } else { file["contents"].clone() };
    (contents(&plugin["mcpConfig"]), contents(&plugin["appsConfig"]), warnings)
}

#[tokio::test]
async fn if_a_manifest_contains_its_mcp_servers_the_default_file_is_not_read() {
    for manifest in [r#"{"mcpServers":{"x":{"command":"x"}}}"#, r#"{"mcpServers":{}}"#] {
        assert_eq!(discover_manifest(manifest).await, (json!(null), json!(null), vec![]), "{manifest}");
    }
}

#[tokio::test]
async fn a_manifest_without_a_usable_declaration_uses_the_default_file() {
    for manifest in [
        r#"{"name":"p"}"#,
        r#"{"mcpServers":null,"apps":null}"#,
        r#"{"mcpServers":5,"apps":{}}"#,
        r#"{"mcpServers":["./config/mcp.json"],"apps":["./config/apps.json"]}"#,
        // A manifest that is not exactly one JSON object, or repeats a member, declares nothing.
        r#"["./config/mcp.json","./config/apps.json"]"#,
        r#""./config/mcp.json""#,
        r#"{"mcpServers":{},"mcpServers":{},"apps":"./config/apps.json"}"#,
        r#"{"mcpServers":{},"apps":"./config/apps.json","apps":"./config/apps.json"}"#,
        "\u{feff}{\"mcpServers\":{}}",
        "{\"mcpServers\":{}} and more",
        "",
    ] {
        assert_eq!(discover_manifest(manifest).await, (json!("by default"), json!(null), vec![]), "{manifest}");
    }
}

#[tokio::test]
async fn a_declared_path_must_stay_below_the_root() {
    for (path, found) in [
        ("./config/mcp.json", json!("declared")),
        (".//config/./mcp.json", json!("declared")),
        (".//etc/hosts", json!("below the root")),
        // There is no file at these valid paths.
        ("./nothing.json", json!(null)),
        ("./config", json!(null)),
        ("./.", json!(null)),
        ("./config\\\\mcp.json", json!(null)),
    ] {
        let manifest = format!(r#"{{"mcpServers":"{path}","apps":"{path}"}}"#);
        assert_eq!(discover_manifest(&manifest).await, (found.clone(), found, vec![]), "{path}");
    }
    for (path, reason) in [
        ("config/mcp.json", "path must start with `./`"),
        ("/etc/hosts", "path must start with `./`"),
        ("../outside.json", "path must start with `./`"),
        ("", "path must start with `./`"),
        (".", "path must start with `./`"),
        ("./", "path must remain below the capability root"),
        ("./../outside.json", "path must remain below the capability root"),
        ("./config/../../outside.json", "path must remain below the capability root"),
        ("./config/../config/mcp.json", "path must remain below the capability root"),
        ("./config\\\\..\\\\..\\\\outside.json", "path must remain below the capability root"),
    ] {
        let manifest = format!(r#"{{"apps":"{path}","mcpServers":"{path}"}}"#);
        let warnings = vec![format!("ignoring mcpServers in U: {reason}"), format!("ignoring apps in U: {reason}")];
        assert_eq!(discover_manifest(&manifest).await, (json!("by default"), json!(null), warnings), "{path}");
    }
}

#[tokio::test]
async fn the_first_manifest_that_can_be_read_is_used() {
    let tree = Tree::new();
    tree.write("r/.codex-plugin/plugin.json", b"\xff");
    tree.write("r/.cursor-plugin/plugin.json", "{}");
    // The manifest of a root is opened by its path, so it may be a link to a file.
    tree.write("elsewhere.json", r#"{"name":"linked"}"#);
    tree.link(tree.path_of("elsewhere.json"), "r/.claude-plugin/plugin.json");
    let manifest = tree.file("r/.claude-plugin/plugin.json", r#"{"name":"linked"}"#);
    let broken = format!(
        "capability file {} is not UTF-8: invalid utf-8 sequence of 1 bytes from index 0",
        tree.uri("r/.codex-plugin/plugin.json")
    );
    assert_eq!(
        tree.discover("r").await,
        json!({
            "id": "r", "path": tree.uri("r"),
            "plugin": {"manifest": manifest, "mcpConfig": null, "appsConfig": null},
            "skills": [], "namespaceManifests": [manifest], "warnings": [broken], "error": null,
        })
    );
}

#[tokio::test]
async fn of_the_manifests_of_a_nested_plugin_only_the_one_of_highest_priority_is_read() {
    let tree = Tree::new();
    // The folder of a manifest decides its priority: first .codex-plugin, then .claude-plugin, then .cursor-plugin.
    tree.write("r/b/.claude-plugin/plugin.json", "claude");
    tree.write("r/b/.codex-plugin/plugin.json", "codex");
    tree.write("r/a/.codex-plugin/plugin.json", b"\xff");
    tree.write("r/a/.cursor-plugin/plugin.json", "not read: .codex-plugin comes before .cursor-plugin");
    tree.write("r/a-b/.cursor-plugin/plugin.json", "cursor");
    tree.write("r/c/.other-plugin/plugin.json", "no plugin");
    tree.write("r/c/.codex-plugin/other.json", "no manifest");
    tree.write("r/c/plugin.json", "no manifest");
    tree.write("outside.json", "not found: the scan ignores links to files");
    tree.link(tree.path_of("outside.json"), "r/d/.codex-plugin/plugin.json");
    let found = tree.discover("r").await;
    assert_eq!(
        found["namespaceManifests"],
        json!([
            tree.file("r/a-b/.cursor-plugin/plugin.json", "cursor"),
            tree.file("r/b/.codex-plugin/plugin.json", "codex"),
        ])
    );
    let broken = format!(
        "capability file {} is not UTF-8: invalid utf-8 sequence of 1 bytes from index 0",
        tree.uri("r/a/.codex-plugin/plugin.json")
    );
    assert_eq!((&found["warnings"], &found["plugin"]), (&json!([broken]), &json!(null)));
}

#[tokio::test]
async fn the_nearest_manifest_above_the_root_is_inherited_but_the_root_is_no_plugin() {
    let tree = Tree::new();
    tree.write("p/.codex-plugin/plugin.json", "further");
    tree.write("p/q/.cursor-plugin/plugin.json", "near");
    tree.write("p/q/.codex-plugin/plugin.json", b"\xfe");
    tree.write("p/q/r/s/.claude-plugin/plugin.json", "below");
    let found = tree.discover("p/q/r").await;
    let broken = format!(
        "capability file {} is not UTF-8: invalid utf-8 sequence of 1 bytes from index 0",
        tree.uri("p/q/.codex-plugin/plugin.json")
    );
    assert_eq!(
        found,
        json!({
            "id": "r", "path": tree.uri("p/q/r"), "plugin": null, "skills": [],
            "namespaceManifests": [
                tree.file("p/q/.cursor-plugin/plugin.json", "near"),
                tree.file("p/q/r/s/.claude-plugin/plugin.json", "below"),
            ],
            "warnings": [broken], "error": null,
        })
    );
}

#[tokio::test]
async fn directories_and_fifos_instead_of_files_are_ignored_and_files_instead_of_directories_reported() {
    let tree = Tree::new();
    // Directories and FIFOs are not files, so they are ignored.
    std::fs::create_dir_all(tree.path_of("r/.codex-plugin/plugin.json")).unwrap();
    std::fs::create_dir_all(tree.path_of("r/s/agents/openai.yaml")).unwrap();
    std::fs::create_dir_all(tree.path_of("r/.cursor-plugin")).unwrap();
    let fifo = tree.path_of("r/.cursor-plugin/plugin.json");
    assert!(std::process::Command::new("mkfifo").arg(fifo).status().unwrap().success());
    tree.write("r/s/SKILL.md", "s");
    // A file instead of a directory is reported, because the path below it cannot be read.
    tree.write("r/.claude-plugin", "");
    tree.write("r/t/agents", "");
    tree.write("r/t/SKILL.md", "t");
    let not_a_directory =
        |path: &str| format!("failed to inspect capability file {}: Not a directory (os error 20)", tree.uri(path));
    let warnings =
        json!([not_a_directory("r/.claude-plugin/plugin.json"), not_a_directory("r/t/agents/openai.yaml"),]);
    let skills = json!([tree.skill("r/s/SKILL.md", "s"), tree.skill("r/t/SKILL.md", "t")]);
    assert_eq!(tree.discover("r").await, tree.plain_root("r", skills, warnings));
}

#[tokio::test]
async fn warnings_are_in_the_order_in_which_files_are_read() {
    let tree = Tree::new();
    tree.link("endless", "p/r/endless");
    tree.write("p/r/.codex-plugin/plugin.json", b"\xff");
    tree.write("p/r/.claude-plugin/plugin.json", r#"{"apps":"./apps.json","mcpServers":"x"}"#);
    tree.write("p/r/below/.codex-plugin/plugin.json", b"\xff");
    tree.write("p/r/.mcp.json", b"\xff");
    tree.write("p/r/apps.json", b"\xff");
    tree.write("p/r/z/SKILL.md", "z");
    tree.write("p/r/z/agents/openai.yaml", b"\xff");
    tree.write("p/r/a/SKILL.md", b"\xff");
    let not_text = |path: &str| {
        let uri = tree.uri(path);
        format!("capability file {uri} is not UTF-8: invalid utf-8 sequence of 1 bytes from index 0")
    };
    let too_many_links = "Too many levels of symbolic links (os error 40)";
    let refused =
        format!("ignoring mcpServers in {}: path must start with `./`", tree.uri("p/r/.claude-plugin/plugin.json"));
    assert_eq!(
        tree.discover("p/r").await["warnings"],
        json!([
            format!("failed to scan capability path {}: {too_many_links}", tree.uri("p/r/endless")),
            not_text("p/r/.codex-plugin/plugin.json"),
            not_text("p/r/below/.codex-plugin/plugin.json"),
            refused,
            not_text("p/r/.mcp.json"),
            not_text("p/r/apps.json"),
            not_text("p/r/a/SKILL.md"),
            not_text("p/r/z/agents/openai.yaml"),
        ])
    );
}
