//! Capability roots, which are directories on the server with plugins and skills, and the configuration of the
//! server. The capabilities in the answer to `environment/info` say which parts of this a server supports.

use std::path::Path;

use client::{
    CapabilityRoot, ConfigReadParams, ConfigReadResult, Connecting, DiscoveredRoot, ExecServerClient,
    ExecServerError, PathMap, ServerConnector,
};
use testkit::scripted::ScriptedReply;
use testkit::{ScriptedServer, Value, json};

use crate::support::{ScriptedDialler, connect, options};

const DISCOVER: &str = "capabilityRoots/discoverV1";
const METHOD_NOT_FOUND: i64 = -32601;

fn root(id: &str, sandbox: Option<&Value>) -> CapabilityRoot {
    let path = format!("file:///{id}").parse().unwrap();
    CapabilityRoot {
        id: id.into(),
        path,
        sandbox: sandbox.map(|sandbox| serde_json::from_value(sandbox.clone()).unwrap()),
    }
}

fn sandbox(permissions: &Value) -> Value {
    json!({"permissions": permissions, "windowsSandboxLevel": "disabled"})
}

fn discovered_root(root: Value) -> DiscoveredRoot {
    serde_json::from_value(root).unwrap()
}

fn server_with_capabilities(capabilities: Value) -> ScriptedServer {
    let server = ScriptedServer::new();
    server.on("environment/info", move |_| {
        ScriptedReply::Result(json!({"shell": {"name": "sh", "path": "/bin/sh"}, "capabilities": capabilities}))
    });
    server
}

fn config_params() -> ConfigReadParams {
    ConfigReadParams {
        cwd: "file:///srv/work".parse().unwrap(),
        config_paths: vec![vec!["mcp_servers".into()]],
        requirements_paths: vec![],
    }
}

#[tokio::test]
async fn each_root_gets_its_answer_and_an_answer_for_another_root_is_an_error() {
    let server = server_with_capabilities(json!({}));
    server.on(DISCOVER, |asked| {
        assert_eq!(asked.params["roots"].as_array().unwrap().len(), 4);
        ScriptedReply::Result(json!({"roots": [
            {"id": "a", "path": "file:///a", "skills": [
                {"instructions": {"path": "file:///a/SKILL.md", "contents": "s"}}]},
            {"id": "b", "path": "file:///other"},
            {"id": "other", "path": "file:///c"},
            {"id": "d", "path": "file:///d", "error": "no"},
        ]}))
    });
    let client = connect(&server).await;
    let roots = ["a", "b", "c", "d"].map(|id| root(id, None)).into();
    let failed =
        |id: &str, error: &str| discovered_root(json!({"id": id, "path": format!("file:///{id}"), "error": error}));
    let skill = json!({"instructions": {"path": "file:///a/SKILL.md", "contents": "s"}});
    assert_eq!(
        client.discover_capability_roots(roots).await.unwrap(),
        [
            discovered_root(json!({"id": "a", "path": "file:///a", "skills": [skill]})),
            failed("b", "exec-server answered with another capability root"),
            failed("c", "exec-server answered with another capability root"),
            failed("d", "no"),
        ]
    );
}

#[tokio::test]
async fn a_wrong_number_of_answers_fails_all_roots_and_without_roots_no_request_is_sent() {
    let server = server_with_capabilities(json!({}));
    server.on(DISCOVER, |_| ScriptedReply::Result(json!({"roots": [{"id": "a", "path": "file:///a"}]})));
    let client = connect(&server).await;
    let error = client.discover_capability_roots(vec![root("a", None), root("b", None)]).await.unwrap_err();
    assert!(matches!(error, ExecServerError::Protocol(_)), "{error}");
    assert_eq!(client.discover_capability_roots(vec![]).await.unwrap(), []);
    assert_eq!(server.count(DISCOVER), 1);
}

#[tokio::test]
async fn a_root_whose_sandbox_the_server_cannot_enforce_is_not_sent() {
    let restricted = sandbox(&json!({
        "type": "managed", "network": "restricted", "file_system": {"type": "restricted", "entries": []}
    }));
    let open = sandbox(&json!({"type": "disabled"}));
    let roots = || vec![root("a", Some(&restricted)), root("b", Some(&open)), root("c", Some(&restricted))];
    let answer = |asked: &testkit::scripted::ClientMessage| {
        let roots = asked.params["roots"].as_array().unwrap().iter();
        let roots: Vec<_> = roots.map(|root| json!({"id": root["id"], "path": root["path"]})).collect();
        ScriptedReply::Result(json!({"roots": roots}))
    };
    let old = server_with_capabilities(json!({}));
    old.on(DISCOVER, move |asked| {
        assert_eq!(asked.params["roots"].as_array().unwrap().len(), 1);
        answer(asked)
    });
    let found = connect(&old).await.discover_capability_roots(roots()).await.unwrap();
    let errors: Vec<_> = found.iter().map(|root| (root.id.as_str(), root.error.as_deref())).collect();
    let refused = Some("exec-server does not support sandboxed capability discovery");
    assert_eq!(errors, [("a", refused), ("b", None), ("c", refused)]);

    let supporting = server_with_capabilities(json!({"capabilityDiscoverySandbox": true}));
    supporting.on(DISCOVER, move |asked| {
        assert_eq!(asked.params["roots"].as_array().unwrap().len(), 3);
        answer(asked)
    });
    let found = connect(&supporting).await.discover_capability_roots(roots()).await.unwrap();
    assert!(found.iter().all(|root| root.error.is_none()), "{found:?}");
}

