//! How many sandboxes and placeholders (empty directories on which something is mounted) a session may have.

use testkit::{TestServer, eventually, is_alive, json};

use crate::network::proxy;
use crate::policies::path_entry;
use crate::{Workspace, descendants_named, policy, run, start_params, until_closed};

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

/// A server with 1,024 descriptors allows 512 placeholders for all sessions together, and 256 for each.
#[tokio::test]
async fn unused_sandboxes_of_other_sessions_make_room_for_placeholders() {
    let mut command = tokio::process::Command::new("prlimit");
    command.args(["--nofile=1024:1024", "--"]).arg(testkit::binary());
    let (server, workspace) = (TestServer::launch(command, &[]).await, Workspace::new());
    for name in ["a", "b", "c"] {
        let mut client = server.client().await;
        let with_roots = writable_roots(&workspace, name, 80);
        let ended = run(&mut client, start_params(name, "exit 3", &with_roots)).await;
        assert_eq!(ended.exited["exitCode"], 3);
    }
}

/// A policy with this many writable directories, each of which needs three placeholders.
fn writable_roots(workspace: &Workspace, name: &str, count: usize) -> testkit::Value {
    let root = |number: usize| {
        let root = workspace.path().join(format!("{name}-{number}"));
        std::fs::create_dir(&root).unwrap();
        path_entry(&format!("file://{}", root.display()), "write")
    };
    policy((0..count).map(root).collect(), "restricted")
}

/// A server with 1,024 descriptors allows 256 placeholders for a session.
#[tokio::test]
async fn a_sandbox_without_placeholders_stays_when_there_are_too_many_placeholders() {
    let mut command = tokio::process::Command::new("prlimit");
    command.args(["--nofile=1024:1024", "--"]).arg(testkit::binary());
    let (server, workspace) = (TestServer::launch(command, &[]).await, Workspace::new());
    let mut client = server.client().await;
    run(&mut client, start_params("read-only", "true", &policy(Vec::new(), "restricted"))).await;
    let launcher = eventually("the launcher runs", || descendants_named(&server, "exec-launcher").pop()).await;
    // Each of these policies needs 60 placeholders.
    for name in ["a", "b", "c", "d", "e", "f"] {
        let with_roots = writable_roots(&workspace, name, 20);
        let ended = run(&mut client, start_params(name, "exit 3", &with_roots)).await;
        assert_eq!(ended.exited["exitCode"], 3);
    }
    assert!(
        !workspace.path().join("a-0/.git").exists(),
        "its sandbox was ended, because there were too many placeholders"
    );
    assert!(is_alive(launcher), "ending this sandbox would not have helped");
}
