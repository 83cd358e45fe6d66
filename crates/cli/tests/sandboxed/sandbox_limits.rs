//! How many sandboxes a session may have.

use testkit::{TestServer, json};

use crate::network::proxy;
use crate::{Workspace, run, start_params, until_closed};

/// As `MAX_PROXY_SANDBOXES` of the server.
const MAX_PROXY_SANDBOXES: usize = 64;

#[tokio::test]
async fn a_session_has_a_limited_number_of_commands_with_a_proxy() {
    let (server, workspace) = (TestServer::start().await, Workspace::new());
    let (mut client, mut other) = (server.client().await, server.client().await);
    let proxied = |process: &str| {
        let mut params = start_params(process, "exec sleep 600", &workspace.policy());
        params["networkProxy"] = proxy();
        params
    };
    for number in 0..MAX_PROXY_SANDBOXES {
        client.call("process/start", proxied(&format!("p{number}"))).await;
    }
    let refusal = client.call_error("process/start", proxied("too-many")).await;
    let message = refusal["message"].as_str().unwrap();
    assert!(message.contains("64 commands with a network proxy at once") && message.contains("end one"), "{message}");
    // Other sessions, and commands without a proxy, do not count.
    other.call("process/start", proxied("q")).await;
    assert_eq!(run(&mut client, start_params("plain", "echo on", &workspace.policy())).await.output, "on\n");
    client.call("process/terminate", json!({"processId": "p0"})).await;
    until_closed(&mut client, "p0").await;
    // The sandbox of the ended command is ended in the background, which takes long on a busy machine.
    let mut attempt = 0;
    while client.request("process/start", proxied(&format!("next{attempt}"))).await.get("result").is_none() {
        attempt += 1;
        assert!(attempt < 100);
    }
}
