//! The end of the bridge, which is the process `exec-server mcp-stdio`. In all cases the MCP server ends too, and the
//! stdout of the bridge has only bytes of the MCP server.

use testkit::{Signal, TestServer, eventually, is_alive, run_to_end, send_signal};

use crate::support::{Bridge, BridgeEnd};

/// Reads a line with the pid that the MCP server prints.
async fn read_pid(bridge: &mut Bridge) -> u32 {
    bridge.read_line().await.trim().parse().unwrap()
}

async fn wait_until_gone(pid: u32) {
    eventually("the process is gone", || (!is_alive(pid)).then_some(())).await;
}

#[tokio::test]
async fn bytes_pass_unchanged_and_the_exit_code_is_passed_on() {
    let server = TestServer::start().await;
    let script = r#"$| = 1; print scalar <STDIN> for 1..2; print STDERR "complaint\n"; exit 42"#;
    let mut bridge = Bridge::start(server.url(), &["perl", "-e", script]);
    bridge.send("{\"a\":\t1}\r\n").await;
    assert_eq!(bridge.read_line().await, "{\"a\":\t1}\r\n");
    bridge.send("grün\u{0}\n").await;
    assert_eq!(bridge.read_line().await, "grün\u{0}\n");
    let expected = BridgeEnd { code: Some(42), stdout: String::new(), stderr: "complaint\n".into() };
    assert_eq!(bridge.wait_for_end().await, expected);
}

#[tokio::test]
async fn the_last_output_of_the_mcp_server_is_printed_even_if_a_descendant_holds_its_streams() {
    let server = TestServer::start().await;
    let mut bridge = Bridge::start(server.url(), &["sh", "-c", "sleep 1000 & echo $!; echo last; exit 3"]);
    let left_behind = read_pid(&mut bridge).await;
    let end = bridge.wait_for_end().await;
    assert_eq!((end.code, end.stdout.as_str()), (Some(3), "last\n"));
    wait_until_gone(left_behind).await;
}

#[tokio::test]
async fn the_end_of_stdin_of_the_bridge_closes_stdin_of_the_mcp_server() {
    let server = TestServer::start().await;
    let mut bridge = Bridge::start(server.url(), &["sh", "-c", "cat; echo bye; exit 7"]);
    bridge.send("one\ntwo without an end").await;
    bridge.close_stdin();
    let expected = BridgeEnd { code: Some(7), stdout: "one\ntwo without an endbye\n".into(), stderr: String::new() };
    assert_eq!(bridge.wait_for_end().await, expected);
}

#[tokio::test]
async fn an_mcp_server_that_ignores_the_end_of_its_stdin_is_killed() {
    let server = TestServer::start().await;
    let mut bridge = Bridge::start(server.url(), &["sh", "-c", "echo $$; exec sleep 1000"]);
    let pid = read_pid(&mut bridge).await;
    bridge.close_stdin();
    assert_eq!(bridge.wait_for_end().await.code, Some(137));
    wait_until_gone(pid).await;
}

#[tokio::test]
async fn signals_to_the_bridge_end_the_mcp_server() {
    let server = TestServer::start().await;
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let mut bridge = Bridge::start(server.url(), &["sh", "-c", "echo $$; exec sleep 1000"]);
        let pid = read_pid(&mut bridge).await;
        send_signal(bridge.child.id().unwrap(), signal);
        let end = bridge.wait_for_end().await;
        assert_eq!(end, BridgeEnd { code: Some(code), stdout: String::new(), stderr: String::new() });
        assert!(!is_alive(pid), "the MCP server must end before the bridge");
    }
}

#[tokio::test]
async fn without_configuration_the_mcp_server_runs_on_this_machine() {
    let empty_home = tempfile::tempdir().unwrap();
    let mut bridge = tokio::process::Command::new(testkit::binary());
    bridge.args(["mcp-stdio", "--cwd", "/", "--env", "GREETING=hello", "--", "sh", "-c", "pwd; echo $GREETING; cat"]);
    bridge.env("HOME", empty_home.path()).env("CODEX_HOME", empty_home.path()).env_remove("CODEX_EXEC_SERVER_URL");
    let output = bridge.stdin(std::process::Stdio::null()).output().await.unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b"/\nhello\n"[..]));
}

#[tokio::test]
async fn a_missing_command_and_an_unreachable_exec_server_are_different_errors() {
    let server = TestServer::start().await;
    let end = Bridge::start(server.url(), &["no-such-mcp-server"]).wait_for_end().await;
    let expected = "exec-server: no-such-mcp-server: command not found\n".to_owned();
    assert_eq!(end, BridgeEnd { code: Some(127), stdout: String::new(), stderr: expected });
    let output = run_to_end(&["mcp-stdio", "--connect", "ws://127.0.0.1:1", "--", "true"]).await;
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(125), &b""[..]));
}

#[tokio::test]
async fn an_exec_server_that_does_not_know_the_session_any_more_is_an_error() {
    let server = TestServer::start().await;
    let address = format!("ws://{}", server.address());
    let mut bridge = Bridge::start(server.url(), &["sh", "-c", "echo $$; exec sleep 1000"]);
    let pid = read_pid(&mut bridge).await;
    server.kill().await;
    wait_until_gone(pid).await;
    // Another server listens on the same address and does not know the session.
    let _other = TestServer::with_args(&["--listen", &address]).await;
    let end = bridge.wait_for_end().await;
    assert_eq!((end.code, end.stdout.as_str()), (Some(125), ""));
    assert!(end.stderr.contains("the MCP server is lost: "), "{}", end.stderr);
}
