//! The method `environmentConfig/read` returns selected keys of the Codex configuration files on the server's
//! machine, and no other keys. Each file that has a selected key is one layer of the result. A client selects a key
//! by its path in the TOML file, a list with one name for each level.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

use std::path::{Path, PathBuf};

use testkit::{Client, TestServer, Value, json};

/// A user with a home directory, and a server that has this directory in `HOME`.
struct User {
    /// Contains the home directory, `home`, and the projects of a test.
    directory: tempfile::TempDir,
    server: TestServer,
}

impl User {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path().join("home");
        std::fs::create_dir(&home).unwrap();
        let server = TestServer::start_with(&[], |command| command.env("HOME", &home).env_remove("CODEX_HOME")).await;
        Self { directory, server }
    }

    /// The absolute path of `path`, which is relative to the temporary directory, not to the home directory.
    fn path_of(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        std::fs::create_dir_all(self.path_of(path).parent().unwrap()).unwrap();
        std::fs::write(self.path_of(path), text).unwrap();
    }

    fn uri(&self, path: &str) -> String {
        uri(&self.path_of(path))
    }
}

fn uri(path: &Path) -> String {
    format!("file://{}", path.display())
}

/// The layers of a result, except those from `/etc/codex`: the machine on which the test runs may have files there.
fn layers_of_user_and_projects(result: &Value) -> Vec<Value> {
    let layers = result["config"]["layers"].as_array().unwrap();
    let is_of_machine = |layer: &&Value| layer["baseDir"] == "file:///etc/codex";
    layers.iter().filter(|layer| !is_of_machine(layer)).cloned().collect()
}

async fn read(client: &mut Client, cwd: &str, keys: Value) -> Value {
    client.call("environmentConfig/read", json!({"cwd": cwd, "configPaths": keys, "requirementsPaths": []})).await
}

#[tokio::test]
async fn selected_keys_of_the_user_and_of_a_trusted_project_are_returned() {
    let user = User::new().await;
    let trusted = format!("[projects.'{}']\ntrust_level = 'trusted'\n", user.path_of("project").display());
    let config = format!("model = 'm'\nsecret = 's'\n{trusted}[mcp_servers.a]\nurl = 'u'\n");
    user.write("home/.codex/config.toml", &config);
    user.write("project/.codex/config.toml", "model = 'p'\n");
    // `.git` makes this folder the root of the project.
    user.write("project/.git/HEAD", "");
    user.write("project/deep/.codex/config.toml", "secret = 's'\n");
    user.write("project/deep/er/.codex/config.toml", "mcp_servers = 'off'\n");
    let mut client = user.server.client().await;
    let keys = json!([["model"], ["mcp_servers", "a"]]);
    let result = read(&mut client, &user.uri("project/deep/er"), keys.clone()).await;
    assert_eq!(result["userHomeDir"], user.uri("home"));
    assert_eq!(result["codexHomeDir"], user.uri("home/.codex"));
    assert!(result["hostname"].as_str().is_some_and(|name| !name.is_empty()), "{result}");
    let user_layer = json!({
        "source": format!("user ({})", user.path_of("home/.codex/config.toml").display()),
        "baseDir": user.uri("home/.codex"),
        "toml": "model = \"m\"\n\n[mcp_servers.a]\nurl = \"u\"\n",
    });
    let project_layer = |folder: &str, toml: &str| {
        let file = user.path_of(&format!("{folder}/.codex/config.toml"));
        json!({
            "source": format!("project ({})", file.display()),
            "baseDir": user.uri(&format!("{folder}/.codex")),
            "toml": toml,
        })
    };
    assert_eq!(
        layers_of_user_and_projects(&result),
        [
            user_layer.clone(),
            project_layer("project", "model = \"p\"\n"),
            project_layer("project/deep/er", "mcp_servers = \"off\"\n"),
        ]
    );
    // `cloudInsertionIndex` is the position in `layers` at which a client inserts the settings that it gets from the
    // cloud.
    assert_eq!(result["requirements"], json!({"layers": [], "cloudInsertionIndex": 0}));

    user.write("home/.codex/config.toml", &config.replace("'trusted'", "'untrusted'"));
    let result = read(&mut client, &user.uri("project/deep/er"), keys).await;
    assert_eq!(layers_of_user_and_projects(&result), [user_layer]);
}

