//! `environmentConfig/read`: what the configuration files of the environment say, and nothing that was not asked for.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

use std::path::{Path, PathBuf};

use testkit::{Client, TestServer, Value, json};

/// A user with a home directory, and a server that runs as that user.
struct User {
    directory: tempfile::TempDir,
    server: TestServer,
}

impl User {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path().join("home");
        std::fs::create_dir(&home).unwrap();
        let server = TestServer::with(&[], |command| command.env("HOME", &home).env_remove("CODEX_HOME")).await;
        Self { directory, server }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        std::fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
        std::fs::write(self.at(path), text).unwrap();
    }

    fn uri(&self, path: &str) -> String {
        uri(&self.at(path))
    }
}

fn uri(path: &Path) -> String {
    format!("file://{}", path.display())
}

/// What is not the machine's own: that may have files or not.
fn own_layers(result: &Value) -> Vec<Value> {
    let layers = result["config"]["layers"].as_array().unwrap();
    let system = layers.iter().filter(|layer| layer["source"]["type"] == "system").count();
    assert_eq!(result["config"]["cloudInsertionIndex"], system, "between the machine and its user");
    layers[system..].to_vec()
}

async fn read(client: &mut Client, cwd: &str, paths: Value) -> Value {
    client.call("environmentConfig/read", json!({"cwd": cwd, "configPaths": paths, "requirementsPaths": []})).await
}

#[tokio::test]
async fn selected_keys_of_the_user_and_the_project_are_told() {
    let user = User::new().await;
    user.write("home/.codex/config.toml", "model = 'm'\nsecret = 's'\n[mcp_servers.a]\nurl = 'u'\n");
    user.write("project/.codex/config.toml", "model = 'p'\n");
    user.write("project/.git/HEAD", "");
    user.write("project/deep/er/.codex/config.toml", "secret = 's'\n");
    let mut client = user.server.client().await;
    let result = read(&mut client, &user.uri("project/deep/er"), json!([["model"], ["mcp_servers", "a"]])).await;
    assert_eq!(result["userHomeDir"], user.uri("home"));
    assert_eq!(result["codexHomeDir"], user.uri("home/.codex"));
    assert!(result["hostname"].as_str().is_some_and(|name| !name.is_empty()), "{result}");
    assert_eq!(
        own_layers(&result),
        [
            json!({
                "source": {"type": "user", "file": user.uri("home/.codex/config.toml")},
                "baseDir": user.uri("home/.codex"),
                "toml": "model = \"m\"\n\n[mcp_servers.a]\nurl = \"u\"\n",
            }),
            json!({
                "source": {"type": "project", "file": user.uri("project/.codex/config.toml")},
                "baseDir": user.uri("project/.codex"),
                "toml": "model = \"p\"\n",
            }),
            json!({
                "source": {"type": "project", "file": user.uri("project/deep/er/.codex/config.toml")},
                "baseDir": user.uri("project/deep/er/.codex"),
                "toml": "",
            }),
        ]
    );
    assert_eq!(result["requirements"], json!({"layers": [], "cloudInsertionIndex": 0}));
}

#[tokio::test]
async fn codex_home_is_where_its_variable_says() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().canonicalize().unwrap();
    std::fs::create_dir(place.join("elsewhere")).unwrap();
    std::fs::write(place.join("elsewhere/config.toml"), "a = 1").unwrap();
    // A relative path is meant from where the server was started.
    let server = TestServer::with(&[], |command| {
        command.current_dir(&place).env("CODEX_HOME", "elsewhere").env_remove("HOME")
    })
    .await;
    let result = read(&mut server.client().await, &uri(&place), json!([["a"]])).await;
    assert_eq!(result["codexHomeDir"], uri(&place.join("elsewhere")));
    assert_eq!(own_layers(&result)[0]["toml"], "a = 1\n");
}

#[tokio::test]
async fn empty_selectors_are_refused() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let none = "at least one config or requirements path is required";
    let empty = "TOML paths must contain at least one key segment";
    for (config, requirements, message) in
        [(json!([]), json!([]), none), (json!([[]]), json!([]), empty), (json!([["a"]]), json!([["b"], []]), empty)]
    {
        let params = json!({"cwd": "file:///", "configPaths": config, "requirementsPaths": requirements});
        let error = client.call_error("environmentConfig/read", params).await;
        assert_eq!(error, json!({"code": -32602, "message": message}));
    }
}

#[tokio::test]
async fn a_cwd_that_means_nothing_here_is_refused() {
    let server = TestServer::start().await;
    let params = json!({"cwd": "file://host/share", "configPaths": [["a"]]});
    let error = server.client().await.call_error("environmentConfig/read", params).await;
    assert_eq!(error["code"], -32602);
    let message = error["message"].as_str().unwrap();
    assert!(message.starts_with("cwd URI `file://host/share` is not valid on this exec-server host: "), "{message}");
}

#[tokio::test]
async fn a_file_that_cannot_be_used_is_named() {
    let user = User::new().await;
    let mut client = user.server.client().await;
    let file = user.at("home/.codex/config.toml");
    let params = json!({"cwd": user.uri(""), "configPaths": [["a"]]});

    user.write("home/.codex/config.toml", "a = 1\n[broken\n");
    let error = client.call_error("environmentConfig/read", params.clone()).await;
    assert_eq!(error["code"], -32603);
    let message = error["message"].as_str().unwrap();
    assert!(message.starts_with(&format!("{}:2: ", file.display())), "{message}");

    // Root reads what nobody may read; a directory is read by nobody.
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    let error = client.call_error("environmentConfig/read", params).await;
    assert_eq!((&error["code"], &error["data"]["path"]), (&json!(-32603), &json!(uri(&file))));
    let message = error["message"].as_str().unwrap();
    assert!(message.starts_with(&format!("cannot read {}: ", file.display())), "{message}");
}

#[tokio::test]
async fn it_needs_the_handshake() {
    let server = TestServer::start().await;
    let params = json!({"cwd": "file:///", "configPaths": [["a"]]});
    let error = server.raw().await.call_error("environmentConfig/read", params).await;
    let message = "client must call initialize before using environment config methods";
    assert_eq!(error, json!({"code": -32600, "message": message}));
}
