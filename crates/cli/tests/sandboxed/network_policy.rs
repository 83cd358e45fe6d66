//! The client decides about the hosts that a sandboxed command reaches through its proxy.

use testkit::{Client, HttpPeer, TestServer, Value, json};

use crate::network::{dial, proxy};
use crate::policies::special_entry;
use crate::{Ended, Workspace, policy, run, start_params, until_closed};

/// Starts `curl` with SOCKS5 for a host that no pattern of the proxy matches, and answers the question of the server.
async fn ask_about_localhost(client: &mut Client, process: &str, peer: &HttpPeer, decision: Value) -> Ended {
    let workspace = Workspace::new();
    let script = format!(
        "curl -sS -m 20 --noproxy '' --socks5-hostname \"${{HTTP_PROXY#http://}}\" http://localhost:{}/; echo \" $?\"",
        peer.port
    );
    let mut params = start_params(process, &script, &workspace.policy());
    let mut network = proxy();
    network["proxy"]["enableSocks5"] = json!(true);
    network["policyDecisionTimeoutMs"] = json!(30_000);
    params["networkProxy"] = network;
    client.call("process/start", params).await;
    let mut question = client.take(|message| message["method"] == "network/policyRequest").await;
    let id = question["id"].take();
    let request = json!({"protocol": "socks5_tcp", "host": "localhost", "port": peer.port});
    assert_eq!(question["params"], json!({"processId": process, "request": request}));
    assert_eq!(peer.connections_accepted(), 0, "the proxy waits for the answer");
    client.send_text(&json!({"id": id, "result": {"decision": decision}}).to_string()).await;
    until_closed(client, process).await
}

fn decision(ended: &Ended) -> Vec<Value> {
    let members = ["decision", "source", "reason", "protocol", "host", "policyOverride"];
    let of = |decided: &Value| members.iter().map(|name| decided[*name].clone()).collect();
    ended.decisions.iter().map(of).collect()
}

#[tokio::test]
async fn a_host_that_the_client_allows_is_reached_with_socks5() {
    let server = TestServer::start().await;
    let peer = HttpPeer::closing(|_| testkit::http_ok("hello")).await;
    let mut client = server.client().await;
    let ended = ask_about_localhost(&mut client, "p", &peer, json!({"type": "allow"})).await;
    assert_eq!(ended.output, "hello 0\n");
    assert_eq!(decision(&ended), [json!(["allow", "decider", "allowed", "socks5_tcp", "localhost", true])]);
    assert_eq!(peer.requests().len(), 1);
}

#[tokio::test]
async fn a_host_that_the_client_denies_is_not_reached_with_socks5() {
    let server = TestServer::start().await;
    let peer = HttpPeer::closing(|_| testkit::http_ok("hello")).await;
    let mut client = server.client().await;
    let answer = json!({"type": "deny", "reason": "no thanks"});
    let ended = ask_about_localhost(&mut client, "p", &peer, answer).await;
    // 97 is the code of curl for a proxy that refuses.
    assert!(ended.output.ends_with(" 97\n"), "{}", ended.output);
    assert_eq!(decision(&ended), [json!(["deny", "decider", "no thanks", "socks5_tcp", "localhost", false])]);
    assert_eq!(peer.connections_accepted(), 0);
}

#[tokio::test]
async fn a_proxy_is_the_only_way_out_whatever_the_policy_says_about_files() {
    let server = TestServer::start().await;
    let peer = HttpPeer::closing(|_| testkit::http_ok("hello")).await;
    let mut client = server.client().await;
    let url = peer.url("/");
    let script = format!(
        "{}; echo \"direct $?\"; curl -sS -m 10 --noproxy '' {url}; echo; readlink /proc/self/ns/mnt",
        dial(&url)
    );
    let unrestricted = json!({
        "permissions": {"type": "managed", "network": "restricted", "file_system": {"type": "unrestricted"}},
        "windowsSandboxLevel": "disabled",
    });
    let mut all_written = policy(vec![special_entry(json!({"kind": "root"}), "write")], "enabled");
    all_written["useLegacyLandlock"] = json!(true);
    let mut landlock = policy(vec![], "restricted");
    landlock["useLegacyLandlock"] = json!(true);
    let own = std::fs::read_link("/proc/self/ns/mnt").unwrap().display().to_string();
    for (process, sandbox) in [("unrestricted", unrestricted), ("written", all_written), ("landlock", landlock)] {
        let mut params = start_params(process, &script, &sandbox);
        params["networkProxy"] = proxy();
        let ended = run(&mut client, params).await;
        let lines: Vec<_> = ended.output.lines().filter(|line| !line.starts_with("curl: (7) ")).collect();
        assert_eq!((lines.len(), &lines[..2]), (3, &["direct 7", "hello"][..]), "{process}: {}", ended.output);
        assert!(lines[2].starts_with("mnt:[") && lines[2] != own, "{process}: {}", ended.output);
    }
    assert_eq!(peer.requests().len(), 3);
}
