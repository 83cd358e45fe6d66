//! However the bridge ends, the MCP server has ended too, and only bytes of the MCP server were on stdout.

use testkit::{Signal, TestServer, eventually, is_alive, run_to_end, send_signal};

use crate::support::{Bridge, BridgeEnd};

async fn pid_of(bridge: &mut Bridge) -> u32 {
    bridge.line().await.trim().parse().unwrap()
}

async fn is_gone(pid: u32) {
    eventually("no process is left", || (!is_alive(pid)).then_some(())).await;
}

#[tokio::test]
async fn bytes_pass_unchanged_and_the_exit_code_is_passed_on() {
    let server = TestServer::start().await;
    let script = r#"$| = 1; print scalar <STDIN> for 1..2; print STDERR "complaint\n"; exit 42"#;
    let mut bridge = Bridge::start(server.url(), &["perl", "-e", script]);
    bridge.send("{\"a\":\t1}\r\n").await;
    assert_eq!(bridge.line().await, "{\"a\":\t1}\r\n");
    bridge.send("grün\u{0}\n").await;
    assert_eq!(bridge.line().await, "grün\u{0}\n");
    let expected = BridgeEnd { code: Some(42), stdout: String::new(), stderr: "complaint\n".into() };
    assert_eq!(bridge.ending().await, expected);
}

#[tokio::test]
async fn the_last_output_of_the_server_is_printed_even_if_a_descendant_holds_its_streams() {
    let server = TestServer::start().await;
    let mut bridge = Bridge::start(server.url(), &["sh", "-c", "sleep 1000 & echo $!; echo last; exit 3"]);
    let left_behind = pid_of(&mut bridge).await;
    let ending = bridge.ending().await;
    assert_eq!((ending.code, ending.stdout.as_str()), (Some(3), "last\n"));
    is_gone(left_behind).await;
}

#[tokio::test]
async fn the_end_of_our_stdin_closes_the_stdin_of_the_server() {
    let server = TestServer::start().await;
    let mut bridge = Bridge::start(server.url(), &["sh", "-c", "cat; echo bye; exit 7"]);
    bridge.send("one\ntwo without an end").await;
    bridge.close();
    let expected = BridgeEnd { code: Some(7), stdout: "one\ntwo without an endbye\n".into(), stderr: String::new() };
    assert_eq!(bridge.ending().await, expected);
}

#[tokio::test]
async fn a_server_that_ignores_the_end_of_its_stdin_is_ended() {
    let server = TestServer::start().await;
    let mut bridge = Bridge::start(server.url(), &["sh", "-c", "echo $$; exec sleep 1000"]);
    let pid = pid_of(&mut bridge).await;
    bridge.close();
    assert_eq!(bridge.ending().await.code, Some(137));
    is_gone(pid).await;
}

#[tokio::test]
async fn signals_to_the_bridge_end_the_server() {
    let server = TestServer::start().await;
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let mut bridge = Bridge::start(server.url(), &["sh", "-c", "echo $$; exec sleep 1000"]);
        let pid = pid_of(&mut bridge).await;
        send_signal(bridge.child.id().unwrap(), signal);
        let ending = bridge.ending().await;
        assert_eq!(ending, BridgeEnd { code: Some(code), stdout: String::new(), stderr: String::new() });
        assert!(!is_alive(pid), "the server ends before the bridge");
    }
}

#[tokio::test]
async fn without_configuration_the_server_runs_on_this_machine() {
    let nothing = tempfile::tempdir().unwrap();
    let mut bridge = tokio::process::Command::new(testkit::binary());
    bridge.args(["mcp-stdio", "--cwd", "/", "--env", "SAID=hello", "--", "sh", "-c", "pwd; echo $SAID; cat"]);
    bridge.env("HOME", nothing.path()).env("CODEX_HOME", nothing.path()).env_remove("CODEX_EXEC_SERVER_URL");
    let said = bridge.stdin(std::process::Stdio::null()).output().await.unwrap();
    assert_eq!((said.status.code(), said.stdout.as_slice()), (Some(0), &b"/\nhello\n"[..]));
}

#[tokio::test]
async fn a_missing_command_and_a_missing_server_are_different_errors() {
    let server = TestServer::start().await;
    let ending = Bridge::start(server.url(), &["no-such-mcp-server"]).ending().await;
    let expected = "exec-server: no-such-mcp-server: command not found\n".to_owned();
    assert_eq!(ending, BridgeEnd { code: Some(127), stdout: String::new(), stderr: expected });
    let said = run_to_end(&["mcp-stdio", "--connect", "ws://127.0.0.1:1", "--", "true"]).await;
    assert_eq!((said.status.code(), said.stdout.as_slice()), (Some(125), &b""[..]));
}

#[tokio::test]
async fn a_server_that_never_comes_back_is_an_error() {
    let server = TestServer::start().await;
    let address = format!("ws://{}", server.address());
    let mut bridge = Bridge::start(server.url(), &["sh", "-c", "echo $$; exec sleep 1000"]);
    let pid = pid_of(&mut bridge).await;
    server.kill().await;
    is_gone(pid).await;
    // Another server takes its address and does not know the session.
    let _other = TestServer::with_args(&["--listen", &address]).await;
    let ending = bridge.ending().await;
    assert_eq!((ending.code, ending.stdout.as_str()), (Some(125), ""));
    assert!(ending.stderr.contains("the MCP server is lost: "), "{}", ending.stderr);
}
