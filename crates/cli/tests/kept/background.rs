//! Without a configured server, kept sessions live in a server in the background, which ends by itself.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;

use client::ProcessSummary;
use testkit::{TestServer, eventually, eventually_async, is_alive};

use tokio::process::Command;

use crate::support::{CommandOutput, command, make_session, run};

async fn is_gone(state: &Path) {
    let socket = state.join("exec-server/server.sock");
    eventually("the server is gone", || UnixStream::connect(&socket).is_err().then_some(())).await;
}

#[tokio::test]
async fn without_a_configuration_the_server_in_the_background_is_used() {
    let state = tempfile::tempdir().unwrap();
    std::fs::create_dir(state.path().join("exec-server")).unwrap();
    let url = format!("unix://{}", state.path().join("exec-server/server.sock").display());
    let server = TestServer::with_args(&["--listen", &url]).await;
    make_session(server.url(), state.path()).await;
    let said = run(command(state.path()).args(["ps", "--json"])).await;
    assert_eq!(said, CommandOutput { code: 0, stdout: "[]\n".into(), stderr: String::new() });
    drop(server);
    is_gone(state.path()).await;
    let said = run(command(state.path()).args(["ps"])).await;
    assert!(said.code == 1 && said.stderr.contains("there is no session `default` on this machine"), "{said:?}");
}

#[tokio::test]
async fn the_server_starts_for_the_first_session_and_ends_after_the_last() {
    let state = tempfile::tempdir().unwrap();
    let here = |args: &[&str]| {
        let mut command = command(state.path());
        command.env("EXEC_SERVER_BACKGROUND_IDLE", "100ms").args(args);
        command
    };
    let script = "echo $PPID; exec sleep 1000";
    let said = run(&mut here(&["run", "-d", "--id", "p", "--", "sh", "-c", script])).await;
    assert_eq!(said, CommandOutput { code: 0, stdout: "p\n".into(), stderr: String::new() });
    let server: u32 = eventually_async("the process prints the pid of the server", async || {
        run(&mut here(&["logs", "p"])).await.stdout.trim().parse().ok()
    })
    .await;
    let said = run(&mut here(&["ps", "--json"])).await;
    let processes: Vec<ProcessSummary> = serde_json::from_str(&said.stdout).unwrap();
    let process = processes[0].pid.unwrap();
    assert!(is_alive(server) && is_alive(process));
    // No client is connected any more, so the session ends, and its processes with it.
    let said = run(&mut here(&["run", "-d", "--id", "q", "--keep", "1ms", "--", "true"])).await;
    assert_eq!((said.code, said.stdout.as_str()), (0, "q\n"), "{}", said.stderr);
    for pid in [process, server] {
        eventually("no process is left", || (!is_alive(pid)).then_some(())).await;
    }
    is_gone(state.path()).await;
    assert!(!state.path().join("exec-server/server.sock").exists(), "its socket is gone too");
}

/// A command without a configured server, whose background server ends soon after its last session.
fn here(state: &Path, args: &[&str]) -> Command {
    let mut command = command(state);
    command.env("EXEC_SERVER_BACKGROUND_IDLE", "100ms").args(args);
    command
}

/// The same, run by a shell after some other commands: `$0` and `$@` are the command.
fn by_shell(script: &str, state: &Path, args: &[&str]) -> Command {
    let template = here(state, args);
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).arg(template.as_std().get_program()).args(template.as_std().get_args());
    for (name, value) in template.as_std().get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.stdin(Stdio::null()).kill_on_drop(true);
    shell
}

/// Ends the session, and with it its processes and the server.
async fn end(state: &Path) {
    let said = run(&mut here(state, &["run", "-d", "--keep", "1ms", "--", "true"])).await;
    assert_eq!(said.code, 0, "{}", said.stderr);
    has_removed_its_socket(state).await;
}

/// Waits for the end of the server by its socket file. A connection attempt would keep the server busy.
async fn has_removed_its_socket(state: &Path) {
    let socket = state.join("exec-server/server.sock");
    eventually("the server has ended", || (!socket.exists()).then_some(())).await;
}

#[tokio::test]
async fn the_server_keeps_no_descriptor_of_the_caller_open() {
    let state = tempfile::tempdir().unwrap();
    let script = "exec \"$0\" \"$@\" 8>&1 9>&1";
    // `cat` ends only when no process has the pipe open.
    let said = run(&mut by_shell(script, state.path(), &["run", "-d", "--", "sleep", "1000"])).await;
    assert_eq!(said, CommandOutput { code: 0, stdout: "1\n".into(), stderr: String::new() });
    end(state.path()).await;
}

#[tokio::test]
async fn a_command_has_the_umask_of_its_caller() {
    let state = tempfile::tempdir().unwrap();
    let said = async |mask: &str, args: &[&str]| {
        let script = format!("umask {mask}; exec \"$0\" \"$@\"");
        run(&mut by_shell(&script, state.path(), args)).await
    };
    assert_eq!(said("022", &["run", "-d", "--", "sleep", "1000"]).await.code, 0);
    for mask in ["0077", "0002"] {
        let said = said(mask, &["run", "-s", "default", "--", "sh", "-c", "umask"]).await;
        assert_eq!(said, CommandOutput { code: 0, stdout: format!("{mask}\n"), stderr: String::new() });
    }
    end(state.path()).await;
}

#[tokio::test]
async fn a_session_that_cannot_be_recorded_is_ended() {
    let state = tempfile::tempdir().unwrap();
    // There is a file where the directory for the names of sessions would be.
    std::fs::create_dir(state.path().join("exec-server")).unwrap();
    std::fs::write(state.path().join("exec-server/sessions"), "").unwrap();
    let said = run(&mut here(state.path(), &["run", "-d", "--", "sleep", "1000"])).await;
    assert!(said.code == 125 && said.stderr.starts_with("exec-server: cannot "), "{said:?}");
    has_removed_its_socket(state.path()).await;
}
