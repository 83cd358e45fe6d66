//! The network of sandboxed commands: none, that of the host, or a proxy in the server.

use testkit::{HttpPeer, TestServer, binary, eventually, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

use crate::{Workspace, run, start_params};

/// Connects to a port of this machine without a proxy.
pub(crate) fn dial(url: &str) -> String {
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

/// A proxy that allows this machine and denies another host.
pub(crate) fn proxy() -> testkit::Value {
    json!({"proxy": {"enabled": true, "enableSocks5": false, "enableSocks5Udp": false, "mode": "full",
        "dangerouslyAllowAllUnixSockets": false, "unixSockets": null, "allowLocalBinding": true,
        "domains": {"127.0.0.1": "allow", "denied.example": "deny"}}})
}

#[tokio::test]
async fn a_command_after_a_shell_snapshot_uses_its_proxy() {
    let (server, workspace) = (TestServer::start().await, Workspace::new());
    let peer = HttpPeer::closing(|_| testkit::http_ok("hello")).await;
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join(".profile"), "export FROM_PROFILE=yes\n").unwrap();
    let mut client = server.client().await;
    let url = peer.url("/");
    let script =
        format!("echo $FROM_PROFILE; curl -sS -m 10 --noproxy '' {url}; {}; echo \" direct $?\"", dial(&url));
    // The second command gets the snapshot that the first one has made, and a proxy of its own.
    for process in ["first", "second"] {
        let mut params = start_params(process, "", &workspace.policy());
        params["argv"] = json!(["/bin/sh", "-lc", script]);
        params["env"]["HOME"] = json!(home.path());
        params["shellSnapshot"] = json!({"scopeId": "s", "shell": {"name": "sh", "path": "/bin/sh"}});
        params["networkProxy"] = proxy();
        let ended = run(&mut client, params).await;
        assert!(ended.output.starts_with("yes\nhello"), "{}", ended.output);
        assert!(ended.output.contains("direct 7"), "{}", ended.output);
    }
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
    let mut params = start_params("p", &script, &workspace.policy());
    params["networkProxy"] = proxy();
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

#[tokio::test]
async fn the_proxies_of_one_session_leave_connections_and_descriptors_to_other_sessions() {
    let workspace = Workspace::new();
    // With 256 open files, a session may have 8 connections, and each of its processes 4.
    let mut command = Command::new("prlimit");
    command.arg("--nofile=256").arg(binary());
    let server = TestServer::launch(command, &[]).await;
    let peer = HttpPeer::with_handler(|request, mut stream| async move {
        if request.starts_with("GET /held ") {
            // Ends when the proxy closes the connection.
            let _end = stream.read(&mut [0]).await;
        } else {
            stream.write_all(testkit::http_ok("hello").as_bytes()).await.unwrap();
        }
    })
    .await;
    let (mut greedy, mut other) = (server.client().await, server.client().await);
    let held = format!("for n in $(seq 20); do curl -sS --noproxy '' {} & done; wait", peer.url("/held"));
    for process in ["first", "second", "third"] {
        let mut params = start_params(process, &held, &workspace.policy());
        params["networkProxy"] = proxy();
        greedy.call("process/start", params).await;
    }
    eventually("the proxies have opened all connections that the session may have", || {
        (peer.connections_accepted() >= 8).then_some(())
    })
    .await;
    assert_eq!(run(&mut other, start_params("q", "echo started", &workspace.policy())).await.output, "started\n");
    let mut params = start_params("r", &format!("curl -sS --noproxy '' {}", peer.url("/")), &workspace.policy());
    params["networkProxy"] = proxy();
    assert_eq!(run(&mut other, params).await.output, "hello");
    // Eight of the greedy session, although it wants sixty, and one of the other session.
    assert_eq!(peer.connections_accepted(), 9);
}
