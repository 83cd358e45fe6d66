//! Where nothing is configured, kept sessions live in a server in the background, which ends by itself.

use std::os::unix::net::UnixStream;
use std::path::Path;

use client::ProcessSummary;
use testkit::{TestServer, eventually, eventually_async, is_alive};

use crate::support::{Said, command, make_session, run};

async fn is_gone(state: &Path) {
    let socket = state.join("exec-server/server.sock");
    eventually("the server is gone", || UnixStream::connect(&socket).is_err().then_some(())).await;
}

#[tokio::test]
async fn without_a_configuration_the_server_in_the_background_is_meant() {
    let state = tempfile::tempdir().unwrap();
    std::fs::create_dir(state.path().join("exec-server")).unwrap();
    let url = format!("unix://{}", state.path().join("exec-server/server.sock").display());
    let server = TestServer::with_args(&["--listen", &url]).await;
    make_session(server.url(), state.path()).await;
    let said = run(command(state.path()).args(["ps", "--json"])).await;
    assert_eq!(said, Said { code: 0, stdout: "[]\n".into(), stderr: String::new() });
    drop(server);
    is_gone(state.path()).await;
    let said = run(command(state.path()).args(["ps"])).await;
    assert!(said.code == 1 && said.stderr.contains("there is no session `default` on this machine"), "{said:?}");
}

#[tokio::test]
async fn it_is_started_for_the_first_session_and_ends_after_the_last() {
    let state = tempfile::tempdir().unwrap();
    let here = |args: &[&str]| {
        let mut command = command(state.path());
        command.env("EXEC_SERVER_BACKGROUND_IDLE", "100ms").args(args);
        command
    };
    let script = "echo $PPID; exec sleep 1000";
    let said = run(&mut here(&["run", "-d", "--id", "p", "--", "sh", "-c", script])).await;
    assert_eq!(said, Said { code: 0, stdout: "p\n".into(), stderr: String::new() });
    let server: u32 = eventually_async("the process says who has started it", async || {
        run(&mut here(&["logs", "p"])).await.stdout.trim().parse().ok()
    })
    .await;
    let said = run(&mut here(&["ps", "--json"])).await;
    let processes: Vec<ProcessSummary> = serde_json::from_str(&said.stdout).unwrap();
    let process = processes[0].pid.unwrap();
    assert!(is_alive(server) && is_alive(process));
    // Nobody is connected any more, so the session is over, and with it what it held.
    let said = run(&mut here(&["run", "-d", "--id", "q", "--keep", "1ms", "--", "true"])).await;
    assert_eq!((said.code, said.stdout.as_str()), (0, "q\n"), "{}", said.stderr);
    for pid in [process, server] {
        eventually("nothing is left", || (!is_alive(pid)).then_some(())).await;
    }
    is_gone(state.path()).await;
    assert!(!state.path().join("exec-server/server.sock").exists(), "its socket is gone too");
}
