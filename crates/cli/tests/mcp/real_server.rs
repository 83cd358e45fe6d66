//! A real MCP server, built with the official Python SDK (`server.py` beside this file), which the bridge
//! (`exec-server mcp-stdio`) runs on an exec-server.

use std::path::PathBuf;

use testkit::{CuttingProxy, TestServer, Value, json};

use crate::support::Bridge;

/// The Python interpreter of the environment that `cargo xtask test` installs.
fn python() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let found = test.ancestors().map(|folder| folder.join("mcp-venv/bin/python")).find(|python| python.is_file());
    found.expect("the MCP server is not installed; `cargo xtask test mcp` does that once")
}

/// Sends a request through the bridge and returns its result.
async fn call(bridge: &mut Bridge, id: u64, method: &str, params: Value) -> Value {
    bridge.send_json(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
    answer(bridge, id).await
}

/// Reads the answer to the request `id` and returns its result.
async fn answer(bridge: &mut Bridge, id: u64) -> Value {
    let mut answer = bridge.read_json().await;
    assert_eq!(answer["id"], id, "{answer}");
    answer["result"].take()
}

/// Params of a call of the tool `add`.
fn add(amount: u64) -> Value {
    json!({"name": "add", "arguments": {"amount": amount}})
}

/// The value of the counter after a call, and the pid of the MCP server.
fn counter_and_pid(result: &Value) -> (u64, String) {
    let (count, pid) = result["content"][0]["text"].as_str().unwrap().split_once(" in ").unwrap();
    (count.parse().unwrap(), pid.to_owned())
}

#[tokio::test]
async fn each_call_is_carried_out_once_even_if_the_connection_is_cut() {
    let server = TestServer::start().await;
    let proxy = CuttingProxy::start(server.address()).await;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mcp/server.py");
    let mut bridge = Bridge::start(&proxy.url(), &[python().to_str().unwrap(), script]);
    let client = json!({"name": "test", "version": "1"});
    let handshake = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
    let handshake = call(&mut bridge, 1, "initialize", handshake).await;
    assert_eq!(handshake["serverInfo"]["name"], "counting");
    bridge.send_json(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
    let tools = call(&mut bridge, 2, "tools/list", json!({})).await;
    assert_eq!(tools["tools"][0]["name"], "add");
    let (count, pid) = counter_and_pid(&call(&mut bridge, 3, "tools/call", add(5)).await);
    assert_eq!(count, 5);
    for round in 1..=10 {
        // One call is in flight when the connection is cut, and another call is made while there is no connection.
        let first = 10 * round;
        bridge.send_json(&json!({"jsonrpc": "2.0", "id": first, "method": "tools/call", "params": add(1)})).await;
        proxy.cut();
        assert_eq!(counter_and_pid(&answer(&mut bridge, first).await), (5 + 2 * round - 1, pid.clone()));
        proxy.cut();
        let second = call(&mut bridge, first + 1, "tools/call", add(1)).await;
        assert_eq!(
            counter_and_pid(&second),
            (5 + 2 * round, pid.clone()),
            "each call is carried out once, by the same MCP server"
        );
    }
    bridge.close_stdin();
    let end = bridge.wait_for_end().await;
    // `server.py` prints one line when it begins and one when its stdin has ended.
    assert_eq!((end.code, end.stdout.as_str(), end.stderr.as_str()), (Some(0), "", "serving\nserved\n"));
}
