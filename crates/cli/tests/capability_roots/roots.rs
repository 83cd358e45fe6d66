//! The roots in a request of `capabilityRoots/discoverV1`: which roots a client may name, and that a failure of one
//! root does not affect the others.

use testkit::{TestServer, Value, json};

use crate::{DISCOVER, Tree, failed_root};

#[tokio::test]
async fn each_root_fails_on_its_own_and_the_order_is_kept() {
    let tree = Tree::new();
    let mut roots = vec![
        json!({"id": "missing", "path": tree.uri("missing")}),
        json!({"id": "other host", "path": "file://host/share"}),
        json!({"id": "other system", "path": "file:///C:/x"}),
    ];
    let missing = tree.uri("missing");
    let inspect = "failed to inspect capability root";
    let mut expected = vec![
        failed_root("missing", &missing, &format!("{inspect} {missing}: No such file or directory (os error 2)")),
        failed_root(
            "other host",
            "file://host/share",
            &format!("{inspect} file://host/share: 'file://host/share' is invalid on 'linux'"),
        ),
        failed_root(
            "other system",
            "file:///C:/x",
            &format!("{inspect} file:///C:/x: 'file:///C:/x' is invalid on 'linux'"),
        ),
    ];
    for number in 0..100 {
        let (folder, skill) = (number.to_string(), format!("{number}/s/SKILL.md"));
        tree.write(&skill, &folder);
        // The client chooses the ids: they may repeat and may be any text.
        let id = format!("\n{}", number % 10);
        roots.push(json!({"id": id, "path": tree.uri(&folder)}));
        let mut found = tree.plain_root(&folder, json!([tree.skill(&skill, &folder)]), json!([]));
        found["id"] = json!(id);
        expected.push(found);
    }
    let server = TestServer::start().await;
    let result = server.client().await.call(DISCOVER, json!({"roots": roots})).await;
    assert_eq!(result, json!({"roots": expected}));
}

#[tokio::test]
async fn up_to_128_roots_are_accepted_and_more_are_refused() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let roots = |count: usize| json!({"roots": vec![json!({"id": "r", "path": "file:///nowhere"}); count]});
    let found = client.call(DISCOVER, roots(128)).await;
    assert_eq!(found["roots"].as_array().unwrap().len(), 128);
    let error = client.call_error(DISCOVER, roots(129)).await;
    assert_eq!(error, json!({"code": -32600, "message": "capability root discovery accepts at most 128 roots"}));
    assert_eq!(client.call(DISCOVER, roots(0)).await, json!({"roots": []}));
}

#[tokio::test]
async fn discovery_is_refused_before_the_end_of_the_handshake() {
    let server = TestServer::start().await;
    let mut client = server.connect_without_handshake().await;
    let roots = json!({"roots": [{"id": "r", "path": "file:///nowhere"}]});
    let error = client.call_error(DISCOVER, roots.clone()).await;
    assert_eq!(error["message"], "client must call initialize before using capability discovery methods");
    client.call("initialize", json!({"clientName": "c"})).await;
    let error = client.call_error(DISCOVER, roots).await;
    assert_eq!(error["message"], "client must send initialized before using capability discovery methods");
}

#[tokio::test]
async fn params_that_do_not_decode_fail_the_whole_request() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    for (params, message) in [
        (json!({}), "missing field `roots`"),
        (json!(null), "invalid type: null, expected struct CapabilityRootsDiscoverParams"),
        (json!({"roots": [{"path": "file:///tmp"}]}), "missing field `id`"),
        (json!({"roots": [{"id": "r", "path": "/tmp"}]}), "invalid URI: relative URL without a base"),
    ] {
        let error = client.call_error(DISCOVER, params.clone()).await;
        assert_eq!(error["code"], -32602, "{params}");
        let text = error["message"].as_str().unwrap();
        assert!(text.starts_with(message), "{params}: {text}");
    }
}

#[tokio::test]
async fn a_path_is_normalised_and_names_are_escaped() {
    let tree = Tree::new();
    tree.write("r/a b/é/100%/SKILL.md", "s");
    let server = TestServer::start().await;
    let path = tree.uri("x/../r/./%61%20b/");
    let found = server.client().await.call(DISCOVER, json!({"roots": [{"id": "", "path": path}]})).await;
    let skill = format!("{}/r/a%20b/%C3%A9/100%25/SKILL.md", tree.uri("").trim_end_matches('/'));
    assert_eq!(
        found["roots"][0]["skills"],
        json!([{"instructions": {"path": skill, "contents": "s"}, "metadata": null}])
    );
    let path = found["roots"][0]["path"].as_str().unwrap();
    assert!(path.ends_with("b/") && !path.contains(".."), "a trailing slash stays, dots go: {path}");
}

#[tokio::test]
async fn a_root_that_its_sandbox_hides_fails() {
    let tree = Tree::new();
    tree.write("r/SKILL.md", "s");
    // This entry allows writes everywhere, so a list with it restricts nothing.
    let root_write = json!({"path": {"type": "special", "value": {"kind": "root"}}, "access": "write"});
    let restricted = |entries: &Value| {
        json!({"type": "managed", "network": "restricted",
               "file_system": {"type": "restricted", "entries": entries}})
    };
    let permissions = [
        json!({"type": "disabled"}),
        json!({"type": "external", "network": "restricted"}),
        json!({"type": "external", "network": "enabled"}),
        json!({"type": "managed", "network": "restricted", "file_system": {"type": "unrestricted"}}),
        restricted(&json!([root_write])),
    ];
    let sandbox = |permissions: &Value| json!({"permissions": permissions, "windowsSandboxLevel": "disabled"});
    let root = |sandbox: Value| json!({"id": "r", "path": tree.uri("r"), "sandbox": sandbox});
    let mut roots: Vec<_> = permissions.iter().map(|permissions| root(sandbox(permissions))).collect();
    roots.push(root(json!(null)));
    roots.push(root(sandbox(&restricted(&json!([])))));
    let server = TestServer::start().await;
    let result = server.client().await.call(DISCOVER, json!({"roots": roots})).await;
    let found = tree.plain_root("r", json!([tree.skill("r/SKILL.md", "s")]), json!([]));
    let mut expected = vec![found; permissions.len() + 1];
    let uri = tree.uri("r");
    let missing = format!("failed to inspect capability root {uri}: No such file or directory (os error 2)");
    expected.push(failed_root("r", &uri, &missing));
    assert_eq!(result, json!({"roots": expected}));
}
