//! Without a configured server, commands for kept sessions (those that outlive their connections) use a server in the
//! background. `run` starts that server if it does not run. The server ends by itself after its last session.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;

use client::ProcessSummary;
use testkit::{TestServer, eventually, eventually_async, is_alive};

use tokio::process::Command;

use crate::support::{CommandOutput, command, make_session, run};

/// Waits until no server listens on the socket of the background server. The socket file may be left.
async fn wait_until_connect_fails(state: &Path) {
    let socket = state.join("exec-server/server.sock");
    eventually("the server is gone", || UnixStream::connect(&socket).is_err().then_some(())).await;
}

#[tokio::test]
async fn without_a_configuration_ps_uses_the_server_in_the_background_but_starts_none() {
    let state = tempfile::tempdir().unwrap();
    std::fs::create_dir(state.path().join("exec-server")).unwrap();
    let url = format!("unix://{}", state.path().join("exec-server/server.sock").display());
    let server = TestServer::with_args(&["--listen", &url]).await;
    make_session(server.url(), state.path()).await;
    let output = run(command(state.path()).args(["ps", "--json"])).await;
    assert_eq!(output, CommandOutput { code: 0, stdout: "[]\n".into(), stderr: String::new() });
    drop(server);
    wait_until_connect_fails(state.path()).await;
    let output = run(command(state.path()).args(["ps"])).await;
    assert!(
        output.code == 1 && output.stderr.contains("there is no session `default` on this machine"),
        "{output:?}"
    );
}

#[tokio::test]
async fn the_server_starts_for_the_first_session_and_ends_after_the_last() {
    let state = tempfile::tempdir().unwrap();
    let local_command = |args: &[&str]| local_command(state.path(), args);
    let script = "echo $PPID; exec sleep 1000";
    let output = run(&mut local_command(&["run", "-d", "--id", "p", "--", "sh", "-c", script])).await;
    assert_eq!(output, CommandOutput { code: 0, stdout: "p\n".into(), stderr: String::new() });
    let server: u32 = eventually_async("the process prints the pid of the server", async || {
        run(&mut local_command(&["logs", "p"])).await.stdout.trim().parse().ok()
    })
    .await;
    let output = run(&mut local_command(&["ps", "--json"])).await;
    let processes: Vec<ProcessSummary> = serde_json::from_str(&output.stdout).unwrap();
    let process = processes[0].pid.unwrap();
    assert!(is_alive(server) && is_alive(process));
    // With `--keep 1ms`, the session and its processes end when this command has disconnected.
    let output = run(&mut local_command(&["run", "-d", "--id", "q", "--keep", "1ms", "--", "true"])).await;
    assert_eq!((output.code, output.stdout.as_str()), (0, "q\n"), "{}", output.stderr);
    for pid in [process, server] {
        eventually("no process is left", || (!is_alive(pid)).then_some(())).await;
    }
    wait_until_connect_fails(state.path()).await;
    assert!(!state.path().join("exec-server/server.sock").exists(), "the socket of the server is left");
}

/// A command without a configured server. The server that it starts in the background ends 100 ms after its last
/// session.
fn local_command(state: &Path, args: &[&str]) -> Command {
    let mut command = command(state);
    command.env("EXEC_SERVER_BACKGROUND_IDLE", "100ms").args(args);
    command
}

/// A shell that runs `script`. In the script, `"$0" "$@"` executes the command of [`local_command`].
fn local_command_in_script(script: &str, state: &Path, args: &[&str]) -> Command {
    let template = local_command(state, args);
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

/// Ends the session, its processes and the server.
async fn end_session(state: &Path) {
    let output = run(&mut local_command(state, &["run", "-d", "--keep", "1ms", "--", "true"])).await;
    assert_eq!(output.code, 0, "{}", output.stderr);
    wait_until_socket_is_removed(state).await;
}

/// Waits until the server has ended and removed its socket file. The wait makes no connection, because a connection
/// would prevent the end of an idle server.
async fn wait_until_socket_is_removed(state: &Path) {
    let socket = state.join("exec-server/server.sock");
    eventually("the server has ended", || (!socket.exists()).then_some(())).await;
}

#[tokio::test]
async fn the_server_keeps_no_descriptor_of_the_caller_open() {
    let state = tempfile::tempdir().unwrap();
    let script = "exec \"$0\" \"$@\" 8>&1 9>&1";
    // `run` reads stdout until no process has the pipe open, so it would hang if the server had inherited one of the
    // descriptors.
    let output = run(&mut local_command_in_script(script, state.path(), &["run", "-d", "--", "sleep", "1000"])).await;
    assert_eq!(output, CommandOutput { code: 0, stdout: "1\n".into(), stderr: String::new() });
    end_session(state.path()).await;
}

#[tokio::test]
async fn a_command_has_the_umask_of_its_caller() {
    let state = tempfile::tempdir().unwrap();
    let run_with_umask = async |mask: &str, args: &[&str]| {
        let script = format!("umask {mask}; exec \"$0\" \"$@\"");
        run(&mut local_command_in_script(&script, state.path(), args)).await
    };
    assert_eq!(run_with_umask("022", &["run", "-d", "--", "sleep", "1000"]).await.code, 0);
    for mask in ["0077", "0002"] {
        let output = run_with_umask(mask, &["run", "-s", "default", "--", "sh", "-c", "umask"]).await;
        assert_eq!(output, CommandOutput { code: 0, stdout: format!("{mask}\n"), stderr: String::new() });
    }
    end_session(state.path()).await;
}

#[tokio::test]
async fn a_session_that_cannot_be_recorded_is_ended() {
    let state = tempfile::tempdir().unwrap();
    // A file is at the path of the directory for the records of sessions.
    std::fs::create_dir(state.path().join("exec-server")).unwrap();
    std::fs::write(state.path().join("exec-server/sessions"), "").unwrap();
    let output = run(&mut local_command(state.path(), &["run", "-d", "--", "sleep", "1000"])).await;
    assert!(output.code == 125 && output.stderr.starts_with("exec-server: cannot "), "{output:?}");
    wait_until_socket_is_removed(state.path()).await;
}
