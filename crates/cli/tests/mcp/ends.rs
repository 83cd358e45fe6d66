//! However the bridge ends, what it started has ended too, and nothing but the server's own bytes was on stdout.

use testkit::{Signal, TestServer, eventually, is_alive, run_to_end, send_signal};

use crate::support::{Bridge, Ending};

async fn pid_of(bridge: &mut Bridge) -> u32 {
    bridge.line().await.trim().parse().unwrap()
}

async fn is_gone(pid: u32) {
    eventually("nothing is left", || (!is_alive(pid)).then_some(())).await;
}

#[tokio::test]
async fn bytes_pass_unchanged_and_its_exit_is_ours() {
    let server = TestServer::start().await;
    let script = r#"$| = 1; print scalar <STDIN> for 1..2; print STDERR "complaint\n"; exit 42"#;
    let mut bridge = Bridge::start(server.url(), &["perl", "-e", script]);
    bridge.send("{\"a\":\t1}\r\n").await;
    assert_eq!(bridge.line().await, "{\"a\":\t1}\r\n");
    bridge.send("grün\u{0}\n").await;
    assert_eq!(bridge.line().await, "grün\u{0}\n");
    let expected = Ending { code: Some(42), stdout: String::new(), stderr: "complaint\n".into() };
    assert_eq!(bridge.ending().await, expected);
}

#[tokio::test]
async fn its_last_words_come_out_even_if_a_descendant_holds_its_streams() {
    let server = TestServer::start().await;
    let mut bridge = Bridge::start(server.url(), &["sh", "-c", "sleep 1000 & echo $!; echo last; exit 3"]);
    let left_behind = pid_of(&mut bridge).await;
    let ending = bridge.ending().await;
    assert_eq!((ending.code, ending.stdout.as_str()), (Some(3), "last\n"));
    is_gone(left_behind).await;
}

#[tokio::test]
async fn the_end_of_our_stdin_is_the_end_of_its_stdin() {
    let server = TestServer::start().await;
    let mut bridge = Bridge::start(server.url(), &["sh", "-c", "cat; echo bye; exit 7"]);
    bridge.send("one\ntwo without an end").await;
    bridge.close();
    let expected = Ending { code: Some(7), stdout: "one\ntwo without an endbye\n".into(), stderr: String::new() };
    assert_eq!(bridge.ending().await, expected);
}

#[tokio::test]
async fn one_that_does_not_care_about_the_end_of_its_stdin_is_ended() {
    let server = TestServer::start().await;
    let mut bridge = Bridge::start(server.url(), &["sh", "-c", "echo $$; exec sleep 1000"]);
    let pid = pid_of(&mut bridge).await;
    bridge.close();
    assert_eq!(bridge.ending().await.code, Some(137));
    is_gone(pid).await;
}

#[tokio::test]
async fn signals_to_us_end_it() {
    let server = TestServer::start().await;
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let mut bridge = Bridge::start(server.url(), &["sh", "-c", "echo $$; exec sleep 1000"]);
        let pid = pid_of(&mut bridge).await;
        send_signal(bridge.child.id().unwrap(), signal);
        let ending = bridge.ending().await;
        assert_eq!(ending, Ending { code: Some(code), stdout: String::new(), stderr: String::new() });
        assert!(!is_alive(pid), "it has ended before we have");
    }
}

#[tokio::test]
async fn it_runs_on_this_machine_where_nothing_is_configured() {
    let nothing = tempfile::tempdir().unwrap();
    let mut bridge = tokio::process::Command::new(testkit::binary());
    bridge.args(["mcp-stdio", "--cwd", "/", "--env", "SAID=hello", "--", "sh", "-c", "pwd; echo $SAID; cat"]);
    bridge.env("HOME", nothing.path()).env("CODEX_HOME", nothing.path()).env_remove("CODEX_EXEC_SERVER_URL");
    let said = bridge.stdin(std::process::Stdio::null()).output().await.unwrap();
    assert_eq!((said.status.code(), said.stdout.as_slice()), (Some(0), &b"/\nhello\n"[..]));
}

#[tokio::test]
async fn a_command_or_a_server_that_is_not_there_is_told_apart() {
    let server = TestServer::start().await;
    let ending = Bridge::start(server.url(), &["no-such-mcp-server"]).ending().await;
    let expected = "exec-server: no-such-mcp-server: command not found\n".to_owned();
    assert_eq!(ending, Ending { code: Some(127), stdout: String::new(), stderr: expected });
    let said = run_to_end(&["mcp-stdio", "--connect", "ws://127.0.0.1:1", "--", "true"]).await;
    assert_eq!((said.status.code(), said.stdout.as_slice()), (Some(125), &b""[..]));
}

#[tokio::test]
async fn a_server_that_is_gone_for_good_is_an_error_of_ours() {
    let server = TestServer::start().await;
    let address = format!("ws://{}", server.address());
    let mut bridge = Bridge::start(server.url(), &["sh", "-c", "echo $$; exec sleep 1000"]);
    let pid = pid_of(&mut bridge).await;
    server.kill().await;
    is_gone(pid).await;
    // Another one takes its place and knows nothing of the session.
    let _other = TestServer::with_args(&["--listen", &address]).await;
    let ending = bridge.ending().await;
    assert_eq!((ending.code, ending.stdout.as_str()), (Some(125), ""));
    assert!(ending.stderr.contains("the MCP server is lost: "), "{}", ending.stderr);
}