#[tokio::test]
async fn codex_home_is_taken_from_the_variable_codex_home_and_must_exist() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().canonicalize().unwrap();
    std::fs::create_dir(folder.join("elsewhere")).unwrap();
    std::fs::write(folder.join("elsewhere/config.toml"), "a = 1").unwrap();
    // A relative path is resolved against the directory in which the server was started.
    let server = TestServer::start_with(&[], |command| {
        command.current_dir(&folder).env("CODEX_HOME", "elsewhere").env_remove("HOME")
    })
    .await;
    let mut client = server.client().await;
    let result = read(&mut client, &uri(&folder), json!([["a"]])).await;
    assert_eq!(result["codexHomeDir"], uri(&folder.join("elsewhere")));
    assert_eq!(layers_of_user_and_projects(&result)[0]["toml"], "a = 1\n");
    std::fs::remove_dir_all(folder.join("elsewhere")).unwrap();
    let params = json!({"cwd": uri(&folder), "configPaths": [["a"]], "requirementsPaths": []});
    let error = client.call_error("environmentConfig/read", params).await;
    let message = "failed to find Codex home: CODEX_HOME points to \"elsewhere\", but that path does not exist";
    assert_eq!(error, json!({"code": -32603, "message": message}));
}

#[tokio::test]
async fn a_request_for_no_key_and_a_key_without_a_name_are_refused() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let no_key = "at least one config or requirements path is required";
    let empty_key = "TOML paths must contain at least one key segment";
    for (config, requirements, message) in [
        (json!([]), json!([]), no_key),
        (json!([[]]), json!([]), empty_key),
        (json!([["a"]]), json!([["b"], []]), empty_key),
    ] {
        let params = json!({"cwd": "file:///", "configPaths": config, "requirementsPaths": requirements});
        let error = client.call_error("environmentConfig/read", params).await;
        assert_eq!(error, json!({"code": -32602, "message": message}));
    }
}

#[tokio::test]
async fn invalid_params_are_refused_with_the_texts_of_the_published_protocol() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    for (params, message) in [
        (json!({"cwd": "file:///", "requirementsPaths": []}), "missing field `configPaths`"),
        (json!({"cwd": "file:///", "configPaths": [["a"]]}), "missing field `requirementsPaths`"),
        (json!(null), "invalid type: null, expected struct EnvironmentConfigReadParams"),
        (
            json!({"cwd": "file:///C:/x", "configPaths": [["a"]], "requirementsPaths": []}),
            "'file:///C:/x' is invalid on 'linux'",
        ),
        (
            json!({"cwd": "file://host/share", "configPaths": [["a"]], "requirementsPaths": []}),
            "'file://host/share' is invalid on 'linux'",
        ),
    ] {
        let error = client.call_error("environmentConfig/read", params.clone()).await;
        assert_eq!(error["code"], -32602, "{params}");
        assert!(error["message"].as_str().unwrap().starts_with(message), "{params}: {error}");
    }
}

#[tokio::test]
async fn the_error_names_a_configuration_file_that_cannot_be_parsed_or_read() {
    let user = User::new().await;
    let mut client = user.server.client().await;
    let file = user.path_of("home/.codex/config.toml");
    // No key of this file is selected. The server reads all files anyway, so that every request reports a broken
    // file.
    let params = json!({"cwd": user.uri(""), "configPaths": [], "requirementsPaths": [["a"]]});

    user.write("home/.codex/config.toml", "a = 1\n[broken\n");
    let error = client.call_error("environmentConfig/read", params.clone()).await;
    assert_eq!(error["code"], -32603);
    let message = error["message"].as_str().unwrap();
    let expected = format!("failed to load executor-local config: {}:2:8: ", file.display());
    assert!(message.starts_with(&expected), "{message}");

    // A directory in place of the file cannot be read, even if the test runs as root. A file without permissions
    // could.
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    let error = client.call_error("environmentConfig/read", params).await;
    let shown = file.display();
    let message = format!(
        "failed to load executor-local config: Failed to read config file {shown}: path `{shown}` is not a file"
    );
    let data = json!({"kind": "invalidInput", "path": uri(&file)});
    assert_eq!(error, json!({"code": -32603, "message": message, "data": data}));
}

#[tokio::test]
async fn reading_needs_the_handshake() {
    let server = TestServer::start().await;
    let params = json!({"cwd": "file:///", "configPaths": [["a"]], "requirementsPaths": []});
    let mut raw = server.connect_without_handshake().await;
    let error = raw.call_error("environmentConfig/read", params.clone()).await;
    let message = "client must call initialize before using environment config methods";
    assert_eq!(error, json!({"code": -32600, "message": message}));
    raw.call("initialize", json!({"clientName": "c"})).await;
    let error = raw.call_error("environmentConfig/read", params).await;
    assert_eq!(error["message"], "client must send initialized before using environment config methods");
}
