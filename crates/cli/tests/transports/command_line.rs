//! Flags that make the server print something and end, unknown flags, and flags that the server accepts for
//! compatibility.

use testkit::{TestServer, run_to_end};

#[tokio::test]
async fn help_and_version_go_to_stdout() {
    for (flag, expected) in [
        ("--help", "Usage: exec-server"),
        ("-h", "--listen"),
        ("--version", "exec-server 0."),
        ("--help-limits", "--max-message-bytes"),
    ] {
        let output = run_to_end(&[flag]).await;
        assert_eq!(output.status.code(), Some(0), "{flag}");
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert!(stdout.contains(expected), "{flag}: {stdout}");
        assert!(output.stderr.is_empty(), "{flag}");
    }
}

#[tokio::test]
async fn an_unknown_flag_is_refused() {
    let output = run_to_end(&["--liste", "stdio"]).await;
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("'--listen'"), "the right flag is suggested");
}

#[tokio::test]
async fn the_flag_concurrent_requests_is_accepted_and_its_value_0_is_refused() {
    let output = run_to_end(&["--concurrent-requests", "0"]).await;
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("--concurrent-requests"), "{stderr}");
    let server = TestServer::with_args(&["--concurrent-requests", "32"]).await;
    assert_eq!(server.client().await.run("p", &["true"]).await.exit_code, 0);
}
