//! A real MCP server, built with the official SDK, answers before and after its connection is cut.

use std::path::PathBuf;

use testkit::{CuttingProxy, TestServer, Value, json};

use crate::support::Bridge;

/// The Python environment that `cargo xtask test` prepares.
fn python() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let found = test.ancestors().map(|folder| folder.join("mcp-venv/bin/python")).find(|python| python.is_file());
    found.expect("the MCP server is not installed; `cargo xtask test mcp` does that once")
}

async fn call(bridge: &mut Bridge, id: u64, method: &str, params: Value) -> Value {
    bridge.send_json(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
    answer(bridge, id).await
}

async fn answer(bridge: &mut Bridge, id: u64) -> Value {
    let mut answer = bridge.json().await;
    assert_eq!(answer["id"], id, "{answer}");
    answer["result"].take()
}

fn add(amount: u64) -> Value {
    json!({"name": "add", "arguments": {"amount": amount}})
}

/// The value of the counter after a call, and the pid of the server that has it.
fn counted(result: &Value) -> (u64, String) {
    let (count, pid) = result["content"][0]["text"].as_str().unwrap().split_once(" in ").unwrap();
    (count.parse().unwrap(), pid.to_owned())
}

#[tokio::test]
async fn it_answers_before_and_after_the_connection_is_cut() {
    let server = TestServer::start().await;
    let proxy = CuttingProxy::start(server.address()).await;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mcp/server.py");
    let mut bridge = Bridge::start(&proxy.url(), &[python().to_str().unwrap(), script]);
    let client = json!({"name": "test", "version": "1"});
    let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
    let hello = call(&mut bridge, 1, "initialize", hello).await;
    assert_eq!(hello["serverInfo"]["name"], "counting");
    bridge.send_json(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
    let tools = call(&mut bridge, 2, "tools/list", json!({})).await;
    assert_eq!(tools["tools"][0]["name"], "add");
    let (count, pid) = counted(&call(&mut bridge, 3, "tools/call", add(5)).await);
    assert_eq!(count, 5);
    for round in 1..=10 {
        // One call is in flight when the connection is cut, and another is made while there is none.
        let first = 10 * round;
        bridge.send_json(&json!({"jsonrpc": "2.0", "id": first, "method": "tools/call", "params": add(1)})).await;
        proxy.cut();
        assert_eq!(counted(&answer(&mut bridge, first).await), (5 + 2 * round - 1, pid.clone()));
        proxy.cut();
        let again = call(&mut bridge, first + 1, "tools/call", add(1)).await;
        assert_eq!(
            counted(&again),
            (5 + 2 * round, pid.clone()),
            "each call is carried out once, by the same server"
        );
    }
    bridge.close();
    let ending = bridge.ending().await;
    assert_eq!((ending.code, ending.stdout.as_str(), ending.stderr.as_str()), (Some(0), "", "serving\nserved\n"));
}
