//! The bridge (`exec-server mcp-stdio`) with an exec-server that has the published protocol (that of
//! `codex exec-server`) and none of our extensions. Such a server cannot close the stdin of an MCP server. So some
//! seconds after the end of its own stdin, the bridge interrupts the MCP server, and kills it if it still runs.

use testkit::{PublishedProtocolServer, TestServer, eventually, is_alive};

use crate::support::{Bridge, BridgeEnd};

#[tokio::test]
async fn an_mcp_server_whose_stdin_cannot_be_closed_is_ended_by_the_bridge() {
    let folder = tempfile::tempdir().unwrap();
    let published = PublishedProtocolServer::start(TestServer::start().await, folder.path());
    let mut bridge = Bridge::start(published.url(), &["sh", "-c", "echo $$; exec cat"]);
    let pid: u32 = bridge.read_line().await.trim().parse().unwrap();
    bridge.send("one\n").await;
    assert_eq!(bridge.read_line().await, "one\n");
    bridge.send("two\n").await;
    bridge.close_stdin();
    // A signal that the bridge sent has ended the MCP server, which counts as a success.
    let expected = BridgeEnd { code: Some(0), stdout: "two\n".into(), stderr: String::new() };
    assert_eq!(bridge.wait_for_end().await, expected);
    eventually("the MCP server is gone", || (!is_alive(pid)).then_some(())).await;
}

#[tokio::test]
async fn exit_codes_and_a_missing_command_are_reported_as_with_our_server() {
    let folder = tempfile::tempdir().unwrap();
    let published = PublishedProtocolServer::start(TestServer::start().await, folder.path());
    let mut bridge = Bridge::start(published.url(), &["sh", "-c", "read line; echo $line; exit 9"]);
    bridge.send("last\n").await;
    bridge.close_stdin();
    let expected = BridgeEnd { code: Some(9), stdout: "last\n".into(), stderr: String::new() };
    assert_eq!(bridge.wait_for_end().await, expected);
    let end = Bridge::start(published.url(), &["no-such-mcp-server"]).wait_for_end().await;
    assert_eq!((end.code, end.stdout.as_str()), (Some(127), ""));
}

#[tokio::test]
async fn the_exit_code_of_an_mcp_server_that_handles_the_interrupt_is_passed_on() {
    let folder = tempfile::tempdir().unwrap();
    let published = PublishedProtocolServer::start(TestServer::start().await, folder.path());
    let script = "trap 'exit 9' INT; echo ready; while :; do sleep 0.05; done";
    let mut bridge = Bridge::start(published.url(), &["sh", "-c", script]);
    assert_eq!(bridge.read_line().await, "ready\n");
    bridge.close_stdin();
    let expected = BridgeEnd { code: Some(9), stdout: String::new(), stderr: String::new() };
    assert_eq!(bridge.wait_for_end().await, expected);
}