#[tokio::test]
async fn only_a_server_with_the_capability_is_asked_for_its_configuration() {
    let result = json!({
        "userHomeDir": null, "codexHomeDir": "file:///c", "hostname": "vm",
        "config": {"layers": [{"source": "user (/c/config.toml)", "baseDir": "file:///c", "toml": "a = 1\n"}],
                   "cloudInsertionIndex": 0},
        "requirements": {"layers": [], "cloudInsertionIndex": 0},
    });
    let expected: ConfigReadResult = serde_json::from_value(result.clone()).unwrap();
    let supporting = server_with_capabilities(json!({"environmentConfigRead": true}));
    supporting.on("environmentConfig/read", move |asked| {
        assert_eq!(
            asked.params,
            json!({"cwd": "file:///srv/work", "configPaths": [["mcp_servers"]], "requirementsPaths": []})
        );
        ScriptedReply::Result(result.clone())
    });
    let client = connect(&supporting).await;
    assert_eq!(client.read_environment_config(config_params()).await.unwrap(), Some(expected));

    let old = server_with_capabilities(json!({}));
    assert_eq!(connect(&old).await.read_environment_config(config_params()).await.unwrap(), None);
    assert_eq!(old.count("environmentConfig/read"), 0);
}

#[tokio::test]
async fn a_server_that_does_not_know_environment_info_has_no_capabilities() {
    let server = ScriptedServer::new();
    server.on("environment/info", |_| {
        ScriptedReply::Error(METHOD_NOT_FOUND, "exec-server stub does not implement `environment/info` yet".into())
    });
    let client = connect(&server).await;
    assert_eq!(client.capabilities().await.unwrap(), client::Capabilities::default());
    assert_eq!(client.read_environment_config(config_params()).await.unwrap(), None);
}

/// Connects to a server on which the directory `/here` is called `/srv/there`.
struct MappedDialler {
    dialler: ScriptedDialler,
    paths: PathMap,
}

impl ServerConnector for MappedDialler {
    fn connect(&self) -> Connecting<'_> {
        self.dialler.connect()
    }

    fn can_reconnect(&self) -> bool {
        self.dialler.can_reconnect()
    }

    fn address(&self) -> String {
        self.dialler.address()
    }

    fn paths(&self) -> Option<&PathMap> {
        Some(&self.paths)
    }
}

/// The answer of a server about a plugin in `directory`, with every member that has a path.
fn plugin_in(directory: &str) -> Value {
    let file = |name: &str| json!({"path": format!("{directory}/{name}"), "contents": name});
    json!({
        "id": "plugin", "path": directory,
        "plugin": {"manifest": file("plugin.json"), "mcpConfig": file(".mcp.json"), "appsConfig": file("apps.json")},
        "skills": [{"instructions": file("SKILL.md"), "metadata": file("openai.yaml")}],
        "namespaceManifests": [file("plugin.json")],
    })
}

/// The answer of a server about its configuration. All its paths are `directory`.
fn configuration_in(directory: &str) -> Value {
    let layers =
        json!({"layers": [{"source": "user", "baseDir": directory, "toml": "a = 1\n"}], "cloudInsertionIndex": 0});
    json!({"userHomeDir": directory, "codexHomeDir": directory, "config": layers, "requirements": layers})
}

#[tokio::test]
async fn paths_in_requests_and_answers_are_mapped() {
    let server = server_with_capabilities(json!({"environmentConfigRead": true, "capabilityDiscoverySandbox": true}));
    server.on(DISCOVER, |asked| {
        let root = &asked.params["roots"][0];
        let paths = (&root["path"], &root["sandbox"]["cwd"]);
        assert_eq!(paths, (&json!("file:///srv/there/plugin"), &json!("file:///srv/there/work")));
        ScriptedReply::Result(json!({"roots": [plugin_in("file:///srv/there/plugin")]}))
    });
    server.on("environmentConfig/read", |asked| {
        assert_eq!(asked.params["cwd"], "file:///srv/there/work");
        ScriptedReply::Result(configuration_in("file:///srv/there/home"))
    });
    let dialler = ScriptedDialler { server: server.clone(), can_reconnect: true };
    let paths = PathMap::new(Path::new("/here"), Path::new("/srv/there")).unwrap();
    let client = ExecServerClient::connect(MappedDialler { dialler, paths }, options()).await.unwrap();

    let mut sandbox_with_cwd = sandbox(&json!({"type": "disabled"}));
    sandbox_with_cwd["cwd"] = json!("file:///here/work");
    let asked = CapabilityRoot {
        id: "plugin".into(),
        path: "file:///here/plugin".parse().unwrap(),
        sandbox: serde_json::from_value(sandbox_with_cwd).unwrap(),
    };
    let found = client.discover_capability_roots(vec![asked]).await.unwrap();
    assert_eq!(found, [discovered_root(plugin_in("file:///here/plugin"))]);

    let wanted = ConfigReadParams { cwd: "file:///here/work".parse().unwrap(), ..config_params() };
    let read = client.read_environment_config(wanted).await.unwrap();
    assert_eq!(read, serde_json::from_value(configuration_in("file:///here/home")).unwrap());
}
