//! The network of sandboxed commands: none, that of the host, or a proxy in the server.

use testkit::{HttpPeer, TestServer, json};

use crate::{Workspace, run, start_params};

/// Connects to a port of this machine without a proxy.
fn dial(url: &str) -> String {
    format!("curl -sS -m 10 --noproxy '*' {url}")
}

#[tokio::test]
async fn a_restricted_network_reaches_nothing_and_an_enabled_one_reaches_this_machine() {
    let (server, workspace) = (TestServer::start().await, Workspace::new());
    let peer = HttpPeer::closing(|_| testkit::http_ok("hello")).await;
    let mut client = server.client().await;
    let script = dial(&peer.url("/"));
    let refused = run(&mut client, start_params("a", &script, &workspace.policy())).await;
    assert_eq!((&refused.exited["exitCode"], &refused.exited["sandboxDenied"]), (&json!(7), &json!(true)));
    let reached = run(&mut client, start_params("b", &script, &workspace.policy_with(&[], "enabled"))).await;
    assert_eq!(reached.output, "hello");
    assert_eq!(peer.requests().len(), 1);
}

#[tokio::test]
async fn a_proxy_is_the_only_way_out_and_obeys_its_rules() {
    let (server, workspace) = (TestServer::start().await, Workspace::new());
    let peer = HttpPeer::closing(|_| testkit::http_ok("hello")).await;
    let mut client = server.client().await;
    let url = peer.url("/");
    let script = format!(
        "{}; echo \"direct $?\"; curl -sS -m 10 --noproxy '' {url}; curl -sS -m 10 --noproxy '' -o /dev/null -w ' %{{http_code}}' http://denied.example/",
        dial(&url)
    );
    let proxy = json!({"enabled": true, "enableSocks5": false, "enableSocks5Udp": false, "mode": "full",
        "dangerouslyAllowAllUnixSockets": false, "unixSockets": null, "allowLocalBinding": true,
        "domains": {"127.0.0.1": "allow", "denied.example": "deny"}});
    let mut params = start_params("p", &script, &workspace.policy());
    params["networkProxy"] = json!({"proxy": proxy});
    params["enforceManagedNetwork"] = json!(true);
    client.call("process/start", params.clone()).await;
    let ended = crate::until_closed(&mut client, "p").await;
    assert!(ended.output.contains("direct 7"), "{}", ended.output);
    assert!(ended.output.ends_with("hello 403"), "{}", ended.output);
    let decided: Vec<_> = ended.decisions.iter().map(|decided| (&decided["decision"], &decided["host"])).collect();
    let (allow, deny) = (json!("allow"), json!("deny"));
    assert_eq!(decided, [(&allow, &json!("127.0.0.1")), (&deny, &json!("denied.example"))]);

    params["processId"] = json!("q");
    params["sandbox"] = json!(null);
    let error = client.call_error("process/start", params).await;
    assert_eq!(error["code"], -32602);
    assert!(error["message"].as_str().unwrap().starts_with("networkProxy needs a sandbox"), "{error}");
}
