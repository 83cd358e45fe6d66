//! The command `ps`, which lists the processes of a kept session (one that outlives its connections).

use client::ProcessState;
use testkit::{TestServer, eventually_async};

use crate::support::{CommandOutput, KeptSession, command, run, sh};

#[tokio::test]
async fn processes_are_listed_as_a_table() {
    let kept = KeptSession::start().await;
    let output = kept.run(&["ps"]).await;
    let no_processes = "exec-server: there are no processes in the session `default`\n";
    assert_eq!(output, CommandOutput { code: 0, stdout: String::new(), stderr: no_processes.into() });

    kept.start_process(sh("long", "exec sleep 1000")).await;
    kept.start_process(sh("short", "echo 12345; exit 3")).await;
    let table = eventually_async("the second process has closed", async || {
        let output = kept.run(&["ps"]).await;
        assert_eq!((output.code, output.stderr.as_str()), (0, ""));
        output.stdout.contains("exited 3 ").then_some(output.stdout)
    })
    .await;
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["ID", "STATE", "PID", "STARTED", "OUTPUT", "COMMAND"]);
    assert_eq!((rows[1][0], rows[1][1], rows[1][4], rows[1][5]), ("long", "running", "ago", "0B"));
    assert!(rows[1][3].ends_with('s') && table.contains("sh -c 'exec sleep 1000'\n"), "{table}");
    assert_eq!((&rows[2][..3], rows[2][6]), (&["short", "exited", "3"][..], "6B"));
}

#[tokio::test]
async fn processes_are_listed_as_json() {
    let kept = KeptSession::start().await;
    assert_eq!(kept.run(&["ps", "--json"]).await.stdout, "[]\n");
    kept.start_process(sh("p", "exec sleep 1000")).await;
    let process = kept.only_process().await;
    assert_eq!((process.process_id.as_str(), process.state), ("p", ProcessState::Running));
    assert_eq!(process.argv, ["sh", "-c", "exec sleep 1000"]);
    assert!(testkit::is_alive(process.pid.unwrap()));
}

#[tokio::test]
async fn json_has_no_character_that_acts_on_a_terminal() {
    let kept = KeptSession::start().await;
    kept.start_process(sh("p", "exec sleep 1000 # \u{9b}31m\u{7f}\u{202e}")).await;
    let printed = kept.run(&["ps", "--json"]).await.stdout;
    assert!(printed.contains(r"# \u009b31m\u007f\u202e"), "{printed:?}");
    assert_eq!(kept.only_process().await.argv[2], "exec sleep 1000 # \u{9b}31m\u{7f}\u{202e}");
}

#[tokio::test]
async fn a_missing_session_and_an_invalid_name_are_errors_and_start_no_server() {
    let state = tempfile::tempdir().unwrap();
    let server = TestServer::start().await;
    let output = run(command(state.path()).args(["ps", "--connect", server.url(), "-s", "mine"])).await;
    let expected = format!(
        "exec-server: there is no session `mine` at {}; start one with `exec-server run --session mine`\n",
        server.url()
    );
    assert_eq!(output, CommandOutput { code: 1, stdout: String::new(), stderr: expected });
    let missing = "no session `default` on this machine";
    let invalid = "`a/b` is no name for a session";
    let cases = [(&["kill", "p"][..], missing), (&["logs", "p"], missing), (&["ps", "-s", "a/b"], invalid)];
    for (args, expected) in cases {
        let output = run(command(state.path()).args(args)).await;
        assert_eq!((output.code, output.stdout.as_str()), (1, ""), "{args:?} {}", output.stderr);
        assert!(output.stderr.contains(expected), "{args:?} {}", output.stderr);
    }
    assert!(!state.path().join("exec-server").exists(), "these commands start no server");
}

#[tokio::test]
async fn an_expired_session_is_reported_and_stays_recorded() {
    let kept = KeptSession::with_args(&["--max-session-ttl", "1ms"]).await;
    let stderr = eventually_async("the session has expired", async || {
        let output = kept.run(&["ps"]).await;
        (output.code == 1).then_some(output.stderr)
    })
    .await;
    assert!(stderr.contains("does not have the session `default`, or not any more: unknown session id"), "{stderr}");
    // The record is kept, because the server that has the session may listen at this address again.
    assert!(kept.record("default").exists());
}
